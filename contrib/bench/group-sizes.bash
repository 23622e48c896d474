# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154,SC2034
#
# Requests of 4 KiB to 1 MiB, random and sequential, through the page cache and past it: a file that
# is whole on the SSD but not pinned, and one that is cold, next to the plain SSD and the plain
# disk. No limits here: the promises are in the other groups.

sizes_bytes=$((128 << 20))

one_size() {
	bandwidth "$1" --filename="$2" --size=$sizes_bytes --invalidate=1 "${@:3}"
}

cold_again() {
	cold "$1"
	drop_caches
}

group_sizes() {
	local bs rw

	bench_up 2G 3G
	fill "$SRC/warm" $sizes_bytes
	cp "$SRC/warm" "$SRC/cold"
	cp "$SRC/warm" "$SSD/plain/"
	mkdir "$SRC/plain"
	cp "$SRC/warm" "$SRC/plain/cold"
	sides[hdd]=$SRC/plain
	mount_hybridfs
	"$hybridfs" promote "$MNT/warm" >/dev/null || die "cannot promote"
	delays on
	for rw in randread read randwrite write; do
		for bs in 4k 64k 1m; do
			compare "SSD, $rw $bs" B/s '' ssd hybridfs -- \
				one_size warm --rw=$rw --bs=$bs
			compare "SSD, $rw $bs O_DIRECT libaio" B/s '' ssd hybridfs -- \
				one_size warm --rw=$rw --bs=$bs --direct=1 --ioengine=libaio \
				--iodepth=16
		done
	done
	before=cold_again
	for rw in randread read; do
		for bs in 4k 64k 1m; do
			compare "cold, $rw $bs" B/s '' hdd hybridfs -- \
				one_size cold --rw=$rw --bs=$bs
		done
	done
	before=nothing
	delays off
	umount_hybridfs
}
