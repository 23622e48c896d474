#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The daemon dies by kill -9 while programs work on its mount, is started again while they hold
# files of the dead one, and everything that was acknowledged has to be there.
#
#	run.sh [--cycles N] [--workload W,...] [--options OPT,...] [--seed S] [--seconds S]
#		[--kill-ms MS] [--pinned] [--snapshot]
#
# N cycles [60], each with the next workload of tests/crash and, after each round of these, the next
# set of mount options; S bounds the whole run: no cycle begins later. The kill comes at a random
# moment within MS [400] after the first promise. --pinned: besides, programs write files that the
# kernel serves, and go on when the daemon is dead, until after the next one has recovered. Ends with
# `N passed, N failed, N skipped`. What a failing cycle leaves is kept below build/kill/failed/ (with
# --snapshot also the SSD as the killed daemon left it).
#
# README.md in this folder says how it works. Needs root, /dev/fuse and loop devices.

set -u
shopt -s inherit_errexit
# shellcheck source=tests/lib/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.bash"
# shellcheck source=tests/kill/cycle.bash
. "$(dirname "${BASH_SOURCE[0]}")/cycle.bash"

workloads='append,overwrite,rename,sqlite,truncate,mixed'
cycles=60 options='' seed=$((RANDOM * 32768 + RANDOM)) seconds=36000 kill_ms=400

usage() {
	sed -n '7,8s/^#\t//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		--pinned) pinned=1; shift; continue ;;
		--snapshot) snapshot=1; shift; continue ;;
		--cycles | --workload | --options | --seed | --seconds | --kill-ms) [ $# -ge 2 ] || usage ;;
		*) usage ;;
		esac
		case $1 in
		--workload) [ "$2" = all ] || workloads=$2 ;;
		--kill-ms) kill_ms=$2 ;;
		*) printf -v "${1#--}" %s "$2" ;;
		esac
		shift 2
	done
}

# kill_at_random: let the workload run for a while, then the daemon dies.
# shellcheck disable=SC2317 # cycle calls it
kill_at_random() {
	local ms=$((RANDOM % kill_ms))

	kr_sleep_ms "$ms" || return
	kr_kill
}

main() {
	local n names=() opts

	parse "$@"
	kr_set_up
	read -ra names <<<"${workloads//,/ }"
	RANDOM=$((seed % 32768))
	for ((n = 0; n < cycles && SECONDS < seconds; n++)); do
		opts=${options:-${harness_option_sets[n / ${#names[@]} % ${#harness_option_sets[@]}]}}
		if [ $((n % KR_FRESH)) -eq 0 ]; then kr_fresh || exit 1; fi
		kr_count "$n" "${names[n % ${#names[@]}]}" "$opts" $((seed + n)) kill_at_random
	done
	echo "$n cycles in $SECONDS s, $kr_twice of them killed again while recovering; seed $seed"
	if [ "$pinned" = 1 ]; then	# none: nothing was shown
		echo "$kr_outlived programs lived on"
		[ "$kr_outlived" -gt 0 ] || kr_failed=$((kr_failed + 1))
	fi
	kr_summary
}

main "$@"
