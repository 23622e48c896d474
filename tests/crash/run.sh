#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Power cuts: record what two devices are given while programs work on a mount, build from it what
# they may hold when the power fails, and check that every promise made before the cut is kept.
#
#	run.sh [--workload W,...] [--cycles N] [--seconds S] [--seed S] [--procs N]
#		[--options OPT,...] [--sabotage early|nosync] [--keep] [--strict]
#	run.sh --recording DIR [--cycles N | --at RECORD:SEED]
#
# W: append, overwrite, rename, sqlite, truncate, mixed; default: all, one after the other. Each is
# recorded once for S seconds [10], then cut N times [50]. Ends with `N passed, N failed, N skipped`.
# A failing recording is kept below build/crash/failed/, and the command that repeats the cut is
# printed. With --sabotage the run must find failures: it ends with 0 when there are some.
#
# README.md in this folder says how it works. Needs root, /dev/fuse and loop devices.

set -u
shopt -s inherit_errexit
# shellcheck source=tests/lib/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.bash"

here=$HFS_ROOT/tests/crash
bin=$HFS_ROOT/build/crash
src_size=160M
ssd_size=96M
scratch_size=16G
# Blocks of 4 KiB, as the disk's: what a cut tears otherwise is torn on any filesystem.
mkfs_options=(-q -F -m 0 -b 4096 -E 'lazy_itable_init=0,lazy_journal_init=0')

# Mount options, one line for each recording in turn: how data moves differs.
option_sets=(
	'dirty_expire=1,promote_hits=1'
	'dirty_expire=3600'
	'dirty_expire=1,size=8M,promote_hits=1'
	'seq_cutoff=64K,dirty_expire=2'
	'mode=writethrough,promote_hits=1'
	'mode=writearound,promote_hits=1'
)

workloads='append,overwrite,rename,sqlite,truncate,mixed'
cycles=50 seconds=10 seed=$((RANDOM * 32768 + RANDOM)) procs=5 options='' sabotage='' recording='' at=''
keep=0 strict=0 littered=0 passed=0 failed=0 skipped=0
helpers=()

usage() {
	sed -n '6,9s/^#\t//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		--keep) keep=1; shift; continue ;;
		--strict) strict=1; shift; continue ;;
		--workload | --cycles | --seconds | --seed | --procs | --options | --sabotage | \
			--recording | --at) [ $# -ge 2 ] || usage ;;
		*) usage ;;
		esac
		case $1 in
		--workload) [ "$2" = all ] || workloads=$2 ;;
		*) printf -v "${1#--}" %s "$2" ;;
		esac
		shift 2
	done
	[[ $sabotage =~ ^(early|nosync)?$ ]] || usage
	[ -z "$at" ] || [ -n "$recording" ] || usage
}

