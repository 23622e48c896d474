#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The daemon is killed at any moment: what was synced is there, and comes to SRC in the end.

load lib/common

setup() {
	hfs_setup loops 500M 128M
}

teardown() {
	hfs_teardown
}

# synced_files N: writer N makes files and syncs each; $TOP/synced.N lists those that are safe.
synced_files() {
	local i

	for ((i = $1 * 1000; i < $1 * 1000 + 999; i++)); do
		hfs_pattern $i 30000 | dd of="$MNT/file$i" bs=7k conv=fsync status=none || return 0
		echo $i >>"$TOP/synced.$1"
	done
} 2>/dev/null

# rewritten_file: one file is rewritten in place, the version counted up; $TOP/version is synced.
rewritten_file() {
	local i

	for ((i = 1; i < 1000; i++)); do
		{ printf '%9d\n' $i; hfs_pattern $i 59990; } |
			dd of="$MNT/versions" bs=60000 iflag=fullblock conv=notrunc,fsync status=none ||
			return 0
		echo $i >"$TOP/version.new"
		mv "$TOP/version.new" "$TOP/version"
	done
} 2>/dev/null

# nothing_lost DIR
nothing_lost() {
	local i

	while read -r i; do
		cmp <(hfs_pattern "$i" 30000) "$1/file$i" || return
	done < <(cat "$TOP"/synced.*)
	i=$(head -c 9 "$1/versions")
	[ "$i" -ge "$(cat "$TOP/version")" ]
}

# still_counted BYTES: that many are dirty, or were and are written back since this mount began:
# data that was dirty at a crash is overdue.
still_counted() {
	hfs_true ".mounts[0] | .dirty_bytes + .written_back_bytes >= $1"
}

# this_many_synced COUNT. For hfs_wait_until.
this_many_synced() {
	[ "$(cat "$TOP"/synced.* 2>/dev/null | wc -l)" -ge "$1" ] && [ -e "$TOP/version" ]
}

# crash_under_load COUNT OPTION...: writers at work, killed when COUNT files are safe.
crash_under_load() {
	local i pids=() count=$1

	shift
	rm -f "$TOP"/synced.* "$TOP/version"
	hfs_mount "$@"
	for i in 1 2 3; do
		synced_files "$i" 3>&- &
		pids+=($!)
	done
	rewritten_file 3>&- &
	pids+=($!)
	hfs_wait_until this_many_synced "$count"
	kill -KILL "$HFS_PID"
	hfs_wait_exit
	# The writers end before the mount is taken away: they would go on in the bare directory.
	for i in "${pids[@]}"; do wait "$i"; done
	umount -l "$MNT"
}

@test "kill -9 under load, nothing written back yet: all that was synced is there, and dirty" {
	crash_under_load 60 dirty_expire=3600
	hfs_mount dirty_expire=3600
	nothing_lost "$MNT"
	still_counted $((60 * 30000))
	hfs_umount
	nothing_lost "$SRC"
}

@test "kill -9 under load and write-back, several times" {
	local round

	for round in 1 2 3; do
		crash_under_load $((round * 17)) dirty_expire=0,size=8M
		hfs_mount
		nothing_lost "$MNT"
		"$HYBRIDFS" status "$MNT"
		hfs_umount
		nothing_lost "$SRC"
		rm "$SRC"/file* "$SRC/versions"
	done
}

@test "kill -9 twice before anything is written back: dirty data does not wear out" {
	crash_under_load 20 dirty_expire=3600
	hfs_mount dirty_expire=3600
	hfs_kill9
	hfs_mount dirty_expire=3600
	nothing_lost "$MNT"
	hfs_umount
	nothing_lost "$SRC"
}

# killed_during COMMAND CONDITION: kill the daemon once CONDITION holds, or COMMAND has ended.
killed_during() {
	"$HYBRIDFS" "$1" -q "$MNT/big" >/dev/null 2>&1 3>&- &
	hfs_wait_until underway $! "$2"
	hfs_kill9
	wait $! || :
}

underway() {
	hfs_gone "$1" || hfs_true ".mounts[0] | $2"
}

