#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Print, for each source file, how many of its lines the tests have run.
#
#   contrib/coverage.sh OBJECTS_DIR      (called by `make coverage`)

set -u
dir=${1:?contrib/coverage.sh OBJECTS_DIR}
root=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT

# gcov -n prints "File 'db/x.c'" and "Lines executed:NN.NN% of N" for each source of an object.
find "$root/$dir" -name '*.gcda' ! -path '*/tests/*' -print0 |
	(cd "$root" && xargs -0r gcov -n -r 2>/dev/null) |
	awk -F "[':% ]+" '
		/^File / { file = $2 }
		/^Lines executed/ && file ~ /\.c$/ {
			lines[file] = $5
			run[file] = $3 * $5 / 100
			file = ""
		}
		END {
			for (f in lines) {
				printf "%6.1f%% %6d  %s\n", 100 * run[f] / lines[f], lines[f], f | "sort -k3"
				all += lines[f]; done += run[f]
			}
			close("sort -k3")
			if (!all) { print "nothing was run" > "/dev/stderr"; exit 1 }
			printf "%6.1f%% %6d  all\n", 100 * done / all, all
		}'
