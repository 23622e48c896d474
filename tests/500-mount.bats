#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Mounting and unmounting in all the ways that people and programs know.

load lib/common

setup() {
	hfs_setup loops 300M 64M
	hfs_pattern 1 100000 >"$SRC/file"
}

teardown() {
	hfs_teardown
}

# mounted_with REGEX: an option in the kernel's list.
mounted_with() {
	findmnt -no OPTIONS "$MNT" | tr , '\n' | grep -qxE "$1"
}

# adopt: a daemon in the background becomes the one that teardown watches.
adopt() {
	HFS_PID=$(hfs_json '.mounts[0].pid')
	echo "$HFS_PID" >"$TOP/pid"
	kill -0 "$HFS_PID"
}

# ---- options ----------------------------------------------------------------------------------

@test "what mount(8), fstab and other FUSE programs say is accepted" {
	hfs_mount defaults,auto,noauto,nofail,_netdev,user,nouser,users,owner,group,rw,relatime \
		async,exec,diratime,strictatime,lazytime,silent,loud,iversion,mand,nomand \
		x-systemd.automount,x-systemd.requires=/ssd,X-mount.mkdir,comment=home,user=me \
		big_writes,use_ino,nonempty,default_permissions,kernel_cache,auto_cache,intr
	cmp <(hfs_pattern 1 100000) "$MNT/file"
	hfs_umount
}

@test "every option of ours is accepted, with its units" {
	hfs_mount size=20M,mode=writeback,dirty_ratio=50,dirty_background_ratio=10,dirty_expire=7 \
		high_watermark=80,low_watermark=70,seq_cutoff=1M,promote_hits=3,passthrough=off \
		flush_on_unmount,stripe=512K,attr_timeout=0.5,entry_timeout=0.5,negative_timeout=0
	hfs_true '.mounts[0] | .ssd_cap_bytes == 20971520 and .mode == "writeback"'
	hfs_remount size=50%,mode=writearound,seq_cutoff=0,passthrough=auto,no_flush_on_unmount
	hfs_true '.mounts[0] | .ssd_cap_bytes > 20000000 and .ssd_cap_bytes < 40000000'
	hfs_true '.mounts[0].mode == "writearound"'
	hfs_remount -s # one thread
	cmp <(hfs_pattern 1 100000) "$MNT/file"
	hfs_umount
}

@test "ro: reading and promoting work, writing is refused, SRC is not touched" {
	local before

	before=$(stat -c '%Y %Z' "$SRC" "$SRC/file")
	hfs_mount ro
	mounted_with ro
	"$HYBRIDFS" promote "$MNT/file"
	cmp <(hfs_pattern 1 100000) "$MNT/file"
	run touch "$MNT/file" "$MNT/new"
	[ "$status" -ne 0 ]
	[ "$(grep -c 'Read-only file system' <<<"$output")" -eq 2 ]
	hfs_umount
	[ "$(stat -c '%Y %Z' "$SRC" "$SRC/file")" = "$before" ]
}

@test "a mount by root is for everybody, within the permissions" {
	local as=(setpriv --reuid=65534 --regid=65534 --clear-groups)

	cp "$SRC/file" "$SRC/secret"
	chmod 600 "$SRC/secret"
	mkdir -m 1777 "$SRC/all"
	hfs_mount
	mounted_with allow_other
	"${as[@]}" cmp "$SRC/file" "$MNT/file"
	hfs_not "${as[@]}" cat "$MNT/secret"
	"${as[@]}" cp "$MNT/file" "$MNT/all/mine"
	[ "$(stat -c %u:%g "$SRC/all/mine")" = 65534:65534 ]
	hfs_not "${as[@]}" touch "$MNT/new"
	"${as[@]}" "$HYBRIDFS" promote "$MNT/file"
	hfs_not "${as[@]}" "$HYBRIDFS" promote "$MNT/secret"
	hfs_not "${as[@]}" "$HYBRIDFS" demote "$MNT/file"
	hfs_umount
}

# what_runs: the effective uid of a setuid program of uid 1234, and whether a device opens.
what_runs() {
	"$MNT/id" -u
	head -c 1 "$MNT/zero" 2>/dev/null | wc -c
}

@test "setuid programs and devices work as on any mount by root, unless nosuid, nodev" {
	cp /usr/bin/id "$SRC/id"
	chown 1234 "$SRC/id"
	chmod 4755 "$SRC/id"
	mknod "$SRC/zero" c 1 5
	hfs_mount
	[ "$(what_runs | xargs)" = '1234 1' ]
	hfs_remount nosuid,nodev
	[ "$(what_runs | xargs)" = '0 0' ]
	hfs_umount
}

