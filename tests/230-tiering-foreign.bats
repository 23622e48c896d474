#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Somebody changes SRC behind the mount: stale copies are not used, and nobody's data is dropped.

load lib/common

setup() {
	hfs_setup loops 300M 64M
	hfs_pattern 1 1M >"$SRC/file"
}

teardown() {
	hfs_teardown
}

# shows SEED [SIZE]: reading MNT/file gives these bytes. For hfs_wait_until.
shows() {
	cmp -s <(hfs_pattern "$1" "${2-1M}") "$MNT/file"
}

# conflict: status reports it, with exit code 1 and the reason.
conflict() {
	run --separate-stderr "$HYBRIDFS" status --json "$MNT"
	[ "$status" -eq 1 ]
	jq -e '.mounts[0] | (.healthy | not) and (.health_reason | length) > 0 and
		.conflicts == 1' <<<"$output"
}

@test "a promoted file that was changed in SRC shows its new content" {
	hfs_mount
	"$HYBRIDFS" promote "$MNT/file"
	shows 1
	hfs_pattern 2 1M | dd of="$SRC/file" conv=notrunc status=none
	hfs_wait_until shows 2
	hfs_pattern 3 700K >"$SRC/file"
	hfs_wait_until shows 3 700K
	[ "$(stat -c %s "$MNT/file")" -eq $((700 * 1024)) ]
	hfs_true '.mounts[0].healthy'
	hfs_umount
}

@test "the same with mtime set back: size and mtime tell nothing" {
	hfs_mount
	touch -r "$SRC/file" "$TOP/times"
	"$HYBRIDFS" promote "$MNT/file"
	shows 1
	hfs_pattern 2 1M | dd of="$SRC/file" conv=notrunc status=none
	touch -r "$TOP/times" "$SRC/file"
	hfs_wait_until shows 2
	hfs_umount
}

@test "the same while nothing is mounted" {
	hfs_mount
	"$HYBRIDFS" promote "$MNT/file"
	hfs_umount
	hfs_pattern 2 1M | dd of="$SRC/file" conv=notrunc status=none
	hfs_mount
	shows 2
	hfs_kill9
	hfs_pattern 3 1M | dd of="$SRC/file" conv=notrunc status=none
	hfs_mount
	shows 3
	hfs_umount
}

@test "files that appear, move and vanish in SRC do so on the mount" {
	hfs_mount
	shows 1
	"$HYBRIDFS" promote "$MNT/file"
	mv "$SRC/file" "$SRC/moved"
	hfs_pattern 4 5000 >"$SRC/file"
	hfs_wait_until shows 4 5000
	cmp <(hfs_pattern 1 1M) "$MNT/moved"
	rm "$SRC/file"
	hfs_wait_until hfs_not test -e "$MNT/file"
	hfs_umount
}

# collide: the mount's newer data (seed 5, the first 64 KiB) and a change in SRC meet.
collide() {
	hfs_mount dirty_expire=3600
	hfs_pattern 5 64K | dd of="$MNT/file" bs=64K conv=notrunc,fsync status=none
	hfs_pattern 2 1M | dd of="$SRC/file" conv=notrunc status=none
	run "$HYBRIDFS" flush "$MNT/file"
	[ "$status" -ne 0 ]
	[[ $output == *"$MNT/file"* ]]
}

# unmount_unclean: unmounting says that not everything could be written back.
unmount_unclean() {
	hfs_not "$HYBRIDFS" umount "$MNT"
	hfs_not hfs_mounted
	hfs_wait_exit
	HFS_LOG_ALLOW='cannot write everything back'
}

# The mount has its own version, and SRC the other one.
both_are_there() {
	cmp <(hfs_pattern 5 64K) <(head -c 64K "$MNT/file")
	cmp <(hfs_pattern 2 1M) "$SRC/file"
}

@test "a change under dirty data is a conflict: it is reported, and both versions stay" {
	collide
	conflict
	hfs_stat '.files[0].conflict' "$MNT/file" | grep -qx true
	both_are_there
	unmount_unclean
	cmp <(hfs_pattern 2 1M) "$SRC/file"
	hfs_mount dirty_expire=3600
	conflict
	both_are_there
	hfs_kill9
	hfs_mount dirty_expire=3600
	conflict
	both_are_there
	unmount_unclean
}

@test "flush --force settles a conflict in favour of the mount" {
	collide
	"$HYBRIDFS" flush --force "$MNT/file"
	"$HYBRIDFS" status "$MNT"
	cmp <(hfs_pattern 5 64K) <(head -c 64K "$SRC/file")
	cmp "$SRC/file" "$MNT/file"
	hfs_umount
	cmp <(hfs_pattern 5 64K) <(head -c 64K "$SRC/file")
}

@test "a conflict of one file keeps no other file from being written back" {
	collide
	hfs_pattern 6 100000 >"$MNT/other"
	"$HYBRIDFS" flush "$MNT/other"
	cmp <(hfs_pattern 6 100000) "$SRC/other"
	hfs_pattern 7 100000 >"$MNT/other"
	unmount_unclean
	cmp <(hfs_pattern 7 100000) "$SRC/other"
	cmp <(hfs_pattern 2 1M) "$SRC/file"
}
