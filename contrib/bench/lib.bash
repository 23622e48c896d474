# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# lib.bash - devices, mounts, rounds and the table of contrib/bench/run.
#
# bench_up makes $TOP with two filesystems: $SRC on the disk and $SSD on the SSD; bench_down removes
# it, whatever happened in between. Sides are directories: `side NAME DIR` names one.

# What the options of run set, and where things are.
: "${pairs:=5}" "${seconds:=4}" "${size:=1G}" "${files:=}" "${hdd_keys:=}" "${ssd_keys:=}"
: "${options:=}" "${json:=}" "${plot:=}" "${only:=.}" "${inodes:=}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
hybridfs=${HYBRIDFS:-$root/hybridfs}
bin=$root/build/bench
results='' before=nothing peer_pid=''

TOP='' SRC='' SSD='' MNT='' MERGED='' IMAGES=''
declare -A sides=()
disk_pids=()

say() { printf 'bench: %s\n' "$*" >&2; }
die() { printf 'bench: %s\n' "$*" >&2; exit 2; }

need() {
	local c

	[ "$(id -u)" -eq 0 ] || die "needs root"
	[ -x "$hybridfs" ] || die "$hybridfs: not built, run make"
	for c in fio jq losetup mkfs.ext4; do
		command -v "$c" >/dev/null || die "needs $c: contrib/setup.sh bench installs it"
	done
	make -s -C "$root" bench-programs || die "cannot build the programs of the bench"
	trap 'bench_down; rm -f "$results"' EXIT
	trap 'exit 130' INT TERM
	results=$(mktemp) || exit 2
}

# ---- devices ----------------------------------------------------------------------------------

# Where images live: memory, so that nothing but the model takes time.
image_dir() {
	if [ -d /dev/shm ] && [ "$(stat -f -c '%a*%S' /dev/shm | xargs -I{} echo '{}' |
		awk -F'*' '{ print int($1 * $2 / 1048576) }')" -gt 6000 ]; then
		echo /dev/shm
	else
		echo /var/tmp
	fi
}

wait_for() {
	local n

	for ((n = 0; n < 200; n++)); do
		"$@" && return 0
		read -rt 0.05 <> <(:) || :
	done
	return 1
}

# device NAME hdd|ssd SIZE DIR KEYS...: an ext4 on a modelled device, mounted at DIR.
device() {
	local name=$1 kind=$2 bytes=$3 dir=$4 loop

	shift 4
	mkdir -p "$dir" "$TOP/$name.dev"
	truncate -s "$(($(numfmt --from=iec "$bytes") >> 20))M" "$IMAGES/$name.img" || return
	# In sessions of their own: ^C is for us, and we need them to clean up.
	setsid "$bin/disk" "$kind" "$IMAGES/$name.img" "$TOP/$name.dev" "$@" &
	disk_pids+=($!)
	wait_for test -e "$TOP/$name.dev/disk" || return
	delays off
	loop=$(losetup --direct-io=on -f --show "$TOP/$name.dev/disk") || return
	echo "$loop" >"$TOP/$name.loop"
	mkfs.ext4 -q -F -m 0 ${inodes:+-N "$inodes"} -E lazy_itable_init=0,lazy_journal_init=0 \
		"$loop" || return
	mount "$loop" "$dir"
}

