# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154,SC2034
#
# A pinned file, which the kernel reads and writes without the daemon, against the plain SSD; and
# what the plainest filesystem with passthrough gets, which is the bound.

pinned_bytes=$((256 << 20))

# What is measured is the way to the page cache, so the pages stay.
cached_io() { iops "$1" --bs=4k --filename=pinned --size=$pinned_bytes --invalidate=0 "${@:2}"; }
direct_io() { iops "$1" --bs=4k --filename=pinned --size=$pinned_bytes --direct=1 "${@:2}"; }

stream() {
	bandwidth "$1" --bs=1m --filename=pinned --size=$pinned_bytes --invalidate=0 "${@:2}"
}

warm_up() {
	cat "${sides[$1]}/pinned" >/dev/null
}

# What was written before is no business of the next.
settle() {
	sync -f "$SSD"
	warm_up "$1"
}

group_pinned() {
	local list=(ssd)

	bench_up 2G 3G
	fill "$SRC/pinned" $pinned_bytes
	cp "$SRC/pinned" "$SSD/plain/"
	mkdir "$SSD/peer"
	cp "$SRC/pinned" "$SSD/peer/"
	mount_hybridfs
	"$hybridfs" pin "$MNT/pinned" >/dev/null || die "cannot pin"
	mount_peer "$SSD/peer" && list+=(passthrough)
	list+=(hybridfs)
	delays on
	before=warm_up
	compare 'pinned, random read 4k' IOPS 0.9 "${list[@]}" -- cached_io --rw=randread
	compare 'pinned, random read 4k, 4 jobs' IOPS 0.9 "${list[@]}" -- \
		cached_io --rw=randread --numjobs=4
	compare 'pinned, random read 4k, mmap' IOPS 0.95 "${list[@]}" -- \
		cached_io --rw=randread --ioengine=mmap
	compare 'pinned, O_DIRECT random read 4k, 16 jobs' IOPS 0.95 "${list[@]}" -- \
		direct_io --rw=randread --numjobs=16
	before=settle
	compare 'pinned, random write 4k' IOPS 0.85 "${list[@]}" -- cached_io --rw=randwrite
	compare 'pinned, O_DIRECT random write 4k, libaio depth 32' IOPS 0.95 "${list[@]}" -- \
		direct_io --rw=randwrite --ioengine=libaio --iodepth=32
	compare 'pinned, random write 4k + fdatasync' IOPS 0.85 "${list[@]}" -- \
		cached_io --rw=randwrite --fdatasync=1
	compare 'pinned, sequential read 1M' B/s 0.95 "${list[@]}" -- stream --rw=read
	compare 'pinned, sequential write 1M' B/s 0.95 "${list[@]}" -- stream --rw=write
	before=nothing
	delays off
	umount_hybridfs
}
