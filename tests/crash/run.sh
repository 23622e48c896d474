#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Power cuts: record what two devices are given while programs work on a mount, build from it what
# they may hold when the power fails, and check that every promise made before the cut is kept.
#
#	run.sh [--workload W,...] [--cycles N] [--limit S] [--seconds S] [--seed S] [--procs N]
#		[--options OPT,...] [--pinned] [--control] [--sabotage early|nosync|build]
#		[--keep]
#	run.sh --points N [--only MAX] [--limit S] [--seconds S] [--seed S] [--workload W,...] ...
#	run.sh --recording DIR [--cycles N | --at RECORD:SEED]
#
# W: append, overwrite, rename, sqlite, truncate, cold, mixed; default: all, one after the other.
# Each is recorded once for --seconds [10], then cut N times [50], or fewer when all together would
# take longer than --limit seconds. Ends with `N passed, N failed, N skipped`. A failing recording
# is kept below build/crash/failed/, and the command that repeats the cut is printed.
# --points: N cuts at passings of each crash point (tier/crash_point.h) instead of random moments, or
# of MAX points that the seed chooses; also of those that are passed in a recovery. The program is
# HYBRIDFS_POINTS [build/points/hybridfs, make CRASHPOINTS=1]. Default: mixed, truncate, rename.
# --pinned: their directory is pinned, so the kernel reads and writes most files by itself.
# --control: the workloads run on SRC's plain ext4, without hybridfs.
# With --sabotage the run must find failures: it ends with 0 as soon as there is one. early: marks
# come before their sync; nosync: the daemon's syncs do nothing; build: $HYBRIDFS is sabotaged.
#
# README.md in this folder says how it works. Needs root, /dev/fuse and loop devices.

set -u
shopt -s inherit_errexit
# shellcheck source=tests/lib/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.bash"
# shellcheck source=tests/lib/harness.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/harness.bash"

bin=$HARNESS_BIN
src_size=160M
ssd_size=96M
scratch_size=16G
# Blocks of 4 KiB, as the disk's: what a cut tears otherwise is torn on any filesystem.
mkfs_options=(-q -F -m 0 -b 4096 -E 'lazy_itable_init=0,lazy_journal_init=0')

all_workloads='append,overwrite,rename,sqlite,truncate,cold,mixed'
workloads=$all_workloads
option_sets=("${harness_option_sets[@]}")
point_cuts=0
declare -A cut_at	# how many cuts at each crash point
cycles=50 seconds=10 seed=$((RANDOM * 32768 + RANDOM)) procs=6 options='' sabotage='' recording='' at=''
limit='' until=''	# until: in $SECONDS, when the cuts of this workload end
points='' only=0	# points: cuts at each crash point
control=0 pinned=0 keep=0 passed=0 failed=0 skipped=0 again=0 zeros=0
# Of so many cuts one is followed by cuts of its recovery, as many as:
again_every=6 again_cuts=2
round=12
helpers=()

usage() {
	sed -n '6,9s/^#\t//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		--keep) keep=1; shift; continue ;;
		--control) control=1; shift; continue ;;
		--pinned) pinned=1; shift; continue ;;
		--workload | --cycles | --limit | --seconds | --seed | --procs | --options | --sabotage | \
			--recording | --at | --points | --only) [ $# -ge 2 ] || usage ;;
		*) usage ;;
		esac
		case $1 in
		--workload) [ "$2" = all ] || workloads=$2 ;;
		*) printf -v "${1#--}" %s "$2" ;;
		esac
		shift 2
	done
	[[ $sabotage =~ ^(early|nosync|build)?$ ]] || usage
	[ -z "$at" ] || [ -n "$recording" ] || usage
	[ -z "$points" ] || set_up_points
}

# A small SSD has a small journal, which is full now and then, and evicts.
set_up_points() {
	HYBRIDFS=${HYBRIDFS_POINTS:-$HFS_ROOT/build/points/hybridfs}
	mapfile -t all_points < <(HFS_CRASH_POINT=list "$HYBRIDFS" | cut -d ' ' -f 1)
	mapfile -t mount_points < <(HFS_CRASH_POINT=list "$HYBRIDFS" | sed -n 's/ mount$//p')
	[ "${#all_points[@]}" -gt 1 ] ||
		{ echo "$HYBRIDFS has no crash points: make CRASHPOINTS=1" >&2; exit 1; }
	ssd_size=48M again_every=12
	[ "$workloads" != "$all_workloads" ] || workloads=mixed,truncate,rename
	option_sets=('dirty_expire=1,size=6M,promote_hits=1' 'dirty_expire=1,promote_hits=1'
		'dirty_expire=2,seq_cutoff=64K,size=6M' 'mode=writearound,promote_hits=1,size=8M')
}

