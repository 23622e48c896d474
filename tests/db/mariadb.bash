# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154
#
# mariadb.bash - MariaDB with InnoDB for run.sh, which says what each of these functions is for.

mariadb_user=mysql

mariadb_variants=(
	''
	'--log-bin=binlog --sync-binlog=1 --max-binlog-size=1M'
	'--innodb-use-native-aio=0 --innodb-file-per-table=1 --innodb-undo-log-truncate=1'
)

mariadb_missing() {
	command -v mariadbd mariadb-install-db mariadb-check mariadb >/dev/null || echo mariadb-server
	# The server without its service's package comes without this user.
	id -u "$mariadb_user" >/dev/null 2>&1 || mariadb_user=nobody
}

mariadb_create() {
	as_user mariadb-install-db --no-defaults --datadir="$1" --auth-root-authentication-method=normal \
		--skip-test-db --tmpdir="$TOP/tmp" >/dev/null
}

# Preloaded code sees what is written only without io_uring.
mariadb_serve() {
	local preload=() more=()

	if [ -n "$server_sync" ]; then
		preload=("LD_PRELOAD=$TOP/tmp/sync.so" "HFS_SYNC_WATCH=$TOP/tmp/sync.log")
		more=(--innodb-use-native-aio=0)
	fi
	case $server_sync in
	again) preload+=(HFS_SYNC_AGAIN=1) ;;
	late) preload+=(HFS_SYNC_LATE_MS=20) ;;
	esac
	exec_as_user "${preload[@]}" mariadbd --no-defaults --datadir="$1" --socket="$TOP/sock/mariadb" \
		--skip-networking --pid-file="$TOP/tmp/mariadb.pid" --tmpdir="$TOP/tmp" \
		--innodb-flush-method=O_DIRECT --innodb-flush-log-at-trx-commit=1 \
		--innodb-buffer-pool-size=12M --innodb-log-file-size=16M --innodb-doublewrite=1 \
		"${@:2}" "${more[@]}"
}

mariadb_shell() {
	as_user stdbuf -oL mariadb --no-defaults -S "$TOP/sock/mariadb" -u root -N -s -n \
		--skip-reconnect -D "$@"
}

mariadb_answers() {
	mariadb_shell mysql -e 'SELECT 1'
} >/dev/null 2>&1

mariadb_stop_signal=TERM

mariadb_load_sql() {
	cat <<-SQL
		CREATE DATABASE bank;
		USE bank;
		$bank_tables
		INSERT INTO accounts SELECT seq, 1000, repeat('p', 150) FROM seq_1_to_$accounts;
	SQL
}

mariadb_churn_sql() {
	cat <<-'SQL'
		CREATE TABLE churn_%n AS SELECT id, pad FROM accounts WHERE id % 10 = 0;
		CREATE INDEX by_id ON churn_%n (id);
		SELECT 'C churn %n';
		DROP TABLE IF EXISTS churn_%p;
		ALTER TABLE transfers FORCE;
		ALTER TABLE churn_%n FORCE;
	SQL
}

# Without those that were being dropped, README.md: only an older one than the newest can be.
mariadb_tables() {
	local table tables newest

	mapfile -t tables < <(mariadb_shell bank -e "SHOW TABLES LIKE 'churn\\_%'" | sort -t_ -k2n)
	newest=${tables[*]: -1}
	for table in ${tables[@]+"${tables[@]}"}; do
		if [ "$table" != "$newest" ] && mariadb_is_half_dropped "$table"; then
			mariadb_shell bank -e "DROP TABLE $table" || true
		else
			echo "$table"
		fi
	done
}

mariadb_is_half_dropped() {
	mariadb_shell bank -e "SELECT 1 FROM $1 LIMIT 1" 2>&1 |
		grep -q '^ERROR 1932 .* doesn.t exist in engine$'
}

# Tables of the server itself are in engines that only note that they were not closed.
mariadb_check_online() {
	local out

	out=$(as_user mariadb-check --no-defaults -S "$TOP/sock/mariadb" -u root --check --extended \
		--all-databases 2>&1) || { echo "$out"; return 1; }
	! grep -E '^(error|Error)|[Cc]orrupt' <<<"$out" || { echo "$out"; return 1; }
	! grep -E '^bank\.' <<<"$out" | grep -vE ' OK$'
}

# Pages 64 to 191 of the system tablespace are the doublewrite buffer: after a crash of the server on
# any filesystem a copy in it may be a torn one, and its checksum wrong.
mariadb_check_offline() {
	local file pages out

	while read -r file pages; do
		read -ra pages <<<"$pages"
		out=$(as_user innochecksum ${pages[@]+"${pages[@]}"} "$file" 2>&1) || {
			echo "$file: $out"
			return 1
		}
	done < <(
		echo "$1/ibdata1 --end-page=63"
		echo "$1/ibdata1 --start-page=192"
		find "$1" -name '*.ibd' -o -name 'undo0*'
	)
}

mariadb_log_bad='\[ERROR\]|[Cc]orrupt|checksum'
# The rename of a .frm is not synced by the server: README.md.
mariadb_log_good='contains [0-9]+ indexes inside InnoDB, which is different from the number of indexes [0-9]+ defined in the .frm'
