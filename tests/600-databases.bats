#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Databases on a mount whose SSD is smaller than they are: an unmount while they run is refused, and
# says because of whom; after a restart of the daemon nothing is missing. What kills and power cuts
# do to them is tested by tests/db/run.sh.

load lib/common
load db/server

setup() {
	hfs_need_root
	hfs_setup loops 500M 96M
	mkdir -m 1777 "$TOP/sock" "$TOP/tmp"
	accounts=6000
}

teardown() {
	[ -z "$server" ] || server_kill
	hfs_teardown
}

# need_server DB
need_server() {
	local missing

	db=$1
	missing=$("${db}_missing")
	[ -z "$missing" ] || skip "needs $missing (contrib/setup.sh databases)"
	"${db}_missing"
}

# committed COUNT. For hfs_wait_until.
committed() {
	[ "$(grep -c ^A "$TOP/ledger")" -ge "$1" ]
}

# restart_under DB: clients work; the mount cannot be taken away, and they go on. Then the daemon is
# told to end by a signal, as at shutdown: it goes in good order, what is on top of it dies.
restart_under() {
	need_server "$1"
	make_bank "$SRC/data"
	hfs_mount size=24M,promote_hits=1,dirty_expire=1
	server_start "$MNT/data"
	: >"$TOP/ledger"
	start_clients "$TOP/ledger"
	hfs_wait_until committed 50
	run -1 "$HYBRIDFS" umount "$MNT"
	[[ $output == *"cannot unmount: it is in use by "*"$2 (pid "* ]]
	hfs_wait_until committed "$(($(grep -c ^A "$TOP/ledger") + 50))"

	kill -TERM "$HFS_PID"
	hfs_wait_exit
	[ "$HFS_STATUS" = 0 ]
	server_kill
	end_clients || true	# the server was taken from under them

	hfs_mount size=24M
	: >"$TOP/db.log"
	server_start "$MNT/data"
	bank_is_right "$TOP/ledger"
	"${db}_check_online"
	server_stop
	hfs_umount
	server_start "$SRC/data"
	bank_is_right "$TOP/ledger"
	server_stop
	server_log_is_clean
}

@test "PostgreSQL: umount names it; what was committed survives a restart of the daemon" {
	restart_under postgres postgres
}

@test "MariaDB: umount names it; what was committed survives a restart of the daemon" {
	restart_under mariadb mariadbd
}

# sqlite_writer N: rows of one process until $TOP/stop exists, each acknowledged in $TOP/ledger.
sqlite_writer() {
	local i

	for ((i = 1; ; i++)); do
		[ ! -e "$TOP/stop" ] || return 0
		echo ".timeout 30000
			INSERT INTO t VALUES ($1, $i, hex(randomblob(800))); SELECT 'A $1 $i';" || return
	done | sqlite3 -bail "$MNT/app.db" >>"$TOP/ledger" 2>>"$TOP/sqlite.errors"
}

@test "SQLite, 4 processes in WAL mode: umount names them; all rows survive a restart" {
	local i pids=() whole

	hfs_need sqlite3
	hfs_mount size=24M,promote_hits=1,dirty_expire=1
	: >"$TOP/ledger"
	sqlite3 "$MNT/app.db" 'PRAGMA journal_mode=WAL; CREATE TABLE t (proc, n, body)'
	for i in 1 2 3 4; do
		sqlite_writer "$i" 3>&- &
		pids+=($!)
	done
	hfs_wait_until committed 20
	run -1 "$HYBRIDFS" umount "$MNT"
	[[ $output == *"cannot unmount: it is in use by "*"sqlite3 (pid "* ]]
	touch "$TOP/stop"
	for i in "${pids[@]}"; do wait "$i"; done
	[ ! -s "$TOP/sqlite.errors" ]
	hfs_remount size=24M
	whole=$(printf 'ok\n%d' "$(wc -l <"$TOP/ledger")")
	[ "$(sqlite3 "$MNT/app.db" 'PRAGMA integrity_check; SELECT count(*) FROM t')" = "$whole" ]
	hfs_umount
	[ "$(sqlite3 "$SRC/app.db" 'PRAGMA integrity_check; SELECT count(*) FROM t')" = "$whole" ]
}
