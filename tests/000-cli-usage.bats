#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Wrong use is refused in one clear line, with the right exit status, and changes nothing on disk;
# --help and --version work everywhere.

load lib/common

setup() {
	hfs_setup dirs
	echo data >"$SRC/file"
}

teardown() {
	hfs_teardown
}

usage=1 mount_failed=32
commands=(stat promote demote pin unpin flush sync status umount)

# call ARGS...: run hybridfs, bounded, with $status, $output and $stderr kept apart.
call() {
	run --separate-stderr timeout -k 5 30 "$HYBRIDFS" "$@" 3>&- </dev/null
}

# says REGEX: the message is for people: on stderr only, from hybridfs, and names what is wrong.
says() {
	[ -z "$output" ]
	[[ ${stderr_lines[0]} == hybridfs:* ]]
	grep -qiE -- "$1" <<<"$stderr"
}

# refused STATUS REGEX ARGS...: these arguments do not mount; nothing on disk is touched. Wrong
# use may add a hint where to read more; anything else is one line.
refused() {
	local want=$1 regex=$2 before

	shift 2
	before=$(hfs_snapshot)
	call "$@"
	echo "status $status, stderr: $stderr"
	[ "$status" -eq "$want" ]
	says "$regex"
	[ "${#stderr_lines[@]}" -le "$((want == mount_failed ? 1 : 2))" ]
	[ "$(hfs_snapshot)" = "$before" ]
	hfs_not hfs_mounted
}

# explains_itself COMMAND: --help says what it does, on stdout.
explains_itself() {
	call "$1" --help
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	grep -qw "$1" <<<"$output"
}

# ---- mounting ---------------------------------------------------------------------------------

@test "no arguments at all: how to use it, on stderr" {
	call
	[ "$status" -eq "$usage" ]
	[ -z "$output" ]
	[[ $stderr == *SRC*SSD*MNT* ]]
}

@test "an operand is missing, or one is too many" {
	refused "$usage" 'missing|usage' "$SRC" "$SSD"
	refused "$usage" 'operand|argument|unexpected|usage' "$SRC" "$SSD" "$MNT" "$TOP/extra"
}

@test "an unknown flag is named" {
	refused "$usage" '--bogus' "$SRC" "$SSD" "$MNT" --bogus
	refused "$usage" 'option' "$SRC" "$SSD" "$MNT" -Z
	refused "$usage" 'option|argument|-o' "$SRC" "$SSD" "$MNT" -o
}

@test "an unknown mount option is named" {
	refused "$usage" 'bogus' "$SRC" "$SSD" "$MNT" -o bogus
	refused "$usage" 'bogus' "$SRC" "$SSD" "$MNT" -o size=1G,bogus=3
}

@test "sizes that are none are refused, naming the option" {
	local value

	for value in 12Q abc -1 '' 1.5.2G 99999999999999T; do
		refused "$usage" 'size' "$SRC" "$SSD" "$MNT" -o "size=$value"
		refused "$usage" 'seq_cutoff' "$SRC" "$SSD" "$MNT" -o "seq_cutoff=$value"
	done
}

@test "values out of range are refused, naming the option" {
	refused "$usage" 'mode' "$SRC" "$SSD" "$MNT" -o mode=fast
	refused "$usage" 'dirty_ratio' "$SRC" "$SSD" "$MNT" -o dirty_ratio=101
	refused "$usage" 'dirty_background_ratio' "$SRC" "$SSD" "$MNT" -o dirty_background_ratio=x
	refused "$usage" 'promote_hits' "$SRC" "$SSD" "$MNT" -o promote_hits=many
	refused "$usage" 'dirty_expire' "$SRC" "$SSD" "$MNT" -o dirty_expire=-3
	refused "$usage" 'passthrough' "$SRC" "$SSD" "$MNT" -o passthrough=perhaps
	refused "$usage" 'watermark' "$SRC" "$SSD" "$MNT" -o low_watermark=95,high_watermark=90
}

@test "SRC does not exist" {
	refused "$mount_failed" "$TOP/nowhere.*no such" "$TOP/nowhere" "$TOP/newssd" "$MNT"
}

@test "SRC is not a directory" {
	refused "$mount_failed" "$SRC/file.*not a directory" "$SRC/file" "$TOP/newssd" "$MNT"
}

@test "MNT does not exist" {
	refused "$mount_failed" "$TOP/nowhere.*no such" "$SRC" "$TOP/newssd" "$TOP/nowhere"
}

