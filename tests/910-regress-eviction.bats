#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Eviction meets files that are in states of transition.

load lib/common

setup() {
	hfs_setup loops 300M 64M
}

teardown() {
	hfs_teardown
}

no_objects() {
	[ -z "$(find "$SSD"/volumes/*/objects -type f)" ]
}

# The catalog keeps the row of a buried file until the next checkpoint; the hand came upon it,
# took the file for one that lost its SSD copy, and counted it twice.
@test "files that were just unlinked and buried are not evicted" {
	for i in {1..30}; do hfs_pattern "$i" 1M >"$SRC/cold$i"; done
	hfs_mount no_flush_on_unmount,dirty_expire=3600
	for i in 1 2 3; do hfs_pattern "$i" 1M >"$MNT/file$i"; done
	umount "$MNT"
	hfs_wait_exit
	hfs_mount dirty_expire=3600,size=24M,high_watermark=50
	rm "$MNT"/file?
	hfs_wait_until no_objects
	for i in {1..30}; do "$HYBRIDFS" promote -q "$MNT/cold$i"; done
	hfs_wait_until hfs_true '.mounts[0].ssd_used_bytes < 13000000'
	hfs_true '.mounts[0] | .errors == 0 and .lost_ranges == 0 and .dirty_bytes == 0 and
		.tracked_files <= 13 and .healthy'
	hfs_umount
}