# ---- set-up and the way out ---------------------------------------------------------------------

# Everything is below $TOP; what is mounted or attached there is ours. Called by traps.
# shellcheck disable=SC2317
leave() {
	local rc=$? pid

	trap - EXIT INT TERM HUP
	[ -z "${TOP-}" ] || touch "$TOP/stop"
	for pid in ${helpers[@]+"${helpers[@]}"} $HFS_PID; do
		kill -KILL "$pid" 2>/dev/null
		hfs_wait_until hfs_gone "$pid"
	done
	if [ -n "${TOP-}" ]; then
		hfs_clean_below "$TOP"
		rm -rf --one-file-system "$TOP"
	fi
	exit "$rc"
}

set_up() {
	harness_need_machine
	harness_build record cut workload verify nosync.so || exit 1
	TOP=$(mktemp -d "${HFS_CRASH_TMP:-/var/tmp}/hfscrash.XXXXXX")
	trap leave EXIT
	trap 'exit 130' INT TERM HUP
	SRC=$TOP/src SSD=$TOP/ssd MNT=$TOP/mnt
	mkdir "$SRC" "$SSD" "$MNT" "$TOP/dev"
	harness_scratch "$scratch_size"
}

# start_recording DIR: DIR/live/*.img are on $SRC and $SSD, and what they are given goes to DIR/log.
start_recording() {
	"$bin/record" "$1/live" "$TOP/dev" "$1/log" &
	recorder=$!
	helpers+=("$recorder")
	hfs_wait_until test -e "$TOP/dev/ctl" &&
		harness_mount_images "$TOP/dev" --direct-io=on || return
	# The daemon marks its crash points, if it has any.
	[ -z "$points" ] || export HFS_CRASH_MARK=$TOP/dev/ctl
}

# stop_recording DIR
stop_recording() {
	unset HFS_CRASH_MARK
	harness_umount_images "$TOP/dev" && umount "$TOP/dev" && hfs_wait_until hfs_gone "$recorder" || return
	hfs_reap "$recorder" || [ $? -eq 127 ] || return
	helpers=()
	rm -rf "$1/live"
}

