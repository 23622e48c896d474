# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154
#
# postgres.bash - PostgreSQL for run.sh, which says what each of these functions is for.

postgres_user=postgres
pg_bin=

# Small buffers and short intervals, so that pages and log move all the time. One set of settings
# for each run in turn; with wal_level=minimal a new table is synced itself instead of logged.
postgres_variants=(
	'-c wal_sync_method=fdatasync'
	'-c wal_sync_method=open_datasync -c wal_level=minimal -c max_wal_senders=0'
	'-c wal_sync_method=fsync -c wal_compression=on'
)

postgres_missing() {
	local dir

	for dir in /usr/lib/postgresql/*/bin; do
		[ ! -x "$dir/postgres" ] || [ ! -x "$dir/pg_amcheck" ] || pg_bin=$dir
	done
	[ -n "$pg_bin" ] && id -u "$postgres_user" >/dev/null 2>&1 || echo postgresql
}

postgres_create() {
	as_user "$pg_bin/initdb" -D "$1" --data-checksums -U postgres -A trust -E UTF8 --locale=C \
		--wal-segsize=4 --no-sync --no-instructions >/dev/null
}

postgres_serve() {
	exec_as_user "$pg_bin/postgres" -D "$1" -k "$TOP/sock" -c listen_addresses= \
		-c shared_buffers=8MB -c max_wal_size=48MB -c min_wal_size=16MB \
		-c checkpoint_timeout=30s -c autovacuum_naptime=2s -c max_connections=20 \
		-c log_min_messages=info "${@:2}"
}

postgres_shell() {
	as_user stdbuf -oL "$pg_bin/psql" -h "$TOP/sock" -U postgres -XqAt -v ON_ERROR_STOP=1 \
		-d "$@"
}

# It answers and takes statements: while it recovers it does not.
postgres_answers() {
	postgres_shell postgres -c 'SELECT 1'
} >/dev/null 2>&1

postgres_stop_signal=INT	# "fast": open transactions are rolled back, then a checkpoint

postgres_load_sql() {
	cat <<-SQL
		CREATE DATABASE bank;
		\\connect bank
		$bank_tables
		INSERT INTO accounts SELECT i, 1000, repeat('p', 150) FROM generate_series(1, $accounts) i;
		CREATE EXTENSION amcheck;
		CHECKPOINT;
	SQL
}

# Work that makes, rewrites and removes files.
postgres_churn_sql() {
	cat <<-'SQL'
		CREATE TABLE churn_%n AS SELECT id, pad FROM accounts WHERE id % 10 = 0;
		CREATE INDEX ON churn_%n (id);
		SELECT 'C churn %n';
		DROP TABLE IF EXISTS churn_%p;
		REINDEX TABLE transfers;
		VACUUM FULL churn_%n;
	SQL
}

postgres_tables() {
	postgres_shell bank -c "SELECT tablename FROM pg_tables WHERE tablename LIKE 'churn\\_%'"
}

# What the server's own tools find while it runs.
postgres_check_online() {
	as_user "$pg_bin/pg_amcheck" -h "$TOP/sock" -U postgres --all --heapallindexed
}

# ... and when it is stopped.
postgres_check_offline() {
	local out

	out=$(as_user "$pg_bin/pg_checksums" --check -D "$1") || { echo "$out"; return 1; }
}

# Lines of the server's log that must not be there after a crash. Who connects too early is refused.
# How it says that the WAL ends here is no damage (a commit that is gone with it is found missing), and
# its statistics file is never synced: both are there without hybridfs too, see README.md.
postgres_log_bad='PANIC|FATAL|ERROR|invalid page|corrupt|checksum'
postgres_log_good='the database system is (starting up|not yet accepting connections|shutting down)|terminating [a-z ]+ due to administrator command|incorrect resource manager data checksum in record at|corrupted statistics file "pg_stat/pgstat.stat"'
