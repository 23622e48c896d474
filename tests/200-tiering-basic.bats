#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What moves between the tiers, when, and what people and programs see of it.

load lib/common

setup() {
	hfs_setup loops 1G 256M
}

teardown() {
	hfs_teardown
}

# on_ssd FILE: its bytes on the SSD.
on_ssd() {
	hfs_stat '.files[0].ssd_bytes' "$1"
}

# is FILE TIER DIRTY_BYTES: stat says so.
is() {
	local found

	found=$(hfs_stat '.files[0] | "\(.tier) \(.dirty_bytes)"' "$1")
	[ "$found" = "$2 $3" ] || { echo "$1: $found, not $2 $3" >&2; return 1; }
}

# read_at FILE OFFSET...: one direct read of 4 KiB at each offset.
read_at() {
	local off

	for off in "${@:2}"; do
		dd if="$1" iflag=direct,skip_bytes skip="$((off))" bs=4k count=1 status=none
	done >/dev/null
}

# ---- commands ---------------------------------------------------------------------------------

@test "promote copies to the SSD, demote drops the copy, the bytes stay the same" {
	hfs_fill "$SRC/file" 3000001
	hfs_mount
	is "$MNT/file" hdd 0
	"$HYBRIDFS" promote "$MNT/file"
	is "$MNT/file" ssd 0
	cmp "$SRC/file" "$MNT/file"
	"$HYBRIDFS" demote "$MNT/file"
	is "$MNT/file" hdd 0
	hfs_uncache "$MNT/file"
	cmp "$SRC/file" "$MNT/file"
	hfs_true '.mounts[0] | .promoted_bytes >= 3000001 and .demoted_bytes >= 3000001'
	hfs_umount
}

@test "promote --range copies the extents of the range and nothing else" {
	hfs_fill "$SRC/file" 4M
	hfs_mount
	"$HYBRIDFS" promote --range 1M:512K "$MNT/file"
	is "$MNT/file" mixed 0
	[ "$(hfs_stat '.files[0].extents[] | "\(.offset) \(.length)"' "$MNT/file")" = \
		'1048576 524288' ]
	"$HYBRIDFS" promote --range 3M: "$MNT/file"
	[ "$(on_ssd "$MNT/file")" -eq $((1536 * 1024)) ]
	hfs_umount
}

@test "promote --no-wait returns at once, and the file gets there" {
	hfs_fill "$SRC/file" 8M
	hfs_mount
	"$HYBRIDFS" promote --no-wait "$MNT/file"
	hfs_wait_until is "$MNT/file" ssd 0
	hfs_umount
}

@test "commands walk directories, with odd names in them" {
	mkdir -p "$SRC/d/e "$'\n'
	hfs_fill "$SRC/d/one" 100K
	hfs_fill "$SRC/d/e "$'\n/\xff' 100K
	ln -s one "$SRC/d/link"
	mkfifo "$SRC/d/fifo"
	hfs_mount
	"$HYBRIDFS" promote -q "$MNT/d"
	"$HYBRIDFS" stat --json "$MNT/d" | jq -e '[.files[].tier] == ["ssd", "ssd"]'
	"$HYBRIDFS" demote -q "$MNT/d"
	"$HYBRIDFS" stat --json "$MNT/d" | jq -e '[.files[].tier] == ["hdd", "hdd"]'
	hfs_umount
}

@test "promote of more than fits fails with the reason and breaks nothing" {
	hfs_fill "$SRC/file" 300M
	hfs_mount size=32M
	run --separate-stderr "$HYBRIDFS" promote "$MNT/file"
	[ "$status" -ne 0 ]
	[[ $stderr == *"$MNT/file"* ]]
	grep -qiE 'room|fit|space' <<<"$stderr"
	hfs_true '.mounts[0] | .ssd_used_bytes <= .ssd_cap_bytes and .healthy'
	cmp "$SRC/file" "$MNT/file"
	hfs_umount
}

@test "promote of a directory that does not fit says so, and stops before it turns all over" {
	local i

	for i in 1 2 3 4 5 6 7 8; do hfs_fill "$SRC/file$i" 4M; done
	hfs_mount size=24M
	run -1 "$HYBRIDFS" promote "$MNT"
	[[ $output == *": cannot promote all: No space left on device: "*"room for the last was made by the first"* ]]
	[ "$(hfs_json '.mounts[0].promoted_bytes')" -lt $((29 << 20)) ]
	run -1 "$HYBRIDFS" promote "$MNT"/file*
	[[ $output == *"file8: not promoted: there is no room for all"* ]]
	"$HYBRIDFS" promote "$MNT/file1" "$MNT/file2"
}

