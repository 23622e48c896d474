#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Build hybridfs in its variants and run every test.
#
#   tests/run.sh                       all stages
#   tests/run.sh STAGE...              some of them: see `stages` below
#   tests/run.sh bats tests/NNN-*.bats only these files
#
# The last line printed is `N passed, N failed, N skipped`; it is in build/logs/summary too. The
# exit status is 0 only when something passed and nothing failed. Each program's output is in
# build/logs/STAGE/; the end of it is shown when it failed.
#
# A test program reports by TAP, or by a line `N passed, N failed[, N skipped]` (the last one
# counts), or by its exit status alone: 0 passed, 77 skipped, anything else failed.
#
# Knobs, with their defaults, all bounds:
#   CI_DEADLINE_S=3600      for the whole run; what is not reached by then counts as failed
#   CI_PROGRAM_S=480        for one test program or one .bats file
#   CI_MODEL_STEPS=12000    steps of the model test; a tenth of it in the sanitizer build
#   CI_MODEL_SEED=1         where its random numbers start
#   CI_STRESS_S=20          how long several processes write and check at once
#   CI_KILL_S=80            how long the daemon is killed under load again and again
#   CI_CRASH_S=150          how long power is cut, over all workloads
#   HFS_VARIANT=gcc         the build that all stages from unit to crash run

set -u
cd "$(dirname "$0")/.." || exit 2

CI_DEADLINE_S=${CI_DEADLINE_S:-3600}
CI_PROGRAM_S=${CI_PROGRAM_S:-480}
CI_MODEL_STEPS=${CI_MODEL_STEPS:-12000}
CI_MODEL_SEED=${CI_MODEL_SEED:-1}
HFS_VARIANT=${HFS_VARIANT:-gcc}
CI_STRESS_S=${CI_STRESS_S:-20}
CI_KILL_S=${CI_KILL_S:-80}
CI_CRASH_S=${CI_CRASH_S:-150}

stages=(gcc strict clang lint unit bats posix model kill crash sanitize)

# The sub-makes are ours: they must not inherit the jobs of the make that called us.
unset MAKEFLAGS MFLAGS MAKELEVEL

logs=build/logs
passed=0 failed=0 skipped=0
stage='' child='' variant=$HFS_VARIANT
bats_files=()

# ---- cleaning up ------------------------------------------------------------------------------

