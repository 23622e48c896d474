#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Check what the compilers do not: layering, house style, shell scripts, and cppcheck.
#
#   contrib/lint.sh [FILE...]     the whole tree, or only these files
#
# Every finding is one line `FILE:LINE: what is wrong`. Exits 1 when there is one; lines that begin
# with "note:" do not count.

set -u
cd "$(dirname "$0")/.." || exit 2

max_columns=100
max_file_lines=800
max_function_lines=80
cppcheck_seconds=120

findings=$(mktemp) || exit 2
trap 'rm -f "$findings"' EXIT

# files: what belongs to the tree, committed or not yet.
files() {
	if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
		git ls-files -co --exclude-standard
	else
		find . -path ./.git -prune -o -path ./build -prune -o -type f -printf '%P\n'
	fi | while read -r f; do [ -f "$f" ] && [ ! -L "$f" ] && echo "$f"; done | sort -u
}

# pick REGEX: those of the files whose name matches.
pick() {
	printf '%s\n' "${all[@]}" | grep -E "$1"
}

# check NAME COMMAND...: a check prints its findings; nothing printed = good.
failed=0
check() {
	local name=$1

	shift
	"$@" >"$findings"
	if [ -s "$findings" ]; then
		cat "$findings"
		printf 'lint: %s: %d findings\n' "$name" "$(wc -l <"$findings")"
		failed=$((failed + 1))
	fi
}

# ---- checks -----------------------------------------------------------------------------------

# includes_in DIR REGEX WHY [FILES]: no file below DIR may include what matches.
forbid_include() {
	local hits

	hits=$(printf '%s\n' "${c_files[@]}" | grep -E "$1" |
		xargs -r grep -nHE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($2)")
	[ -z "$hits" ] || sed -E "s|^([^:]*:[0-9]+:).*include *(.*)|\1 includes \2, but $3|" <<<"$hits"
}

layering() {
	forbid_include '^(db|tier)/' '(fuse3/)?fuse[_a-z]*\.h|fs/' \
		'only fs/ knows FUSE; includes go fs -> tier -> db'
	forbid_include '^db/' 'tier/' 'includes go fs -> tier -> db'
	forbid_include '^(tier|fs)/' 'sqlite3' 'only db/ knows sqlite'
	forbid_include '^fs/' 'xxhash|xxh3' 'only tier/ and db/ know xxhash'
	forbid_include '^tests/unit/test_' '(fuse3/)?fuse[_a-z]*\.h|fs/' \
		'test_* link without fs/: name it fs_*'
}

spdx() {
	local f line

	for f in "${sources[@]}"; do
		line=$(head -n 2 "$f")
		case $line in
		'#!'*) line=${line#*$'\n'} ;;
		*) line=${line%%$'\n'*} ;;
		esac
		[[ $line == *SPDX-License-Identifier:* ]] ||
			echo "$f:1: no SPDX-License-Identifier on line 1 (after #!)"
	done
}

columns() {
	local f

	for f in "${c_files[@]}"; do
		expand -t 8 "$f" | LC_ALL=C.UTF-8 grep -nE "^.{$((max_columns + 1))}" |
			sed -E "s|^([0-9]+):.*|$f:\1: longer than $max_columns columns|"
	done
}

white_space() {
	grep -nHE '[[:space:]]+$' "${texts[@]}" | sed -E 's|^([^:]*:[0-9]+:).*|\1 white space at the end|'
	grep -lI $'\r' "${texts[@]}" | sed 's|$|: has carriage returns|'
	grep -nHE '^ {8} *[^ \\]' "${c_files[@]}" /dev/null |
		sed -E 's|^([^:]*:[0-9]+:).*|\1 indented with spaces|'
}

unfinished() {
	grep -nHwE 'TO''DO|FIX''ME' "${sources[@]}" |
		sed -E 's|^([^:]*:[0-9]+:).*|\1 unfinished work belongs in an issue, not in a comment|'
}

typedefs() {
	grep -nHE '^[[:space:]]*typedef[[:space:]]+(struct|union)\b' "${c_files[@]}" /dev/null |
		sed -E 's|^([^:]*:[0-9]+:).*|\1 no typedef of structs|'
}

file_length() {
	local f n

	for f in "${c_files[@]}"; do
		n=$(wc -l <"$f")
		[ "$n" -le "$max_file_lines" ] ||
			echo "$f:$max_file_lines: the file has $n lines, the limit is $max_file_lines"
	done
}

