#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Databases on a mount: kill the daemon, or cut the power of both disks, while clients commit and
# data is moved to and fro; then nothing that was committed may be missing.
#
#	run.sh [--db postgres,mariadb] [--kills N] [--cuts N] [--seed S] [--options OPT,...]
#		[--commits N] [--keep] [--verbose]
#	run.sh --db DB --recording DIR [--cuts N | --at RECORD:SEED]
#	run.sh --plain [--db DB] [--cuts N] [--seed S]
#	run.sh ... [--sync again|late|plain]
#
# Default: both databases, 20 kills and 20 cuts each, the mount's and the servers' options changing
# from one run to the next; before a kill, or the end of a recording, N transactions [600] are
# committed. --plain cuts the power without hybridfs, on ext4 alone: what fails there is the database's
# own. --sync says what a sync of MariaDB is while a recording is made: `again` [default] until no write
# of the file has ended meanwhile, `late` returns 20 ms after it is done, `plain` the usual; README.md says
# why. Ends with `N passed, N failed, N skipped`. What failed is kept below build/db/failed/.
#
# README.md in this folder says how it works. Needs root, /dev/fuse, loop devices, the servers
# (contrib/setup.sh databases). Runs no service, listens on no network.

set -u
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/lib/common.bash
. "$here/../lib/common.bash"
# shellcheck source=tests/lib/harness.bash
. "$here/../lib/harness.bash"
# shellcheck source=tests/db/server.bash
. "$here/server.bash"

HFS_TIMEOUT_S=120
kept=$HFS_ROOT/build/db/failed
src_size=640M
ssd_size=160M
scratch_size=40G
cuts_of_recording=4	# so that 20 cuts see every line of option_sets
# Blocks of 4 KiB, as the disk's: what a cut tears otherwise is torn on any filesystem.
mkfs_options=(-q -F -m 0 -b 4096 -E 'lazy_itable_init=0,lazy_journal_init=0')

# Mount options, one line for each run in turn. A size= below that of the database makes room short.
option_sets=(
	'size=48M,dirty_expire=1,promote_hits=1'
	'dirty_expire=3600'
	'size=64M,promote_hits=1,seq_cutoff=64K'
	'size=96M,dirty_expire=2,mode=writethrough,promote_hits=1'
	'size=48M,mode=writearound,promote_hits=1'
)

dbs=postgres,mariadb
kills=20 cuts=20 commits=600 seed=$((RANDOM * 32768 + RANDOM)) options='' recording='' at='' keep=0 plain=0 verbose=0 sync=again
passed=0 failed=0 skipped=0
db='' helpers=()

