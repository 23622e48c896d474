# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154
#
# server.bash - start, stop and kill a database server. $db says which: postgres or mariadb, whose
# functions and words are in the file of that name:
#
#	DB_user			who runs it
#	DB_variants		array: options of the server, one set for each run in turn
#	DB_missing		print the package that is not installed; find the programs
#	DB_create DATA		make an empty database directory
#	DB_serve DATA OPTION...	become the server
#	DB_shell DATABASE ARG...	the client; SQL on stdin, bare rows on stdout, ends at an error
#	DB_answers		it takes statements
#	DB_load_sql		the SQL that makes the bank (bank.bash) to begin with
#	DB_churn_sql		one round of work that makes, rewrites and removes table %n
#	DB_tables		list these tables
#	DB_check_online		what the server's own tools find while it runs: nothing
#	DB_check_offline DATA	... and when it is stopped
#	DB_log_bad, DB_log_good	regular expressions on lines of its log after a crash
#
# $variant has the options of this run, $server the process, $server_sync what its syncs are (sync.c;
# empty: nothing is preloaded). Needs common.bash, and in $TOP the directories sock and tmp, writable
# for everybody. The log is $TOP/db.log.

server='' variant='' server_sync=''
here_db=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/db/postgres.bash
. "$here_db/postgres.bash"
# shellcheck source=tests/db/mariadb.bash
. "$here_db/mariadb.bash"
# shellcheck source=tests/db/bank.bash
. "$here_db/bank.bash"

as_user() {
	(exec_as_user "$@")
}

# The shell becomes the program, so that its process is the one we know.
exec_as_user() {
	local user=${db}_user

	cd "$TOP/tmp" || exit
	exec setpriv --reuid="${!user}" --regid="$(id -g "${!user}")" --clear-groups \
		env HOME="$TOP/tmp" LC_ALL=C "$@"
}

# shellcheck disable=SC2317 # hfs_wait_until calls it
server_up() {
	hfs_gone "$server" || "${db}_answers"
}

# server_start DATA: its recovery is done and it takes statements.
server_start() {
	server_launch "$1" && hfs_wait_until server_up && ! hfs_gone "$server" && return
	echo "$db does not start; its log:"
	tail -n 20 "$TOP/db.log"
	return 1
}

# server_launch DATA: it may still recover.
server_launch() {
	local args

	read -ra args <<<"$variant"
	"${db}_serve" "$1" "${args[@]}" </dev/null >>"$TOP/db.log" 2>&1 3>&- &
	server=$!
}

# server_stop: as its administrator would do it.
server_stop() {
	local signal=${db}_stop_signal rc=0

	kill -s "${!signal}" "$server" && hfs_wait_until hfs_gone "$server" || return
	hfs_reap "$server" || rc=$?
	server=
	[ "$rc" -ne 127 ] || rc=0	# unknown
	[ "$rc" -eq 0 ] || echo "$db ended with status $rc"
	return "$rc"
}

# server_kill: it and its processes are gone.
server_kill() {
	local pid pids

	[ -n "$server" ] || return 0
	mapfile -t pids < <(echo "$server"; pgrep -P "$server")
	kill -KILL "${pids[@]}" 2>/dev/null || :	# some may have died of it
	for pid in "${pids[@]}"; do hfs_wait_until hfs_gone "$pid"; done
	hfs_reap "$server" || :
	server=
}

# server_log_is_clean: no word of damage since the log was begun.
server_log_is_clean() {
	local bad=${db}_log_bad good=${db}_log_good

	! grep -aE "${!bad}" "$TOP/db.log" | grep -avE "${!good}" | head -n 20 | grep . || {
		echo "(the log of $db)"
		return 1
	}
}

# make_bank DATA: a stopped database in a new directory; mariadb's shell starts in a database, too.
make_bank() {
	local user=${db}_user first=postgres

	[ "$db" = postgres ] || first=mysql
	: >"$TOP/db.log"
	: >"$TOP/state"
	install -d -m 700 -o "${!user}" -g "$(id -g "${!user}")" "$1" &&
		"${db}_create" "$1" && server_start "$1" &&
		"${db}_load_sql" | "${db}_shell" "$first" && server_stop && server_log_is_clean
}
