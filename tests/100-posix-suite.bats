#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/posix passes on the mount, and whatever it looks at comes out as on the filesystem below.

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

# compare [-u UID:GID]: run everything on both. Only what libfuse can not do may be skipped, and is
# left out of the comparison: O_TMPFILE.
compare() {
	"$posixtest" --record "$@" "$TOP/plain" >"$TOP/plain.rec"
	"$posixtest" --record "$@" "$MNT" >"$TOP/mnt.rec" || status=1
	sed -n 's/^skip \(.*\): .*/\1/p' "$TOP/mnt.rec" >"$TOP/skipped"
	hfs_not grep -v tmpfile "$TOP/skipped"
	diff <(left_over "$TOP/plain.rec") <(left_over "$TOP/mnt.rec") | head -n 40
	[ "${PIPESTATUS[0]}" -eq 0 ]
	[ "$status" -eq 0 ]
}

left_over() {
	sed 's/^skip //; s/[#:]/ &/' "$1" | awk 'NR == FNR { no[$1]; next } !($1 in no)' \
		"$TOP/skipped" -
}

@test "as root, the mount behaves as the filesystem below" {
	compare
	hfs_umount
}

@test "as uid 65534, the mount behaves as the filesystem below" {
	compare -u 65534:65534
	hfs_umount
}
