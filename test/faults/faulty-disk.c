/*
 * A disk that fails at a chosen step, loaded before the program by LD_PRELOAD. Counts the calls that change something
 * below FAULT_DIRECTORY (the lock left out); at number FAULT_STEP it kills the process (FAULT_KIND=kill), fails with EIO
 * (eio) or writes half (short, then ENOSPC). Changes nothing else.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int count;

static int concerns(const char *path) {
	const char *directory = getenv("FAULT_DIRECTORY");
	return directory && path && strncmp(path, directory, strlen(directory)) == 0 && !strstr(path, "lock.db") &&
	       !strstr(path, "events.db");
}

static int concerns_fd(int fd) {
	char link[64], path[PATH_MAX];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, sizeof path - 1);
	if (length < 0) return 0;
	path[length] = 0;
	return concerns(path);
}

/* Whether this step fails; does not return when it is the last thing the process does. */
static int strikes(void) {
	const char *step = getenv("FAULT_STEP"), *kind = getenv("FAULT_KIND");
	if (!step || !kind || atomic_fetch_add(&count, 1) + 1 != atoi(step)) return 0;
	if (strcmp(kind, "kill") == 0) {
		kill(getpid(), SIGKILL);
		for (;;) pause();
	}
	errno = strcmp(kind, "short") == 0 ? ENOSPC : EIO;
	return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CHANGES(flags) ((flags) & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC))

#define OPEN(name)                                                                                                     \
	int name(const char *path, int flags, ...) {                                                                       \
		va_list rest;                                                                                                  \
		va_start(rest, flags);                                                                                         \
		mode_t mode = va_arg(rest, mode_t);                                                                            \
		va_end(rest);                                                                                                  \
		if (CHANGES(flags) && concerns(path) && strikes()) return -1;                                                  \
		return NEXT(name)(path, flags, mode);                                                                          \
	}
OPEN(open)
OPEN(open64)

static int halves(size_t *size) {
	const char *kind = getenv("FAULT_KIND");
	if (!kind || strcmp(kind, "short") != 0 || *size < 2) return 0;
	*size /= 2;
	return 1;
}

ssize_t write(int fd, const void *bytes, size_t size) {
	if (concerns_fd(fd) && strikes() && !halves(&size)) return -1;
	return NEXT(write)(fd, bytes, size);
}
#define PWRITE(name, offset_type)                                                                                      \
	ssize_t name(int fd, const void *bytes, size_t size, offset_type offset) {                                         \
		if (concerns_fd(fd) && strikes() && !halves(&size)) return -1;                                                 \
		return NEXT(name)(fd, bytes, size, offset);                                                                    \
	}
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
ssize_t writev(int fd, const struct iovec *parts, int length) {
	if (concerns_fd(fd) && strikes()) return -1;
	return NEXT(writev)(fd, parts, length);
}
int fsync(int fd) { return concerns_fd(fd) && strikes() ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return concerns_fd(fd) && strikes() ? -1 : NEXT(fdatasync)(fd); }
int fchmod(int fd, mode_t mode) { return concerns_fd(fd) && strikes() ? -1 : NEXT(fchmod)(fd, mode); }
int unlink(const char *path) { return concerns(path) && strikes() ? -1 : NEXT(unlink)(path); }
int rename(const char *from, const char *to) { return concerns(to) && strikes() ? -1 : NEXT(rename)(from, to); }
int link(const char *from, const char *to) { return concerns(to) && strikes() ? -1 : NEXT(link)(from, to); }