# delays on|off: of all devices.
delays() {
	local d

	for d in "$TOP"/*.dev; do
		echo "$1" >"$d/ctl"
	done
}

bench_up() {
	TOP=$(mktemp -d /var/tmp/hfsbench.XXXXXX) || exit 2
	IMAGES=$(mktemp -d "$(image_dir)/hfsbench.XXXXXX") || exit 2
	SRC=$TOP/src SSD=$TOP/ssd MNT=$TOP/mnt MERGED=$TOP/merged
	# shellcheck disable=SC2086
	device hdd hdd "$1" "$SRC" $hdd_keys || die "cannot make the disk"
	# shellcheck disable=SC2086
	device ssd ssd "$2" "$SSD" $ssd_keys || die "cannot make the SSD"
	mkdir -p "$MNT" "$MERGED" "$SSD/plain" "$SSD/cache"
	sides=([ssd]=$SSD/plain [hdd]=$SRC [hybridfs]=$MNT [mergerfs]=$MERGED)
}

bench_down() {
	local f

	[ -n "$TOP" ] || return 0
	delays off
	umount_peer
	for f in "$MERGED" "$MNT" "$SRC" "$SSD"; do
		mountpoint -q "$f" && { wait_for umount "$f" 2>/dev/null || umount -l "$f"; }
	done
	[ -z "${daemon_pid-}" ] || wait_for gone "$daemon_pid"
	for f in "$TOP"/*.loop; do
		[ -f "$f" ] && losetup -d "$(cat "$f")"
	done
	for f in "$TOP"/*.dev; do
		wait_for eval "! mountpoint -q '$f' || umount '$f' 2>/dev/null"
	done
	wait "${disk_pids[@]}"
	disk_pids=()
	rm -rf --one-file-system "$TOP" "$IMAGES"
	TOP=
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# ---- mounts -----------------------------------------------------------------------------------

mount_only() {
	local all=$options${options:+${1:+,}}${1-}

	"$hybridfs" "$SRC" "$SSD/cache" "$MNT" ${all:+-o "$all"} || die "cannot mount"
}

find_daemon() {
	daemon_pid=$("$hybridfs" status --json "$MNT" | jq '.mounts[0].pid // empty')
}

mount_hybridfs() {
	mount_only "$@"
	find_daemon
}

umount_hybridfs() {
	"$hybridfs" umount "$MNT" >/dev/null || die "cannot unmount"
}

# mergerfs over the SSD's directory, if it is installed: what a FUSE filesystem costs by itself.
mount_mergerfs() {
	command -v mergerfs >/dev/null || return 1
	mergerfs -o "cache.files=auto-full,category.create=ff,minfreespace=0${2:+,$2}" "$1" "$MERGED"
}

# The plainest FUSE filesystem with kernel passthrough over the same directory: the bound.
mount_peer() {
	mkdir -p "$TOP/peer"
	setsid "$bin/peer" "$1" "$TOP/peer" &
	peer_pid=$!
	wait_for mountpoint -q "$TOP/peer" && sides[passthrough]=$TOP/peer
}

umount_peer() {
	[ -n "$peer_pid" ] || return 0
	wait_for eval "! mountpoint -q '$TOP/peer' || umount '$TOP/peer' 2>/dev/null"
	wait "$peer_pid"
	peer_pid=
}

# Cold again: everything is in SRC only. The model's time does not count here.
cold() {
	[ "$1" = hybridfs ] || return 0
	delays off
	"$hybridfs" demote "$MNT" >/dev/null || die "cannot demote"
	sync -f "$SSD"
	delays on
}

fill() {
	local f=$1 bytes=$2

	head -c "$bytes" /dev/urandom >"$f" || die "cannot fill $f"
}

drop_caches() { sync -f "$SRC"; sync -f "$SSD"; echo 3 >/proc/sys/vm/drop_caches; }

# ---- rounds -----------------------------------------------------------------------------------

# compare CASE UNIT AT_LEAST SIDES... -- FUNCTION ARGS...: FUNCTION DIR ARGS... prints a number, for
# each side in turn, `pairs` times. The first side is what the others are compared to. The function
# that `before` names gets the side before each. UNIT ending in "/s" or "IOPS": more is better, else less.
compare() {
	local case=$1 unit=$2 least=$3 list=() i s value

	shift 3
	[[ $case =~ $only ]] || return 0
	while [ "$1" != -- ]; do list+=("$1"); shift; done
	shift
	say "$case"
	for ((i = 1; i <= pairs; i++)); do
		for s in "${list[@]}"; do
			"$before" "$s" || die "$case: cannot prepare $s"
			value=$("$1" "${sides[$s]}" "${@:2}") || die "$case: $s failed"
			note "$case" "$unit" "$least" "$s" "$i" "$value"
		done
	done
}

nothing() { :; }

# note CASE UNIT AT_LEAST SIDE ROUND VALUE
note() {
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$@" >>"$results"
}

# single CASE UNIT AT_MOST VALUE: a figure by itself.
single() {
	note "$1" "$2" "$3" - 1 "$4"
}

# fio_rate FIELD DIR OPTIONS...: IOPS or bw (bytes/s) of reads and writes together.
fio_rate() {
	local field=$1 dir=$2

	shift 2
	fio --name=bench --directory="$dir" --runtime="$seconds" --time_based --group_reporting \
		--randrepeat=0 --norandommap --output-format=json --ioengine=psync "$@" \
		>"$TOP/fio.json" 2>"$TOP/fio.err" || { cat "$TOP/fio.err" >&2; return 1; }
	jq ".jobs[0] | .read.$field + .write.$field | floor" "$TOP/fio.json"
}

iops() { fio_rate iops "$@"; }
bandwidth() { fio_rate bw_bytes "$@"; }

# timed DIR COMMAND...: seconds, with three digits.
timed() {
	local t0=$EPOCHREALTIME

	shift
	"$@" >/dev/null || return
	awk -v a="$t0" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", b - a }'
}

# ---- the table --------------------------------------------------------------------------------

summary() {
	[ -s "$results" ] || die "nothing was measured"
	jq -R -s -f "$here/summary.jq" "$results" >"$results.json" || die "cannot sum up"
	[ -z "$json" ] || cp "$results.json" "$json"
	[ -z "$plot" ] || "$here/plot" "$results.json" "$plot" || die "cannot draw $plot"
	jq -r '.cases[] | [.case, .side, .text, .ratio_text, .verdict] | @tsv' "$results.json" |
		column -t -s "$(printf '\t')" -N 'case,side,median (min-max),ratio (min-max),wanted'
	jq -e 'all(.cases[]; .ok != false)' "$results.json" >/dev/null
	local r=$?

	rm -f "$results.json"
	return $r
}