# ---- what programs see ------------------------------------------------------------------------

@test "stat --json: the keys and types of the contract" {
	hfs_fill "$SRC/file" 1M
	hfs_mount
	"$HYBRIDFS" promote --range 0:256K "$MNT/file"
	"$HYBRIDFS" stat --json "$MNT/file" | jq -e '.version == 1 and (.files | length) == 1 and
		(.files[0] | has("extents") | not)'
	"$HYBRIDFS" stat --json -v "$MNT/file" | jq -e --arg path "$MNT/file" '.files[0] |
		.path == $path and .size_bytes == 1048576 and .ssd_bytes == 262144 and
		.dirty_bytes == 0 and .pinned == false and (.heat | type) == "number" and
		.tier == "mixed" and (.passthrough | type) == "boolean" and
		.extents == [{"offset": 0, "length": 262144, "state": "clean"}]'
	hfs_umount
}

@test "status --json: the keys and types of the contract" {
	hfs_mount
	"$HYBRIDFS" status --json "$MNT" | jq -e --arg mnt "$MNT" --arg src "$SRC" --arg ssd "$SSD" '
		.version == 1 and (.mounts | length) == 1 and (.mounts[0] |
		.mountpoint == $mnt and .source == $src and .ssd == $ssd and .mode == "writeback" and
		.healthy == true and ([.ssd_used_bytes, .ssd_cap_bytes, .dirty_bytes, .pinned_bytes,
		.tracked_files, .hits, .misses, .read_hit_bytes, .read_miss_bytes, .promoted_bytes,
		.demoted_bytes, .written_back_bytes, .bypassed_bytes, .errors] |
		all(type == "number" and . == floor)))'
	"$HYBRIDFS" status --json | jq -e --arg mnt "$MNT" '.mounts | any(.mountpoint == $mnt)'
	"$HYBRIDFS" status "$MNT" | grep -qF "$MNT"
	hfs_umount
}

# facts FILE: what the extended attributes say.
facts() {
	local name

	for name in tier ssd_bytes dirty_bytes pinned; do
		getfattr --absolute-names --only-values -n "user.hybridfs.$name" "$1"
		echo
	done | xargs
}

