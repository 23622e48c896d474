# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2120,SC2119
#
# common.bash - what every tests/*.bats file starts from: two sides, a mount, and the certainty
# that nothing of it is left behind.
#
#	load lib/common
#	setup() { hfs_setup dirs; }
#	teardown() { hfs_teardown; }
#
# Everything lives under $TOP, a directory of this test's own: $SRC, $SSD, $MNT, $TOP/log (the
# daemon's output). $HYBRIDFS is the program under test. hfs_teardown fails the test when the log
# has an error or a sanitizer's report in it, or when the daemon died by itself.
#
# Nothing here sleeps for a guessed time: hfs_wait_until polls a condition, bounded by
# HFS_TIMEOUT_S, and is the only helper that polls.

[ -z "${BATS_VERSION-}" ] || bats_require_minimum_version 1.5.0

HFS_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
HYBRIDFS=${HYBRIDFS:-$HFS_ROOT/hybridfs}
HFS_TIMEOUT_S=${HFS_TIMEOUT_S:-30}
HFS_PID=
HFS_STATUS=
HFS_LOG_ALLOW=
HFS_SILENCE=
export HYBRIDFS HFS_ROOT

# What must never be in a daemon's log.
HFS_LOG_BAD='(^|[^[:alnum:]_])error:|AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error|assert'

# ---- waiting ----------------------------------------------------------------------------------

# hfs_pause: 50 ms, on a pipe that nobody writes to; one for each shell, as a process substitution
# each time is a child each time: two scripts that made tens of thousands of them were seen waiting
# for a child that was gone already.
hfs_pause() {
	local fifo

	if [ -z "${HFS_SILENCE-}" ]; then
		fifo=$(mktemp -u "${TMPDIR:-/tmp}/hfs.XXXXXX")
		mkfifo -m 600 "$fifo" && exec {HFS_SILENCE}<>"$fifo" || return
		rm -f "$fifo"
	fi
	read -rt 0.05 -u "$HFS_SILENCE" || :
}

# hfs_wait_until COMMAND...: until it succeeds; fails after HFS_TIMEOUT_S.
hfs_wait_until() {
	local end=$((SECONDS + HFS_TIMEOUT_S))

	until "$@"; do
		if [ "$SECONDS" -ge "$end" ]; then
			echo "waited ${HFS_TIMEOUT_S} s in vain for: $*" >&2
			return 1
		fi
		hfs_pause
	done
}

# hfs_not COMMAND...: it fails. In bats a plain `! command` does not fail the test.
hfs_not() {
	! "$@"
}

# hfs_gone PID: it has ended (a zombie counts as ended, unless the kernel still holds other threads of
# it: then a wait for it would hang).
hfs_gone() {
	local line

	{ read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
	read -ra line <<<"${line##*) }"
	[ "${line[0]}" = Z ] && [ "${line[17]}" -le 1 ]
}

# hfs_reap PID: wait for a child; its exit status, 127 when bash does not know it. Where process ids
# come round within minutes bash may take a child that has ended for an older one with the same id,
# and then it would wait for ever.
hfs_reap() {
	if [ ! -e "/proc/$1" ] && jobs -pr | grep -qx "$1"; then
		return 127
	fi
	wait "$1" 2>/dev/null
}

# ---- skipping ---------------------------------------------------------------------------------

hfs_need_root() {
	[ "$(id -u)" -eq 0 ] || skip "needs root"
}

# hfs_need COMMAND...: skip the test where one of them is not installed.
hfs_need() {
	local c

	for c in "$@"; do
		command -v "$c" >/dev/null || skip "needs $c"
	done
}

# ---- set-up -----------------------------------------------------------------------------------

# hfs_loop_fs DIR SIZE FSTYPE: a filesystem in an image file, mounted on DIR; the loop device goes
# away with the mount.
hfs_loop_fs() {
	truncate -s "$2" "$1.img"
	case $3 in
	ext4) mkfs.ext4 -q -F -m 0 "$1.img" ;;
	xfs) mkfs.xfs -q -f "$1.img" ;;
	btrfs) mkfs.btrfs -q -f "$1.img" ;;
	*) echo "hfs_loop_fs: what is $3?" >&2; return 1 ;;
	esac
	mkdir -p "$1"
	mount -o loop "$1.img" "$1"
}

# hfs_setup dirs | hfs_setup loops SRC_SIZE SSD_SIZE [FSTYPE]: make $TOP, $SRC, $SSD and $MNT, as
# plain directories or as filesystems [ext4] of a known size.
hfs_setup() {
	[ -x "$HYBRIDFS" ] || { echo "no program at $HYBRIDFS: run make" >&2; return 1; }
	TOP=$(mktemp -d "${TMPDIR:-/tmp}/hfs.XXXXXX")
	chmod 755 "$TOP"
	SRC=$TOP/src SSD=$TOP/ssd MNT=$TOP/mnt
	HFS_PID='' HFS_STATUS='' HFS_LOG_ALLOW=''
	export TOP SRC SSD MNT
	export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$TOP/san"
	export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}log_path=$TOP/san"
	export UBSAN_OPTIONS="${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1:log_path=$TOP/san"

	case ${1-dirs} in
	dirs)
		mkdir "$SRC" "$SSD"
		;;
	loops)
		hfs_need_root
		hfs_loop_fs "$SRC" "$2" "${4-ext4}"
		hfs_loop_fs "$SSD" "$3" "${4-ext4}"
		;;
	*)
		echo "hfs_setup: dirs, or loops SRC_SIZE SSD_SIZE [FSTYPE]" >&2
		return 1
		;;
	esac
	mkdir "$MNT"
}