skip_all() {
	echo "skipped: $1" >&2
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

# ---- the programs -------------------------------------------------------------------------------

# compile PROGRAM SOURCES [FLAG...], unless it is newer than all of them
compile() {
	local out=$bin/$1 sources

	[ ! -e "$out" ] || [ -n "$(find "$here" -name '*.[ch]' -newer "$out")" ] || return 0
	read -ra sources <<<"$2"
	"${CC:-gcc}" -std=gnu17 -O2 -g -Wall -Wextra -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
		-o "$out" "${sources[@]/#/$here/}" "${@:3}"
}

build() {
	local fuse

	mkdir -p "$bin"
	read -ra fuse <<<"$(pkg-config --cflags --libs fuse3)"
	compile record record.c "${fuse[@]}" &&
		compile cut 'cut.c plan.c' &&
		compile workload 'workload.c plan.c' -lsqlite3 &&
		compile verify 'verify.c plan.c' -lsqlite3 &&
		compile nosync.so nosync.c -shared -fPIC
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
		wait "$pid" 2>/dev/null
	done
	if [ -n "${TOP-}" ]; then
		hfs_clean_below "$TOP"
		rm -rf --one-file-system "$TOP"
	fi
	exit "$rc"
}

set_up() {
	[ "$(id -u)" -eq 0 ] || skip_all "needs root"
	[ -c /dev/fuse ] || skip_all "needs /dev/fuse"
	losetup -f >/dev/null 2>&1 || skip_all "needs loop devices"
	build || { echo "run.sh: does not build" >&2; exit 1; }
	[ -x "$HYBRIDFS" ] || { echo "no program at $HYBRIDFS: run make" >&2; exit 1; }
	TOP=$(mktemp -d "${HFS_CRASH_TMP:-/var/tmp}/hfscrash.XXXXXX")
	trap leave EXIT
	trap 'exit 130' INT TERM HUP
	SRC=$TOP/src SSD=$TOP/ssd MNT=$TOP/mnt
	mkdir "$SRC" "$SSD" "$MNT" "$TOP/x" "$TOP/dev"
	# Copies of images share their blocks on xfs.
	if truncate -s "$scratch_size" "$TOP/x.img" && mkfs.xfs -q "$TOP/x.img" 2>/dev/null; then
		mount -o loop "$TOP/x.img" "$TOP/x" || rm -f "$TOP/x.img"
	fi
}

# mount_image IMAGE DIR [LOSETUP_OPTION...]
mount_image() {
	local dev

	dev=$(losetup -f --show "${@:3}" "$1") || return
	mount -t ext4 "$dev" "$2" || { losetup -d "$dev"; return 1; }
	losetup -d "$dev"	# in fact when it is unmounted
}

# shellcheck disable=SC2317 # hfs_wait_until calls it
loop_gone() {
	! losetup -nl -O BACK-FILE | grep -qF "$1/"
}

# umount_images IMAGE_DIR
umount_images() {
	hfs_wait_until umount "$SRC" && hfs_wait_until umount "$SSD" && hfs_wait_until loop_gone "$1"
} 2>/dev/null

# ---- recording ----------------------------------------------------------------------------------

# steer: data is moved to and fro while the workload runs.
steer() {
	local files commands=(promote demote flush) i=0

	while [ ! -e "$TOP/stop" ]; do
		files=("$MNT"/w/*)
		timeout 20 "$HYBRIDFS" "${commands[i++ % 3]}" -q "${files[RANDOM % ${#files[@]}]}"
		hfs_pause
	done >/dev/null 2>&1
}

start_recorder() {
	"$bin/record" "$rec/live" "$TOP/dev" "$rec/log" &
	recorder=$!
	helpers+=("$recorder")
	hfs_wait_until test -e "$TOP/dev/ctl"
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
		cp --reflink=auto "$rec"/start/*.img "$rec/live" && start_recorder &&
		mount_image "$TOP/dev/src.img" "$SRC" --direct-io=on &&
		mount_image "$TOP/dev/ssd.img" "$SSD" --direct-io=on || return
	[ "$sabotage" != nosync ] || preload=$bin/nosync.so
	: >"$TOP/log"
	rm -f "$TOP/stop"
	LD_PRELOAD=$preload hfs_mount "$2" || return
	mkdir "$MNT/w" && sync -f "$MNT"
	steer &
	helpers+=($!)
	HFS_CRASH_MARK_EARLY=$([ "$sabotage" != early ] || echo 1) \
		"$bin/workload" "$MNT/w" "$TOP/dev/ctl" "$1" "$seconds" "$3" "$procs" || rc=1
	touch "$TOP/stop"
	wait "${helpers[-1]}"
	hfs_umount || rc=1
	hfs_log_is_clean || rc=1
	umount_images "$TOP/dev" && umount "$TOP/dev" && wait "$recorder" || rc=1
	helpers=()
	rm -rf "$rec/live"
	printf '%s\n' "$1" "$2" "$3" >"$rec/parameters"
	return "$rc"
}

# ---- a cut --------------------------------------------------------------------------------------

# tree_sums DIR: every file and its sum.
tree_sums() {
	(cd "$1/w" && find . -type f ! -name '*-shm' -print0 | sort -z | xargs -0r md5sum)
}

# Findings of check that lose nothing: rows, objects and space of files that are gone.
garbage='holds nothing committed -> would remove it$|gone from SRC -> would move it to lost.found$|the SSD has nothing newer of it -> would remove|would release them$'

# checked: hybridfs check has nothing to say, or only that there is garbage. With --strict neither
# that, and clean copies are compared with SRC, also behind the end of a file.
checked() {
	local found rc=0 scrub=()

	[ "$strict" = 0 ] || scrub=(--scrub)
	found=$("$HYBRIDFS" check "${scrub[@]}" "$SRC" "$SSD") || rc=$?
	[ "$rc" -ne 0 ] || return 0
	echo "$found"
	[ "$rc" -eq 4 ] && [ "$strict" = 0 ] || return
	! grep -e '->' <<<"$found" | grep -v ': note: ' | grep -qvE "$garbage" || return
	littered=$((littered + 1))
}

# recovered SEED CUT_SEED: mount, verify, unmount; SRC alone has to be complete, and check content.
recovered() {
	local rc=0 lax=(lax)

	hfs_mount "$cut_options" || return
	if [ $(($2 % 4)) = 0 ]; then	# the daemon dies while it recovers
		hfs_kill9 && hfs_mount "$cut_options" || return
	fi
	[[ $cut_options =~ mode=|seq_cutoff=|size= ]] || lax=()	# there data goes to the SSD first
	"$bin/verify" "$MNT/w" "$1" "${lax[@]}" <"$work/marks" || { rc=1; echo "(on the mount)"; }
	if [ -d "$MNT/w" ]; then tree_sums "$MNT" >"$work/sums"; fi
	hfs_umount || return
	"$bin/verify" "$SRC/w" "$1" "${lax[@]}" <"$work/marks" || { rc=1; echo "(in SRC, after umount)"; }
	if [ -d "$SRC/w" ]; then
		tree_sums "$SRC" | diff "$work/sums" - || { rc=1; echo "(SRC is not the mount)"; }
	fi
	hfs_log_is_clean || { rc=1; echo "(the daemon's log)"; }
	checked || { rc=1; echo "(hybridfs check)"; }
	return "$rc"
}

# cycle RECORD SEED: one cut; 0 when all promises are kept.
cycle() {
	local rc=0

	"$bin/cut" "$rec/log" "$rec/start" "$work/base" "$work/out" "$1" "$2" >"$work/marks" || exit 1
	: >"$TOP/log"
	mount_image "$work/out/src.img" "$SRC" && mount_image "$work/out/ssd.img" "$SSD" &&
		recovered "$rec_seed" "$2" || rc=1
	[ -z "$HFS_PID" ] || hfs_stop_daemon || rc=1
	HFS_PID=
	! hfs_mounted || umount -l "$MNT"
	umount_images "$work/out" || { echo "cannot unmount"; rc=1; }
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

	dir=$(save)/cut-$1-$2
	mkdir -p "$dir"
	"$bin/cut" "$rec/log" "$rec/start" "$work/base" "$work/out" "$1" "$2" >"$dir/marks"
	cp --sparse=always "$work"/out/*.img "$dir"
	cp "$TOP/verdict" "$TOP/log" "$dir"
	echo "FAILED: cut at $1, seed $2, of $rec_name ($cut_options):"
	head -n 20 "$TOP/verdict" | sed 's/^/    /'
	echo "  images: $dir"
	echo "  again:  tests/crash/run.sh --recording ${dir%/*} --at $1:$2"
}

# cuts: play the cuts of the recording in $rec.
cuts() {
	local record cut_seed before=$failed

	work=$TOP/x/work
	rm -rf "$work"
	mkdir -p "$work/base" "$work/out"
	{ read -r rec_workload; read -r cut_options; read -r rec_seed; } <"$rec/parameters"
	while read -r record cut_seed <&9; do
		if cycle "$record" "$cut_seed"; then
			passed=$((passed + 1))
			continue
		fi
		failed=$((failed + 1))
		if [ -n "$sabotage" ]; then
			echo "caught after $((passed + failed)) cuts: $(head -n 1 "$TOP/verdict")"
			return
		fi
		[ $((failed - before)) -gt 2 ] || keep_cut "$record" "$cut_seed"
	done 9< <(if [ -n "$at" ]; then echo "${at/:/ }"; else
		"$bin/cut" --plan "$rec/log" "$cycles" "$seed"; fi)
	if [ "$keep" = 1 ]; then echo "kept: $(save)"; fi
}

# run_workload WORKLOAD NUMBER
run_workload() {
	local opts=${options:-${option_sets[$2 % ${#option_sets[@]}]}}

	rec_name=$1-$seed
	if ! record "$1" "$opts" "$seed"; then
		echo "FAILED: recording of $1 ($opts); the daemon's log ends:"
		tail -n 5 "$TOP/log" | sed 's/^/    /'
		failed=$((failed + 1))
		return 1
	fi
	echo "$1 ($opts, seed $seed): $(grep -aoE 'A [a-z]+ [0-9]+ [0-9]+$' "$rec/log" | wc -l) marks, $(stat -c %s "$rec/log") bytes"
	cuts
	rm -rf "${rec:?}"
}

main() {
	local number workload

	parse "$@"
	set_up
	if [ -n "$recording" ]; then
		rec=$(realpath "$recording") rec_name=$(basename "$recording")
		cuts
	else
		number=$seed
		for workload in ${workloads//,/ }; do
			run_workload "$workload" "$number" || exit 1
			number=$((number + 1))
		done
	fi
	[ "$littered" = 0 ] || echo "note: check found garbage, and nothing worse, after $littered cuts (--strict fails them)"
	echo "$passed passed, $failed failed, $skipped skipped"
	if [ -n "$sabotage" ]; then
		[ "$failed" -gt 0 ] || { echo "the sabotage was not noticed" >&2; exit 1; }
		exit 0
	fi
	exit $((failed > 0))
}

main "$@"
