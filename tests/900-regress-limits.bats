#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Values at the edges of what a filesystem can hold.

load lib/common

setup() {
	hfs_setup loops 600M 64M
}

teardown() {
	hfs_teardown
}

# times_of DIR
times_of() {
	(cd "$1" && stat -c '%n %.9Y' ./[0-9-]*)
}

# dated DATE...: a synced file for each date, named after it.
dated() {
	local t

	for t in "$@"; do
		hfs_pattern 1 10000 >"$MNT/$t"
		touch -d "@$t" "$MNT/$t"
		sync "$MNT/$t"
	done
}

@test "times before 1970 and long after 2038 survive a crash and write-back" {
	local expected

	hfs_mount dirty_expire=3600
	dated -5.5 -2147483648 4294967296.25 9000000000.123456789
	expected=$(times_of "$MNT")
	hfs_kill9
	hfs_mount dirty_expire=3600
	[ "$(times_of "$MNT")" = "$expected" ]
	hfs_umount
	[ "$(times_of "$SRC")" = "$expected" ]
}

@test "times after 2262 survive write-back, and a crash leaves them in the far future" {
	local expected

	hfs_mount dirty_expire=3600
	dated 9999999999.123456789 15032385535
	expected=$(times_of "$MNT")
	hfs_remount dirty_expire=3600
	[ "$(times_of "$MNT")" = "$expected" ]
	dated 9999999999.123456789 15032385535
	hfs_kill9
	hfs_mount
	[ "$(stat -c %Y "$MNT/15032385535")" -ge 9223372036 ]
	hfs_umount
}

# far_file BLOCK: 100,000 bytes from that block of 4 KiB on.
far_file() {
	hfs_pattern 1 100000 | dd of="$MNT/far$1" bs=4K seek="$1" conv=notrunc,fsync status=none
	[ "$(stat -c %s "$MNT/far$1")" -eq $(($1 * 4096 + 100000)) ]
}

# far_file_is DIR BLOCK
far_file_is() {
	cmp <(hfs_pattern 1 100000) <(dd if="$1/far$2" bs=4K skip="$2" status=none)
	[ "$(stat -c %b "$1/far$2")" -lt 1000 ]
}

@test "far offsets: 1 TiB on the SSD, 15 TiB in SRC only" {
	hfs_mount dirty_expire=3600
	for block in 268435456 4026531840; do
		far_file $block
		for _ in 1 2 3; do	# often enough to be promoted, were it not so far out
			hfs_uncache "$MNT/far$block"
			far_file_is "$MNT" $block
		done
	done
	hfs_wait_until hfs_true '.mounts[0].promote_queue == 0'
	hfs_ssd_has "$MNT/far268435456" 102400
	hfs_ssd_has "$MNT/far4026531840" 0
	hfs_true '.mounts[0] | .healthy and .errors == 0'
	hfs_umount
	for block in 268435456 4026531840; do far_file_is "$SRC" $block; done
}

@test "beyond SRC's largest file: the writer is told, nothing else happens" {
	hfs_mount
	run dd if=/dev/zero of="$MNT/file" bs=4K count=1 seek=9000000000000
	[[ $output == *'File too large'* ]]
	hfs_pattern 1 10000 >"$MNT/file"
	hfs_umount
	cmp <(hfs_pattern 1 10000) "$SRC/file"
}
