#!/usr/bin/python3
"""A file system in memory that knows what was flushed, and loses the rest when its power is cut.

lossy_disk.py MOUNTPOINT SOCKET. On the socket: one JSON request a line, one JSON answer a line.

What of the unflushed survives a cut is drawn by the seed of the cut, by one of four models:
  none    nothing: only what was flushed, and names whose directory was flushed
  strict  any of the names, any of the sectors, of each file: all that POSIX permits
  ext4    names in the order in which they came, up to some moment; a flush of anything flushes names; writes in order
  meta    all names, no content: files of the right length full of zeros, or empty
"""
import copy
import errno
import json
import os
import random
import signal
import socket
import stat
import sys
import threading
import time

from fusepy import FUSE, FuseOSError, Operations

JOURNALLED = ('ext4', 'meta')


class Node:
    """A file or directory: as programs see it, as it would be after a cut, and the writes in between."""
    last_number = 0

    def __init__(self, mode):
        Node.last_number += 1
        self.number = Node.last_number
        self.mode, self.uid, self.gid, self.changed = mode, 0, 0, time.time()
        self.data, self.durable, self.unflushed = bytearray(), b'', []
        self.is_directory = stat.S_ISDIR(mode)
        self.names, self.durable_names = {}, {}


def overwrite(data, write):
    """A write (offset, bytes), or a truncation (None, length)."""
    offset, what = write
    if offset is None:
        if what < len(data):
            del data[what:]
        else:
            data.extend(bytes(what - len(data)))
        return
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset:offset + len(what)] = what


