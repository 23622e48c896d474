#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A daemon that is killed while its threads are held in the kernel: who uses the mount gets an error
# within a moment, never a hang. SRC is on a disk that stops answering when it is told to.

load lib/common
load lib/harness

setup() {
	hfs_setup loops 64M 64M
	rec_pid=''
}

teardown() {
	local rc=0

	[ -z "$rec_pid" ] || kill -CONT "$rec_pid"
	umount -f "$MNT" 2>/dev/null || :	# ends a hang that a test has found
	hfs_teardown || rc=1
	[ -z "$rec_pid" ] || hfs_wait_until hfs_gone "$rec_pid" || rc=1
	return "$rc"
}

# stoppable_src: $SRC comes from a recorder of tests/crash, $rec_pid, with a file of 4 MiB.
stoppable_src() {
	harness_build record
	umount "$SRC" && umount "$SSD"
	mkdir "$TOP/images" "$TOP/dev"
	mv "$SRC.img" "$SSD.img" "$TOP/images"
	"$HARNESS_BIN/record" "$TOP/images" "$TOP/dev" /dev/null 3>&- &
	rec_pid=$!
	hfs_wait_until test -e "$TOP/dev/ctl"
	harness_mount_images "$TOP/dev" --direct-io=on
	hfs_fill "$SRC/file" 4M
	sync -f "$SRC"
	hfs_uncache "$SRC/file"
}

# guard_of PID: the process ids of its guards.
guard_of() {
	local line

	for line in /proc/[0-9]*/stat; do
		{ read -r line <"$line"; } 2>/dev/null || continue
		[[ $line != *" (hfs-guard) "*" $1 "* ]] || echo "${line%% *}"
	done
}

# notifier_is_held: by a page; not even SIGKILL ends it. For hfs_wait_until.
notifier_is_held() {
	grep -qs '(hfs-notify) D' "/proc/$HFS_PID"/task/*/stat
}

@test "kill -9 while the daemon waits for a page that a reader has locked: everybody goes on" {
	local reader rc=0

	stoppable_src
	hfs_mount attr_timeout=0
	[ "$(stat -c %s "$MNT/file")" -eq 4194304 ]
	exec 7<"$MNT/file"
	kill -STOP "$rec_pid"
	cat <&7 >/dev/null 2>"$TOP/cat" 3>&- 7<&- &
	reader=$!
	hfs_wait_until grep -q '(cat) D' "/proc/$reader/stat"	# it has locked its pages
	touch "$SRC/file"		# a foreign change: its pages are to be dropped
	timeout 20 stat "$MNT/file" >/dev/null
	hfs_wait_until notifier_is_held
	guard=$(guard_of "$HFS_PID")
	kill -KILL "$HFS_PID"
	HFS_TIMEOUT_S=10 hfs_wait_exit
	exec 7<&-
	hfs_wait_until hfs_gone "$reader"
	hfs_reap "$reader" || rc=$?
	[ "$rc" -eq 1 ]
	grep -qE 'not connected|abort' "$TOP/cat"
	# Until somebody unmounts it: as after any death of a daemon.
	run timeout 10 stat "$MNT/file"
	[ "$status" -eq 1 ]
	[[ $output == *'endpoint is not connected'* ]]
	hfs_mounted
	hfs_wait_until hfs_gone "$guard"
	kill -CONT "$rec_pid"
	umount "$MNT"
	hfs_mount
	cmp "$SRC/file" "$MNT/file"
	hfs_umount
}

@test "the guard: one, out of the way, and gone with the daemon however that ends" {
	local guard

	hfs_mount
	guard=$(guard_of "$HFS_PID")
	[[ $guard =~ ^[0-9]+$ ]]
	[ "$(readlink "/proc/$guard/cwd")" = / ]
	[ "$(find "/proc/$guard/fd" -lname "$TOP*" -o -lname /dev/fuse | wc -l)" -eq 0 ]
	# A terminal's ^C goes to a process group.
	[ "$(ps -o sid= -p "$guard")" -eq "$guard" ]
	kill -INT "$guard"; kill -TERM "$guard"; kill -HUP "$guard"; kill -USR1 "$guard"
	hfs_umount
	[ ! -e "/proc/$guard" ]

	hfs_mount
	guard=$(guard_of "$HFS_PID")
	hfs_kill9
	hfs_wait_until hfs_gone "$guard"

	# Without it: everything as usual.
	hfs_mount
	kill -KILL "$(guard_of "$HFS_PID")"
	hfs_fill "$MNT/new" 100K
	hfs_umount
}
