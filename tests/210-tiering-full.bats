#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A full SSD costs speed, never data or errors; a full SRC is told to the writer, at once.

load lib/common

teardown() {
	hfs_teardown
}

# takes_at_most BYTES DIR...: on disk, up to what directories and the filesystem itself need.
takes_at_most() {
	[ "$(du -sc --block-size=1 "${@:2}" | tail -n 1 | cut -f1)" -le $(($1 + (1 << 20))) ]
}

# used_fits: the mount says that it uses no more than its cap, and its copies of files do not.
used_fits() {
	hfs_true '.mounts[0] | .ssd_used_bytes <= .ssd_cap_bytes'
	takes_at_most "$(hfs_json '.mounts[0].ssd_cap_bytes')" "$SSD"/volumes/*/objects
}

# 20 MiB of 4 KiB or smaller blocks.
src_has_room() {
	[ "$(($(stat -f -c '%a * %S' "$SRC")))" -gt $((20 << 20)) ]
}

@test "a working set of several times the SSD is written and read back" {
	local total=${HFS_BIG:+1024} i

	total=${total:-256}
	hfs_setup loops $((total + 200))M 64M
	hfs_mount dirty_expire=1
	for ((i = 0; i < total / 4; i++)); do
		hfs_pattern $i $((4000000 + i)) >"$MNT/file$i"
		((i % 8)) || used_fits
	done
	for ((i = 0; i < total / 4; i++)); do
		cmp <(hfs_pattern $i $((4000000 + i))) "$MNT/file$i"
		((i % 8)) || used_fits
	done
	hfs_true '.mounts[0] | .healthy and .errors == 0'
	hfs_umount
	for ((i = 0; i < total / 4; i++)); do
		cmp <(hfs_pattern $i $((4000000 + i))) "$SRC/file$i"
	done
}

@test "small random rewrites of more than the SSD can hold" {
	hfs_setup loops 300M 64M
	hfs_pattern 1 100M >"$TOP/expected"
	cp "$TOP/expected" "$SRC/file"
	hfs_mount dirty_expire=1
	for i in {1..400}; do
		hfs_pattern "$i" 100000 >"$TOP/piece"
		for file in "$TOP/expected" "$MNT/file"; do
			dd if="$TOP/piece" of="$file" bs=100000 seek=$((i * 7919 % 1040)) conv=notrunc \
				status=none
		done
	done
	used_fits
	cmp "$TOP/expected" "$MNT/file"
	hfs_true '.mounts[0] | .healthy and .errors == 0'
	hfs_umount
	cmp "$TOP/expected" "$SRC/file"
}

@test "the SSD filesystem is filled up by somebody else: writes go on, all bytes are right" {
	hfs_setup loops 300M 64M
	hfs_mount dirty_expire=1
	hfs_pattern 1 3000000 >"$MNT/before"
	dd if=/dev/zero of="$SSD/somebody" bs=1M 2>/dev/null || :
	for i in {1..30}; do
		hfs_pattern "$i" 1000000 >"$MNT/file$i"
	done
	hfs_pattern 2 3000000 | dd of="$MNT/before" conv=notrunc,fsync status=none
	rm "$SSD/somebody"
	cmp <(hfs_pattern 2 3000000) "$MNT/before"
	hfs_umount
	for i in {1..30}; do
		cmp <(hfs_pattern "$i" 1000000) "$SRC/file$i"
	done
	cmp <(hfs_pattern 2 3000000) "$SRC/before"
}

@test "an SSD that is full of pinned data: pins come and go, writing and fsync go on" {
	hfs_setup loops 300M 64M
	mkdir -p "$SRC"/dirs/{1..200}
	for i in {1..16}; do hfs_pattern "$i" 4M >"$SRC/pinned$i"; done
	hfs_mount
	"$HYBRIDFS" pin -q "$MNT"/pinned* 2>/dev/null || :	# until nothing fits any more
	for i in {1..8}; do
		"$HYBRIDFS" pin -q "$MNT"/dirs/* 2>/dev/null || :	# what is in them does not fit
		"$HYBRIDFS" unpin -q "$MNT"/dirs/*
		hfs_pattern "$i" 50000 | dd of="$MNT/dirs/$i/new" bs=10k conv=fsync status=none
		hfs_pattern "$i" 50000 | dd of="$MNT/pinned1" bs=10k conv=notrunc,fsync status=none
	done
	cmp <(hfs_pattern 8 50000) "$MNT/dirs/8/new"
	hfs_true '.mounts[0] | .healthy and .errors == 0 and .ssd_used_bytes <= .ssd_cap_bytes'
	"$HYBRIDFS" unpin -q "$MNT"
	hfs_umount
	cmp <(hfs_pattern 8 50000) <(head -c 50000 "$SRC/pinned1")
}

@test "size= is respected" {
	hfs_setup loops 300M 256M
	hfs_mount size=16M,seq_cutoff=0,dirty_expire=1
	[ "$(hfs_json '.mounts[0].ssd_cap_bytes')" -eq $((16 << 20)) ]
	for i in {1..24}; do
		hfs_pattern "$i" 2M >"$MNT/file$i"
		used_fits
	done
	for i in {1..24}; do
		"$HYBRIDFS" promote -q "$MNT/file$i"
		used_fits
		cmp <(hfs_pattern "$i" 2M) "$MNT/file$i"
	done
	takes_at_most $((16 << 20)) "$SSD/volumes" # with catalog and journal
	hfs_umount
}

@test "files that stay open give up their clean copies like others" {
	hfs_setup loops 300M 64M
	for i in {1..20}; do hfs_pattern "$i" 2M >"$SRC/file$i"; done
	hfs_mount size=16M
	for i in {1..20}; do
		eval "exec $((i + 100))<'$MNT/file$i'"
		"$HYBRIDFS" promote -q "$MNT/file$i"
		used_fits
	done
	for i in {1..20}; do
		cmp <(hfs_pattern "$i" 2M) "/proc/self/fd/$((i + 100))"
		eval "exec $((i + 100))<&-"
	done
	hfs_umount
}

@test "what is dirty leaves by itself when nobody writes, also when the SSD is full of it" {
	hfs_setup loops 300M 64M
	hfs_mount dirty_expire=1,dirty_ratio=90,seq_cutoff=0
	for i in {1..20}; do
		hfs_pattern "$i" 2M >"$MNT/file$i"
	done
	hfs_wait_until hfs_clean
	used_fits
	hfs_umount
}

@test "SRC full: the writer is told when it writes, and what was accepted is there" {
	local size

	hfs_setup loops 64M 256M
	hfs_pattern 1 100M >"$TOP/data"
	hfs_mount dirty_expire=3600,dirty_ratio=90,dirty_background_ratio=90,seq_cutoff=0
	run dd if="$TOP/data" of="$MNT/file" bs=64k
	[ "$status" -ne 0 ]
	[[ $output == *'No space left on device'* ]]
	size=$(stat -c %s "$MNT/file")
	[ "$size" -gt 30000000 ]
	"$HYBRIDFS" flush "$MNT"
	hfs_clean
	hfs_true '.mounts[0] | .healthy and .errors == 0'
	cmp -n "$size" "$TOP/data" "$SRC/file"
	rm "$MNT/file"
	hfs_wait_until src_has_room # the kernel forgets the file a moment after rm
	hfs_pattern 2 10M >"$MNT/after"
	hfs_umount
	cmp <(hfs_pattern 2 10M) "$SRC/after"
}

@test "SRC full, many small files at once: nothing that was closed without error is lost" {
	local i pids=()

	hfs_setup loops 48M 256M
	hfs_mount dirty_expire=1
	for i in 1 2 3; do
		fill_with_files "$i" 3>&- &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i"; done
	[ "$(wc -l <"$TOP/kept")" -gt 50 ]
	hfs_wait_until hfs_clean
	hfs_true '.mounts[0] | .healthy and .errors == 0'
	hfs_umount
	while read -r i; do
		cmp <(hfs_pattern "$i" 200000) "$SRC/file$i"
	done <"$TOP/kept"
}

# fill_with_files N: files until one fails; the numbers of those that did not are in $TOP/kept.
fill_with_files() {
	local i

	for ((i = $1 * 1000; i < $1 * 1000 + 900; i++)); do
		hfs_pattern $i 200000 | dd of="$MNT/file$i" bs=50k status=none 2>/dev/null || return 0
		echo $i >>"$TOP/kept"
	done
}

# I8: whoever fills the SSD, applications do not notice.
@test "somebody else fills the SSD: writes and fsyncs go on, across a crash too" {
	local i

	hfs_setup loops 300M 128M
	hfs_pattern 5 20M >"$SRC/cold"
	hfs_mount dirty_expire=1
	"$HYBRIDFS" promote -q "$MNT/cold"
	dd if=/dev/zero of="$SSD/other" bs=64K status=none 2>"$TOP/full" || grep -q 'No space' "$TOP/full"
	for i in {1..1500}; do
		hfs_pattern "$i" 12288 | dd of="$MNT/cold" bs=4K seek=$((i * 7 % 5000)) conv=notrunc,fdatasync \
			status=none
		hfs_pattern "$i" 5000 | dd of="$MNT/new$((i % 300))" bs=5000 conv=fsync status=none
	done
	hfs_true '.mounts[0] | .healthy and .errors == 0'
	md5sum "$MNT"/cold "$MNT"/new* >"$TOP/sums"
	hfs_kill9
	hfs_mount dirty_expire=1
	md5sum -c --quiet "$TOP/sums"
	rm "$SSD/other"
	hfs_wait_until hfs_true '.mounts[0] | .ssd_cap_bytes > 90000000 and .dirty_bytes == 0'
	hfs_umount
	(cd "$SRC" && sed "s,$MNT/,," "$TOP/sums" | md5sum -c --quiet)
}

# inodes_left N: but for so many all inodes of the SSD are taken.
inodes_left() {
	local i n

	n=$(stat -f -c %d "$SSD")
	for ((i = $1; i < n; i++)); do : >"$SSD/taken.$RANDOM.$i"; done
	[ "$(stat -f -c %d "$SSD")" -eq "$1" ]
}

# twenty_files DIR: they are as they were written.
twenty_files() {
	local i

	for i in {1..20}; do cmp <(hfs_pattern "$i" 30000) "$1/file$i" || return; done
}

# I8: 256 directories for objects, an inode for each object, and none to spare.
@test "an SSD without free inodes: refused in one line, or all goes to SRC, across a crash too" {
	local n mounted=0 refused=0

	hfs_setup loops 200M 64M
	umount "$SSD"
	mkfs.ext4 -q -F -m 0 -N 16 "$SSD.img"
	mount -o loop "$SSD.img" "$SSD"
	for n in 0 3 5 6 8 9 10 13 20; do
		rm -rf "${SSD:?}"/* "$SRC"/file*
		inodes_left "$n"
		run "$HYBRIDFS" "$SRC" "$SSD" "$MNT" -o dirty_expire=3600 3>&-
		if [ "$status" -ne 0 ]; then
			[ "$status" -eq 32 ]
			[ "${#lines[@]}" -eq 1 ]
			[[ $output == *'No space left on device'*'free inodes on the SSD)' ]]
			refused=$((refused + 1))
			continue
		fi
		"$HYBRIDFS" umount "$MNT"
		hfs_mount dirty_expire=3600
		for i in {1..20}; do
			hfs_pattern "$i" 30000 | dd of="$MNT/file$i" bs=7k conv=fsync status=none
		done
		hfs_true '.mounts[0] | .healthy and .errors == 0'
		hfs_kill9
		inodes_left 0
		hfs_mount dirty_expire=3600
		twenty_files "$MNT"
		hfs_umount
		twenty_files "$SRC"
		"$HYBRIDFS" check --scrub "$SRC" "$SSD"
		mounted=$((mounted + 1))
	done
	[ "$mounted" -ge 3 ] && [ "$refused" -ge 3 ]
	# Then somebody takes those of a volume that is not mounted: that much is needed.
	inodes_left 0
	run -32 "$HYBRIDFS" "$SRC" "$SSD" "$MNT" 3>&-
	[[ $output == *'No space left on device (0 free inodes on the SSD)' ]]
}
