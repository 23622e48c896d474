#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# In the modes writethrough and writearound the SSD never has the only copy of anything.

load lib/common

setup() {
	hfs_setup loops 300M 64M
}

teardown() {
	hfs_teardown
}

# never_dirty: dirty bytes may not exist, not even for a moment.
never_dirty() {
	[ "$(hfs_json '.mounts[0].dirty_bytes')" = 0 ]
}

# work DIR: create, overwrite, append, truncate, rename; MNT and a plain directory get the same.
work() {
	hfs_pattern 1 3000000 >"$1/a"
	never_dirty
	hfs_pattern 2 100001 | dd of="$1/a" bs=10001 seek=77 conv=notrunc status=none
	never_dirty
	hfs_pattern 3 5000 >>"$1/a"
	truncate -s 1234567 "$1/cached"
	hfs_pattern 4 300000 | dd of="$1/cached" bs=100000 seek=3 conv=notrunc status=none
	never_dirty
	for i in {1..20}; do hfs_pattern "$i" $((i * 1777)) >"$1/small$i"; done
	mv "$1/small1" "$1/moved"
	rm "$1/small2"
	never_dirty
}

# loses_nothing MODE: the daemon dies, the SSD directory goes: SRC has everything.
loses_nothing() {
	mkdir "$TOP/plain"
	hfs_pattern 9 2M | tee "$SRC/cached" >"$TOP/plain/cached"
	hfs_mount mode="$1"
	[ "$(hfs_json '.mounts[0].mode')" = "$1" ]
	"$HYBRIDFS" promote "$MNT/cached"
	work "$MNT"
	work "$TOP/plain"
	hfs_same "$TOP/plain/cached" "$MNT/cached"
	rmdir "$SRC/lost+found"
	hfs_same "$TOP/plain" "$MNT"
	hfs_kill9
	rm -rf "${SSD:?}"/*
	hfs_same "$TOP/plain" "$SRC"
	hfs_mount mode="$1"
	hfs_same "$TOP/plain" "$MNT"
	hfs_umount
}

@test "writethrough: the SSD can go at any time" {
	loses_nothing writethrough
}

@test "writearound: the SSD can go at any time" {
	loses_nothing writearound
}

# overwritten MODE: a file on the SSD is overwritten in part.
overwritten() {
	hfs_pattern 1 1M >"$SRC/file"
	hfs_mount mode="$1"
	"$HYBRIDFS" promote "$MNT/file"
	hfs_pattern 2 64K | dd of="$MNT/file" bs=64K seek=4 conv=notrunc status=none
	never_dirty
	hfs_uncache "$MNT/file"
	cmp <(hfs_pattern 2 64K) <(dd if="$MNT/file" bs=64K skip=4 count=1 status=none)
	cmp "$MNT/file" "$SRC/file"
}

@test "writethrough: what was on the SSD is on the SSD again, with the new bytes" {
	overwritten writethrough
	hfs_wait_until hfs_ssd_has "$MNT/file" $((1 << 20))
	hfs_uncache "$MNT/file"
	cmp "$MNT/file" "$SRC/file"
	hfs_umount
}

@test "writearound: what is written leaves the SSD, the rest stays" {
	overwritten writearound
	hfs_ssd_has "$MNT/file" $((15 << 16))
	hfs_umount
}

@test "reading promotes in these modes, too" {
	hfs_fill "$SRC/file" 1M
	for mode in writethrough writearound; do
		hfs_mount mode="$mode"
		for _ in 1 2 3; do
			dd if="$MNT/file" of=/dev/null bs=64K iflag=direct status=none
		done
		hfs_wait_until hfs_ssd_has "$MNT/file" $((1 << 20))
		"$HYBRIDFS" demote "$MNT/file"
		hfs_umount
	done
}

@test "a change to writethrough brings what is dirty to SRC" {
	hfs_mount dirty_expire=3600,no_flush_on_unmount
	hfs_pattern 1 1M >"$MNT/file"
	umount "$MNT"
	hfs_wait_exit
	[ ! -s "$SRC/file" ]
	hfs_mount mode=writethrough
	cmp <(hfs_pattern 1 1M) "$MNT/file"
	hfs_wait_until hfs_clean
	cmp <(hfs_pattern 1 1M) "$SRC/file"
	hfs_umount
}
