# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154
#
# A volume with many tracked files: how long a mount takes, and what it costs to do nothing.

# ticks: CPU time of the daemon so far, in hundredths of a second.
ticks() {
	awk '{ print $14 + $15 }' "/proc/$daemon_pid/stat"
}

settled() {
	local before

	before=$(ticks)
	read -rt 2 <> <(:) || :
	[ $(($(ticks) - before)) -le 2 ]
}

# A daemon dies with a full journal: BYTES written and synced in one file after the other.
crash_full() {
	delays off
	"$bin/catalog" "$SRC" "$SSD/cache" "$1" "$2" >/dev/null || die "cannot fill the journal"
	drop_caches
	delays on
}

recovered() {
	[ "$("$hybridfs" status --json "$MNT" | jq '.mounts[0].recovering')" = false ]
}

# recovery N: what the search for leaks and for gone files takes of the machine; done, if it is soon.
recovery() {
	local t0=$EPOCHREALTIME before=0 i

	for i in 1 2 3; do
		read -rt 10 <> <(:) || :
		single "CPU while recovering, ten seconds no. $i" % - \
			"$(awk -v a="$before" -v b="$(ticks)" 'BEGIN { print (b - a) / 10 }')"
		before=$(ticks)
		recovered && break
	done
	single "memory while recovering, $1 files" MiB 200 \
		"$(awk '/VmHWM/ { print $2 / 1024 }' "/proc/$daemon_pid/status")"
	recovered && single "recovery of $1 files at most" s - \
		"$(awk -v a="$t0" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')"
	return 0
}

idle() {
	local before

	before=$(ticks)
	read -rt 10 <> <(:) || :
	awk -v a="$before" -v b="$(ticks)" 'BEGIN { print (b - a) / 10 }'
}

group_mount() {
	local n=${files:-100000} i bytes

	inodes=$((n + n / 100 + 100000)) # mkfs counts on larger files
	bench_up $((n * 6000 + (1 << 30))) $((n * 7000 + (3 << 30)))
	say "making $n files"
	"$bin/catalog" "$SRC" "$SSD/cache" "$n" || die "cannot make the volume"
	delays on
	for ((i = 1; i <= pairs; i++)); do
		drop_caches
		note "mount, $n files, clean" s 1 - "$i" "$(timed . mount_only)"
		umount_hybridfs
	done
	mount_hybridfs dirty_expire=3600
	wait_for settled
	single "idle CPU, $n files" % 1 "$(idle)"
	single "memory, $n files" MiB 200 \
		"$(awk '/VmRSS/ { print $2 / 1024 }' "/proc/$daemon_pid/status")"
	umount_hybridfs
	# Many files with a little, and fewer with as much as rides in the journal.
	for bytes in 4096 65536; do
		for ((i = 1; i <= pairs; i++)); do
			crash_full "$n" "$bytes"
			note "mount, $n files, crash with a journal full of $bytes B writes" s 2 - "$i" \
				"$(timed . mount_only dirty_expire=3600)"
			find_daemon
			[ "$bytes:$i" != "4096:1" ] || recovery "$n"
			delays off
			umount_hybridfs
		done
	done
}
