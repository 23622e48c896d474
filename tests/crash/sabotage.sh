#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The power-cut harness has to notice when an invariant is broken: for each of I1 to I5 build a
# program that breaks it (tier/sabotage.h), and show after how many cuts it is caught, and by what.
#
#	sabotage.sh [I1...I5]
#
# Ends with `N passed, N failed`; passed: caught within 200 cuts, by a finding of the right kind.

set -u
cd "$(dirname "$0")/../.." || exit 1

cycles=200 seconds=6 seed=${CRASH_SEED:-1}

# What each recording is of, and what has to be found.
lost='was promised|acknowledged step [0-9]+: (the file has|overwrite: read|.*but the file has)'
# Other bytes on the SSD than in SRC where both should be the same.
differs='SRC is not the mount|do not match their checksum|seen before the second cut'
# invariant, workload, options, finding
cases=(
	"I1 overwrite dirty_expire=3600 $lost"
	"I2 cold dirty_expire=1,size=8M,promote_hits=1 $differs"
	"I3 cold dirty_expire=1,size=8M,promote_hits=1 $lost"
	"I4 cold dirty_expire=1,size=8M,promote_hits=1 has zeros|$differs"
	"I5 overwrite dirty_expire=3600 $lost"
)

passed=0 failed=0

# caught INVARIANT WORKLOAD OPTIONS FINDING
caught() {
	local out

	make SABOTAGE="$1" >/dev/null || return
	out=$(HYBRIDFS=$PWD/build/sabotage-$1/hybridfs tests/crash/run.sh --sabotage build \
		--workload "$2" --options "$3" --cycles "$cycles" --seconds "$seconds" --seed "$seed")
	grep -A 4 '^caught after' <<<"$out" | sed "s/^/$1 ($2): /"
	grep -A 99 '^caught after' <<<"$out" | grep -qE "$4" || { echo "$out"; return 1; }
}

for case in "${cases[@]}"; do
	read -r invariant workload options finding <<<"$case"
	[ $# -eq 0 ] || [[ " $* " == *" $invariant "* ]] || continue
	if caught "$invariant" "$workload" "$options" "$finding"; then
		passed=$((passed + 1))
	else
		echo "not ok: $invariant is broken, and the harness does not say so"
		failed=$((failed + 1))
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
