#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A tree that is there already appears on the mount exactly as it is, and mounting changes nothing.

load lib/common
load lib/trees

setup() {
	hfs_setup loops 3G 64M
	hfs_zoo "$SRC/zoo"
	mkdir "$SRC/users"
	truncate -s 1T "$SRC/huge"
	printf end | dd of="$SRC/huge" bs=1 seek=999999999999 conv=notrunc status=none
}

teardown() {
	hfs_teardown
}

@test "odd names, hard links, sparse, special files: the mount shows exactly SRC" {
	hfs_mount
	diff <(hfs_listing "$SRC") <(hfs_listing "$MNT")
	[ "$(dd if="$MNT/huge" bs=1 skip=999999999999 count=3 status=none)" = end ]
	[ "$(df --output=size,used,itotal,iused "$MNT" | tail -n 1)" = \
		"$(df --output=size,used,itotal,iused "$SRC" | tail -n 1)" ]
	hfs_umount
}

@test "mounting, reading everything and unmounting changes nothing in SRC" {
	hfs_listing "$SRC" >"$TOP/before"
	hfs_mount
	hfs_listing "$MNT" >"$TOP/mounted"
	hfs_umount
	hfs_listing "$SRC" >"$TOP/after"
	diff "$TOP/before" "$TOP/mounted"
	diff "$TOP/before" "$TOP/after"
}

@test "promoting and demoting everything changes nothing in SRC" {
	rm "$SRC/huge"	# takes a long time to look through
	hfs_listing "$SRC" >"$TOP/before"
	hfs_mount
	"$HYBRIDFS" promote -q "$MNT/zoo"
	[ "$(hfs_stat '.files[0].tier' "$MNT/zoo/big")" = ssd ]
	diff "$TOP/before" <(hfs_listing "$MNT")
	"$HYBRIDFS" demote -q "$MNT/zoo"
	hfs_umount
	diff "$TOP/before" <(hfs_listing "$SRC")
}

@test "100,000 files in one directory" {
	local of='%P %i %m %U %s %T@ %C@\n'

	(cd "$SRC/users" && seq -f 'file-with-a-longer-name-%.0f' 100000 | xargs touch)
	hfs_mount
	diff <(find "$SRC/users" -printf "$of" | sort) <(find "$MNT/users" -printf "$of" | sort)
	[ -z "$(find "$MNT/users" | sort | uniq -d)" ]
	mv "$MNT/users" "$MNT/renamed"
	rm -r "$MNT/renamed"
	hfs_umount
	[ ! -e "$SRC/users" ] && [ ! -e "$SRC/renamed" ]
}

@test "in place: MNT is SRC itself" {
	MNT=$SRC
	hfs_listing "$SRC" >"$TOP/before"
	hfs_mount
	diff "$TOP/before" <(hfs_listing "$MNT")
	hfs_pattern 1 1000000 >"$MNT/new"
	"$HYBRIDFS" promote "$MNT/zoo/big"
	hfs_umount
	cmp <(hfs_pattern 1 1000000) "$SRC/new"
	rm "$SRC/new"
	diff <(grep -av '^|d|' "$TOP/before") <(hfs_listing "$SRC" | grep -av '^|d|')
}

@test "a read-only SRC: reading and promoting work, writing is refused" {
	mount -o remount,ro "$SRC"
	hfs_mount
	diff <(hfs_listing "$SRC") <(hfs_listing "$MNT")
	"$HYBRIDFS" promote "$MNT/zoo/big"
	[ "$(hfs_stat '.files[0].tier' "$MNT/zoo/big")" = ssd ]
	run touch "$MNT/zoo/big"
	[[ $output == *'Read-only file system'* ]]
	run dd if=/dev/zero of="$MNT/new" count=1
	[[ $output == *'Read-only file system'* ]]
	hfs_umount
}

@test "a filesystem that is mounted below SRC is not part of it" {
	echo below >"$SRC/users/below"
	mount -t tmpfs none "$SRC/users"
	echo above >"$SRC/users/above"
	hfs_mount
	[ "$(ls "$MNT/users")" = below ]
	rm "$MNT/users/below"
	hfs_umount
	[ "$(cat "$SRC/users/above")" = above ]
	umount "$SRC/users"
	[ -z "$(ls "$SRC/users")" ]
}