usage() {
	sed -n '7,11s/^#\t//p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		--keep) keep=1; shift; continue ;;
		--verbose) verbose=1; shift; continue ;;
		--plain) plain=1 kills=0; shift; continue ;;
		--db) [ $# -ge 2 ] || usage; dbs=$2; shift 2; continue ;;
		--kills | --cuts | --commits | --seed | --options | --recording | --at | --sync) ;;
		*) usage ;;
		esac
		[ $# -ge 2 ] || usage
		printf -v "${1#--}" %s "$2"
		shift 2
	done
	for db in ${dbs//,/ }; do [[ $db =~ ^(postgres|mariadb)$ ]] || usage; done
	[ -z "$at" ] || [ -n "$recording" ] || usage
	[[ $sync =~ ^(again|late|plain)$ ]] || usage
}

# ---- set-up and the way out ---------------------------------------------------------------------

# Everything is below $TOP; what is mounted or attached there is ours. Called by traps.
# shellcheck disable=SC2317
leave() {
	local rc=$? pid

	trap - EXIT INT TERM HUP
	touch "$TOP/stop"
	server_kill
	for pid in ${helpers[@]+"${helpers[@]}"} $HFS_PID; do
		kill -KILL "$pid" 2>/dev/null
		hfs_wait_until hfs_gone "$pid"
	done
	hfs_clean_below "$TOP"
	rm -rf --one-file-system "$TOP"
	exit "$rc"
}

set_up() {
	harness_need_machine
	# Devices are recorded and cut by the programs of the power-cut harness.
	harness_build record cut sync.so || exit 1
	TOP=$(mktemp -d "${HFS_CRASH_TMP:-/var/tmp}/hfsdb.XXXXXX")
	trap leave EXIT
	trap 'exit 130' INT TERM HUP
	chmod 755 "$TOP"
	SRC=$TOP/src SSD=$TOP/ssd MNT=$TOP/mnt
	[ "$plain" = 0 ] || MNT=$SRC
	# Nobody but root writes to the bare directory while nothing is mounted there.
	mkdir "$SRC" "$SSD" "$TOP"/{mnt,dev,live,sock,tmp}
	chmod 1777 "$TOP/sock" "$TOP/tmp"
	harness_scratch "$scratch_size"
	install -m 755 "$HARNESS_BIN/sync.so" "$TOP/tmp/sync.so"	# where the server's user can read it
}

# ---- the database -------------------------------------------------------------------------------

# prepare: images with a database in SRC and an empty SSD, in $TOP/x/$db.
prepare() {
	local dir=$TOP/x/$db

	variant=
	mkdir -p "$dir"
	truncate -s "$src_size" "$dir/src.img" && mkfs.ext4 "${mkfs_options[@]}" "$dir/src.img" &&
		truncate -s "$ssd_size" "$dir/ssd.img" && mkfs.ext4 "${mkfs_options[@]}" "$dir/ssd.img" &&
		harness_mount_images "$dir" && make_bank "$SRC/data" && harness_umount_images "$dir"
}

# pick NUMBER: how this run is done.
pick() {
	local -n variants=${db}_variants

	mount_options=${options:-${option_sets[$1 % ${#option_sets[@]}]}}
	variant=${variants[$1 % ${#variants[@]}]}
}

# steer SEED: data is moved to and fro.
steer() {
	local files file

	RANDOM=$1
	while [ ! -e "$TOP/stop" ]; do
		mapfile -d '' files < <(find "$MNT/data" -type f -size +16k -print0)
		[ "${#files[@]}" -gt 0 ] || continue
		file=${files[RANDOM % ${#files[@]}]}
		case $((RANDOM % 6)) in
		0) timeout 20 "$HYBRIDFS" promote -q "$file" ;;
		1) timeout 20 "$HYBRIDFS" promote -q --range "$((RANDOM % 64 * 65536)):1M" "$file" ;;
		2) timeout 20 "$HYBRIDFS" demote -q "$file" ;;
		3) timeout 20 "$HYBRIDFS" flush -q "$file" ;;
		4) timeout 20 "$HYBRIDFS" pin -q "$file" ;;
		5) timeout 20 "$HYBRIDFS" unpin -q "$MNT/data" ;;
		esac
		read -rt 0.2 <> <(:)	# some moves a second: a mover alone would fill the disks
	done >/dev/null 2>&1
}

commits_in() {
	grep -aoE 'A [0-9]+ [0-9]+$' "$1" | wc -l
}

# many_committed COUNT. For hfs_wait_until.
# shellcheck disable=SC2317
many_committed() {
	[ "$(commits_in "$TOP/ledger")" -ge "$1" ]
}

# start_load LEDGER [COUNT]: clients, see start_clients, and a mover.
start_load() {
	: >"$TOP/clients"
	start_clients "$@"
	steer "$RANDOM" &
	helpers+=($!)
}

# end_load: 0 when no client failed.
end_load() {
	local rc=0

	end_clients || rc=1
	hfs_wait_until hfs_gone "${helpers[-1]}" || rc=1
	unset 'helpers[-1]'
	return "$rc"
}

# ---- what has to be right -----------------------------------------------------------------------

# database_is_right DATA LEDGER: it starts, has what was promised, finds nothing wrong with itself.
database_is_right() {
	local rc=0

	: >"$TOP/db.log"
	server_start "$1" || return
	bank_is_right "$2" || rc=1
	"${db}_check_online" || { rc=1; echo "(check of the running database)"; }
	server_stop || rc=1
	"${db}_check_offline" "$1" || { rc=1; echo "(check of the stopped database)"; }
	server_log_is_clean || rc=1
	return "$rc"
}

tree_sums() {
	(cd "$1" && find . -path ./lost+found -prune -o -type f -print0 | sort -z | xargs -0r md5sum)
}

# checked: hybridfs check --scrub has nothing to say.
checked() {
	local found rc=0

	found=$("$HYBRIDFS" check --scrub "$SRC" "$SSD") || rc=$?
	[ "$rc" -eq 0 ] || echo "$found"
	return "$rc"
}

# src_is_right: unmounts; SRC alone is what the mount showed, and nothing is wrong with the SSD.
src_is_right() {
	local rc=0

	tree_sums "$MNT" >"$TOP/sums"
	hfs_wait_until hfs_true '.mounts[0].recovering == false' || { echo "(recovery does not end)"; return 1; }
	hfs_umount || return
	tree_sums "$SRC" | diff "$TOP/sums" - || { rc=1; echo "(SRC is not the mount)"; }
	checked || { rc=1; echo "(hybridfs check)"; }
	hfs_log_is_clean || { rc=1; echo "(the daemon's log)"; }
	return "$rc"
}

# verdict NAME STATUS: count it; what failed is kept.
verdict() {
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
		[ "$verbose" = 0 ] || echo "ok $1 ($SECONDS s)"
		return
	fi
	failed=$((failed + 1))
	mkdir -p "$kept/$1"
	cp "$TOP"/{verdict,log,db.log,clients,state,ledger} "$kept/$1/" 2>/dev/null
	echo "FAILED: $1 ($mount_options; $variant); see $kept/$1"
	head -n 20 "$TOP/verdict" | sed 's/^/    /'
}

# ---- the daemon is killed -----------------------------------------------------------------------

# die_under_load: mounts, works, kills; the dead mount is taken away.
die_under_load() {
	local count

	count=$(($(commits_in "$TOP/ledger") + commits / 2 + RANDOM % commits))
	hfs_mount "$mount_options" && server_start "$MNT/data" || return
	start_load "$TOP/ledger"
	hfs_wait_until many_committed "$count" && clients_work || return
	die_now
	end_load	# the clients have failed
	umount -l "$MNT"
}

# die_now: the daemon first, so that the server sees what that is like.
die_now() {
	kill -KILL "$HFS_PID"
	hfs_wait_exit
	server_kill
}

# kill_cycle NUMBER
kill_cycle() {
	local rc=0

	: >"$TOP/db.log"
	die_under_load || return
	hfs_mount "$mount_options" || return
	if [ $(($1 % 4)) = 3 ]; then	# once more, while the database recovers
		server_launch "$MNT/data" || return
		hfs_wait_until grep -qE 'redo starts|recovery|ready' "$TOP/db.log"
		die_now
		umount -l "$MNT"
		hfs_mount "$mount_options" || return
	fi
	database_is_right "$MNT/data" "$TOP/ledger" || rc=1
	src_is_right || rc=1
	return "$rc"
} >"$TOP/verdict" 2>&1

# run_kills: all on one database, which gets older.
run_kills() {
	local i rc

	cp --reflink=auto "$TOP/x/$db"/*.img "$TOP/live" && harness_mount_images "$TOP/live" || return
	: >"$TOP/ledger"
	: >"$TOP/log"
	: >"$TOP/state"
	for ((i = 0; i < kills; i++)); do
		pick "$i"
		rc=0
		kill_cycle "$i" || rc=1
		verdict "$db-kill-$seed-$i" "$rc"
		[ "$rc" -eq 0 ] || break	# the next ones would fail as well
	done
	clean_up
	echo "$db: $(commits_in "$TOP/ledger") commits over $i kills"
	rc=0
	variant=
	database_is_right "$SRC/data" "$TOP/ledger" >"$TOP/verdict" 2>&1 || rc=1
	verdict "$db-plain-src-$seed" "$rc"
	clean_up
	harness_umount_images "$TOP/live"
}

# clean_up: after a failure there may be anything.
clean_up() {
	touch "$TOP/stop"
	server_kill
	end_clients 2>/dev/null
	[ -z "$HFS_PID" ] || hfs_stop_daemon
	HFS_PID=
	! hfs_mounted || umount -l "$MNT"
}

# ---- the power is cut ---------------------------------------------------------------------------

start_recorder() {
	"$HARNESS_BIN/record" "$rec/live" "$TOP/dev" "$rec/log" &
	recorder=$!
	helpers+=("$recorder")
	hfs_wait_until test -e "$TOP/dev/ctl"
}

# record: leaves a recording in $rec.
record() {
	# shellcheck disable=SC2034 # server_start looks at server_sync
	local rc=0 pid server_sync=$sync

	mkdir -p "$rec/start" "$rec/live"
	cp --reflink=auto "$TOP/x/$db"/*.img "$rec/start"
	cp --reflink=auto "$rec"/start/*.img "$rec/live"
	start_recorder && harness_mount_images "$TOP/dev" --direct-io=on || return
	: >"$TOP/log"
	: >"$TOP/db.log"
	: >"$TOP/state"
	[ "$plain" = 1 ] || hfs_mount "$mount_options" || return
	rm -f "$TOP/tmp/sync.log"
	server_start "$MNT/data" || return
	start_load "$TOP/dev/ctl" "$((commits / clients))"
	for pid in "${client_pids[@]:0:clients}"; do hfs_wait_until hfs_gone "$pid" || rc=1; done
	end_load || { rc=1; cat "$TOP/clients"; }
	server_stop || rc=1
	[ "$plain" = 1 ] || hfs_umount || rc=1
	hfs_log_is_clean || rc=1
	harness_umount_images "$TOP/dev" && umount "$TOP/dev" && hfs_wait_until hfs_gone "$recorder" || rc=1
	hfs_reap "$recorder" || [ $? -eq 127 ] || rc=1
	helpers=()
	rm -rf "$rec/live"
	printf '%s\n' "$db" "$mount_options" "$variant" >"$rec/parameters"
	return "$rc"
} >"$TOP/verdict" 2>&1

# recovered SEED: both filesystems are recovered; now the mount, then the database.
recovered() {
	local rc=0

	if [ "$plain" = 1 ]; then
		database_is_right "$MNT/data" "$TOP/ledger"
		return
	fi
	hfs_mount "$mount_options" || return
	if [ $(($1 % 4)) = 0 ]; then	# the daemon dies while it recovers
		hfs_kill9 && hfs_mount "$mount_options" || return
	fi
	database_is_right "$MNT/data" "$TOP/ledger" || rc=1
	src_is_right || rc=1
	return "$rc"
}

# cut_cycle RECORD SEED
cut_cycle() {
	local rc=0

	"$HARNESS_BIN/cut" "$rec/log" "$rec/start" "$work/base" "$work/out" "$1" "$2" \
		>"$TOP/ledger" || exit 1
	: >"$TOP/log"
	harness_mount_images "$work/out" && recovered "$2" || rc=1
	clean_up
	harness_umount_images "$work/out" || { echo "cannot unmount"; rc=1; }
	return "$rc"
} >"$TOP/verdict" 2>&1

# save_recording: it is kept; says where.
save_recording() {
	local dir=$kept/$rec_name

	if [ ! -e "$dir/log" ] && [ "$rec" != "$dir" ]; then
		mkdir -p "$dir"
		cp -r --sparse=always "$rec/." "$dir"
	fi
	echo "$dir"
}

# play COUNT: that many cuts of the recording in $rec.
play() {
	local record cut_seed rc

	work=$TOP/x/work
	rm -rf "$work"
	mkdir -p "$work/base" "$work/out"
	while read -r record cut_seed <&9; do
		rc=0
		cut_cycle "$record" "$cut_seed" || rc=1
		verdict "$rec_name/cut-$record-$cut_seed" "$rc"
		[ "$rc" -eq 0 ] ||
			echo "  again: tests/db/run.sh --db $db --recording $(save_recording) --at $record:$cut_seed"
	done 9< <(if [ -n "$at" ]; then echo "${at/:/ }"; else
		"$HARNESS_BIN/cut" --plan "$rec/log" "$1" "$seed"; fi)
	[ "$keep" = 0 ] || echo "kept: $(save_recording)"
}

# count_checkpoints: what the server took for durable, by sync.c.
count_checkpoints() {
	cp "$TOP/tmp/sync.log" "$rec/sync.log"
	awk '/^checkpoint/ { all++; if ($3 > 0) bad++ }
		END { print all + 0 " checkpoints, " bad + 0 " over pages that no sync covers" }' "$rec/sync.log"
}

run_cuts() {
	local left=$cuts i rc

	for ((i = 0; left > 0; i++, left -= cuts_of_recording)); do
		pick "$i"
		rec_name=$db-$seed-$i rec=$TOP/x/$db-$seed-$i
		rc=0
		record || rc=1
		if [ "$rc" -ne 0 ]; then
			verdict "$rec_name" 1
			clean_up
			return
		fi
		echo "$db ($mount_options; $variant): $(commits_in "$rec/log") commits, $(stat -c %s "$rec/log") bytes"
		[ ! -e "$TOP/tmp/sync.log" ] || echo "  $(count_checkpoints)"
		play "$((left < cuts_of_recording ? left : cuts_of_recording))"
		rm -rf "${rec:?}"
	done
}

# ---- main ---------------------------------------------------------------------------------------

# run_db: what is asked for, with $db.
run_db() {
	local missing

	missing=$("${db}_missing")
	if [ -n "$missing" ]; then
		echo "skipped: needs $missing (contrib/setup.sh databases)" >&2
		skipped=$((skipped + 1))
		return
	fi
	"${db}_missing" >/dev/null	# once more in this shell: it also finds the programs
	if [ -n "$recording" ]; then
		rec=$(realpath "$recording") rec_name=$(basename "$recording")
		{ read -r db; read -r mount_options; read -r variant; } <"$rec/parameters"
		play "$cuts"
		return
	fi
	prepare || { echo "$db: no database to begin with"; tail -n 20 "$TOP/db.log"; failed=$((failed + 1)); return; }
	[ "$kills" -eq 0 ] || run_kills
	[ "$cuts" -eq 0 ] || run_cuts
	rm -rf "${TOP:?}/x/$db"
}

main() {
	parse "$@"
	set_up
	for db in ${dbs//,/ }; do run_db; done
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ]
}

main "$@"
