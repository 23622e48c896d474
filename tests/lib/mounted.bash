#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Run a program over a fresh mount, then unmount and judge the daemon as every .bats file does.
#
#   tests/lib/mounted.bash [-n] [-o OPTION,...] COMMAND... (with @MNT@ and @REF@ for directories)
#
# @MNT@ is a directory on the mount, @REF@ one on a plain filesystem of the same kind, both empty
# and writable for all. SRC and SSD are ext4 images of HFS_SRC_SIZE [2G] and HFS_SSD_SIZE [512M].
# With -n the command mounts by itself: @MNT@ is the mount point, @SRC@, @SSD@ and @LOG@ (where the
# daemon's output belongs) complete it.
# Exits with the command's status, or 1 when that was 0 and the daemon or its log was not clean.

set -u

# shellcheck source=tests/lib/common.bash
. "$(dirname "$0")/common.bash"

opts=(allow_other suid dev)
mounts_itself=
if [ "${1-}" = -n ]; then
	mounts_itself=yes
	shift
fi
if [ "${1-}" = -o ]; then
	IFS=, read -ra more <<<"$2"
	opts+=("${more[@]}")
	shift 2
fi
[ $# -gt 0 ] || { sed -n '6p' "$0" >&2; exit 1; }

status=0
# bats looks at this too: set = the daemon's log is only shown when it is bad.
BATS_TEST_COMPLETED=

leave() {
	trap - EXIT
	if [ "$status" -eq 0 ]; then
		BATS_TEST_COMPLETED=1
	fi
	hfs_teardown || { [ "$status" -ne 0 ] || status=1; }
	exit "$status"
}
trap leave EXIT
trap 'status=143; exit' INT TERM

hfs_setup loops "${HFS_SRC_SIZE:-2G}" "${HFS_SSD_SIZE:-512M}" || { status=2; exit; }
hfs_loop_fs "$TOP/plain" "${HFS_SRC_SIZE:-2G}" ext4 || { status=2; exit; }
if [ -n "$mounts_itself" ]; then
	work=$MNT
	SRC+=/work	# without ext4's lost+found, as @REF@
	mkdir "$SRC" || { status=2; exit; }
	chmod 1777 "$SRC"
else
	hfs_mount "${opts[@]}" || { status=2; exit; }
	work=$MNT/work
	mkdir "$work" || { status=2; exit; }
	chmod 1777 "$work"
fi
mkdir "$TOP/plain/work" || { status=2; exit; }
chmod 1777 "$TOP/plain/work"

command=("${@//@MNT@/$work}")
command=("${command[@]//@REF@/$TOP/plain/work}")
command=("${command[@]//@SRC@/$SRC}")
command=("${command[@]//@SSD@/$SSD}")
command=("${command[@]//@LOG@/$TOP/log}")
"${command[@]}" || status=$?

[ -n "$mounts_itself" ] || hfs_umount || { [ "$status" -ne 0 ] || status=1; }