@test "extended attributes say the same as stat" {
	truncate -s 3M "$SRC/sparse"
	hfs_fill "$SRC/head" 300000
	dd if="$SRC/head" of="$SRC/sparse" conv=notrunc status=none
	hfs_mount dirty_expire=3600
	hfs_fill "$MNT/dirty" 100001
	"$HYBRIDFS" pin -q "$MNT/head"
	"$HYBRIDFS" promote -q "$MNT/sparse"
	for file in "$MNT"/*; do
		[ -d "$file" ] || diff <(facts "$file") <(hfs_stat '.files[0] |
			"\(.tier) \(.ssd_bytes) \(.dirty_bytes) \(if .pinned then 1 else 0 end)"' "$file")
	done
	[ "$(facts "$MNT/dirty")" = 'ssd 100001 100001 0' ]
	hfs_umount
}

@test "extended attributes are not listed, not copied, and not for writing" {
	hfs_mount dirty_expire=3600
	hfs_fill "$MNT/file" 98304
	[ -z "$(getfattr -d -m- "$MNT/file")" ]
	cp -a "$MNT/file" "$MNT/copy"
	cp -a "$MNT/file" "$TOP/copy"
	[ -z "$(getfattr -d -m- "$MNT/copy" "$TOP/copy")" ]
	hfs_not setfattr -n user.hybridfs.tier -v hdd "$MNT/file"
	hfs_umount
	[ -z "$(getfattr -d -m- "$SRC/file")" ]
}

# ---- the policy -------------------------------------------------------------------------------

@test "hot random reads bring the hot extents of a big file to the SSD, and only those" {
	local hot off

	hfs_fill "$SRC/file" 256M
	hfs_mount
	mapfile -t hot < <(seq -f %.0f 786432 $((17 * 262144)) 268000000)	# 60 of 1024 extents
	for off in 73728 20480 131072 0; do
		read_at "$MNT/file" "${hot[@]/#/$off+}"
	done
	hfs_wait_until hfs_true '.mounts[0] | .promote_queue == 0 and .promotions >= 54'
	hfs_stat '.files[0].extents[].offset' "$MNT/file" >"$TOP/there"
	[ "$(grep -cxFf "$TOP/there" <(printf '%s\n' "${hot[@]}"))" -ge 54 ]
	[ "$(on_ssd "$MNT/file")" -le $((60 * 262144)) ]
	"$HYBRIDFS" stat -v "$MNT/file" | grep -q 'read often'
	hfs_umount
}

@test "a sequential read of a big file promotes nothing, however often" {
	hfs_fill "$SRC/file" 128M
	hfs_mount
	for _ in 1 2 3; do
		cat "$MNT/file" >/dev/null
		hfs_uncache "$MNT/file"
	done
	hfs_wait_until hfs_true '.mounts[0].promote_queue == 0'
	# The first seq_cutoff of a run (4 MiB) counts as any other read.
	[ "$(on_ssd "$MNT/file")" -le $((5 << 20)) ]
	hfs_umount
}

# ---- writing ----------------------------------------------------------------------------------

@test "what was written is dirty, and is written back by itself" {
	hfs_mount dirty_expire=1
	hfs_fill "$MNT/file" 1048576
	is "$MNT/file" ssd 1048576
	hfs_wait_until hfs_clean
	is "$MNT/file" ssd 0
	cmp "$MNT/file" "$SRC/file"
	hfs_true '.mounts[0].written_back_bytes >= 1048576'
	hfs_umount
}

@test "flush writes back durably and keeps the data on the SSD" {
	hfs_mount dirty_expire=3600
	hfs_fill "$MNT/file" 1048576
	hfs_fill "$MNT/other" 1048576
	"$HYBRIDFS" flush "$MNT/file"
	is "$MNT/file" ssd 0
	is "$MNT/other" ssd 1048576
	cmp "$MNT/file" "$SRC/file"
	"$HYBRIDFS" sync "$MNT"
	is "$MNT/other" ssd 0
	cmp "$MNT/other" "$SRC/other"
	hfs_umount
}

@test "inode numbers stay the same: promote, demote, write-back, remount" {
	local ino

	hfs_mount dirty_expire=3600
	hfs_fill "$MNT/file" 98304
	ino=$(stat -c %i "$MNT/file")
	for command in flush promote demote; do
		"$HYBRIDFS" "$command" "$MNT/file"
		[ "$(stat -c %i "$MNT/file")" = "$ino" ]
	done
	hfs_remount
	[ "$(stat -c %i "$MNT/file")" = "$ino" ]
	[ "$(find "$MNT" -inum "$ino")" = "$MNT/file" ]
	[ "$(stat -c %i "$SRC/file")" = "$ino" ]
	hfs_umount
}

@test "mtime survives write-back to the nanosecond, and ctime does not move by it" {
	local times

	hfs_mount dirty_expire=3600
	hfs_fill "$MNT/written" 98304
	hfs_fill "$MNT/set" 98304
	touch -d '2011-11-11 11:11:11.123456789' "$MNT/set"
	times=$(stat -c '%n %.9Y %.9Z' "$MNT/written" "$MNT/set")
	"$HYBRIDFS" flush "$MNT"
	[ "$(stat --cached=never -c '%n %.9Y %.9Z' "$MNT/written" "$MNT/set")" = "$times" ]
	hfs_remount
	[ "$(stat -c %.9Y "$MNT/set")" = 1321009871.123456789 ]
	[ "$(stat -c %.9Y "$MNT/written")" = "$(stat -c %.9Y "$SRC/written")" ]
	[[ $times == *"written $(stat -c %.9Y "$SRC/written") "* ]]
	hfs_umount
}

# ---- pins -------------------------------------------------------------------------------------

# overfill: three times as much as the SSD can take is written, and is read often.
overfill() {
	local i

	for i in {1..24}; do
		hfs_fill "$MNT/filler$i" 4M
		"$HYBRIDFS" promote -q "$MNT/filler$i" || :
		read_at "$MNT/filler$i" 0 300000 900000
	done
}

@test "a pinned file stays on the SSD whatever else comes" {
	hfs_fill "$SRC/pinned" 8M
	hfs_mount size=32M
	"$HYBRIDFS" pin "$MNT/pinned"
	is "$MNT/pinned" ssd 0
	[ "$(hfs_json '.mounts[0].pinned_bytes')" -eq $((8 << 20)) ]
	overfill
	is "$MNT/pinned" ssd 0
	hfs_true '.mounts[0] | .ssd_used_bytes <= .ssd_cap_bytes'
	"$HYBRIDFS" unpin "$MNT/pinned"
	[ "$(hfs_stat '.files[0].pinned' "$MNT/pinned")" = false ]
	hfs_umount
}

@test "pin --range keeps just that range" {
	hfs_fill "$SRC/file" 8M
	hfs_mount size=32M
	"$HYBRIDFS" pin --range 1M:1M "$MNT/file"
	[ "$(on_ssd "$MNT/file")" -eq $((1 << 20)) ]
	overfill
	[ "$(hfs_stat '.files[0].extents[] | "\(.offset) \(.length)"' "$MNT/file")" = '1048576 1048576' ]
	hfs_umount
}

@test "a pinned directory covers what is created in it later, also after a remount" {
	mkdir "$SRC/dir"
	hfs_mount size=32M
	"$HYBRIDFS" pin "$MNT/dir"
	hfs_fill "$MNT/dir/later" 1M
	[ "$(hfs_stat '.files[0].pinned' "$MNT/dir/later")" = true ]
	hfs_remount size=32M
	hfs_fill "$MNT/dir/still later" 1M
	[ "$(hfs_stat '.files[0].pinned' "$MNT/dir/still later")" = true ]
	"$HYBRIDFS" flush "$MNT"
	overfill
	is "$MNT/dir/later" ssd 0
	is "$MNT/dir/still later" ssd 0
	hfs_umount
}

@test "pin of a directory that does not fit: every file is pinned, what is missing is named" {
	local i failed=0

	mkdir "$SRC/dir"
	for i in 1 2 3 4 5 6 7 8; do hfs_fill "$SRC/dir/file$i" 4M; done
	hfs_mount size=24M
	run -1 "$HYBRIDFS" pin "$MNT/dir"
	for i in "$MNT"/dir/*; do
		[ "$(hfs_stat '.files[0].pinned' "$i")" = true ]
		[ "$(hfs_stat '.files[0].tier' "$i")" != ssd ] || continue
		[[ $output == *"$i: cannot pin: "*"marked as pinned all the same"* ]]
		failed=$((failed + 1))
	done
	[ "$failed" -ge 2 ] && [ "$failed" -le 4 ]
	[[ $output == *"pinned $((8 - failed)) files and 1 directory"*"; $failed failed" ]]
	# When there is room again they come.
	"$HYBRIDFS" unpin -q "$MNT"/dir/file[1-4]
	"$HYBRIDFS" demote -q "$MNT"/dir/file[1-4]
	"$HYBRIDFS" pin -q "$MNT"/dir/file[5-8]
	for i in "$MNT"/dir/file[5-8]; do is "$i" ssd 0; done
}

@test "pins survive a remount and a crash" {
	hfs_fill "$SRC/file" 2M
	hfs_mount
	"$HYBRIDFS" pin "$MNT/file"
	hfs_remount
	[ "$(hfs_stat '.files[0] | "\(.pinned) \(.tier)"' "$MNT/file")" = 'true ssd' ]
	hfs_kill9
	hfs_mount
	[ "$(hfs_stat '.files[0] | "\(.pinned) \(.tier)"' "$MNT/file")" = 'true ssd' ]
	hfs_umount
}

# ---- names ------------------------------------------------------------------------------------

@test "hard links are one file: one copy on the SSD, one inode, one content" {
	hfs_fill "$SRC/a" 1M
	ln "$SRC/a" "$SRC/b"
	hfs_mount dirty_expire=3600
	"$HYBRIDFS" promote "$MNT/a"
	is "$MNT/b" ssd 0
	[ "$(hfs_json '.mounts[0] | "\(.tracked_files) \(.ssd_used_bytes)"')" = '1 1048576' ]
	echo new | dd of="$MNT/b" conv=notrunc status=none
	[ "$(head -c 3 "$MNT/a")" = new ]
	is "$MNT/a" ssd 4096
	rm "$MNT/a"
	[ "$(head -c 3 "$MNT/b")" = new ]
	"$HYBRIDFS" demote "$MNT/b"
	hfs_umount
	[ "$(head -c 3 "$SRC/b")" = new ]
}

@test "a renamed file keeps its copy, also when its directory is renamed" {
	mkdir "$SRC/d"
	hfs_fill "$SRC/d/file" 1M
	hfs_mount dirty_expire=3600
	"$HYBRIDFS" promote "$MNT/d/file"
	echo new | dd of="$MNT/d/file" conv=notrunc status=none
	mv "$MNT/d/file" "$MNT/d/f2"
	mv "$MNT/d" "$MNT/d2"
	is "$MNT/d2/f2" ssd 4096
	hfs_remount
	is "$MNT/d2/f2" ssd 0
	[ "$(head -c 3 "$SRC/d2/f2")" = new ]
	hfs_umount
}