@test "kill -9 during promote, demote and flush: the file is whole" {
	hfs_pattern 1 60M >"$SRC/big"
	hfs_mount dirty_expire=3600
	killed_during promote '.ssd_used_bytes > 4000000'
	hfs_mount dirty_expire=3600,seq_cutoff=0
	cmp <(hfs_pattern 1 60M) "$MNT/big"
	hfs_pattern 2 40M | dd of="$MNT/big" bs=1M iflag=fullblock conv=notrunc,fsync status=none
	killed_during flush '.written_back_bytes > 4000000'
	hfs_mount dirty_expire=3600
	cmp <(hfs_pattern 2 40M) <(head -c 40M "$MNT/big")
	killed_during demote '.demoted_bytes > 0 or .written_back_bytes > 4000000'
	hfs_mount
	cmp <(hfs_pattern 2 40M) <(head -c 40M "$MNT/big")
	cmp <(hfs_pattern 1 60M | tail -c 20M) <(tail -c 20M "$MNT/big")
	hfs_umount
	cmp <(hfs_pattern 2 40M) <(head -c 40M "$SRC/big")
}

@test "kill -9 after unlink, rename and truncate that were synced: none of them is undone" {
	hfs_mount dirty_expire=3600
	for i in 1 2 3; do hfs_pattern "$i" 200000 >"$MNT/f$i"; done
	sync "$MNT"/f? "$MNT"
	rm "$MNT/f1"
	mv "$MNT/f2" "$MNT/g2"
	truncate -s 12345 "$MNT/f3"
	sync "$MNT/f3" "$MNT"
	hfs_kill9
	hfs_mount
	[ "$(cd "$MNT" && echo [fg]*)" = 'f3 g2' ]
	cmp <(hfs_pattern 2 200000) "$MNT/g2"
	cmp <(hfs_pattern 3 12345) "$MNT/f3"
	hfs_umount
	cmp <(hfs_pattern 3 12345) "$SRC/f3"
}

@test "after kill -9 space is accounted right: what is not used any more is free" {
	hfs_mount
	for i in {1..20}; do hfs_pattern "$i" 1M >"$MNT/f$i"; done
	sync "$MNT"/f*
	rm "$MNT"/f1*
	hfs_kill9
	hfs_mount
	rm "$MNT"/f*
	hfs_wait_until hfs_true '.mounts[0] | .ssd_used_bytes == 0 and .tracked_files == 0'
	hfs_wait_until no_objects
	hfs_umount
}

no_objects() {
	[ -z "$(find "$SSD"/volumes/*/objects -type f)" ]
}

@test "SIGTERM: everything is written back before the daemon ends" {
	hfs_mount dirty_expire=3600
	hfs_pattern 1 3M >"$MNT/file"
	kill -TERM "$HFS_PID"
	hfs_wait_exit
	[ "$HFS_STATUS" -eq 0 ]
	hfs_not hfs_mounted
	cmp <(hfs_pattern 1 3M) "$SRC/file"
}

@test "no_flush_on_unmount: what is dirty stays on the SSD, and the next mount has it" {
	hfs_mount dirty_expire=3600,no_flush_on_unmount
	hfs_pattern 1 3M >"$MNT/file"
	umount "$MNT"
	hfs_wait_exit
	[ ! -s "$SRC/file" ]
	hfs_mount dirty_expire=3600
	cmp <(hfs_pattern 1 3M) "$MNT/file"
	still_counted 3145728
	hfs_umount
	cmp <(hfs_pattern 1 3M) "$SRC/file"
}

@test "a second daemon is refused while the first lives, and accepted after kill -9" {
	mkdir "$TOP/other"
	hfs_mount
	run "$HYBRIDFS" "$SRC" "$SSD" "$TOP/other" 3>&-
	[ "$status" -eq 32 ]
	hfs_kill9
	MNT=$TOP/other hfs_mount
	hfs_pattern 1 1000 >"$TOP/other/file"
	MNT=$TOP/other hfs_umount
	cmp <(hfs_pattern 1 1000) "$SRC/file"
}

@test "a mount whose daemon is dead can be unmounted and says what is wrong" {
	hfs_mount
	kill -KILL "$HFS_PID"
	hfs_wait_exit
	run "$HYBRIDFS" status "$MNT"
	[ "$status" -eq 1 ]
	run "$HYBRIDFS" umount "$MNT"
	echo "$output"
	[ "$status" -eq 0 ]
	hfs_not hfs_mounted
}
