#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# hybridfs at work on real files, explained step by step. `make demo` runs it.
#
#   contrib/demo.sh                           folders under a temporary directory
#   SRC=/data SSD=/ssd contrib/demo.sh        real ones; MNT= says where to mount
#
# It works in a directory of its own below SRC and removes that, and only that, at the end; with
# SSD= given, the volume's files stay in SSD/volumes for the next mount of that SRC. The exit status
# is 0 only when everything that was seen through the mount is in SRC after unmounting.

set -u -o pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
hybridfs=${HYBRIDFS:-$here/hybridfs}
data_size_mib=64
unset GIT_DIR GIT_WORK_TREE

step=0
explain() { step=$((step + 1)); printf '\n\033[1m%d. %s\033[0m\n' "$step" "$*"; }
[ -t 1 ] || explain() { step=$((step + 1)); printf '\n%d. %s\n' "$step" "$*"; }
show() { printf '   $ %s\n' "$*" | sed "s|$hybridfs|hybridfs|"; "$@" 2>&1 | sed 's/^/   /'; return "${PIPESTATUS[0]}"; }
die() { printf '\ndemo: %s\n' "$*" >&2; exit 1; }

# ---- where ------------------------------------------------------------------------------------

[ -x "$hybridfs" ] || die "no $hybridfs: run make first"
[ -c /dev/fuse ] || die "this machine has no /dev/fuse (modprobe fuse, or give the container the device)"
[ "$(id -u)" -eq 0 ] || { [ -r /dev/fuse ] && [ -w /dev/fuse ]; } ||
	die "/dev/fuse is not open to ordinary users on this machine: run it as root"

tmp=$(mktemp -d "${TMPDIR:-/tmp}/hybridfs-demo.XXXXXX") || exit 1
src=${SRC:-$tmp/hdd} ssd=${SSD:-$tmp/ssd} mnt=${MNT:-$tmp/mnt}
work=
mounted=

# The demo leaves nothing behind, also when a step fails or it is interrupted.
clean_up() {
	local rc=$?

	trap - EXIT INT TERM HUP
	cd /
	if [ -n "$mounted" ]; then
		"$hybridfs" umount "$mnt" >/dev/null 2>&1 || umount -l "$mnt" 2>/dev/null ||
			fusermount3 -u -z "$mnt"
	fi
	if [ -n "$work" ]; then
		rm -rf --one-file-system "${src:?}/$work"
	fi
	rm -rf --one-file-system "$tmp"
	exit "$rc"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

for dir in "$src" "$ssd" "$mnt"; do
	[ -d "$dir" ] || mkdir -p "$dir" || exit 1
done
work=$(basename "$(mktemp -d "$src/hybridfs-demo.XXXXXX")") || die "$src is not writable"
mkdir "$src/$work/headers" "$src/$work/source" || exit 1

# ---- a tree of real files ---------------------------------------------------------------------

explain "Two folders: $src stands for the big slow disk, $ssd for the SSD."
cp -a /usr/include/linux "$src/$work/headers/" 2>/dev/null ||
	cp -aL /etc/. "$src/$work/headers/" 2>/dev/null
(cd "$here" && tar -c --exclude=./build --exclude=./.git --exclude=./hybridfs .) |
	tar -x --no-same-owner -C "$src/$work/source" || die "could not copy files to $src"
head -c "${data_size_mib}M" /dev/urandom >"$src/$work/data.bin" || die "could not write to $src"
echo "   $(find "$src/$work" -type f | wc -l) files that are there already," \
	"$(du -sh --apparent-size "$src/$work" | cut -f1): real headers, this source tree, data.bin"

explain "Mount: the files appear at $mnt at once. Nothing is converted, copied or moved."
show "$hybridfs" "$src" "$ssd" "$mnt" || die "mounting failed"
mounted=yes
cd "$mnt/$work" || die "the mount does not answer"
show ls -l

# ---- working in it ----------------------------------------------------------------------------

explain "Work in it as in any folder: copy, edit, move, archive, random reads."
cp -a headers copied-headers || die "cp failed"
echo "written through the mount" >>source/Makefile || die "appending failed"
mv data.bin moved.bin || die "mv failed"
ln -s moved.bin data.bin || die "ln failed"
tar -czf headers.tar.gz headers || die "tar failed"
tar -tzf headers.tar.gz >/dev/null || die "headers.tar.gz does not read back"
for i in $(seq 64); do
	dd if=moved.bin bs=64k count=1 skip=$((RANDOM % (data_size_mib * 16))) status=none ||
		die "read $i failed"
done | wc -c | sed 's/^/   bytes read at random places: /' || die "random reads failed"
dd if=/dev/urandom of=moved.bin bs=4k count=16 seek=1000 conv=notrunc,fsync status=none ||
	die "writing in the middle failed"

if command -v git >/dev/null; then
	explain "A program that cares about its files: git init, add, commit, and fsck."
	git=(git -C source -c user.name=demo -c user.email=demo@localhost -c gc.auto=0)
	git init -q source || die "git init failed"
	"${git[@]}" add -A || die "git add failed"
	"${git[@]}" commit -q -m "made on hybridfs" || die "git commit failed"
	"${git[@]}" log --oneline --shortstat -1 | sed 's/^/   /'
	"${git[@]}" fsck --strict >/dev/null 2>&1 || die "git fsck found damage"
fi

# ---- the tier ---------------------------------------------------------------------------------

explain "What was written is on the SSD; fetch a file there now, before it is hot by itself."
show "$hybridfs" promote moved.bin || die "promote failed"
show "$hybridfs" stat moved.bin headers.tar.gz || die "stat failed"

explain "Pin one: it stays on the SSD whatever else is read."
show "$hybridfs" pin headers.tar.gz || die "pin failed"
show "$hybridfs" stat headers.tar.gz || die "stat failed"

explain "How the mount is doing."
# 1 = it works but is degraded, which is worth seeing; anything else is a failure.
show "$hybridfs" status "$mnt" || [ $? -eq 1 ] || die "status failed"

# ---- and out again ----------------------------------------------------------------------------

# facts DIR: every path with type, mode, size and link target, and the checksum of every file.
facts() {
	(
		cd "$1" || exit
		find . -mindepth 1 \( -type d -printf '%P %y %m\n' \) -o -printf '%P %y %m %s %l\n' |
			sort
		find . -type f -print0 | sort -z | xargs -0 sha256sum
	)
}

explain "Checksums of everything as seen through the mount; then flush and unmount."
facts "$mnt/$work" >"$tmp/through-mount" || die "reading through the mount failed"
cd /
show "$hybridfs" umount "$mnt" || die "unmounting failed"
mounted=

explain "$src is an ordinary, complete tree again: compare it, without hybridfs."
facts "$src/$work" >"$tmp/in-src" || die "reading $src failed"
if ! diff "$tmp/through-mount" "$tmp/in-src" >"$tmp/diff"; then
	head -n 20 "$tmp/diff" >&2
	die "SRC differs from what was seen through the mount"
fi
printf '   %d files, %s: all there, all checksums equal.\n' \
	"$(find "$src/$work" -type f | wc -l)" "$(du -sh --apparent-size "$src/$work" | cut -f1)"
