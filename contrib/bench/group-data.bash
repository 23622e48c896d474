# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154,SC2034
#
# Reads and writes: what is hot on the SSD, what is in the page cache, what is cold on the disk.

hot=$((64 << 20))

hot_reads() {
	iops "$1" --rw=randread --bs=4k --direct=1 --filename=big --size=$hot "${@:2}"
}

latency() {
	fio_rate iops "$1" --rw=randread --bs=4k --direct=1 --filename=big --size=$hot >/dev/null &&
		jq '.jobs[0].read.clat_ns.mean / 1000' "$TOP/fio.json"
}

cached_reads() {
	cat "$1/warm" >/dev/null
	iops "$1" --rw=randread --bs=4k --filename=warm --size=$hot --numjobs=4 --invalidate=0
}

stream_read() { bandwidth "$1" --rw=read --bs=1m --filename=big --size="$size" --time_based=0; }

stream_write() {
	rm -f "$1/new"
	sync -f "$1"
	bandwidth "$1" --rw=write --bs=1m --filename=new --size="$size" --end_fsync=1 \
		--fallocate=none --time_based=0
}

random_writes() {
	iops "$1" --rw=randwrite --bs=4k --direct=1 --filename=big --size="$size" "${@:2}"
}

# Cold, and nothing of it in memory.
cold_nocache() {
	cold "$1"
	drop_caches
}

group_data() {
	bench_up $((size * 4 + (1 << 30))) $((size * 5 + (1 << 30)))
	fill "$SRC/big" "$size"
	fill "$SRC/warm" "$hot"
	cp "$SRC/big" "$SRC/warm" "$SSD/plain/"
	mkdir "$SRC/plain"
	cp "$SRC/big" "$SRC/plain/"
	sides[hdd]=$SRC/plain
	drop_caches
	mount_hybridfs
	"$hybridfs" promote --range "0:$hot" "$MNT/big" >/dev/null || die "cannot promote"
	"$hybridfs" promote "$MNT/warm" >/dev/null || die "cannot promote"
	delays on
	compare 'hot set, O_DIRECT random read 4k, 16 jobs' IOPS 0.45 ssd hybridfs -- \
		hot_reads --numjobs=16
	compare 'hot set, latency of a 4k read' us '' ssd hybridfs -- latency
	compare 'page cache, random read 4k, 4 jobs' IOPS 0.8 ssd hybridfs -- cached_reads
	before=cold_nocache
	compare 'cold sequential read 1M' B/s 0.97 hdd hybridfs -- stream_read
	compare 'streaming write 1M' B/s 0.97 hdd hybridfs -- stream_write
	compare 'O_DIRECT random write 4k into cold data' IOPS 50 hdd hybridfs -- random_writes
	before=nothing
	delays off # what is left to write back is no figure of this group
	umount_hybridfs
}
