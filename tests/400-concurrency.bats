#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Everything at once: programs, commands and the background in each other's way.

load lib/common

setup() {
	hfs_setup loops 500M 64M
}

teardown() {
	stop_loops
	hfs_teardown
}

# loop COMMAND...: again and again in the background, until stop_loops. It may fail: files go.
loop() {
	(while [ ! -e "$TOP/stop" ]; do "$@" >/dev/null 2>&1 || :; done) 3>&- &
	loops+=($!)
}

stop_loops() {
	local pid

	[ ! -d "${TOP-}" ] || touch "$TOP/stop"
	for pid in "${loops[@]}"; do
		wait "$pid" || :
	done
	loops=()
}

# all_clean: everything is written back and accounted for, without an error.
all_clean() {
	hfs_wait_until hfs_clean
	hfs_true '.mounts[0] | .healthy and .errors == 0 and .lost_ranges == 0 and
		.ssd_used_bytes <= .ssd_cap_bytes'
}

@test "checksummed records, while the files are promoted, demoted, flushed and pinned" {
	local modeltest

	modeltest=$(hfs_program modeltest)
	hfs_mount dirty_expire=1
	mkdir "$MNT/work"
	for command in promote demote flush 'pin' 'unpin'; do
		loop "$HYBRIDFS" "$command" -q "$MNT/work"
	done
	"$modeltest" --stress 3 --seconds 8 --mnt "$MNT/work" 3>&-
	stop_loops
	all_clean
	hfs_umount
}

# one_of_many COMMAND: succeeds, or fails because another one has pinned the file; a pinned file that a
# program writes to past the daemon cannot be demoted.
one_of_many() {
	local text

	text=$("$HYBRIDFS" "$1" -q "$MNT/file" 2>&1) || [[ $text == *'is pinned'* ]] ||
		[[ $1 = demote && $text == *'in use in a way that does not allow this'* ]] ||
		{ echo "$text" >&2; return 1; }
}

@test "two of every command on one file at once, and a writer" {
	local first second pids

	hfs_pattern 1 16M >"$SRC/file"
	hfs_mount dirty_expire=3600,seq_cutoff=0
	loop dd if="$SRC/file" of="$MNT/other" bs=64K conv=notrunc
	for first in promote demote flush pin unpin; do
		for second in promote demote flush pin unpin; do
			pids=()
			for command in "$first" "$second" "$second" "$first"; do
				one_of_many "$command" 3>&- &
				pids+=($!)
			done
			hfs_pattern 1 200000 | dd of="$MNT/file" bs=4K conv=notrunc status=none
			for pid in "${pids[@]}"; do wait "$pid"; done
		done
	done
	stop_loops
	cmp <(hfs_pattern 1 16M) "$MNT/file"
	"$HYBRIDFS" flush -q "$MNT"
	all_clean
	hfs_umount
	cmp <(hfs_pattern 1 16M) "$SRC/file"
	cmp <(hfs_pattern 1 16M) "$SRC/other"
}

@test "readers never see a short or mixed file while it is promoted and demoted" {
	local i

	hfs_pattern 1 8M >"$SRC/file"
	hfs_mount promote_hits=1
	loop "$HYBRIDFS" promote -q "$MNT/file"
	loop "$HYBRIDFS" demote -q "$MNT/file"
	for i in {1..25}; do
		cmp <(hfs_pattern 1 8M) "$MNT/file"
		cmp <(hfs_pattern 1 8M) <(dd if="$MNT/file" bs=1M iflag=direct status=none)
		hfs_uncache "$MNT/file"
	done
	stop_loops
	hfs_umount
}

# renames N: write under a temporary name and rename to the final one, as careful programs do.
renames() {
	local i

	for i in {1..60}; do
		hfs_pattern "$((i + $1))" $((i * 5003)) >"$MNT/d$1/.tmp$1"
		mv "$MNT/d$1/.tmp$1" "$MNT/d$1/file"
		mv "$MNT/d$1" "$MNT/e$1"
		mv "$MNT/e$1" "$MNT/d$1"
	done
}

@test "a storm of renames, also of directories, during write-back and demotion" {
	local i pids=()

	hfs_mount dirty_expire=0
	loop "$HYBRIDFS" demote -q "$MNT"
	loop "$HYBRIDFS" flush -q "$MNT"
	for i in 1 2 3; do
		mkdir "$MNT/d$i"
		renames "$i" 3>&- &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i"; done
	stop_loops
	all_clean
	hfs_umount
	for i in 1 2 3; do
		cmp <(hfs_pattern $((60 + i)) 300180) "$SRC/d$i/file"
		[ "$(ls -A "$SRC/d$i")" = file ]
	done
}

@test "a file that is rewritten all the time is written back all the same" {
	hfs_mount dirty_expire=0
	hfs_pattern 1 2M >"$TOP/data"
	loop dd if="$TOP/data" of="$MNT/file" bs=64K conv=notrunc
	hfs_wait_until hfs_true '.mounts[0].written_back_bytes > 20000000'
	timeout 20 "$HYBRIDFS" flush -q "$MNT/file"
	stop_loops
	all_clean
	cmp "$TOP/data" "$MNT/file"
	hfs_umount
	cmp "$TOP/data" "$SRC/file"
}

# empty: nothing is on the SSD any more.
empty() {
	hfs_true '.mounts[0] | .ssd_used_bytes == 0 and .dirty_bytes == 0 and .tracked_files == 0' &&
		[ -z "$(find "$SSD"/volumes/*/objects -type f)" ]
}

@test "unlinked while open, with dirty data: it works to the last close, then the space is back" {
	local i fd

	hfs_mount dirty_expire=3600
	for i in 4 5 6 7; do
		hfs_pattern "$i" 3M >"$MNT/file$i"
		eval "exec $i<>'$MNT/file$i'"
		rm "$MNT/file$i"
		hfs_pattern 9 1M | dd of="/proc/self/fd/$i" bs=64K conv=notrunc status=none
	done
	[ -z "$(find "$MNT" -name 'file*' -o -name '.fuse*')" ]
	for i in 4 5 6 7; do
		cmp <(hfs_pattern 9 1M; hfs_pattern "$i" 3M | tail -c 2M) "/proc/self/fd/$i"
		eval "exec $i>&-"
	done
	hfs_wait_until empty
	hfs_umount
}

@test "many readers of one cold file at once" {
	local i pids=()

	hfs_pattern 1 30M >"$SRC/file"
	hfs_mount
	for i in {0..7}; do
		cmp <(hfs_pattern 1 30M | tail -c +$((i * 3000001 + 1))) \
			<(tail -c +$((i * 3000001 + 1)) "$MNT/file") 3>&- &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i"; done
	hfs_umount
}
