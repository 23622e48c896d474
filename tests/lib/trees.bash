# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# trees.bash - directory trees that are hard to keep, and exact descriptions of trees.

# hfs_zoo DIR: make DIR, with one of everything that a backup program may meet. Needs root, and a
# filesystem with ACLs, extended attributes and devices below.
hfs_zoo() {
	local dir=$1 long

	printf -v long '%255s' ''
	mkdir -p "$dir/sub/deep er/empty"
	hfs_zoo_names "$dir" "${long// /x}"
	hfs_zoo_data "$dir"
	hfs_zoo_nodes "$dir"
	hfs_zoo_rights "$dir"
	find "$dir" -exec touch -hd '2002-02-02 02:02:02.222222222' {} +
	touch -d '1999-12-31 23:59:59.123456789' "$dir/old"
	touch -hd '2001-02-03 04:05:06.000000007' "$dir/link"
}

hfs_zoo_names() {
	local name

	for name in 'a b' $'new\nline' $'not-utf8-\xff\xfe' '-rf' '*' "quote'\"" '\back' '...' "$2"; do
		printf '%s' "$name" >"$1/$name"
		mkdir "$1/sub/$name"
	done
	ln -s "$2" "$1/sub/link to long"
	ln -s 'no such file' "$1/link"
}

hfs_zoo_data() {
	: >"$1/empty"
	hfs_fill "$1/old" 3
	hfs_fill "$1/odd size" 300007
	hfs_fill "$1/big" 5M
	ln "$1/big" "$1/sub/big too"
	ln "$1/big" "$1/sub/deep er/big three"
	truncate -s 20M "$1/sparse"
	printf x | dd of="$1/sparse" bs=1M seek=9 conv=notrunc status=none
}

hfs_zoo_nodes() {
	mkfifo "$1/fifo"
	mknod "$1/null" c 1 3
	mknod "$1/block" b 7 200
	(cd "$1" && perl -MSocket -e \
		'socket(S, AF_UNIX, SOCK_STREAM, 0) && bind(S, sockaddr_un("socket")) or die $!')
}

hfs_zoo_rights() {
	printf '#!/bin/sh\n' >"$1/setuid"
	chown 1234:2345 "$1/setuid"
	chmod 6755 "$1/setuid"
	printf secret >"$1/none"
	chmod 0 "$1/none"
	chmod 1777 "$1/sub/deep er"
	chown -h 4321:5432 "$1/link"
	setfacl -m u:1234:rwx,g:2345:r,m:rx "$1/a b"
	setfacl -d -m u:1234:rwx "$1/sub"
	setfattr -n user.note -v "two words" "$1/old" "$1/sub"
	setfattr -n user.empty "$1/sub/big too"
	setfattr -n trusted.note -v t "$1/empty"
}

# hfs_listing [-c] DIR: everything about every path below DIR but its access time: type, mode,
# owner, links, size, times, target, device, extended attributes, ACLs, content (up to 100 MiB),
# inode number and blocks. -c leaves out what a copy can not keep: inode number, ctime, blocks,
# and sizes of directories.
hfs_listing() {
	local dir=("${@: -1}") all='|%s|%i|%b|%C@'

	[ "$1" != -c ] || all=
	(
		cd "${dir[0]}" || exit
		find . -printf "%P|%y|%m|%U|%G|%n|%T@|%l$all\0" | sort -z
		find . ! -type d -printf '%P|%s\0' | sort -z
		find . \( -type b -o -type c \) -exec stat --printf '%n|%t,%T\0' {} + | sort -z
		find . ! -type l -print0 | sort -z | xargs -0r getfattr -hdm- -e hex
		find . -type f -size -100M -print0 | sort -z | xargs -0r md5sum -z
	) | tr '\0' '\n'
}
