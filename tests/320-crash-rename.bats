#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# I5: what somebody syncs after a rename or a removal finds that durable in SRC too, as in one
# journal.

load lib/common

setup() {
	hfs_setup loops 100M 64M
	# The filesystem shall not store anything by itself while we look.
	mount -o remount,commit=600 "$SRC"
	mkdir "$SRC/a" "$SRC/b"
	echo old >"$SRC/a/name"
	hfs_pattern 1 1M >"$SRC/log"
	chmod 666 "$SRC/log"
	sync -f "$SRC"
	hfs_mount
	# Durably dirty: from here on a sync of it has no business with SRC.
	sync_log
}

teardown() {
	hfs_teardown
}

sync_log() {
	dd if=/dev/urandom of="$MNT/log" bs=4k count=1 conv=notrunc,fdatasync status=none
}

# in_src NAME: what a power cut would leave now has it.
in_src() {
	cp --sparse=always "$TOP/src.img" "$TOP/cut.img"
	e2fsck -fy "$TOP/cut.img" >/dev/null 2>&1 || [ $? -eq 1 ] || return
	debugfs -R "stat $1" "$TOP/cut.img" 2>/dev/null | grep -q '^Inode:'
}

@test "fdatasync of one file makes the renames of its user durable before (I5)" {
	mv "$MNT/a/name" "$MNT/b/new"
	hfs_not in_src b/new	# else this shows nothing
	sync_log
	in_src b/new
	hfs_not in_src a/name
	hfs_umount
}

@test "the same for files that he removed (I5)" {
	rm "$MNT/a/name"
	in_src a/name
	sync_log
	hfs_not in_src a/name
	hfs_umount
}

@test "not for files that nobody ever synced" {
	echo temporary >"$MNT/a/temporary"
	sync -f "$SRC"
	mv "$MNT/a/temporary" "$MNT/b/temporary"
	rm "$MNT/b/temporary"
	sync_log
	in_src a/temporary
	hfs_umount
}

@test "somebody else's fdatasync does not wait for them" {
	mv "$MNT/a/name" "$MNT/b/new"
	setpriv --reuid 65534 --clear-groups \
		dd if=/dev/urandom of="$MNT/log" bs=4k count=1 conv=notrunc,fdatasync status=none
	hfs_not in_src b/new
	hfs_umount
}

@test "after fsync of the directory nothing is left to wait for; a removed one is no error" {
	mkdir "$MNT/c"
	mv "$MNT/a/name" "$MNT/c/name"
	sync "$MNT/c" "$MNT/a"
	in_src c/name
	mv "$MNT/c/name" "$MNT/name"
	rmdir "$MNT/c"
	sync_log
	in_src name
	hfs_umount
}