# hfs_fill FILE SIZE: a file of that many random bytes (SIZE as for dd: 4K, 1M).
hfs_fill() {
	head -c "$2" /dev/urandom >"$1"
}

# hfs_pattern SEED SIZE: that many bytes on stdout, always the same ones for a seed.
hfs_pattern() {
	seq "$((($1 + 1) * 1000000))" 999999999999999 | head -c "$2"
}

# hfs_uncache FILE...: the kernel forgets the pages of these files; the next read asks the daemon.
hfs_uncache() {
	local file

	for file in "$@"; do
		dd if="$file" iflag=nocache count=0 status=none
	done
}

# hfs_program NAME: the path of a test program, posixtest or modeltest; builds it when it is not
# there.
hfs_program() {
	local dir

	for dir in "$HFS_ROOT/build" "$(dirname "$HYBRIDFS")"; do
		[ ! -x "$dir/$1" ] || { echo "$dir/$1"; return; }
	done
	make -s -C "$HFS_ROOT" "build/$1" >&2 && echo "$HFS_ROOT/build/$1"
}

# ---- mounting ---------------------------------------------------------------------------------

# hfs_mounted [DIR]: a FUSE filesystem is the topmost mount on DIR [$MNT].
hfs_mounted() {
	local dir

	# As the kernel writes it: white space and backslashes in octal.
	dir=$(realpath -msz "${1-$MNT}" | sed -z 's/\\/\\134/g; s/ /\\040/g; s/\t/\\011/g; s/\n/\\012/g' |
		tr -d '\0')
	dir=$dir awk '
		$5 == ENVIRON["dir"] { for (i = 7; $i != "-"; i++); type = $(i + 1) }
		END { exit type !~ /^fuse/ }' /proc/self/mountinfo
}

# hfs_answers: the mount answers requests, or the daemon has ended, which is left to the caller.
hfs_answers() {
	hfs_gone "$HFS_PID" || { hfs_mounted && timeout 10 stat -t "$MNT" >/dev/null 2>&1; }
}

# hfs_mount [OPTION...]: mount with these options (an argument that begins with "-" is passed on
# as it is). The daemon is our child, in the foreground mode, its output in $TOP/log.
hfs_mount() {
	local arg opts='' args=()

	for arg in "$@"; do
		case $arg in
		-*) args+=("$arg") ;;
		*) opts+=${opts:+,}$arg ;;
		esac
	done
	[ -z "$opts" ] || args+=(-o "$opts")
	"$HYBRIDFS" "$SRC" "$SSD" "$MNT" -f "${args[@]}" </dev/null >>"$TOP/log" 2>&1 3>&- &
	HFS_PID=$!
	echo "$HFS_PID" >"$TOP/pid"
	if ! hfs_wait_until hfs_answers || hfs_gone "$HFS_PID"; then
		echo "hybridfs did not mount; its log:" >&2
		tail -n 20 "$TOP/log" >&2
		return 1
	fi
}

# hfs_wait_exit: until the daemon has ended; its exit status is in $HFS_STATUS (when it is known).
hfs_wait_exit() {
	[ -n "$HFS_PID" ] || return 0
	hfs_wait_until hfs_gone "$HFS_PID" || return
	HFS_STATUS=0
	hfs_reap "$HFS_PID" || HFS_STATUS=$?
	[ "$HFS_STATUS" -ne 127 ] || HFS_STATUS=	# not our child: another shell started it
	HFS_PID=
	rm -f "$TOP/pid"
}

# hfs_umount: as a user would; returns when the daemon is gone, fails when it failed.
hfs_umount() {
	"$HYBRIDFS" umount "$MNT" 3>&- || return
	hfs_wait_exit || return
	if [ "${HFS_STATUS:-0}" -ne 0 ]; then
		echo "the daemon ended with status $HFS_STATUS" >&2
		return 1
	fi
}

# hfs_kill9: the daemon dies at once, the dead mount is taken away; hfs_mount can follow.
hfs_kill9() {
	[ -n "$HFS_PID" ] || return 1
	kill -KILL "$HFS_PID"
	hfs_wait_exit || return
	umount -l "$MNT"
}

# hfs_remount [OPTION...]: unmount cleanly and mount again.
hfs_remount() {
	hfs_umount && hfs_mount "$@"
}

# ---- asking -----------------------------------------------------------------------------------

# hfs_json EXPR: what jq finds in `status --json` of the mount (.mounts[0].dirty_bytes).
hfs_json() {
	"$HYBRIDFS" status --json "$MNT" 3>&- | jq -r "$1"
}