# abort_fuse MOUNTPOINT: make a hung FUSE mount answer ENOTCONN, so that its users can end.
abort_fuse() {
	local minor

	minor=$(awk -v dir="$1" '
		$5 == dir { for (i = 7; $i != "-"; i++); split($3, d, ":"); type = $(i + 1) }
		END { if (type ~ /^fuse/) print d[2] }' /proc/self/mountinfo)
	[ -z "$minor" ] || echo 1 >"/sys/fs/fuse/connections/$minor/abort"
} 2>/dev/null

# sweep: remove what tests that were cut short have left: daemons, mounts and loop devices, all
# known by lying under the temporary directory of this run.
sweep() {
	local file pid dir

	for file in "$tmp"/*/pid "$tmp"/*/*/pid "$tmp"/*/*/*/pid; do
		{ read -r pid <"$file"; } 2>/dev/null || continue
		tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$tmp/" &&
			kill -KILL "$pid" 2>/dev/null
	done
	while read -r dir; do
		abort_fuse "$dir"
	done < <(hfs_mounts_below "$tmp")
	hfs_clean_below "$tmp"
	rm -rf --one-file-system "${tmp:?}"/*
}

finish() {
	trap - EXIT INT TERM HUP
	if [ -n "$child" ]; then
		kill -TERM "$child" 2>/dev/null
		wait "$child" 2>/dev/null
	fi
	sweep
	rmdir "$tmp"
}

interrupted() {
	finish
	echo "tests: interrupted" >&2
	failed=$((failed + 1))
	summary
	exit 130
}

# ---- counting ---------------------------------------------------------------------------------

summary() {
	echo "$passed passed, $failed failed, $skipped skipped" | tee "$logs/summary"
}

# count LOG STATUS: print "passed failed skipped" of one program.
count() {
	awk -v status="$2" '
		/^ok [0-9]+/ { if (tolower($0) ~ /# *skip/) ts++; else tp++ }
		/^not ok [0-9]+/ { tf++ }
		/[0-9]+ passed, [0-9]+ failed/ {
			line = $0
			sums = 1
			match(line, /[0-9]+ passed, /); p = substr(line, RSTART) + 0
			match(line, /[0-9]+ failed/); f = substr(line, RSTART) + 0
			s = match(line, /[0-9]+ skipped/) ? substr(line, RSTART) + 0 : 0
		}
		END {
			if (!sums) { p = tp + 0; f = tf + 0; s = ts + 0 }
			if (!sums && p + f + s == 0 && status == 0) p = 1
			if (!sums && p + f + s == 0 && status == 77) s = 1
			if (status != 0 && status != 77 && f == 0) f = 1
			else if (status == 124 || status == 137) f++ # the one that hung
			print p, f, s
		}' "$1"
}

# run NAME SECONDS COMMAND...: one test program, bounded, its output in its own log, counted.
run() {
	local name=$1 limit=$2 log=$logs/$stage/${1//\//_}.log left p f s status=0 start=$SECONDS
	local note

	shift 2
	mkdir -p "$logs/$stage"
	left=$((CI_DEADLINE_S - SECONDS))
	[ "$limit" -le "$left" ] || limit=$left
	if [ "$limit" -le 0 ]; then
		failed=$((failed + 1))
		printf '  %-9s %-34s NOT RUN: out of time (CI_DEADLINE_S=%s)\n' \
			"$stage" "$name" "$CI_DEADLINE_S"
		return 1
	fi
	timeout -k 10 "$limit" "$@" </dev/null >"$log" 2>&1 &
	child=$!
	wait "$child" || status=$?
	child=
	# timeout says 124, or 137 when the program did not end on SIGTERM; 137 alone is a kill.
	if [ "$status" -eq 137 ] && [ $((SECONDS - start)) -lt "$limit" ]; then
		note="was KILLED"
	elif [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
		note="TIMED OUT after $limit s"
	fi
	[ -z "${note-}" ] || sweep
	read -r p f s < <(count "$log" "$status")
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	printf '  %-9s %-34s %4d passed, %d failed, %d skipped  (%d s)%s\n' "$stage" "$name" \
		"$p" "$f" "$s" "$((SECONDS - start))" "${note:+  $note}"
	[ "$f" -eq 0 ] && return 0
	echo "---- $log:"
	if grep -qE '^(not ok|FAIL)' "$log"; then
		awk '/^(not ok|FAIL)/ { show = 1 } /^ok/ { show = 0 } show' "$log" | head -n 60
	else
		tail -n 40 "$log"
	fi
	echo "----"
	return 1
}

# absent NAME WHY: one test that is not there, or can not run here.
absent() {
	skipped=$((skipped + 1))
	printf '  %-9s %-34s skipped: %s\n' "$stage" "$1" "$2"
}

# ---- stages -----------------------------------------------------------------------------------

build() {
	make -j"$(nproc)" "$@"
}
export -f build

# The directory where a variant's test programs are, as in the Makefile.
test_dir() {
	[ "$1" = gcc ] && echo build || echo "build/$1"
}

stage_gcc() { run "build with gcc" 600 bash -c 'build all programs'; }
stage_strict() { run "build with gcc -Werror" 600 bash -c 'build VARIANT=strict programs'; }
stage_clang() { run "build with clang -Werror" 600 bash -c 'build CC=clang WERROR=1 programs'; }
stage_lint() { run "lint" 240 contrib/lint.sh; }

# prepare VARIANT: build it once, quietly; a failure is a failed test.
declare -A prepared
prepare() {
	local log=$logs/build-$1.log

	variant=$1
	[ -z "${prepared[$1]-}" ] || return "${prepared[$1]}"
	build VARIANT="$1" programs </dev/null >"$log" 2>&1
	prepared[$1]=$?
	[ "${prepared[$1]}" -eq 0 ] && return 0
	failed=$((failed + 1))
	printf '  %-9s the %s build failed: %s\n' "$stage" "$1" "$log"
	tail -n 20 "$log"
	return 1
}

run_unit() {
	local dir test found=

	dir=$(test_dir "$variant")
	for test in tests/unit/test_*.c tests/unit/fs_*.c; do
		[ -e "$test" ] || continue
		found=yes
		test=$(basename "$test" .c)
		TMPDIR=$tmp run "unit/$test" "$CI_PROGRAM_S" "$dir/unit/$test"
	done
	[ -n "$found" ] || absent "unit tests" "none in this tree"
}

# run_bats FILE...: one bats process for each file, so that a hang costs one file.
run_bats() {
	local file

	[ $# -gt 0 ] || absent "bats" "no tests in this tree"
	for file in "$@"; do
		TMPDIR=$tmp HYBRIDFS=$PWD/build/$variant/hybridfs run "$(basename "$file")" \
			"$CI_PROGRAM_S" bats --formatter tap "$file"
	done
}

# run_mounted NAME [-n] COMMAND...: over a fresh mount, see tests/lib/mounted.bash.
run_mounted() {
	local name=$1

	shift
	if [ "$(id -u)" -ne 0 ] || [ ! -c /dev/fuse ]; then
		absent "$name" "needs root and /dev/fuse"
		return
	fi
	TMPDIR=$tmp HYBRIDFS=$PWD/build/$variant/hybridfs run "$name" "$CI_PROGRAM_S" \
		tests/lib/mounted.bash "$@"
}

stage_unit() { prepare "$HFS_VARIANT" && run_unit; }

stage_bats() {
	[ "${#bats_files[@]}" -gt 0 ] || mapfile -t bats_files < <(compgen -G 'tests/*.bats' | sort)
	prepare "$HFS_VARIANT" && run_bats "${bats_files[@]}"
}

stage_posix() {
	prepare "$HFS_VARIANT" || return
	run_posix
}

run_posix() {
	local program

	program=$PWD/$(test_dir "$variant")/posixtest
	if [ ! -x "$program" ]; then
		absent "posixtest" "no tests/posix in this tree"
		return
	fi
	run_mounted "posix as root" "$program" @MNT@
	run_mounted "posix as uid 65534" "$program" -u 65534:65534 @MNT@
}

stage_model() { prepare "$HFS_VARIANT" && run_model "$CI_MODEL_STEPS"; }

# run_model STEPS: random operations with clean remounts, then with kill -9, then many processes.
run_model() {
	local program owning

	program=$PWD/$(test_dir "$variant")/modeltest
	if [ ! -x "$program" ]; then
		absent "modeltest" "no tests/model in this tree"
		return
	fi
	owning=(-n "$program" --tool "$PWD/build/$variant/hybridfs" --src @SRC@ --ssd @SSD@
		--mnt @MNT@ --ref @REF@ --daemon-log @LOG@ --tier-ops)
	run_mounted "model" "${owning[@]}" --remounts --steps "$1" --seed "$CI_MODEL_SEED"
	run_mounted "model with kill -9" "${owning[@]}" --kills --lax-kill --kill-every 500 \
		--steps "$(($1 / 2))" --seed "$((CI_MODEL_SEED + 1))"
	run_mounted "model with kill -9, pinned" "${owning[@]}" --pinned --kills --lax-kill \
		--kill-every 400 --steps "$(($1 / 3))" --seed "$((CI_MODEL_SEED + 2))"
	run_mounted "model under stress" "$program" --stress 4 --seconds "$CI_STRESS_S" --mnt @MNT@
}

# The daemon dies under load, at random moments and at its crash points: tests/kill.
stage_kill() {
	prepare "$HFS_VARIANT" || return
	HFS_KILL_TMP=$tmp HYBRIDFS=$PWD/build/$variant/hybridfs run "kill -9" "$CI_PROGRAM_S" \
		tests/kill/run.sh --cycles 100000 --seconds "$((CI_KILL_S / 2))"
	HFS_KILL_TMP=$tmp HYBRIDFS=$PWD/build/$variant/hybridfs run "kill -9, pinned" "$CI_PROGRAM_S" \
		tests/kill/run.sh --pinned --cycles 100000 --seconds "$((CI_KILL_S / 4))"
	run "build with crash points" 300 bash -c 'build VARIANT=points build/points/hybridfs' || return
	HFS_KILL_TMP=$tmp run "crash points" "$CI_PROGRAM_S" \
		tests/kill/points.sh --seconds "$((CI_KILL_S / 2))"
}

stage_crash() { prepare "$HFS_VARIANT" && run_crash; }

# run_crash: as many power cuts as the time allows. Each wait is long: here slowness is no failure.
run_crash() {
	HFS_TIMEOUT_S=120 HFS_CRASH_TMP=$tmp HYBRIDFS=$PWD/build/$variant/hybridfs \
		run "power cuts" "$((2 * CI_CRASH_S + 120))" tests/crash/run.sh \
		--limit "$CI_CRASH_S" --seconds 3 --cycles 1000 --seed 1
	# What the kernel reads and writes by itself.
	HFS_TIMEOUT_S=120 HFS_CRASH_TMP=$tmp HYBRIDFS=$PWD/build/$variant/hybridfs \
		run "power cuts, pinned" "$CI_PROGRAM_S" tests/crash/run.sh --pinned --limit 30 \
		--seconds 2 --cycles 1000 --seed 2 --workload truncate,cold --options dirty_expire=1
	run "build with crash points" 300 bash -c 'build VARIANT=points build/points/hybridfs' || return
	HFS_TIMEOUT_S=120 HFS_CRASH_TMP=$tmp run "power cuts at crash points" "$CI_PROGRAM_S" \
		tests/crash/run.sh --points 1 --only 10 --limit 40 --seconds 2 --workload mixed
}

# The tests that mount, and the unit tests, once more under the sanitizers.
stage_sanitize() {
	local files

	prepare asan || return
	run_unit
	mapfile -t files < <(grep -l hfs_mount tests/*.bats 2>/dev/null)
	run_bats "${files[@]}"
	run_model "$((CI_MODEL_STEPS / 10))"
}

# ---- main -------------------------------------------------------------------------------------

want=()
for arg in "$@"; do
	case $arg in
	-h | --help) sed -n '4,30s/^# \{0,1\}//p' "$0"; exit 0 ;;
	*.bats) bats_files+=("$arg") ;;
	*)
		declare -F "stage_$arg" >/dev/null || {
			echo "tests/run.sh: no stage '$arg' (there are: ${stages[*]})" >&2
			exit 1
		}
		want+=("$arg")
		;;
	esac
done
if [ "${#bats_files[@]}" -gt 0 ] && [ "${#want[@]}" -eq 0 ]; then
	want=(bats)
fi
[ "${#want[@]}" -gt 0 ] || want=("${stages[@]}")

# shellcheck source=tests/lib/common.bash
. tests/lib/common.bash

mkdir -p "$logs"
rm -rf "${logs:?}"/*
tmp=$(mktemp -d "${TMPDIR:-/tmp}/hybridfs-tests.XXXXXX") || exit 2
chmod 755 "$tmp"
trap finish EXIT
trap interrupted INT TERM HUP

for stage in "${want[@]}"; do
	"stage_$stage"
done
finish
summary
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
