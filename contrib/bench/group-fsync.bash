# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154,SC2034
#
# What waits for durability: a database's pages, several writers, a growing log.

cold_file_write() {
	iops "$1" --rw=randwrite --bs=4k --fdatasync=1 --filename=big --size="$size"
}

eight_files_write() {
	# shellcheck disable=SC2016
	iops "$1" --rw=randwrite --bs=4k --fdatasync=1 --filename_format='small.$jobnum' \
		--size=$((size / 16)) --numjobs=8
}

append_log() {
	rm -f "$1/log"
	iops "$1" --rw=write --bs=200 --fdatasync=1 --filename=log --fallocate=none --size=1g
}

group_fsync() {
	local i

	bench_up $((size * 3 + (1 << 30))) $((size * 5 + (1 << 30)))
	fill "$SRC/big" "$size"
	for i in 0 1 2 3 4 5 6 7; do fill "$SRC/small.$i" $((size / 16)); done
	cp "$SRC"/big "$SRC"/small.* "$SSD/plain/"
	drop_caches
	mount_hybridfs
	before=cold
	delays on
	compare 'random 4k write + fdatasync, cold file' IOPS 0.8 ssd hybridfs -- cold_file_write
	compare 'the same, 8 jobs on 8 files' IOPS 1.0 ssd hybridfs -- eight_files_write
	before=nothing
	compare 'append 200 bytes + fdatasync' IOPS 1.0 ssd hybridfs -- append_log
}
