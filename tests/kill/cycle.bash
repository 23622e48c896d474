# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# cycle.bash - one death of the daemon, from the mount to the verdict: run.sh chooses the moment at
# random, points.sh by the name of a crash point. Source lib/common.bash first.
#
# kr_set_up, then kr_count for each cycle, kr_summary at the end.

# shellcheck source=tests/lib/harness.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/harness.bash"
KR_KEEP=$HFS_ROOT/build/kill/failed
KR_FRESH=48	# cycles between two new pairs of filesystems
KR_SRC_SIZE=160M
KR_SSD_SIZE=${KR_SSD_SIZE:-96M}

snapshot=0 pinned=0
kr_outliving=() kr_outlived=0
kr_passed=0 kr_failed=0 kr_twice=0
kr_loaded='' kr_steering=''

# A cycle is all waiting: look more often than once in 50 ms.
hfs_pause() {
	kr_sleep_ms 4
}

kr_sleep_ms() {
	read -rt "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))" <&"$kr_silence" || :
}

# The answer of a mount, without the forks of hfs_mounted: statfs of anything else has another type.
hfs_answers() {
	hfs_gone "$HFS_PID" || [ "$(timeout 10 stat -fc %t "$MNT" 2>/dev/null)" = 65735546 ]
}

# Everything is below $TOP; what is mounted or attached there is ours. Called by traps.
# shellcheck disable=SC2317
kr_leave() {
	local rc=$? pid

	trap - EXIT INT TERM HUP
	if [ -n "${TOP-}" ]; then
		touch "$TOP/stop"
		for pid in $kr_loaded $kr_steering "${kr_outliving[@]}" $HFS_PID; do
			kill -KILL "$pid" 2>/dev/null
			wait "$pid" 2>/dev/null
		done
		hfs_clean_below "$TOP"
		rm -rf --one-file-system "$TOP"
	fi
	exit "$rc"
}

kr_set_up() {
	harness_need_machine
	harness_build workload verify outlive || exit 1
	TOP=$(mktemp -d "${HFS_KILL_TMP:-/dev/shm}/hfskill.XXXXXX")
	trap kr_leave EXIT
	trap 'exit 130' INT TERM HUP
	SRC=$TOP/src SSD=$TOP/ssd MNT=$TOP/mnt
	mkdir "$SRC" "$SSD" "$MNT"
	kr_bare=$(stat -c %D "$MNT")
	mkfifo "$TOP/silence"
	exec {kr_silence}<>"$TOP/silence"
}

# kr_fresh: new filesystems for SRC and SSD.
kr_fresh() {
	local dir

	for dir in "$SRC" "$SSD"; do
		! mountpoint -q "$dir" || hfs_wait_until umount "$dir" || return
		rm -f "$dir.img"
	done
	hfs_loop_fs "$SRC" "$KR_SRC_SIZE" ext4 && hfs_loop_fs "$SSD" "$KR_SSD_SIZE" ext4
}

# ---- what runs beside -----------------------------------------------------------------------------

