# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2154
#
# bank.bash - what the clients do, and what must be in the database afterwards. The same for every
# server. A client is a shell of the server that is fed transactions through a pipe; after each
# COMMIT that returned it prints one line, its promise:
#
#	A CLIENT SEQ	transfer SEQ of this client is committed
#	C churn N	table churn_N is there, with a tenth of the accounts
#
# The lines of all clients make the ledger: a file outside of the mount, or marks in the record of
# the devices.

accounts=60000
clients=4
client_pids=()

bank_tables='
CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL, pad VARCHAR(200) NOT NULL);
CREATE TABLE transfers (client INT, seq INT, source INT NOT NULL, target INT NOT NULL,
	amount INT NOT NULL, pad VARCHAR(200) NOT NULL, PRIMARY KEY (client, seq));'

# feed_transfers CLIENT FROM [COUNT]: transactions from number FROM on, COUNT of them, or without end
# until $TOP/stop exists.
# Accounts are locked in ascending order, so that there are no deadlocks.
feed_transfers() {
	awk -v client="$1" -v seq="$2" -v accounts="$accounts" -v seed="$RANDOM$1" -v stop="$TOP/stop" \
		-v last="$(($2 + ${3:-1000000000} - 1))" '
	function move(id, amount) {
		printf "UPDATE accounts SET balance = balance + (%d) WHERE id = %d;\n", amount, id
	}
	BEGIN {
		srand(seed)
		for (; seq <= last && (getline line < stop) < 0; seq++) {
			a = 1 + int(rand() * accounts)
			b = 1 + (a + int(rand() * (accounts - 1))) % accounts
			amount = 1 + int(rand() * 50)
			if (rand() < 0.5)
				amount = -amount
			print "BEGIN;"
			if (a < b) { move(a, -amount); move(b, amount) }
			else { move(b, amount); move(a, -amount) }
			printf "INSERT INTO transfers VALUES (%d, %d, %d, %d, %d, ", client, seq, a, b, amount
			printf "repeat(md5(%c%d/%d%c), 4));\n", 39, client, seq, 39
			print "COMMIT;"
			printf "SELECT %cA %d %d%c;\n", 39, client, seq, 39
		}
	}'
}

# churn FROM LEDGER: tables come, are rewritten and go, until $TOP/stop exists; each round is a
# client of its own, as what is in a pipe could not be stopped.
churn() {
	local n i round

	for ((n = $1; ; n++)); do
		round=$("${db}_churn_sql")
		round=${round//%n/$n}
		"${db}_shell" bank <<<"${round//%p/$((n - 1))}" >>"$2" || return
		for ((i = 0; i < 10; i++)); do
			[ ! -e "$TOP/stop" ] || return 0
			hfs_pause
		done
	done
}

# start_clients LEDGER [COUNT]: each goes on behind what it has in $TOP/state ("client K N", "churn N
# ROWS"), for COUNT transactions or until $TOP/stop exists.
start_clients() {
	local k from

	rm -f "$TOP/stop"
	client_pids=()
	for ((k = 1; k <= clients; k++)); do
		from=$(awk -v k="$k" '$1 == "client" && $2 == k { n = $3 } END { print n + 1 }' "$TOP/state")
		feed_transfers "$k" "$from" ${2:+"$2"} 2>/dev/null | "${db}_shell" bank >>"$1" 2>>"$TOP/clients" 3>&- &
		client_pids+=($!)
	done
	from=$(awk '$1 == "churn" && $2 > n { n = $2 } END { print n + 1 }' "$TOP/state")
	churn "$from" "$1" 2>>"$TOP/clients" 3>&- &
	client_pids+=($!)
}

# clients_work: none has ended.
clients_work() {
	local pid

	for pid in "${client_pids[@]}"; do
		! hfs_gone "$pid" || { echo "a client has stopped by itself:"; cat "$TOP/clients"; return 1; }
	done
}

# end_clients: they come to their end, by $TOP/stop or because the server is dead; 0 when none of them failed.
end_clients() {
	local pid rc=0

	touch "$TOP/stop"
	for pid in ${client_pids[@]+"${client_pids[@]}"}; do
		hfs_wait_until hfs_gone "$pid" && hfs_reap "$pid" || [ $? -eq 127 ] || rc=1
	done
	client_pids=()
	return "$rc"
}

state_sql='
SELECT concat(\x27accounts \x27, count(*), \x27 \x27, sum(balance)) FROM accounts;
SELECT concat(\x27wrong_balances \x27, count(*)) FROM accounts LEFT JOIN (
	SELECT id, sum(amount) AS moved FROM (
		SELECT source AS id, -amount AS amount FROM transfers
		UNION ALL SELECT target, amount FROM transfers) AS each_way GROUP BY id) AS sums USING (id)
	WHERE balance <> 1000 + coalesce(moved, 0);
SELECT concat(\x27wrong_rows \x27, count(*)) FROM transfers
	WHERE pad <> repeat(md5(concat(client, \x27/\x27, seq)), 4);
SELECT concat(\x27client \x27, client, \x27 \x27, count(*), \x27 \x27, max(seq)) FROM transfers GROUP BY client;'

# read_state: what the database holds, into $TOP/state.
read_state() {
	local table

	{
		printf '%b\n' "$state_sql"
		while read -r table; do
			echo "SELECT concat('churn ${table#churn_} ', count(*)) FROM $table WHERE length(pad) = 150;"
		done < <("${db}_tables")
	} | "${db}_shell" bank >"$TOP/state"
}

# bank_is_right LEDGER: the sums are right, and all that was promised is there, and nothing that no
# client sent.
bank_is_right() {
	read_state || return
	awk -v accounts="$accounts" '
	function bad(text) { print text; failed = 1 }
	FILENAME == ARGV[1] {
		if ($1 == "A" && $3 > acked[$2]) acked[$2] = $3
		if ($1 == "C" && $3 > churn) churn = $3
		next
	}
	$1 == "accounts" && ($2 != accounts || $3 != accounts * 1000) {
		bad("of " accounts " accounts with " accounts * 1000 " in sum there are " $2 " with " $3)
	}
	/^wrong/ && $2 != 0 { bad($1 ": " $2) }
	$1 == "client" { rows[$2] = $3; if ($3 != $4) bad("client " $2 ": " $3 " rows up to " $4) }
	$1 == "churn" { tables[$2] = $3; if ($3 != accounts / 10) bad("churn_" $2 " has " $3 " rows") }
	{ lines++ }
	END {
		for (k in acked)
			if (rows[k] + 0 < acked[k])
				bad("client " k ": transfers up to " acked[k] " were committed, there are " rows[k] + 0)
		for (k in rows)
			if (rows[k] > acked[k] + 1)
				bad("client " k ": transfers up to " acked[k] + 0 " were committed, there are " rows[k])
		if (churn && !(churn in tables)) bad("churn_" churn " is gone")
		if (lines < 3) bad("the database did not say what it holds")
		exit failed
	}' "$1" "$TOP/state"
}