@test "names with spaces, commas, backslashes and newlines" {
	local odd=$'a b,c\\d\nsize=1'

	SRC+=/$odd SSD+=/$odd MNT+=/$odd
	mkdir "$SRC" "$MNT"
	hfs_mount
	hfs_pattern 2 1000 >"$MNT/file"
	hfs_true '.mounts[0].healthy'
	hfs_json '.mounts[0].mountpoint' | cmp - <(printf '%s\n' "$MNT")
	hfs_umount
	cmp <(hfs_pattern 2 1000) "$SRC/file"
}

@test "the SSD directory is made on first use, for root only" {
	SSD+=/new
	hfs_mount
	[ "$(stat -c %a "$SSD/volumes")" = 700 ]
	hfs_umount
}

# ---- several ----------------------------------------------------------------------------------

@test "two SRC share one SSD directory, and status lists both" {
	local src=$SRC mnt=$MNT first

	hfs_mount
	first=$HFS_PID
	SRC=$TOP/src2 MNT=$TOP/mnt2
	mkdir "$SRC" "$MNT"
	hfs_mount
	hfs_pattern 2 5000 >"$MNT/file"
	cmp <(hfs_pattern 1 100000) "$mnt/file"
	"$HYBRIDFS" status --json | jq -e --arg a "$mnt" --arg b "$MNT" \
		'[.mounts[].mountpoint] | contains([$a, $b])'
	[ "$(ls "$SSD/volumes" | wc -l)" -eq 2 ]
	hfs_umount
	SRC=$src MNT=$mnt HFS_PID=$first
	hfs_umount
	cmp <(hfs_pattern 2 5000) "$TOP/src2/file"
}

# ---- the process ------------------------------------------------------------------------------

@test "in the background: returns 0 when the mount answers, and leaves no descriptor behind" {
	run timeout 20 "$HYBRIDFS" "$SRC" "$SSD" "$MNT" 3>&-
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	cmp <(hfs_pattern 1 100000) "$MNT/file"
	adopt
	[ "$(readlink "/proc/$HFS_PID/cwd")" = / ]
	[ "$(readlink "/proc/$HFS_PID/fd/0" "/proc/$HFS_PID/fd/2" | uniq)" = /dev/null ]
	hfs_umount
}

@test "as mount(8) calls its helper" {
	ln -s "$HYBRIDFS" "$TOP/mount.hybridfs"
	timeout 20 "$TOP/mount.hybridfs" "$SRC" "$MNT" -sv -t hybridfs \
		-o "rw,nofail,_netdev,x-systemd.automount,ssd=$SSD,size=20M" 3>&-
	adopt
	[ "$(findmnt -no FSTYPE,SOURCE "$MNT" | xargs)" = "fuse.hybridfs $SRC" ]
	hfs_umount
	"$TOP/mount.hybridfs" "$SRC" "$MNT" -f -o "ssd=$SSD"	# fake
	hfs_not hfs_mounted
}

# ---- unmounting -------------------------------------------------------------------------------

@test "umount(8) is enough: the daemon writes everything back and ends" {
	for command in umount 'fusermount3 -u' 'umount -l'; do
		hfs_mount dirty_expire=3600
		hfs_pattern 2 2M >"$MNT/new"
		$command "$MNT"
		hfs_wait_exit
		[ "$HFS_STATUS" -eq 0 ]
		cmp <(hfs_pattern 2 2M) "$SRC/new"
		rm "$SRC/new"
	done
}

@test "hybridfs umount returns when the daemon is gone, and says what it did" {
	hfs_mount dirty_expire=3600
	hfs_pattern 2 2M >"$MNT/new"
	run "$HYBRIDFS" umount "$MNT"
	[ "$status" -eq 0 ]
	[[ $output == "unmounted $MNT, 2.0 MiB written back" ]]
	hfs_gone "$HFS_PID"
	hfs_wait_exit
	cmp <(hfs_pattern 2 2M) "$SRC/new"
}

@test "a mount in use is not unmounted, its user is named, and it goes on" {
	hfs_mount
	exec 4<"$MNT/file"
	run "$HYBRIDFS" umount "$MNT"
	[ "$status" -ne 0 ]
	[[ $output == *"in use by"*"$$"* ]]
	cmp <(hfs_pattern 1 100000) "$MNT/file"
	exec 4<&-
	hfs_umount
}

@test "a file that is open over a lazy unmount stays usable, and its data arrives" {
	hfs_mount
	exec 4<>"$MNT/file"
	umount -l "$MNT"
	hfs_pattern 2 100000 >&4
	exec 4>&-
	hfs_wait_exit
	[ "$HFS_STATUS" -eq 0 ]
	cmp <(hfs_pattern 2 100000) "$SRC/file"
}