# kr_steer: data is moved to and fro, and read, while the workload runs.
kr_steer() {
	local files i=0 file commands=('promote -q' 'demote -q' 'flush -q' pin unpin) command

	while [ ! -e "$TOP/stop" ]; do
		files=("$MNT"/w/*)
		file=${files[RANDOM % ${#files[@]}]}
		read -ra command <<<"${commands[i++ % ${#commands[@]}]}"
		timeout 20 "$HYBRIDFS" "${command[@]}" "$file"
		timeout 20 cat "$file"
		kr_sleep_ms 10
	done >/dev/null 2>&1
}

# kr_load WORKLOAD SEED: programs at work on the mount, marks in $TOP/marks; returns with the first.
kr_load() {
	rm -rf "${MNT:?}/w" && mkdir "$MNT/w" || return
	rm -f "$TOP/stop"
	kr_outlive "$2" || return
	: >"$TOP/marks"
	"$HARNESS_BIN/workload" "$MNT/w" "$TOP/marks" "$1" "${kr_work_s:-20}" "$2" "${kr_procs:-5}" &
	kr_loaded=$!
	kr_steer &
	kr_steering=$!
	hfs_wait_until test -s "$TOP/marks" -o ! -d "/proc/$kr_loaded"
}

# kr_unload: both have ended; fails when the workload met anything but the death of the daemon.
kr_unload() {
	local rc=0

	touch "$TOP/stop"
	[ -z "$kr_loaded" ] || wait "$kr_loaded" || { rc=1; echo "the workload failed"; }
	[ -z "$kr_steering" ] || wait "$kr_steering"
	kr_outlived_all || rc=1
	kr_loaded='' kr_steering=''
	return "$rc"
}

# ---- what lives on --------------------------------------------------------------------------------

# kr_outlive SEED: with --pinned, programs that have files open which the kernel serves (outlive.c);
# none where the options rule that out.
kr_outlive() {
	local i file

	rm -rf "${MNT:?}/o" && mkdir "$MNT/o" || return
	kr_outliving=()
	[ "$pinned" = 1 ] || return 0
	for i in 1 2 3; do
		file=$MNT/o/$i
		rm -f "$TOP/o$i"
		head -c 1M /dev/zero >"$file" || return
		"$HYBRIDFS" pin -q "$file" >/dev/null 2>&1 || continue	# no room: size=
		[ "$("$HYBRIDFS" stat --json "$file" | jq '.files[0].passthrough')" = true ] || continue
		"$HARNESS_BIN/outlive" "$file" "$TOP/o$i" "$TOP/stop" "$(($1 * 3 + i))" &
		kr_outliving+=($!)
	done
}

# kr_outlived_all: they have ended; the death of the daemon has not stopped them.
kr_outlived_all() {
	local pid rc=0

	for pid in ${kr_outliving[@]+"${kr_outliving[@]}"}; do
		wait "$pid" || { echo "what the kernel serves was stopped: status $?"; rc=1; }
		kr_outlived=$((kr_outlived + 1))
	done
	kr_outliving=()
	return "$rc"
}

# kr_verify_outlived DIR: what they have written.
kr_verify_outlived() {
	local i rc=0

	for i in 1 2 3; do
		[ ! -e "$TOP/o$i" ] || "$HARNESS_BIN/outlive" --verify "$1/o/$i" "$TOP/o$i" || rc=1
	done
	return "$rc"
}

# ---- death and recovery ---------------------------------------------------------------------------

# kr_bury: the daemon has ended; its mount goes. Users of the dead mount keep what they have open.
kr_bury() {
	hfs_wait_exit || return
	# Not even a dead mount may hang.
	until [ "$(timeout 10 stat -c %D "$MNT" 2>/dev/null)" = "$kr_bare" ]; do
		umount -l "$MNT" || return
	done
}

kr_kill() {
	unset HFS_CRASH_POINT HFS_CRASH_ARMED	# of points.sh
	[ -z "$HFS_PID" ] || kill -KILL "$HFS_PID" 2>/dev/null	# it may have ended by itself: somebody else judges that
	kr_bury
}

# kr_start OPTIONS: the daemon, without waiting for it.
kr_start() {
	"$HYBRIDFS" "$SRC" "$SSD" "$MNT" -f -o "$1" </dev/null >>"$TOP/log" 2>&1 &
	HFS_PID=$!
}

# kr_recover OPTIONS: a new daemon in the same place; now and then it dies while it recovers.
kr_recover() {
	while [ $((RANDOM % 4)) -eq 0 ]; do
		kr_twice=$((kr_twice + 1))
		kr_start "$1"
		kr_sleep_ms $((RANDOM % 80))
		kr_kill || return
	done
	hfs_mount "$1"
}

# kr_sums DIR: every file of it: mode, size, sum.
kr_sums() {
	(
		cd "$1" || exit
		find w o -type f ! -name '*-shm' -printf '%p %m %s\n' | sort
		find w o -type f ! -name '*-shm' -print0 | sort -z | xargs -0r md5sum
	)
}

# kr_times DIR: when each was modified.
kr_times() {
	find "$1/w" -type f ! -name '*-shm' -printf '%f %T@\n' | sort
}

kr_remember() {
	kr_sums "$MNT" >"$TOP/sums"
	kr_times "$MNT" >"$TOP/times"
}

# kr_verify WHERE DIR SEED
kr_verify() {
	"$HARNESS_BIN/verify" "$2/w" "$3" "${kr_lax[@]}" <"$TOP/marks" &&
		kr_verify_outlived "$2" && return
	echo "($1)"
	return 1
}

# kr_same WHERE DIR: what was remembered, byte for byte.
kr_same() {
	kr_sums "$2" | diff "$TOP/sums" - && return
	echo "($1)"
	return 1
}

# kr_same_times WHERE DIR
kr_same_times() {
	kr_times "$2" | diff "$TOP/times" - && return
	echo "(times: $1)"
	return 1
}

# shellcheck disable=SC2317 # hfs_wait_until calls it
kr_recovered() {
	[ "$(hfs_json '.mounts[0].recovering' 2>/dev/null)" = false ]
}

# kr_end_recovery: until hybridfs has done all that a crash leaves to do.
kr_end_recovery() {
	hfs_wait_until kr_recovered && return
	echo "(recovery does not end)"
	return 1
}

# kr_settle OPTIONS SEED: the daemon is dead. Recover, verify, unmount, verify SRC alone.
kr_settle() {
	local rc=0 early=$((RANDOM % 4 == 0))

	kr_lax=()
	# Where data goes to SRC first a hole may be left for what was never promised.
	[[ ! $1 =~ mode=|seq_cutoff=|size= ]] || kr_lax=(lax)
	[ "$snapshot" = 0 ] || { rm -rf "$TOP/dead" && cp -a "$SSD/." "$TOP/dead"; }
	kr_recover "$1" || return
	[ "${#kr_outliving[@]}" -eq 0 ] || kr_sleep_ms $((RANDOM % 200))	# they write on
	kr_unload || rc=1
	kr_verify "on the mount" "$MNT" "$2" || rc=1
	kr_remember
	# What a recovery has shown is durable, but verify let sqlite write.
	if [ $((RANDOM % 4)) -eq 0 ] && find "$MNT/w" "$MNT/o" -type f -exec sync {} +; then
		kr_kill && hfs_mount "$1" || return
		kr_same "another kill -9 changed what was read before it" "$MNT" || rc=1
		kr_same_times "another kill -9 changed them" "$MNT" || rc=1
	fi
	[ "$early" = 1 ] || kr_end_recovery || return
	hfs_umount || return
	kr_same "SRC is not what the mount was" "$SRC" || rc=1
	kr_same_times "SRC's are not the mount's" "$SRC" || rc=1
	kr_verify "in SRC, after umount" "$SRC" "$2" || rc=1
	if [ "$early" = 1 ]; then	# the next mount goes on with it
		hfs_mount "$1" && kr_end_recovery && hfs_umount || return
	fi
	hfs_log_is_clean || { rc=1; echo "(the daemon's log)"; }
	"$HYBRIDFS" check --scrub "$SRC" "$SSD" || { rc=1; echo "(hybridfs check)"; }
	return "$rc"
}

# kr_cycle WORKLOAD OPTIONS SEED DEATH...: DEATH is a command that ends with a dead daemon.
kr_cycle() {
	local rc=0

	: >"$TOP/log"
	hfs_mount "$2" || return
	kr_load "$1" "$3" && "${@:4}" || rc=$?
	if [ "$rc" -eq 0 ]; then
		kr_settle "$2" "$3" || rc=1
	fi
	kr_unload || :
	[ -z "$HFS_PID" ] || kr_kill || rc=1
	return "$rc"
} >"$TOP/verdict" 2>&1

# kr_count NAME WORKLOAD OPTIONS SEED DEATH...: a cycle, counted; a failure is kept.
kr_count() {
	local dir

	if kr_cycle "${@:2}"; then
		kr_passed=$((kr_passed + 1))
		return
	fi
	kr_failed=$((kr_failed + 1))
	echo "FAILED: cycle $1, workload $2, seed $4 ($3):"
	head -n 20 "$TOP/verdict" | sed 's/^/    /'
	if [ "$kr_failed" -le 3 ]; then
		dir=$KR_KEEP/$2-$4
		rm -rf "$dir" && mkdir -p "$dir"
		cp -a "$SRC" "$SSD" "$TOP/verdict" "$TOP/log" "$TOP/marks" "$dir"
		[ "$snapshot" = 0 ] || cp -a "$TOP/dead" "$dir"
		echo "  kept: $dir"
	fi
	kr_fresh || exit 1
}

kr_summary() {
	echo "$kr_passed passed, $kr_failed failed, 0 skipped"
	exit $((kr_failed > 0))
}
