#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The daemon dies at each of its crash points (tier/crash_point.h), is started again, and everything
# that was acknowledged has to be there.
#
#	points.sh [--rounds N] [--points NAME[:NTH],...] [--options OPT,...] [--seed S]
#		[--seconds S] [--snapshot]
#
# Each round [1] visits every point three times: at its first, its second and a random later
# passing. A point that is not passed within a few seconds is tried again with other mount options;
# one that no attempt reaches is a failure. S bounds the whole run: no cycle begins later.
# Ends with `N passed, N failed, N skipped`; what a failing cycle leaves is kept below
# build/kill/failed/. HYBRIDFS_POINTS is the program [build/points/hybridfs, make CRASHPOINTS=1].

set -u
shopt -s inherit_errexit
HYBRIDFS=${HYBRIDFS_POINTS:-$(dirname "${BASH_SOURCE[0]}")/../../build/points/hybridfs}
# shellcheck source=tests/lib/common.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.bash"
# shellcheck source=tests/kill/cycle.bash
. "$(dirname "${BASH_SOURCE[0]}")/cycle.bash"

# In this order until the point is passed: a small SSD and a small journal come first.
option_sets=(
	'dirty_expire=1,size=6M,promote_hits=1'
	'dirty_expire=1,promote_hits=1'
	'mode=writearound,promote_hits=1,size=8M'
	'seq_cutoff=64K,dirty_expire=2,size=6M'
	'mode=writethrough,promote_hits=1'
	'dirty_expire=3600,size=8M'
)
# Where the mixed workload with any options hardly ever goes.
declare -A workload_of=([JOURNAL_SPLIT]=truncate [CUT_AT_MOUNT]=truncate [SWEEP_GONE]=rename)
declare -A procs_of=([JOURNAL_SPLIT]=15)
declare -A options_of=([JOURNAL_SPLIT]='dirty_expire=1,promote_hits=1'
	[CUT_AT_MOUNT]='dirty_expire=3600' [SWEEP_GONE]='dirty_expire=1,promote_hits=1')

rounds=1 points='' options='' seed=$((RANDOM * 32768 + RANDOM)) seconds=36000
declare -A reached unreached phase_of
KR_SSD_SIZE=48M
wait_s=6	# for a point to be passed

usage() {
	sed -n '7,8s/^#\t//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		--snapshot) snapshot=1; shift; continue ;;
		--rounds | --points | --options | --seed | --seconds) [ $# -ge 2 ] || usage ;;
		*) usage ;;
		esac
		printf -v "${1#--}" %s "$2"
		shift 2
	done
}

# ---- the death --------------------------------------------------------------------------------------

# gone_or COMMAND...: the daemon has ended, or there is nothing left for it to do.
# shellcheck disable=SC2317
gone_or() {
	hfs_gone "$HFS_PID" || "$@"
}

# died_there [COMMAND...]: within wait_s the daemon has ended at its crash point. Sets $missed when it
# lives on, or has reached its regular end; anything else is a failure.
# shellcheck disable=SC2317
died_there() {
	HFS_TIMEOUT_S=$wait_s hfs_wait_until gone_or "${@:-false}" 2>/dev/null || :
	if ! hfs_gone "$HFS_PID"; then
		missed=1
		return
	fi
	hfs_wait_exit || return
	[ "$HFS_STATUS" -ne 0 ] || missed=1
	[ "$missed" = 1 ] || grep -qa "crash point ${point%:*}" "$TOP/log" || {
		echo "the daemon ended by itself"
		return 1
	}
}

# shellcheck disable=SC2317
die_in_run() {
	touch "$TOP/armed"
	died_there || return
	kr_kill
}

# shellcheck disable=SC2317
die_in_mount() {
	kr_sleep_ms $((RANDOM % 300))
	kr_kill
	touch "$TOP/armed"
	HFS_CRASH_POINT=$point HFS_CRASH_ARMED=$TOP/armed kr_start "$opts"
	died_there kr_recovered || return
	kr_kill
}

# shellcheck disable=SC2317
die_in_umount() {
	wait "$kr_loaded" || return
	kr_loaded=
	touch "$TOP/armed"
	"$HYBRIDFS" umount "$MNT"
	died_there || return
	kr_kill
}

# ---- one point ----------------------------------------------------------------------------------------

# attempt NUMBER: a cycle in which the daemon dies at $point. Fails when it was not passed.
attempt() {
	local name=${point%:*} phase

	opts=${options:-${options_of[$name]-${option_sets[$1 % ${#option_sets[@]}]}}}
	phase=${phase_of[$name]} missed=0
	kr_work_s=20 kr_procs=${procs_of[$name]-5}
	[ "$phase" != umount ] || kr_work_s=1
	rm -f "$TOP/armed"
	if [ "$phase" != mount ]; then
		export HFS_CRASH_POINT=$point HFS_CRASH_ARMED=$TOP/armed
	fi
	kr_count "$point" "${workload_of[$name]-mixed}" "$opts" $((seed + ++n)) "die_in_$phase"
	[ "$missed" = 0 ]
}

# visit NAME NTH: tries options and ever fewer passings until the point is reached.
visit() {
	local i nth=$2 before=$kr_failed

	for ((i = 0; i < 8; i++)); do
		[ "$SECONDS" -lt "$seconds" ] || return
		point=$1:$nth
		if attempt "$i"; then
			reached[$1]=$((${reached[$1]-0} + 1))
			return
		fi
		[ "$kr_failed" = "$before" ] || return
		kr_passed=$((kr_passed - 1))	# it shows nothing
		[ $((i % 2)) -eq 0 ] || nth=$((nth > 5 ? nth / 3 : 1))
	done
	unreached[$1]=1
	kr_failed=$((kr_failed + 1))
	echo "FAILED: $1 was not passed $2 times in any of $i attempts"
}

read_points() {
	local name phase

	while read -r name phase; do
		phase_of[$name]=$phase
		all+=("$name")
	done < <(HFS_CRASH_POINT=list "$HYBRIDFS")
	# Another order each time: a run that is cut off by --seconds is not always the same part.
	mapfile -t all < <(printf '%s\n' "${all[@]}" |
		awk -v seed="$seed" 'BEGIN { srand(seed) } { print rand(), $0 }' | sort | cut -d ' ' -f 2)
	[ "${#all[0]}" -gt 0 ] || { echo "$HYBRIDFS has no crash points: make CRASHPOINTS=1" >&2; exit 1; }
}

report() {
	local name count least=

	for name in "${all[@]}"; do
		count=${reached[$name]-0}
		[ "$count" -gt 0 ] || continue
		[ -n "$least" ] && [ "$count" -ge "$least" ] || least=$count
	done
	echo "${#reached[@]} of ${#all[@]} points died at, each at least ${least:-0} times; $n cycles in $SECONDS s; seed $seed"
}

main() {
	local round name n=0 all=() point opts missed

	parse "$@"
	read_points
	kr_set_up
	kr_fresh || exit 1
	RANDOM=$((seed % 32768))
	for ((round = 0; round < rounds; round++)); do
		[ $((round % 2)) -eq 1 ] || kr_fresh || exit 1
		for name in "${all[@]}"; do
			if [ -n "$points" ]; then
				[[ ,$points, == *,"$name"[,:]* ]] || continue
				[[ ! ,$points, =~ ,$name:([0-9]+), ]] ||
					{ visit "$name" "${BASH_REMATCH[1]}"; continue; }
			fi
			visit "$name" 1
			visit "$name" 2
			visit "$name" $((3 + RANDOM % 20))
		done
	done
	report
	kr_summary
}

main "$@"
