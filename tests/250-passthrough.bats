#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Files that the kernel reads and writes by itself (passthrough): programs see the right bytes whatever
# happens beside them, and what they write gets to SRC.

load lib/common

setup() {
	hfs_need_root
	hfs_need python3 jq
	hfs_setup loops 256M 128M
	hfs_fill "$SRC/file" 3000001
	cp "$SRC/file" "$TOP/ref"
	hfs_mount dirty_expire=1
	[ "$(hfs_json '.mounts[0].passthrough')" = true ] || skip "no passthrough on this kernel"
}

teardown() {
	[ -z "${HELD-}" ] || { kill "$HELD" && wait "$HELD"; } 2>/dev/null || :
	hfs_teardown
}

# passed: opens so far that were given the object.
passed() {
	hfs_json '.mounts[0].passthrough_opens'
}

pin_file() {
	"$HYBRIDFS" pin "$MNT/file"
	[ "$(hfs_stat '.files[0].passthrough' "$MNT/file")" = true ]
}

# hold PYTHON: a program with `fd` (read-write) and `m` (a shared mapping) of the file, which runs the
# lines that `tell` sends, and answers.
hold() {
	mkfifo "$TOP/in" "$TOP/out"
	python3 -c '
import mmap, os, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR)
m = mmap.mmap(fd, 3000001)
for line in open(sys.argv[2]):
    if line == "end\n":
        break
    try:
        answer = eval(line)
    except OSError as e:
        answer = e.errno
    with open(sys.argv[3], "w") as f:
        print(answer, file=f)
' "$MNT/file" "$TOP/in" "$TOP/out" 3>&- &
	HELD=$!
	exec 9>"$TOP/in"
}

# tell EXPRESSION: what the program answers.
tell() {
	printf '%s\n' "$1" >&9
	cat "$TOP/out"
}

# Not by closing the pipe: a daemon that was started since has it as well.
let_go() {
	echo end >&9
	exec 9>&-
	wait "$HELD"
	HELD=
}

# settled: nobody has an object any more.
settled() {
	hfs_true '.mounts[0].passthrough_files == 0'
}

src_has() {
	[ "$(dd if="$SRC/file" iflag=skip_bytes,count_bytes skip="$1" count=${#2} status=none)" = "$2" ]
}

mode_is() {
	[ "$(stat -c %a "$MNT/file")" = "$1" ]
}

begins_with() {
	[ "$(head -c ${#1} "$MNT/file")" = "$1" ]
}

# killed: the daemon dies; the programs that have files open stay.
killed() {
	kill -KILL "$HFS_PID"
	hfs_wait_exit
	umount -l "$MNT"
}

@test "a pinned file is served by the kernel: buffered, direct and mapped reads give the right bytes" {
	local before

	pin_file
	before=$(passed)
	cmp "$MNT/file" "$TOP/ref"
	cmp <(dd if="$MNT/file" iflag=direct bs=1M status=none) "$TOP/ref"
	hold
	[ "$(tell 'open("'"$TOP/ref"'", "rb").read() == m[:]')" = True ]
	let_go
	[ "$(passed)" -ge $((before + 3)) ]
	hfs_umount
	cmp "$SRC/file" "$TOP/ref"
}

@test "writes by descriptor and mapping are in SRC after close and flush, size and mtime too" {
	pin_file
	hold
	tell 'os.pwrite(fd, b"by fd", 100000)'
	tell 'm.__setitem__(slice(200000, 200006), b"mapped")'
	tell 'os.pwrite(fd, b"behind the end", 3000001)'
	[ "$(stat -c %s "$MNT/file")" = 3000015 ]
	let_go
	"$HYBRIDFS" flush "$MNT/file"
	src_has 100000 'by fd'
	src_has 200000 mapped
	src_has 3000001 'behind the end'
	[ "$(stat -c %Y%s "$MNT/file")" = "$(stat -c %Y%s "$SRC/file")" ]
	hfs_umount
}

@test "a database that never closes its file is written back nevertheless" {
	pin_file
	hold
	tell 'os.pwrite(fd, b"first", 500000)'
	hfs_wait_until src_has 500000 first
	tell 'os.pwrite(fd, b"again", 500000)'
	hfs_wait_until src_has 500000 again
	let_go
	hfs_umount
}

@test "whoever opens a file while the kernel serves it joins: append, truncate, direct, small files" {
	pin_file
	hold
	echo appended >>"$MNT/file"
	[ "$(tell 'os.pread(fd, 8, 3000001)')" = "b'appended'" ]
	printf x | dd of="$MNT/file" conv=notrunc bs=1 seek=10 status=none
	[ "$(tell 'os.pread(fd, 1, 10)')" = "b'x'" ]
	[ "$(tell 'm[10:11]')" = "b'x'" ]
	truncate -s 5000 "$MNT/file"
	[ "$(tell 'len(os.pread(fd, 100, 4990))')" = 10 ]
	truncate -s 9000 "$MNT/file"
	[ "$(tell 'os.pread(fd, 4, 5000)')" = "b'\\x00\\x00\\x00\\x00'" ]
	echo new >"$MNT/file"
	[ "$(tell 'os.pread(fd, 100, 0)')" = "b'new\\n'" ]
	let_go
	hfs_umount
	[ "$(cat "$SRC/file")" = new ]
}