# steer: data is moved to and fro. Ends with 0 when it is told to.
steer() {
	local files commands=(promote demote flush 'promote --range 256K:1M' pin unpin) command i=0

	[ "$pinned" = 0 ] || commands=(promote demote flush pin)
	while [ ! -e "$TOP/stop" ]; do
		files=("$MNT"/w/*)
		read -ra command <<<"${commands[i++ % ${#commands[@]}]}"
		timeout 20 "$HYBRIDFS" "${command[@]}" -q "${files[RANDOM % ${#files[@]}]}"
		hfs_pause
	done >/dev/null 2>&1
}

# work WORKLOAD SEED: in $place/w, to its end.
work() {
	local rc=0 steering=''

	mkdir "$place/w" && sync -f "$place" || return
	rm -f "$TOP/stop"
	if [ "$pinned" = 1 ]; then
		"$HYBRIDFS" pin -q "$place/w" || return
	fi
	if [ "$control" = 0 ]; then
		steer &
		steering=$!
		helpers+=("$steering")
	fi
	HFS_CRASH_MARK_EARLY=$([ "$sabotage" != early ] || echo 1) \
		"$bin/workload" "$place/w" "$TOP/dev/ctl" "$1" "$seconds" "$2" "$procs" || rc=1
	touch "$TOP/stop"
	[ -z "$steering" ] || { hfs_wait_until hfs_gone "$steering" && hfs_reap "$steering"; } || rc=1
	return "$rc"
}

# record WORKLOAD OPTIONS SEED: leaves a recording in $rec.
record() {
	local rc=0 preload=''

	rec=$TOP/x/$1
	mkdir -p "$rec/start" "$rec/live"
	truncate -s "$src_size" "$rec/start/src.img"
	truncate -s "$ssd_size" "$rec/start/ssd.img"
	mkfs.ext4 "${mkfs_options[@]}" "$rec/start/src.img" &&
		mkfs.ext4 "${mkfs_options[@]}" "$rec/start/ssd.img" &&
		cp --reflink=auto "$rec"/start/*.img "$rec/live" && start_recording "$rec" || return
	[ "$sabotage" != nosync ] || preload=$bin/nosync.so
	: >"$TOP/log"
	place=$SRC
	if [ "$control" = 0 ]; then
		place=$MNT
		LD_PRELOAD=$preload hfs_mount "$2" || return
	fi
	work "$1" "$3" || rc=1
	if [ "$control" = 0 ]; then
		echo "    $(hfs_json '.mounts[0] | "\(.promotions) promotions, \(.demotions) demotions, \(.written_back_bytes) bytes written back, \(.bypassed_bytes) bypassed, \(.passthrough_opens) opens with passthrough"')"
		hfs_umount || rc=1
		hfs_log_is_clean || rc=1
	fi
	stop_recording "$rec" || rc=1
	printf '%s\n' "$1" "$2" "$3" >"$rec/parameters"
	return "$rc"
}

# ---- a cut --------------------------------------------------------------------------------------

# tree_sums DIR: every file and its sum.
tree_sums() {
	(cd "$1/w" && find . -type f ! -name '*-shm' -print0 | sort -z | xargs -0r md5sum)
}

# verified DIR: all that the marks promise is there. Where data goes to a filesystem first, SRC's or by
# passthrough the SSD's, zeros may stand for what was not promised, as on plain ext4 (--control counts
# how often).
verified() {
	if [ "$control" = 1 ] || [ "$pinned" = 1 ] || [[ $cut_options =~ mode=|seq_cutoff=|size= ]]; then
		"$bin/verify" "$1/w" "$rec_seed" lax <"$work/marks"
	else
		"$bin/verify" "$1/w" "$rec_seed" <"$work/marks"
	fi
}

# recovery_ends: until hybridfs has done all that a crash leaves to do.
recovery_ends() {
	hfs_wait_until hfs_true '.mounts[0].recovering == false'
}

# shown_before: a cut in a recovery that had shown files to its reader: they are as they were.
shown_before() {
	[ -e "$rec/sums" ] && grep -q '^R$' "$work/marks" || return 0
	tree_sums "$MNT" | grep -v ' ./sqlite' | diff "$rec/sums" -
}

# recovered CUT_SEED: mount, verify, unmount; SRC alone has to be complete, and check content.
recovered() {
	local rc=0

	hfs_mount "$cut_options" || return
	if [ $(($1 % 4)) = 0 ]; then	# the daemon dies while it recovers
		hfs_kill9 && hfs_mount "$cut_options" || return
	fi
	shown_before || { rc=1; echo "(on the mount: seen before the second cut)"; }
	verified "$MNT" || { rc=1; echo "(on the mount)"; }
	if [ -d "$MNT/w" ]; then tree_sums "$MNT" >"$work/sums"; fi
	if [ $(($1 % 4)) != 1 ]; then	# else: unmounted before it is done
		recovery_ends || return
	fi
	hfs_umount || return
	verified "$SRC" || { rc=1; echo "(in SRC, after umount)"; }
	if [ -d "$SRC/w" ]; then
		tree_sums "$SRC" | diff "$work/sums" - || { rc=1; echo "(SRC is not the mount)"; }
	fi
	if [ $(($1 % 4)) = 1 ]; then
		hfs_mount "$cut_options" && recovery_ends && hfs_umount || return
	fi
	hfs_log_is_clean || { rc=1; echo "(the daemon's log)"; }
	"$HYBRIDFS" check --scrub "$SRC" "$SSD" || { rc=1; echo "(hybridfs check)"; }
	return "$rc"
}

# The control: ext4 has recovered by itself.
control_recovered() {
	verified "$SRC" || return
	"$bin/verify" "$SRC/w" "$rec_seed" <"$work/marks" >/dev/null || touch "$TOP/zeros"
}

# make_cut RECORD SEED OUT: images there, and the marks up to then in $work/marks.
make_cut() {
	{
		if [ -e "$rec/marks" ]; then cat "$rec/marks"; fi
		"$bin/cut" "$rec/log" "$rec/start" "$work/base" "$3" "$1" "$2" || exit 1
	} >"$work/marks"
}

# cycle RECORD SEED: one cut; 0 when all promises are kept.
cycle() {
	local rc=0

	make_cut "$1" "$2" "$work/out"
	: >"$TOP/log"
	harness_mount_images "$work/out" || rc=1
	if [ "$control" = 1 ]; then
		control_recovered || rc=1
	else
		recovered "$2" || rc=1
	fi
	[ -z "$HFS_PID" ] || hfs_stop_daemon || rc=1
	HFS_PID=
	! hfs_mounted || umount -l "$MNT"
	harness_umount_images "$work/out" || { echo "cannot unmount"; rc=1; }
	return "$rc"
} >"$TOP/verdict" 2>&1

# record_recovery RECORD SEED: what the recovery from that cut gives to the devices, as a recording
# in $TOP/x/again; with what it has shown.
record_recovery() {
	local dir=$TOP/x/again rc=0

	rm -rf "$dir"
	mkdir -p "$dir/start" "$dir/live"
	make_cut "$1" "$2" "$dir/start"
	cp "$work/marks" "$rec/parameters" "$dir"
	cp --reflink=auto "$dir"/start/*.img "$dir/live"
	: >"$TOP/log"
	start_recording "$dir" && hfs_mount "$cut_options" || return
	tree_sums "$MNT" | grep -v ' ./sqlite' >"$dir/sums"
	echo R >"$TOP/dev/ctl"
	recovery_ends || rc=1
	hfs_umount || rc=1
	stop_recording "$dir" || rc=1
	return "$rc"
} >"$TOP/verdict" 2>&1

# save NAME: the recording is kept; says where it is then.
save() {
	local dir=$bin/failed/$rec_name

	if [ ! -e "$dir/log" ] && [ "$rec" != "$dir" ]; then
		mkdir -p "$dir"
		cp -r --sparse=always "$rec/." "$dir"
	fi
	echo "$dir"
}

# keep_cut RECORD SEED: the images as the power cut left them, verdict and log.
keep_cut() {
	local dir

	cp "$TOP/verdict" "$TOP/log" "$work"
	dir=$(save)/cut-$1-$2
	mkdir -p "$dir"
	make_cut "$1" "$2" "$work/out"
	cp --sparse=always "$work"/out/*.img "$work"/{marks,verdict,log} "$dir"
	echo "FAILED: cut at $1${name:+ ($name)}, seed $2, of $rec_name ($cut_options):"
	head -n 20 "$work/verdict" | sed 's/^/    /'
	echo "  images: $dir"
	echo "  again:  tests/crash/run.sh --recording ${dir%/*} --at $1:$2"
}

# judge RECORD SEED STATUS: counts that cut as passed or failed. 1: enough was found.
judge() {
	if [ "$3" -eq 0 ]; then
		passed=$((passed + 1))
		if [ -e "$TOP/zeros" ]; then rm "$TOP/zeros"; zeros=$((zeros + 1)); fi
		return 0
	fi
	failed=$((failed + 1))
	if [ -n "$sabotage" ]; then
		echo "caught after $((passed + failed)) cuts:"
		grep -v '^unmounted' "$TOP/verdict" | head -n 20 | sed 's/^/    /'
		return 1
	fi
	[ "$failed" -gt 6 ] || keep_cut "$1" "$2"
}

# cut_again RECORD SEED: the power fails once more, while the system recovers from that cut.
cut_again() {
	local outer=$rec outer_name=$rec_name outer_work=$work rc=0 before=$((passed + failed))

	if record_recovery "$1" "$2"; then
		rec=$TOP/x/again rec_name=$rec_name-again-$1-$2
		cuts "$again_cuts" "$2" || rc=1
		again=$((again + passed + failed - before))
		rec=$outer rec_name=$outer_name work=$outer_work
	else
		judge "$1" "$2" 1 || rc=1
	fi
	return "$rc"
}

in_time() {
	[ -z "$until" ] || [ "$SECONDS" -lt "$until" ]
}

# plan_cuts COUNT SEED: lines "RECORD SEED", with the name of a crash point where there is one.
plan_cuts() {
	if [ -n "$at" ]; then
		echo "${at/:/ }"
	elif [ -n "$points" ] && [ -e "$rec/sums" ]; then	# a recovery
		"$bin/cut" --points "$rec/log" "$points" "$2" "$only" "${mount_points[@]}"
	elif [ -n "$points" ]; then
		"$bin/cut" --points "$rec/log" "$points" "$2" "$only"
	else
		"$bin/cut" --plan "$rec/log" "$1" "$2"
	fi
}

# is_cut_again SEED: by the seed; of cuts at crash points the first, and then each 12th.
is_cut_again() {
	local n=$1

	[ -z "$points" ] || n=$((point_cuts++))
	[ $((n % again_every)) = 0 ]
}

# cuts CYCLES SEED [again]: play so many cuts of the recording in $rec.
cuts() {
	local record cut_seed name plan n="$1" played rc

	# Under a limit in rounds, each from the beginning to the end of the recording.
	[ -z "$until" ] || [ "$n" -lt "$round" ] || n=$round
	work=$TOP/x/work.$rec_name
	rm -rf "$work"
	mkdir -p "$work/base" "$work/out"
	{ read -r rec_workload; read -r cut_options; read -r rec_seed; } <"$rec/parameters"
	for ((played = 0; played < $1; played += n)); do
		plan=$(plan_cuts "$n" "$(($2 + played))") || return
		while read -r record cut_seed name <&9; do
			in_time || break 2
			rc=0
			cycle "$record" "$cut_seed" || rc=1
			[ -z "$name" ] || cut_at[$name]=$((${cut_at[$name]-0} + 1))
			judge "$record" "$cut_seed" "$rc" || return
			if [ "${3-}" = again ] && is_cut_again "$cut_seed"; then
				cut_again "$record" "$cut_seed" || return
			fi
		done 9<<<"$plan"
	done
	rm -rf "$work"
}

# run_workload WORKLOAD NUMBER
run_workload() {
	local opts=${options:-${option_sets[$2 % ${#option_sets[@]}]}} recut=again rc=0

	# A cold file has to be larger than what the SSD takes.
	[ "$1" != cold ] || [[ $opts =~ size= ]] || opts+=,size=8M
	[ "$control" = 0 ] || opts='plain ext4' recut=''
	rec_name=$1-$seed
	echo "$1 ($opts, seed $seed):"
	if ! record "$1" "$opts" "$seed"; then
		echo "FAILED: recording of $1 ($opts); the daemon's log ends:"
		tail -n 5 "$TOP/log" | sed 's/^/    /'
		failed=$((failed + 1))
		return 1
	fi
	echo "    $(grep -aoE 'A [a-z]+ [0-9]+ [0-9]+$' "$rec/log" | wc -l) marks, $(stat -c %s "$rec/log") bytes of log"
	cuts "$([ -n "$points" ] && echo 1 || echo "$cycles")" "$seed" "$recut" || rc=1
	if [ "$keep" = 1 ]; then echo "    kept: $(save)"; fi
	rm -rf "${rec:?}" "$TOP"/x/work.*
	return "$rc"
}

# run_all: each workload with an equal part of the time that is left.
run_all() {
	local list workload number=$seed i

	IFS=, read -ra list <<<"$workloads"
	for ((i = 0; i < ${#list[@]}; i++)); do
		workload=${list[i]}
		[ -z "$limit" ] || until=$((SECONDS + (limit - SECONDS) / (${#list[@]} - i)))
		if ! run_workload "$workload" "$number"; then
			[ -n "$sabotage" ] || exit 1
			return
		fi
		number=$((number + 1))
	done
}

# point_report: which crash points were cut at.
point_report() {
	local name missed=()

	for name in "${all_points[@]}"; do
		[ -n "${cut_at[$name]-}" ] || missed+=("$name")
	done
	echo "${#cut_at[@]} of ${#all_points[@]} crash points cut at; seed $seed"
	[ "$only$limit" != 0 ] || [ "${#missed[@]}" = 0 ] || echo "not passed: ${missed[*]}"
}

main() {
	parse "$@"
	set_up
	if [ -n "$recording" ]; then
		rec=$(realpath "$recording") rec_name=$(basename "$recording")
		[ -z "$at" ] || cycles=1
		cuts "$cycles" "$seed"
	else
		run_all
	fi
	[ "$again" = 0 ] || echo "$again of the cuts were second ones, during recovery"
	[ -z "$points" ] || point_report
	[ "$zeros" = 0 ] || echo "after $zeros cuts plain ext4 had zeros where a file grew"
	echo "$passed passed, $failed failed, $skipped skipped"
	if [ -n "$sabotage" ]; then
		[ "$failed" -gt 0 ] || { echo "the sabotage was not noticed" >&2; exit 1; }
		exit 0
	fi
	exit $((failed > 0 || passed == 0))
}

main "$@"
