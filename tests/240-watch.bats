#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# SRC is a filesystem's root, on this machine alone: the kernel keeps names and attributes for long,
# and what others change in SRC shows all the same, soon (fs/watch.h).

load lib/common

setup() {
	hfs_setup loops 300M 64M
	mkdir "$SRC/dir"
	echo old >"$SRC/dir/file"
	touch "$SRC/dir/going"
}

teardown() {
	[ -z "${stopped-}" ] || kill -CONT "$stopped"
	hfs_teardown
}

# watched: the daemon listens.
watched() {
	grep -qx hfs-watch /proc/"$HFS_PID"/task/*/comm
}

# The kernel has asked for everything, and the times to live of a mount without a watch are over.
know() {
	ls -lR "$MNT" >/dev/null
	! stat "$MNT/dir/coming" 2>/dev/null
	stat "$MNT/dir/file" >/dev/null
	local end=$((SECONDS + 2))
	hfs_wait_until eval '[ $SECONDS -ge '$end' ]'
}

gone() {
	! stat "$1" 2>/dev/null
}

is() {
	[ "$(stat -c "$1" "$MNT/$2")" = "$3" ]
}

lists() {
	[ "$(ls "$MNT/dir" | tr '\n' ' ')" = "$1" ]
}

@test "names and attributes are answered without the daemon, for more than a second" {
	hfs_mount
	watched
	know
	stopped=$HFS_PID
	kill -STOP "$stopped"
	timeout 5 stat "$MNT/dir/file" "$MNT/dir/going"
	run -1 timeout 5 stat "$MNT/dir/coming"
	kill -CONT "$stopped"
	stopped=
	hfs_umount
}

@test "names that others make, move and remove" {
	hfs_mount
	know
	touch "$SRC/dir/coming"
	rm "$SRC/dir/going"
	hfs_wait_until stat "$MNT/dir/coming"
	hfs_wait_until gone "$MNT/dir/going"
	lists 'coming file '
	mv "$SRC/dir/coming" "$SRC/dir/came"
	hfs_wait_until gone "$MNT/dir/coming"
	hfs_wait_until stat "$MNT/dir/came"
	hfs_wait_until lists 'came file '
	mkdir "$SRC/dir/sub"
	hfs_wait_until is %h dir 3
	hfs_umount
}

@test "a directory that is open: rewinddir() shows what others made" {
	hfs_mount
	python3 - "$MNT/dir" "$SRC/dir" <<-'PY'
		import ctypes, os, sys, time
		libc = ctypes.CDLL(None, use_errno=True)
		libc.opendir.restype = ctypes.c_void_p
		libc.readdir.restype = ctypes.c_void_p
		libc.readdir.argtypes = libc.rewinddir.argtypes = [ctypes.c_void_p]
		d = libc.opendir(sys.argv[1].encode())
		def names():
		    found = set()
		    libc.rewinddir(d)
		    while (e := libc.readdir(d)):
		        found.add(ctypes.string_at(e + 19).decode())
		    return found
		for _ in range(3):
		    names()
		open(sys.argv[2] + "/another", "w").close()
		end = time.monotonic() + 10
		while "another" not in names():
		    if time.monotonic() > end:
		        sys.exit("rewinddir() shows old names: %s" % names())
		    time.sleep(0.05)
	PY
	hfs_umount
}

@test "attributes, access lists and content that others change" {
	hfs_mount
	know
	chmod 600 "$SRC/dir/file"
	hfs_wait_until is %a dir/file 600
	setfacl -m u:1234:r "$SRC/dir/file"
	hfs_wait_until eval "getfacl -nc '$MNT/dir/file' 2>/dev/null | grep -q user:1234"
	ln "$SRC/dir/file" "$SRC/dir/link"
	hfs_wait_until is %h dir/file 2
	chmod 700 "$SRC/dir"
	hfs_wait_until is %a dir 700
	echo newer >>"$SRC/dir/file"
	hfs_wait_until is %s dir/file 10
	[ "$(cat "$MNT/dir/file")" = $'old\nnewer' ]
	hfs_umount
}

@test "a file that is open, and written to by others" {
	hfs_mount
	exec 5<"$MNT/dir/file"
	[ "$(head -c 4 <&5)" = old ]
	know
	echo NEW | dd of="$SRC/dir/file" conv=notrunc status=none
	echo more >>"$SRC/dir/file"
	hfs_wait_until is %s dir/file 9
	hfs_wait_until eval "[ \"\$(dd if=/dev/fd/5 bs=4 count=1 status=none)\" = NEW ]"
	exec 5<&-
	hfs_umount
}

@test "a directory of a larger filesystem is not listened to: changes show after a second" {
	hfs_mount
	hfs_umount
	mkdir "$SRC/below" "$TOP/ssd2"
	touch "$SRC/below/file"
	SRC=$SRC/below SSD=$TOP/ssd2
	hfs_mount
	run -1 watched
	stat "$MNT/file" >/dev/null
	chmod 600 "$SRC/file"
	hfs_wait_until is %a file 600
	hfs_umount
	SRC=${SRC%/below} SSD=$TOP/ssd
}

@test "times to live that were given are kept" {
	hfs_mount attr_timeout=0,entry_timeout=0,negative_timeout=0
	stat "$MNT/dir/file" >/dev/null
	chmod 600 "$SRC/dir/file"
	is %a dir/file 600
	hfs_umount
}
