#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Programs that ask much of a filesystem work on the mount, and SRC has all of it afterwards.

load lib/common
load lib/trees

setup() {
	hfs_setup loops 1G 256M
	hfs_loop_fs "$TOP/plain" 512M ext4
	export GIT_CONFIG_GLOBAL=$TOP/gitconfig HOME=$TOP
	git config --file "$GIT_CONFIG_GLOBAL" safe.directory '*'
	hfs_mount dirty_expire=1
}

teardown() {
	hfs_teardown
}

# no_difference A B: rsync, which compares more than others do, would have nothing to do.
no_difference() {
	run rsync -aHAXSn --delete --checksum --itemize-changes "$1/" "$2/"
	echo "$output"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

# copied A B: all that a copy can keep is the same; what was sparse is sparse.
copied() {
	diff <(hfs_listing -c "$1") <(hfs_listing -c "$2")
	[ "$(stat -c %b "$2/sparse")" -lt 4096 ]
}

@test "git: clone, checkout, gc and fsck" {
	[ -d "$HFS_ROOT/.git" ] || skip "not in a clone of the repository"
	git clone -q "file://$HFS_ROOT" "$MNT/clone"
	cd "$MNT/clone"
	git checkout -q -b other
	git rm -q -r tests
	git -c user.name=t -c user.email=t@example.org commit -q -m 'remove tests'
	git checkout -q -
	git gc -q --aggressive --prune=now
	git fsck --strict
	[ -z "$(git status --porcelain)" ]
	cd /
	hfs_umount
	git -C "$SRC/clone" fsck --strict
}

@test "tar and make: this project unpacks, compiles and runs on the mount" {
	tar -C "$HFS_ROOT" --exclude=./build --exclude=./.git --exclude=./hybridfs -cf - . |
		tar -C "$MNT" -xf -
	env -u MAKEFLAGS make -s -C "$MNT" -j2 CFLAGS=-O0
	[[ $("$MNT/hybridfs" --version) == hybridfs* ]]
	cp "$MNT/hybridfs" "$TOP/built"
	hfs_umount
	cmp "$TOP/built" "$SRC/hybridfs"
}

@test "rsync -aHAXS to the mount and back finds no difference" {
	hfs_zoo "$TOP/plain/zoo"
	rsync -aHAXS "$TOP/plain/zoo/" "$MNT/zoo/"
	copied "$TOP/plain/zoo" "$MNT/zoo"
	no_difference "$TOP/plain/zoo" "$MNT/zoo"
	rsync -aHAXS "$MNT/zoo/" "$TOP/plain/back/"
	copied "$TOP/plain/zoo" "$TOP/plain/back"
	hfs_umount
	no_difference "$TOP/plain/zoo" "$SRC/zoo"
}

@test "tar with -S, extended attributes and ACLs keeps everything, both ways" {
	local as=(--format=posix --xattrs '--xattrs-include=*' --acls -S)

	hfs_zoo "$TOP/plain/zoo"
	rm "$TOP/plain/zoo/socket"	# tar does not store sockets
	touch -d '2002-02-02 02:02:02.222222222' "$TOP/plain/zoo" # removing it moved the time
	mkdir "$MNT/zoo" "$TOP/plain/back"
	tar -C "$TOP/plain/zoo" "${as[@]}" -cf - . | tar -C "$MNT/zoo" "${as[@]}" -xpf -
	copied "$TOP/plain/zoo" "$MNT/zoo"
	tar -C "$MNT/zoo" "${as[@]}" -cf - . | tar -C "$TOP/plain/back" "${as[@]}" -xpf -
	copied "$TOP/plain/zoo" "$TOP/plain/back"
	hfs_umount
	copied "$TOP/plain/zoo" "$SRC/zoo"
}

@test "cp -a and cp --sparse=always" {
	hfs_zoo "$TOP/plain/zoo"
	cp -a "$TOP/plain/zoo" "$MNT/zoo"
	copied "$TOP/plain/zoo" "$MNT/zoo"
	truncate -s 20M "$TOP/zeros"
	cat "$TOP/plain/zoo/old" "$TOP/zeros" "$TOP/plain/zoo/old" >"$MNT/full"
	cp --sparse=always "$MNT/full" "$MNT/thin"
	cmp "$MNT/full" "$MNT/thin"
	hfs_umount
	cmp "$SRC/full" "$SRC/thin"
	[ "$(stat -c %b "$SRC/thin")" -lt 4096 ]
}

# many_writers MODE: four sqlite processes write and read in one database; nothing gets lost.
many_writers() {
	local i pids=()

	sqlite3 "$MNT/db" "PRAGMA journal_mode=$1; CREATE TABLE t (who, n, data);" >/dev/null
	for i in 1 2 3 4; do
		some_transactions "$i" | sqlite3 -bail "$MNT/db" >/dev/null 3>&- &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i"; done
	consistent "$MNT/db"
	hfs_umount
	consistent "$SRC/db"
}

some_transactions() {
	local n

	echo '.timeout 60000'
	echo 'PRAGMA synchronous=NORMAL; PRAGMA mmap_size=67108864;'
	for n in {1..40}; do
		echo "BEGIN IMMEDIATE; INSERT INTO t VALUES ($1, $n, hex(randomblob(3000)));"
		echo 'UPDATE t SET data = hex(randomblob(500)) WHERE n % 7 = 3; COMMIT;'
		echo 'SELECT count(*), max(n) FROM t;'
	done
}

consistent() {
	[ "$(sqlite3 "$1" 'PRAGMA integrity_check')" = ok ]
	[ "$(sqlite3 "$1" 'SELECT group_concat(s) FROM (SELECT sum(n) s FROM t GROUP BY who)')" = \
		820,820,820,820 ]
}

@test "SQLite in WAL mode, four processes" {
	many_writers wal
}

@test "SQLite with a rollback journal, four processes" {
	many_writers delete
}

@test "flock and fcntl locks hold between two processes, until they are given back" {
	flock "$MNT/lock" sh -c '! flock -n "$1" true' sh "$MNT/lock"
	flock -n "$MNT/lock" true
	flock -s "$MNT/lock" flock -ns "$MNT/lock" true
	run sqlite3 "$MNT/db" 'CREATE TABLE t(a); BEGIN EXCLUSIVE;' \
		".shell sqlite3 '$MNT/db' 'BEGIN IMMEDIATE'" 'COMMIT;'
	[[ $output == *'database is locked'* ]]
	sqlite3 "$MNT/db" 'BEGIN EXCLUSIVE; COMMIT;'
	hfs_umount
}

# shape FILE: allocate, punch and zero; the same calls on any filesystem.
shape() {
	hfs_pattern 0 1500000 >"$1"
	fallocate -l 4M "$1"
	fallocate -p -o 100000 -l 300000 "$1"
	fallocate -z -o 700001 -l 5000 "$1"
	fallocate -n -l 8M "$1"
	fallocate -z -n -o 4190000 -l 100000 "$1"
	fallocate -d "$1"
	truncate -s 4190001 "$1"
}

@test "fallocate: allocating, punching, zeroing and digging give the same file" {
	shape "$TOP/plain/file"
	shape "$MNT/file"
	hfs_same "$TOP/plain/file" "$MNT/file"
	[ "$(stat -c %s "$MNT/file")" -eq 4190001 ]
	hfs_uncache "$MNT/file"
	hfs_same "$TOP/plain/file" "$MNT/file"
	hfs_umount
	hfs_same "$TOP/plain/file" "$SRC/file"
}