@test "demotion is refused while a program has the file, by a mapping alone too, and works after it" {
	pin_file
	hold
	"$HYBRIDFS" unpin "$MNT/file"
	run "$HYBRIDFS" demote "$MNT/file"
	[ "$status" -ne 0 ]
	tell 'os.close(fd)'
	run "$HYBRIDFS" demote "$MNT/file"
	[ "$status" -ne 0 ]
	tell 'm.__setitem__(slice(0, 4), b"late")'
	[ "$(tell 'm[3000000] == open("'"$TOP/ref"'", "rb").read()[-1]')" = True ]
	let_go
	hfs_wait_until settled
	"$HYBRIDFS" demote "$MNT/file"
	[ "$(head -c 4 "$MNT/file")" = late ]
	hfs_umount
	src_has 0 late
}

@test "a file promoted while it is open moves at its next open, and stat says so" {
	exec 8<"$MNT/file"
	read -rN 1 -u 8 || :
	"$HYBRIDFS" promote "$MNT/file"
	[ "$(hfs_stat '.files[0].passthrough' "$MNT/file")" = false ]
	[[ $("$HYBRIDFS" stat "$MNT/file") == *"from the next open on"* ]]
	cmp "$MNT/file" "$TOP/ref"
	exec 8<&-
	[ "$(hfs_stat '.files[0].passthrough' "$MNT/file")" = true ]
	cmp "$MNT/file" "$TOP/ref"
	hfs_umount
}

@test "kill -9: a program goes on writing the object, and the next daemon loses nothing of it" {
	pin_file
	hold
	tell 'os.pwrite(fd, b"before", 100000)'
	killed
	tell 'os.pwrite(fd, b"between", 300000)'
	tell 'os.pwrite(fd, b"longer", 3000001)'
	hfs_mount dirty_expire=1
	[ "$(dd if="$MNT/file" iflag=skip_bytes,count_bytes skip=300000 count=7 status=none)" = between ]
	tell 'os.pwrite(fd, b"after", 600000)'
	[ "$(dd if="$MNT/file" iflag=skip_bytes,count_bytes skip=600000 count=5 status=none)" = after ]
	[ "$(stat -c %s "$MNT/file")" = 3000007 ]
	let_go
	hfs_wait_until settled
	hfs_umount
	src_has 100000 before
	src_has 300000 between
	src_has 600000 after
	src_has 3000001 longer
}

@test "a daemon that is told to end while a program has a mapping: later stores are not missed" {
	pin_file
	hold
	tell 'os.close(fd)'
	kill -TERM "$HFS_PID"
	hfs_wait_exit
	tell 'm.__setitem__(slice(70000, 70005), b"store")'
	hfs_mount dirty_expire=1
	[ "$(dd if="$MNT/file" iflag=skip_bytes,count_bytes skip=70000 count=5 status=none)" = store ]
	let_go
	hfs_wait_until settled
	hfs_umount
	src_has 70000 store
}

@test "fsync by a program makes its data survive a kill" {
	pin_file
	hold
	tell 'os.pwrite(fd, b"synced", 123456)'
	tell 'os.pwrite(fd, b"grown", 3000001)'
	tell 'os.fdatasync(fd)'
	killed
	let_go
	hfs_mount
	[ "$(tail -c 5 "$MNT/file")" = grown ]
	[ "$(dd if="$MNT/file" iflag=skip_bytes,count_bytes skip=123456 count=6 status=none)" = synced ]
	hfs_umount
}

@test "a write by somebody who is not root takes setuid away, before and after it is opened" {
	chmod 4777 "$MNT/file"
	pin_file
	setpriv --reuid=65534 --clear-groups dd if=/dev/zero of="$MNT/file" bs=10 count=1 \
		conv=notrunc status=none
	[ "$(stat -c %a "$MNT/file")" = 777 ]
	mkfifo "$TOP/go"
	setpriv --reuid=65534 --clear-groups bash -c \
		'exec 7<>"$1" && echo open && read -r && printf x >&7' sh "$MNT/file" \
		<"$TOP/go" >"$TOP/opened" 3>&- &
	HELD=$!
	exec 9>"$TOP/go"
	hfs_wait_until test -s "$TOP/opened"
	chmod 4777 "$MNT/file"
	echo >&9
	exec 9>&-
	wait "$HELD"
	HELD=
	hfs_wait_until mode_is 777
	hfs_umount
}

@test "passthrough=off, other modes, files with holes: cached, with the reason" {
	truncate -s 2M "$SRC/holes"
	printf x | dd of="$SRC/holes" conv=notrunc bs=1 seek=1M status=none
	"$HYBRIDFS" promote "$MNT/holes"
	[[ $(hfs_stat '.files[0].why_not_passthrough' "$MNT/holes") == *"not all of it"* ]]
	pin_file
	hfs_remount passthrough=off
	[[ $(hfs_stat '.files[0].why_not_passthrough' "$MNT/file") == *"passthrough=off"* ]]
	cmp "$MNT/file" "$TOP/ref"
	[ "$(passed)" = 0 ]
	hfs_remount mode=writethrough
	[ "$(hfs_stat '.files[0].passthrough' "$MNT/file")" = false ]
	cmp "$MNT/file" "$TOP/ref"
	hfs_remount
	[ "$(hfs_stat '.files[0].passthrough' "$MNT/file")" = true ]
	cmp "$MNT/file" "$TOP/ref"
	[ "$(passed)" -ge 1 ]
	hfs_umount
}

@test "SRC changed behind a program that reads: it goes on with what it has, the next one sees the new" {
	pin_file
	exec 8<"$MNT/file"
	printf changed | dd of="$SRC/file" conv=notrunc status=none
	stat "$MNT/file" >"$TOP/stat"
	head -c 7 <&8 >"$TOP/old"
	cmp -n 7 "$TOP/old" "$TOP/ref"
	exec 8<&-
	hfs_wait_until begins_with changed
	hfs_umount
}
