# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154,SC2034
#
# Names and attributes, against another FUSE filesystem over an equal directory.

# shellcheck disable=SC2016
meta_create() {
	rm -rf "$1/made"
	mkdir "$1/made"
	timed "$1" bash -c 'cd "$1/made" && for ((d = 0; d < $2 / 1000; d++)); do mkdir $d
		for ((f = 0; f < 1000; f++)); do echo x >$d/$f; done; done' - "$1" "$meta_files"
}

meta_stat() { timed "$1" find "$1/tree" -size +1M; }
meta_list() { timed "$1" ls -lR "$1/tree"; }
meta_remove() {
	meta_create "$1" >/dev/null
	timed "$1" rm -rf "$1/made"
}

meta_untar() {
	rm -rf "$1/untar"
	mkdir "$1/untar"
	timed "$1" tar -xf "$TOP/tree.tar" -C "$1/untar"
}

walk_again() {
	find "$1/tree" -size +1M >/dev/null
	timed "$1" find "$1/tree" -size +1M
}

forget() { echo 2 >/proc/sys/vm/drop_caches; }

group_meta() {
	meta_files=${files:-20000}
	bench_up 4G 8G
	mkdir -p "$SSD/plain/tree"
	meta_create "$SSD/plain" >/dev/null
	mv "$SSD/plain/made" "$SSD/plain/tree/"
	cp -a "$SSD/plain/tree" "$SRC/"
	tar -cf "$TOP/tree.tar" -C "$SSD/plain" tree
	mkdir "$SRC/peer"
	cp -a "$SSD/plain/tree" "$SRC/peer/"
	mount_hybridfs
	mount_mergerfs "$SRC/peer" || say "no mergerfs here"
	# All over the same disk, whose delays stay off: what the program costs.
	sides[native]=$SRC/peer
	local peers=(mergerfs hybridfs)

	mountpoint -q "$MERGED" || peers=(native hybridfs)
	compare "create $meta_files files" s 1 "${peers[@]}" -- meta_create
	compare 'untar' s 1 "${peers[@]}" -- meta_untar
	compare 'remove a tree' s 1 "${peers[@]}" -- meta_remove
	before=forget
	compare 'stat a tree' s 1 "${peers[@]}" -- meta_stat
	compare 'ls -lR' s 1 "${peers[@]}" -- meta_list
	before=nothing
	compare 'stat a tree again' s 0.9 native hybridfs -- walk_again
	umount "$MERGED"
	umount_hybridfs
}
