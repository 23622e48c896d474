# SPDX-License-Identifier: GPL-2.0-or-later
# Rows "case unit wanted side round value" (tabs) to one object per case and side; see lib.bash.

def median: sort | if length % 2 == 1 then .[(length - 1) / 2]
	else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def digits: if . >= 100 then round elif . >= 10 then . * 10 | round / 10
	else . * 1000 | round / 1000 end;
def spread: "\(median | digits) (\(min | digits)-\(max | digits))";
def more_is_better: endswith("/s") or endswith("IOPS");

[split("\n")[] | select(length > 0) | split("\t") |
	{ case: .[0], unit: .[1], wanted: .[2], side: .[3], round: (.[4] | tonumber),
	  value: (.[5] | tonumber) }]
| [group_by(.case)[] | . as $rows | ($rows | min_by(.round) | .side) as $any
	| ([$rows[] | select(.round == 1)][0].side) as $base
	| [$rows[] | .side] | unique | sort_by(. != $base)[] as $side
	| [$rows[] | select(.side == $side)] as $mine
	| ([$rows[] | select(.side == $base)] | map({ key: "\(.round)", value: .value })
		| from_entries) as $of_base
	| [$mine[] | $of_base["\(.round)"] as $b | select($b != null and $b > 0 and .value > 0)
		| if .unit | more_is_better then .value / $b else $b / .value end] as $ratios
	| ($mine[0].wanted | tonumber? // null) as $wanted
	| { case: $mine[0].case, side: $side, unit: $mine[0].unit, values: [$mine[].value],
	    median: ([$mine[].value] | median), wanted: $wanted,
	    text: "\([$mine[].value] | spread) \($mine[0].unit)" }
	+ (if $side == "-" then { ratio_text: "", ok: null }
	   elif $side == $base or ($ratios | length) == 0 then { ratio_text: "1", ok: null }
	   else { ratios: $ratios, ratio: ($ratios | median), ratio_text: ($ratios | spread),
		  ok: (if $wanted and $side == "hybridfs" then ($ratios | median) >= $wanted
		       else null end) } end)
	| if .side == "-" then .ok = (if $wanted then .median <= $wanted else null end) else . end
	| .verdict = (if .ok == null then ""
		else (if .side == "-" then "<= " else ">= " end) + "\($wanted)"
			+ (if .ok then "" else "  MISSED" end) end)]
| { version: 1, cases: . }