@test "status lists a mount whose daemon hangs, and ends" {
	hfs_mount
	kill -STOP "$HFS_PID"
	run timeout 60 "$HYBRIDFS" status
	kill -CONT "$HFS_PID"
	[ "$status" -eq 1 ]
	[[ $output == *"$MNT"*'does not answer'* ]]
	hfs_umount
}

# ---- less than root, less than plenty ---------------------------------------------------------

# as_user COMMAND...: as nobody, in a mount namespace where /dev/fuse is for everybody.
as_user() {
	mknod -m 666 "$TOP/fuse" c 10 229
	# shellcheck disable=SC2016
	unshare -m bash -c 'mount --bind "$TOP/fuse" /dev/fuse && exec "$@"' bash \
		setpriv --reuid=65534 --regid=65534 --clear-groups "$@" 3>&-
}

# user_session: what an ordinary user does.
user_session() {
	set -e
	"$HYBRIDFS" "$SRC" "$SSD" "$MNT" -o dirty_expire=3600
	hfs_pattern 1 200000 >"$MNT/written"
	mkdir "$MNT/dir"
	mv "$MNT/written" "$MNT/dir/file"
	ln -s dir "$MNT/link"
	"$HYBRIDFS" promote -q "$MNT/dir/file"
	hfs_true '.mounts[0] | .healthy and .dirty_bytes > 0'
	findmnt -no OPTIONS "$MNT" | grep -q nosuid
	# Modes that keep their owner out of SRC too.
	(umask 222 && hfs_pattern 2 50000 >"$MNT/mode444")
	(umask 466 && hfs_pattern 2 50000 >"$MNT/mode200")
	(umask 666 && hfs_pattern 2 50000 >"$MNT/mode0")
	"$HYBRIDFS" umount "$MNT"
	hfs_not hfs_mounted "$MNT"
	cmp <(hfs_pattern 1 200000) "$SRC/link/file"
	cmp <(hfs_pattern 2 50000) "$SRC/mode444"
	[ "$(stat -c '%a %s' "$SRC"/mode* | tr '\n' ,)" = '0 50000,200 50000,444 50000,' ]
}

@test "an ordinary user mounts his own directories" {
	hfs_need unshare setpriv fusermount3
	[ -u "$(command -v fusermount3)" ] || skip "fusermount3 is not setuid root"
	SRC=$TOP/usersrc SSD=$TOP/userssd MNT=$TOP/usermnt
	mkdir "$SRC" "$SSD" "$MNT"
	chown 65534:65534 "$SRC" "$SSD" "$MNT"
	cp "$HYBRIDFS" "$TOP/hybridfs"	# this tree may be in a private directory
	unshare -m true || skip "no mount namespaces here"
	export -f user_session hfs_pattern hfs_true hfs_not hfs_mounted
	HYBRIDFS=$TOP/hybridfs as_user bash -c user_session
}

# open_many: this many files at once, and a database.
open_many() {
	local fds=() fd i

	for i in {1..500}; do
		exec {fd}<>"$MNT/many/$i"
		fds+=("$fd")
	done
	sqlite3 "$MNT/db" 'PRAGMA journal_mode=wal; CREATE TABLE t(a); INSERT INTO t VALUES (7);'
	for fd in "${fds[@]}"; do exec {fd}>&-; done
}

@test "with 1024 descriptors: 50,000 files, 500 of them open at once, a database" {
	mkdir "$SRC/many"
	(cd "$SRC/many" && seq 50000 | split -l 1 -a 4 - f && seq 500 | xargs touch)
	ulimit -n 1024
	hfs_mount
	[ "$(find "$MNT/many" -type f | wc -l)" -eq 50500 ]
	[ "$(find "$MNT/many" -name 'f*' -exec cat {} + | wc -l)" -eq 50000 ]
	(open_many)
	[ "$(sqlite3 "$MNT/db" 'SELECT a FROM t')" = 7 ]
	hfs_umount
}

@test "with 1024 descriptors: 3,000 new files, and as many promoted ones" {
	mkdir "$SRC/cold"
	(cd "$SRC/cold" && seq 3000 | split -l 1 -a 4 - f)
	ulimit -n 1024
	hfs_mount
	cp -r "$MNT/cold" "$MNT/new"
	"$HYBRIDFS" promote -q "$MNT/cold"
	"$HYBRIDFS" flush -q "$MNT"
	hfs_true '.mounts[0] | .healthy and .errors == 0 and .dirty_bytes == 0'
	hfs_umount
	hfs_same "$SRC/cold" "$SRC/new"
}
