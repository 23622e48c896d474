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

# Nearly half of the largest journal: there a checkpoint begins to empty it.
fill_journal() {
	fio --name=j --filename_format="$MNT/journal.\$jobnum" --rw=randwrite --bs=64k \
		--fdatasync=1 --ioengine=psync --size=64m --number_ios=110 --fallocate=none \
		--numjobs=8 >/dev/null
}

idle() {
	local before

	before=$(ticks)
	read -rt 10 <> <(:) || :
	awk -v a="$before" -v b="$(ticks)" 'BEGIN { print (b - a) / 10 }'
}

group_mount() {
	local n=${files:-100000} i

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
	for ((i = 1; i <= pairs; i++)); do
		delays off
		fill_journal || die "cannot fill the journal"
		kill -9 "$daemon_pid"
		wait_for gone "$daemon_pid"
		umount "$MNT"
		drop_caches
		delays on
		note "mount, $n files, after a crash with a full journal" s 2 - "$i" \
			"$(timed . mount_only dirty_expire=3600)"
		find_daemon
	done
	delays off
	umount_hybridfs
}