class LossyDisk(Operations):
    def __init__(self):
        self.guard = threading.RLock()
        self.open_files, self.last_handle, self.kept = {}, 0, None
        self.format()

    def format(self):
        self.root = Node(stat.S_IFDIR | 0o755)
        self.unflushed_names = []
        self.power_on()

    def keep(self):
        self.flush_everything()
        self.kept = copy.deepcopy(self.root)

    def go_back(self):
        self.root, self.unflushed_names = copy.deepcopy(self.kept), []
        self.power_on()

    def power_on(self):
        self.is_off, self.steps_left, self.victim, self.report, self.steps = False, None, None, None, 0
        self.model, self.chance = 'strict', random.Random(0)

    # ---- The cut ----

    def step(self, what):
        """Before each change and each flush: the power may go now."""
        if self.is_off:
            raise FuseOSError(errno.EIO)
        self.steps += 1
        if self.steps_left == 0:
            self.cut(what)
            raise FuseOSError(errno.EIO)
        if self.steps_left is not None:
            self.steps_left -= 1

    def cut(self, what):
        if self.victim:
            try:
                os.kill(self.victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.is_off = True
        nodes = self.every_node()
        names = self.surviving_names()
        self.report = {'before': what, 'step': self.steps, 'names': len(self.unflushed_names), 'namesKept': len(names),
                       'files': sum(1 for node in nodes if node.unflushed)}
        for change in names:
            self.make_durable(change)
        self.unflushed_names = []
        for node in nodes:
            if node.is_directory:
                node.names = dict(node.durable_names)
            else:
                node.durable = self.surviving_data(node)
                node.data, node.unflushed = bytearray(node.durable), []

    def every_node(self):
        found, left = {}, [self.root]
        left += [part for change in self.unflushed_names for part in change if isinstance(part, Node)]
        while left:
            node = left.pop()
            if node.number in found:
                continue
            found[node.number] = node
            left += list(node.names.values()) + list(node.durable_names.values())
        return list(found.values())

    def surviving_names(self):
        changes, chance = self.unflushed_names, self.chance
        if self.model == 'none':
            return []
        if self.model == 'meta':
            return changes
        if self.model == 'ext4':
            return changes[:chance.randint(0, len(changes))]
        likely = chance.choice((0.2, 0.5, 0.8))
        return [change for change in changes if chance.random() < likely]

    def surviving_data(self, node):
        data, chance = bytearray(node.durable), self.chance
        if not node.unflushed or self.model == 'none':
            return bytes(data)
        if self.model == 'meta':
            if chance.random() < 0.5 and len(node.data) > len(data):
                data.extend(bytes(len(node.data) - len(data)))
        elif self.model == 'ext4':
            for write in node.unflushed[:chance.randint(0, len(node.unflushed))]:
                overwrite(data, write)
        else:
            for offset, what in node.unflushed:
                if offset is None:
                    if chance.random() < 0.5:
                        overwrite(data, (offset, what))
                    continue
                sector, at = chance.choice((512, 4096)), 0
                while at < len(what):
                    end = min(len(what), ((offset + at) // sector + 1) * sector - offset)
                    if chance.random() < 0.5:
                        overwrite(data, (offset + at, what[at:end]))
                    elif chance.random() < 0.3 and len(data) < offset + end:
                        data.extend(bytes(offset + end - len(data)))
                    at = end
        return bytes(data)

    def make_durable(self, change):
        """(directory, name, node or None for a removal of (node)), or both sides of a rename."""
        kind, *parts = change
        if kind == 'add':
            directory, name, node = parts
            directory.durable_names[name] = node
        elif kind == 'remove':
            directory, name, node = parts
            if directory.durable_names.get(name) is node:
                del directory.durable_names[name]
        else:
            old, old_name, new, new_name, node = parts
            if old.durable_names.get(old_name) is node:
                del old.durable_names[old_name]
            new.durable_names[new_name] = node

    def flush_everything(self):
        for change in self.unflushed_names:
            self.make_durable(change)
        self.unflushed_names = []
        for node in self.every_node():
            node.durable, node.unflushed = bytes(node.data), []

    def holding(self, text):
        """Paths of files that would hold the text after a cut now in which nothing more is written."""
        found, left = [], [('', self.root)]
        while left:
            path, node = left.pop()
            for name, inner in {**node.names, **node.durable_names}.items():
                left.append((path + '/' + name, inner))
            if text in node.durable or text in bytes(node.data):
                found.append(path)
        return sorted(found)

    # ---- What the kernel asks ----

    def find(self, path):
        node = self.root
        for name in path.split('/'):
            if not name:
                continue
            if not node.is_directory:
                raise FuseOSError(errno.ENOTDIR)
            node = node.names.get(name)
            if node is None:
                raise FuseOSError(errno.ENOENT)
        return node

    def place(self, path):
        directory, name = os.path.split(path)
        return self.find(directory), name

    def handle(self, node):
        self.last_handle += 1
        self.open_files[self.last_handle] = node
        return self.last_handle

    def add(self, path, node):
        directory, name = self.place(path)
        directory.names[name] = node
        self.unflushed_names.append(('add', directory, name, node))
        return node

    def getattr(self, path, fh=None):
        with self.guard:
            node = self.open_files.get(fh) or self.find(path)
            return dict(st_ino=node.number, st_mode=node.mode, st_nlink=2 if node.is_directory else 1, st_uid=node.uid,
                        st_gid=node.gid, st_size=len(node.data), st_mtime=node.changed, st_ctime=node.changed,
                        st_atime=node.changed, st_blocks=(len(node.data) + 511) // 512, st_blksize=4096)

    def readdir(self, path, fh):
        with self.guard:
            return ['.', '..', *self.find(path).names]

    def access(self, path, mode):
        with self.guard:
            self.find(path)
        return 0

    def statfs(self, path):
        return dict(f_bsize=4096, f_frsize=4096, f_blocks=1 << 20, f_bfree=1 << 19, f_bavail=1 << 19, f_files=1 << 20,
                    f_ffree=1 << 19, f_favail=1 << 19, f_namemax=255)

    def create(self, path, mode, fi=None):
        with self.guard:
            self.step('create ' + path)
            return self.handle(self.add(path, Node(stat.S_IFREG | (mode & 0o7777))))

    def mknod(self, path, mode, dev):
        with self.guard:
            self.step('create ' + path)
            self.add(path, Node(mode))

    def mkdir(self, path, mode):
        with self.guard:
            self.step('mkdir ' + path)
            self.add(path, Node(stat.S_IFDIR | (mode & 0o7777)))

    def symlink(self, target, source):
        with self.guard:
            self.step('symlink ' + target)
            node = self.add(target, Node(stat.S_IFLNK | 0o777))
            node.data, node.durable = bytearray(source.encode()), source.encode()

    def readlink(self, path):
        with self.guard:
            return bytes(self.find(path).data).decode()

    def open(self, path, flags):
        with self.guard:
            if self.is_off:
                raise FuseOSError(errno.EIO)
            return self.handle(self.find(path))

    def opendir(self, path):
        with self.guard:
            return self.handle(self.find(path))

    def release(self, path, fh):
        with self.guard:
            self.open_files.pop(fh, None)
        return 0

    releasedir = release

    def read(self, path, size, offset, fh):
        with self.guard:
            if self.is_off:
                raise FuseOSError(errno.EIO)
            return bytes(self.open_files[fh].data[offset:offset + size])

    def change(self, node, write):
        overwrite(node.data, write)
        node.unflushed.append(write)
        node.changed = time.time()

    def write(self, path, data, offset, fh):
        with self.guard:
            self.step(f'write {path} {offset}+{len(data)}')
            self.change(self.open_files[fh], (offset, bytes(data)))
            return len(data)

    def truncate(self, path, length, fh=None):
        with self.guard:
            self.step(f'truncate {path} {length}')
            self.change(self.open_files.get(fh) or self.find(path), (None, length))

    def unlink(self, path):
        with self.guard:
            self.step('unlink ' + path)
            directory, name = self.place(path)
            node = self.find(path)
            if node.names:
                raise FuseOSError(errno.ENOTEMPTY)
            del directory.names[name]
            self.unflushed_names.append(('remove', directory, name, node))

    rmdir = unlink

    def rename(self, old_path, new_path):
        with self.guard:
            self.step(f'rename {old_path} {new_path}')
            node = self.find(old_path)
            old, old_name = self.place(old_path)
            new, new_name = self.place(new_path)
            del old.names[old_name]
            new.names[new_name] = node
            self.unflushed_names.append(('rename', old, old_name, new, new_name, node))

    def link(self, target, source):
        with self.guard:
            self.step(f'link {source} {target}')
            directory, name = self.place(target)
            if name in directory.names:
                raise FuseOSError(errno.EEXIST)
            self.add(target, self.find(source))

    def chmod(self, path, mode):
        with self.guard:
            node = self.find(path)
            node.mode = stat.S_IFMT(node.mode) | (mode & 0o7777)
        return 0

    def chown(self, path, uid, gid):
        with self.guard:
            node = self.find(path)
            node.uid = node.uid if uid in (-1, 0xffffffff) else uid
            node.gid = node.gid if gid in (-1, 0xffffffff) else gid
        return 0

    def utimens(self, path, times=None):
        return 0

    def flush(self, path, fh):
        return 0

    def fsync(self, path, datasync, fh):
        with self.guard:
            self.step(f'fsync {path}')
            node = self.open_files[fh]
            node.durable, node.unflushed = bytes(node.data), []
            self.flush_names(lambda change: False)
        return 0

    def fsyncdir(self, path, datasync, fh):
        with self.guard:
            self.step(f'fsync {path}')
            directory = self.open_files[fh]
            self.flush_names(lambda change: directory in change)
        return 0

    def flush_names(self, is_meant):
        """A journal holds all names: a flush of anything flushes it."""
        left = []
        for change in self.unflushed_names:
            if self.model in JOURNALLED or is_meant(change):
                self.make_durable(change)
            else:
                left.append(change)
        self.unflushed_names = left


def answer(disk, request):
    """Requests: format; arm and cut {victim, model, seed, steps}; powerOn; flush; keep, goBack; holding {text}; steps."""
    kind = request['do']
    with disk.guard:
        if kind == 'format':
            disk.format()
        elif kind in ('arm', 'cut'):
            if not disk.is_off:
                disk.victim, disk.model = request.get('victim'), request['model']
                disk.chance = random.Random(request['seed'])
                if kind == 'arm':
                    disk.steps, disk.steps_left = 0, request['steps']
                else:
                    disk.cut('nothing')
            return disk.report
        elif kind == 'powerOn':
            disk.power_on()
        elif kind == 'flush':
            disk.flush_everything()
        elif kind == 'keep':
            disk.keep()
        elif kind == 'goBack':
            disk.go_back()
        elif kind == 'holding':
            return disk.holding(request['text'].encode())
        elif kind == 'steps':
            return disk.steps
    return None


def listen(disk, path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(1)
    while True:
        connection, _ = server.accept()
        with connection.makefile('rw') as lines:
            for line in lines:
                lines.write(json.dumps(answer(disk, json.loads(line))) + '\n')
                lines.flush()


def main():
    mountpoint, path = sys.argv[1:]
    disk = LossyDisk()
    threading.Thread(target=listen, args=(disk, path), daemon=True).start()
    # Nothing is kept by the kernel: what a program reads after a cut is what the cut has left.
    FUSE(disk, mountpoint, foreground=True, nothreads=True, direct_io=True, attr_timeout=0, entry_timeout=0,
         negative_timeout=0, big_writes=True, hard_remove=True, use_ino=True, allow_other=True)


main()
