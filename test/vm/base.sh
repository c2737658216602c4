#!/bin/bash
# base.sh SUITE DIRECTORY: Debian with systemd and its own kernel, unpacked to DIRECTORY/tree, with DIRECTORY/vmlinuz and
# DIRECTORY/initrd.gz. Commands come in by a serial port of virtio: "ID BASE64" in, "ID STATUS BASE64" out, "BOOT" at first.
set -euo pipefail
suite=$1 directory=$2
case $suite in
bookworm) tss=libtss2-esys-3.0.2-0,libtss2-rc0,libtss2-mu0 ;;
*) tss=libtss2-esys-3.0.2-0t64,libtss2-rc0t64,libtss2-mu-4.0.1-0t64 ;;
esac
fresh=$directory.new tree=$directory.new/tree
rm -rf "$fresh"
mkdir -p "$fresh"
mmdebstrap --quiet --variant=essential --include="linux-image-amd64,systemd,systemd-sysv,dbus,udev,kmod,mount,iproute2,procps,passwd,libstdc++6,libatomic1,$tss" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--aptopt='Apt::Install-Recommends "false"' "$suite" "$tree" http://deb.debian.org/debian
cp "$tree"/boot/vmlinuz-* "$fresh/vmlinuz"
version=$(basename "$tree"/boot/vmlinuz-* | sed 's/^vmlinuz-//')
rm -rf "$tree"/boot/*

initrd=$(mktemp -d)
trap 'rm -rf "$initrd"' EXIT
mkdir -p "$initrd"/{bin,dev,proc,sys,newroot,mod}
cp "$(command -v busybox)" "$initrd/bin/busybox"
number=10
for module in virtio_pci virtio_blk ext4; do modprobe -d "$tree" -S "$version" --show-depends "$module" 2>/dev/null || true; done |
	awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
	cp "$file" "$initrd/mod/$number-$(basename "$file")"
	number=$((number + 1))
done
for file in "$initrd"/mod/*.xz; do [ ! -f "$file" ] || xz -d "$file"; done
for file in "$initrd"/mod/*.zst; do [ ! -f "$file" ] || zstd -q --rm -d "$file"; done
cat >"$initrd/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
for module in /mod/*; do $b insmod $module; done
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 500 ]; do $b usleep 20000; tries=$((tries + 1)); done
$b mount -t ext4 -o rw /dev/vda /newroot || exec $b sh
for place in dev proc sys; do $b mount --move /$place /newroot/$place; done
exec $b switch_root /newroot /sbin/init
INIT
chmod +x "$initrd/init"
(cd "$initrd" && find . | cpio -o -H newc --quiet | gzip -1) >"$fresh/initrd.gz"

# Weight: nothing of it is in the machine.
(cd "$tree/lib/modules/$version/kernel" && rm -rf sound drivers/{gpu,media,infiniband,iio,staging,isdn,scsi,net/wireless,net/ethernet})
depmod -b "$tree" "$version"
echo device >"$tree/etc/hostname"
: >"$tree/etc/machine-id"
echo '/dev/vda / ext4 rw 0 1' >"$tree/etc/fstab"
chroot "$tree" passwd -d root >/dev/null
for unit in systemd-logind.service systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service; do
	ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done
cat >"$tree/usr/local/sbin/answer-commands" <<'ANSWER'
#!/bin/bash
exec 3<>/dev/virtio-ports/commands
echo BOOT >&3
while read -r id command <&3; do
	out=$(base64 -d <<<"$command" | timeout 120 bash 2>&1 3<&-)
	printf '%s %s %s\n' "$id" "$?" "$(base64 -w0 <<<"$out")" >&3
done
ANSWER
chmod +x "$tree/usr/local/sbin/answer-commands"
cat >"$tree/etc/systemd/system/answer-commands.service" <<'UNIT'
[Unit]
DefaultDependencies=no
After=sysinit.target
[Service]
ExecStart=/usr/local/sbin/answer-commands
Restart=always
KillMode=process
UNIT
echo 'SUBSYSTEM=="virtio-ports", ATTR{name}=="commands", TAG+="systemd", ENV{SYSTEMD_WANTS}+="answer-commands.service"' >"$tree/etc/udev/rules.d/99-answer-commands.rules"
rm -rf "$directory"
mv "$fresh" "$directory"