# A function runs from `{` to `}` in the first column; its name is on a line before.
function_length() {
	[ "${#c_files[@]}" -eq 0 ] || awk -v max="$max_function_lines" '
		/^[a-zA-Z_].*\(/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
		/^\{/ { start = FNR }
		/^\}/ && start {
			if (FNR - start - 1 > max)
				printf "note: %s:%d: %s() has %d lines, more than %d\n",
					FILENAME, start, name, FNR - start - 1, max
			start = 0
		}' "${c_files[@]}"
}

bats_names() {
	pick '^tests/.*\.bats$' | grep -vE '^tests/[0-9]{3}-[a-z0-9]+(-[a-z0-9]+)*\.bats$' |
		sed 's|$|: should be tests/NNN-area-topic.bats|'
}

# A test waits for an event, never for a guessed time.
sleeps() {
	pick '^tests/.*\.(bats|bash|sh)$' | xargs -r grep -nHE '^[^#]*\bsleep +[0-9.]' |
		sed -E 's|^([^:]*:[0-9]+:).*|\1 sleeps: wait for the event (hfs_wait_until)|'
}

shell_scripts() {
	local f scripts=() bats=()

	if ! command -v shellcheck >/dev/null; then
		echo "shellcheck is not installed: run contrib/setup.sh test"
		return
	fi
	for f in "${sources[@]}"; do
		case $f in
		*.bats) bats+=("$f") ;;
		*.sh | *.bash) scripts+=("$f") ;;
		*) head -n 1 "$f" | grep -qE '^#!.*\b(ba|da)?sh\b' && scripts+=("$f") ;;
		esac
	done
	# 2154, 2034: variables shared with tests/lib; 2030, 2031: bats runs tests in subshells.
	[ "${#scripts[@]}" -eq 0 ] || shellcheck -x -f gcc -e SC2034 "${scripts[@]}"
	[ "${#bats[@]}" -eq 0 ] ||
		shellcheck -s bats -f gcc -S warning -e SC2154,SC2034,SC2030,SC2031 "${bats[@]}"
}

cpp_check() {
	local c

	if ! command -v cppcheck >/dev/null; then
		echo "cppcheck is not installed: run contrib/setup.sh test"
		return
	fi
	mapfile -t c < <(printf '%s\n' "${c_files[@]}" | grep -E '\.c$' | grep -v '^contrib/probe/')
	[ "${#c[@]}" -gt 0 ] || return 0
	# Without its leak checks: it knows neither cleanup attributes nor `return fd >= 0 ? fd : -errno`
	# (clang-analyzer in `make tidy` and the sanitizer build do). readdir_r is the deprecated one.
	# Tests pass invalid arguments on purpose.
	mkdir -p build/cppcheck
	timeout "$cppcheck_seconds" cppcheck -q -j "$(nproc)" --error-exitcode=1 --std=c11 \
		--enable=warning,portability --inline-suppr --library=posix,gnu \
		--suppress=missingIncludeSystem --suppress=unmatchedSuppression \
		--suppress=resourceLeak --suppress=memleak --suppress=readdirCalled \
		--suppress=invalidFunctionArg:tests/* --suppress=invalidFunctionArgBool:tests/* \
		--cppcheck-build-dir=build/cppcheck -I. -D_GNU_SOURCE '-D_Noreturn=__attribute__((noreturn))' \
		--template='{file}:{line}: {severity}: {message} [{id}]' --template-location='' \
		"${c[@]}" 2>&1
	[ $? -ne 124 ] || echo "cppcheck: not done after $cppcheck_seconds s"
}

# Only a report: where it and the house style disagree, the house style wins.
format_note() {
	local n

	command -v clang-format >/dev/null && [ "${#c_files[@]}" -gt 0 ] || return 0
	n=$(clang-format --dry-run "${c_files[@]}" 2>&1 |
		sed -nE 's/^([^:]+):[0-9]+:[0-9]+: warning:.*/\1/p' | sort -u | wc -l)
	echo "note: clang-format would change $n of ${#c_files[@]} C files"
}

# ---- main -------------------------------------------------------------------------------------

if [ $# -gt 0 ]; then
	all=("$@")
else
	mapfile -t all < <(files)
fi
mapfile -t c_files < <(pick '\.[ch]$')
mapfile -t texts < <(printf '%s\n' "${all[@]}" | grep -v '^LICENSE$' | xargs -rd '\n' grep -lI '')
mapfile -t sources < <({
	pick '\.([chly]|sh|bash|bats|py|sql)$|(^|/)Makefile$'
	printf '%s\n' "${texts[@]}" | while read -r f; do
		read -r line <"$f" && [[ $line == '#!'* ]] && echo "$f"
	done
} | sort -u)

check layering layering
check SPDX spdx
check columns columns
check "white space" white_space
check "unfinished work" unfinished
check typedefs typedefs
check "file length" file_length
check "names of tests" bats_names
check sleeps sleeps
check shellcheck shell_scripts
check cppcheck cpp_check
function_length
format_note

if [ "$failed" -gt 0 ]; then
	echo "lint: $failed checks failed"
	exit 1
fi
echo "lint: ${#all[@]} files, all good"