# hfs_true EXPR: jq's answer on `status --json` is true. For hfs_wait_until.
hfs_true() {
	"$HYBRIDFS" status --json "$MNT" 3>&- | jq -e "$1" >/dev/null
}

# hfs_stat EXPR PATH: what jq finds in `stat --json -v` of one path (.files[0].tier).
hfs_stat() {
	"$HYBRIDFS" stat --json -v "$2" 3>&- | jq -r "$1"
}

# hfs_clean: nothing is dirty. For hfs_wait_until.
hfs_clean() {
	hfs_true '.mounts[0].dirty_bytes == 0'
}

# hfs_ssd_has FILE BYTES: that many of its bytes are on the SSD. For hfs_wait_until.
hfs_ssd_has() {
	[ "$(hfs_stat '.files[0].ssd_bytes' "$1")" -eq "$2" ]
}

# hfs_same A B: two files have the same bytes, or two trees the same names, types, modes, owners,
# link targets and bytes.
hfs_same() {
	local of='%P %y %m %U %G %l %s\n'

	if [ -d "$1" ]; then
		diff <(cd "$1" && find . -mindepth 1 ! -type d -printf "$of" | sort) \
			<(cd "$2" && find . -mindepth 1 ! -type d -printf "$of" | sort) || return
		diff -r --no-dereference "$1" "$2"
	else
		cmp "$1" "$2"
	fi
}

# hfs_snapshot: every path under $TOP with type, mode, owner, size, time and content, but for the
# daemon's log. Two equal snapshots = nothing was changed on disk.
hfs_snapshot() {
	(
		cd "$TOP" || exit
		find . -path ./log -prune -o -path ./mnt -prune -o -path . -o \
			-printf '%p %y %m %U %G %s %T@ %l\n' | sort
		find . -path ./log -prune -o -path ./mnt -prune -o -type f ! -name '*.img' \
			-print0 | sort -z | xargs -0r md5sum
	)
}

# ---- teardown ---------------------------------------------------------------------------------

# hfs_stop_daemon: end the daemon that this test started, if it still runs.
hfs_stop_daemon() {
	[ -n "$HFS_PID" ] && ! hfs_gone "$HFS_PID" || return 0
	kill -TERM "$HFS_PID" 2>/dev/null || :
	HFS_TIMEOUT_S=10 hfs_wait_until hfs_gone "$HFS_PID" 2>/dev/null && return 0
	echo "the daemon did not end on SIGTERM; killing it" >&2
	kill -KILL "$HFS_PID" 2>/dev/null || :
	HFS_TIMEOUT_S=10 hfs_wait_until hfs_gone "$HFS_PID"
	return 1
}

# hfs_mounts_below DIR: mount points under DIR, innermost first.
hfs_mounts_below() {
	awk -v dir="$1/" 'index($5 "/", dir) == 1 { print $5 }' /proc/self/mountinfo |
		while read -r m; do printf '%b\n' "$m"; done | tac
}

# hfs_clean_below DIR: unmount everything under DIR and detach the loop devices whose images are
# there. Touches nothing else.
hfs_clean_below() {
	local m dev file

	while read -r m; do
		umount -l "$m" 2>/dev/null || fusermount3 -u -z -q "$m" 2>/dev/null || :
	done < <(hfs_mounts_below "$1")
	[ "$(id -u)" -eq 0 ] || return 0
	while read -r dev file; do
		case $file in
		"$1"/*) losetup -d "$dev" 2>/dev/null || : ;;
		esac
	done < <(losetup -nl -O NAME,BACK-FILE 2>/dev/null)
	return 0
}

# hfs_log_is_clean: nothing in the daemon's log or a sanitizer's report that should not be there;
# a test that provokes an error says so with HFS_LOG_ALLOW=REGEX.
hfs_log_is_clean() {
	local bad

	bad=$(cat "$TOP"/log "$TOP"/san.* 2>/dev/null | grep -iaE "$HFS_LOG_BAD" || :)
	[ -z "$HFS_LOG_ALLOW" ] || bad=$(grep -avE "$HFS_LOG_ALLOW" <<<"$bad" || :)
	[ -z "$bad" ] && return 0
	echo "in the daemon's log:" >&2
	head -n 20 <<<"$bad" >&2
	return 1
}

# hfs_teardown: leave nothing behind, whatever the test did; then judge the log.
hfs_teardown() {
	local rc=0

	[ -n "${TOP-}" ] && [ -d "$TOP" ] || return 0
	if [ -n "$HFS_PID" ] && hfs_gone "$HFS_PID"; then
		hfs_wait_exit
		echo "the daemon ended by itself, status ${HFS_STATUS:-unknown}" >&2
		rc=1
	fi
	hfs_stop_daemon || rc=1
	hfs_clean_below "$TOP"
	hfs_log_is_clean || rc=1
	if [ "$rc" -ne 0 ] || [ -z "${BATS_TEST_COMPLETED-}" ]; then
		echo "end of the daemon's log:" >&2
		cat "$TOP"/log "$TOP"/san.* 2>/dev/null | tail -n 40 >&2
	fi
	rm -rf --one-file-system "$TOP"
	return "$rc"
}
