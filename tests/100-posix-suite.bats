#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Every check of tests/posix passes on the mount, and where it only records what happens, that is
# what happens on the filesystem below.

load lib/common

setup() {
	hfs_setup loops 1G 256M
	hfs_loop_fs "$TOP/plain" 1G ext4
	posixtest=$(hfs_program posixtest)
	hfs_mount
}

teardown() {
	hfs_teardown
}

# What no FUSE filesystem can do or learn, for want of the kernel or libfuse: O_TMPFILE,
# RENAME_WHITEOUT, collapsing and inserting ranges, that something was read from the page cache
# (for the access time); and misaligned direct I/O, which works on the mount.
unlike='tmpfile/|acl/tmpfile|rename/bad_flags|fallocate/rare_modes|times_file/(read|change)'
unlike+='|io/direct_misaligned'

# record NAME DIR [-u UID:GID]: what comes out there, in $TOP/NAME.rec; nothing fails.
record() {
	"$posixtest" --record "${@:3}" "$2" >"$TOP/$1.rec" 2>"$TOP/$1.err"
	cat "$TOP/$1.err"
	grep -q '[1-9][0-9]* passed, 0 failed' "$TOP/$1.err"
}

# compare [-u UID:GID]: both sides; a test that is skipped on one side only is a difference.
compare() {
	record plain "$TOP/plain" "$@"
	record mnt "$MNT" "$@"
	for side in plain mnt; do
		grep -vE "^(skip )?($unlike)" "$TOP/$side.rec" >"$TOP/$side.out"
	done
	diff "$TOP/plain.out" "$TOP/mnt.out"
}

@test "as root, the mount behaves as the filesystem below" {
	compare
	hfs_umount
}

@test "as uid 65534, the mount behaves as the filesystem below" {
	compare -u 65534:65534
	hfs_umount
}
