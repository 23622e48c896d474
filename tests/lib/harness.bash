# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# harness.bash - what the long loops (tests/crash, tests/kill, tests/db) start from, on top of
# lib/common.bash: is this machine able to, the programs of tests/crash, images in loop devices.

HARNESS_CRASH=$HFS_ROOT/tests/crash
HARNESS_BIN=$HFS_ROOT/build/crash

# Mount options, one line for each round in turn: how data moves differs.
# shellcheck disable=SC2034 # for those who source this
harness_option_sets=(
	'dirty_expire=1,promote_hits=1'
	'dirty_expire=3600'
	'dirty_expire=1,size=8M,promote_hits=1'
	'seq_cutoff=64K,dirty_expire=2'
	'mode=writethrough,promote_hits=1'
	'mode=writearound,promote_hits=1'
)

# harness_skip_all REASON: nothing can run here.
harness_skip_all() {
	echo "skipped: $1" >&2
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

# harness_need_machine: or everything is skipped. Without a program it is a failure.
harness_need_machine() {
	[ "$(id -u)" -eq 0 ] || harness_skip_all "needs root"
	[ -c /dev/fuse ] || harness_skip_all "needs /dev/fuse"
	losetup -f >/dev/null 2>&1 || harness_skip_all "needs loop devices"
	[ -x "$HYBRIDFS" ] || { echo "no program at $HYBRIDFS: run make" >&2; exit 1; }
}

# ---- the programs of tests/crash ----------------------------------------------------------------

# harness_compile PROGRAM SOURCES [FLAG...]: unless it is newer than all of them.
harness_compile() {
	local out=$HARNESS_BIN/$1 dirs=("$HARNESS_CRASH"/../{crash,db,kill}) sources

	[ ! -e "$out" ] || [ -n "$(find "${dirs[@]}" -name '*.[ch]' -newer "$out")" ] || return 0
	read -ra sources <<<"$2"
	"${CC:-gcc}" -std=gnu17 -O2 -g -Wall -Wextra -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
		-o "$out" "${sources[@]/#/$HARNESS_CRASH/}" "${@:3}"
}

# harness_build PROGRAM...: record, cut, workload, verify, nosync.so, sync.so, outlive.
harness_build() {
	local program fuse

	mkdir -p "$HARNESS_BIN"
	for program; do
		case $program in
		record)
			read -ra fuse <<<"$(pkg-config --cflags --libs fuse3)"
			harness_compile record record.c "${fuse[@]}"
			;;
		nosync.so) harness_compile nosync.so nosync.c -shared -fPIC ;;
		outlive) harness_compile outlive '../kill/outlive.c plan.c' ;;
		sync.so) harness_compile sync.so ../db/sync.c -shared -fPIC ;;
		cut) harness_compile cut 'cut.c plan.c' ;;
		*) harness_compile "$program" "$program.c plan.c" -lsqlite3 ;;
		esac || { echo "${program%.so}.c does not build" >&2; return 1; }
	done
}

# ---- images -------------------------------------------------------------------------------------

# harness_scratch SIZE: $TOP/x, where copies of images share their blocks, if xfs is there.
harness_scratch() {
	mkdir "$TOP/x"
	if truncate -s "$1" "$TOP/x.img" && mkfs.xfs -q "$TOP/x.img" 2>/dev/null; then
		mount -o loop "$TOP/x.img" "$TOP/x" || rm -f "$TOP/x.img"
	fi
}

# harness_mount_image IMAGE DIR [LOSETUP_OPTION...]
harness_mount_image() {
	local dev

	dev=$(losetup -f --show "${@:3}" "$1") || return
	mount -t ext4 "$dev" "$2" || { losetup -d "$dev"; return 1; }
	losetup -d "$dev"	# in fact when it is unmounted
}

# harness_mount_images DIR [LOSETUP_OPTION...]: DIR/src.img on $SRC, DIR/ssd.img on $SSD.
harness_mount_images() {
	harness_mount_image "$1/src.img" "$SRC" "${@:2}" &&
		harness_mount_image "$1/ssd.img" "$SSD" "${@:2}"
}

# shellcheck disable=SC2317 # hfs_wait_until calls it
harness_loop_gone() {
	! losetup -nl -O BACK-FILE | grep -qF "$1/"
}

# harness_umount_images DIR
harness_umount_images() {
	hfs_wait_until umount "$SRC" && hfs_wait_until umount "$SSD" &&
		hfs_wait_until harness_loop_gone "$1"
} 2>/dev/null