@test "MNT is not a directory" {
	touch "$TOP/plain"
	refused "$mount_failed" "$TOP/plain.*not a directory" "$SRC" "$TOP/newssd" "$TOP/plain"
}

@test "SSD is not a directory" {
	touch "$TOP/plain"
	refused "$mount_failed" "$TOP/plain.*not a directory" "$SRC" "$TOP/plain" "$MNT"
}

@test "SRC lies inside SSD" {
	mkdir "$SSD/data"
	refused "$mount_failed" 'inside' "$SSD/data" "$SSD" "$MNT"
}

@test "SSD lies inside SRC, existing or to be created" {
	mkdir "$SRC/cache"
	refused "$mount_failed" 'inside' "$SRC" "$SRC/cache" "$MNT"
	refused "$mount_failed" 'inside' "$SRC" "$SRC/newcache" "$MNT"
}

@test "SRC and SSD are the same, also through a symbolic link" {
	refused "$mount_failed" 'same|inside' "$SRC" "$SRC" "$MNT"
	ln -s src "$TOP/alias"
	refused "$mount_failed" 'same|inside' "$SRC" "$TOP/alias" "$MNT"
}

@test "a second mount of the same SRC on the same SSD is refused, the first goes on" {
	mkdir "$TOP/other"
	hfs_mount
	call "$SRC" "$SSD" "$TOP/other"
	[ "$status" -eq "$mount_failed" ]
	says 'in use|locked|already|another'
	[ "${#stderr_lines[@]}" -eq 1 ]
	hfs_not hfs_mounted "$TOP/other"
	[ "$(cat "$MNT/file")" = data ]
	hfs_umount
}

# ---- commands ---------------------------------------------------------------------------------

@test "an unknown command is named" {
	refused "$usage" 'frobnicate' frobnicate
	refused "$usage" 'frobnicate' frobnicate "$SRC/file"
}

@test "a command without its operand: usage" {
	local command

	for command in stat promote demote pin unpin flush sync umount; do
		refused "$usage" "missing|operand|usage" "$command"
	done
}

@test "a command's unknown flag is named" {
	local command

	for command in "${commands[@]}"; do
		refused "$usage" '--bogus' "$command" --bogus "$SRC/file"
	done
}

@test "a path that is not on a hybridfs mount" {
	local command

	for command in stat promote demote pin unpin flush sync; do
		call "$command" "$SRC/file"
		[ "$status" -eq 1 ]
		[ "$stderr" = "hybridfs: $SRC/file: not on a hybridfs mount" ]
	done
	for command in status umount; do
		call "$command" "$SRC"
		[ "$status" -ne 0 ]
		[ "$stderr" = "hybridfs: $SRC: not on a hybridfs mount" ]
	done
}

@test "a path that does not exist" {
	local command

	for command in stat promote demote pin unpin flush status umount; do
		call "$command" "$SRC/missing"
		[ "$status" -ne 0 ]
		says "$SRC/missing: no such file or directory"
	done
}

@test "a bad --range is refused and changes nothing" {
	local range

	hfs_mount
	for range in '' 10 : a:b 0:-1 -5:10 0:0 1K:x 1:2:3; do
		for command in promote pin; do
			call "$command" --range "$range" "$MNT/file"
			echo "$command --range '$range': status $status, stderr: $stderr"
			[ "$status" -eq "$usage" ]
			says 'range'
		done
	done
	[ "$(hfs_stat '.files[0].ssd_bytes' "$MNT/file")" = 0 ]
	[ "$(hfs_stat '.files[0].pinned' "$MNT/file")" = false ]
	hfs_umount
}

@test "check: wrong use exits 16, as fsck does, and --help 0" {
	refused 16 'missing|operand|usage' check
	refused 16 'missing|operand|usage' check "$SRC"
	refused 16 '--bogus' check --bogus "$SRC" "$SSD"
	explains_itself check
}

# ---- help -------------------------------------------------------------------------------------

@test "--help explains mounting and lists every command" {
	local command

	call --help
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	[[ $output == *SRC*SSD*MNT* ]]
	for command in "${commands[@]}"; do
		grep -qw "$command" <<<"$output"
	done
}

@test "COMMAND --help works for every command" {
	local command

	for command in "${commands[@]}"; do
		explains_itself "$command"
	done
}

@test "--version prints one line" {
	call --version
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 1 ]
	[[ $output =~ ^hybridfs\ [0-9]+\.[0-9]+ ]]
}
