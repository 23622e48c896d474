# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Bash completion for hybridfs(8). Mountpoints come from /proc, so that a hanging daemon cannot
# hang the shell.

_hybridfs_mountpoints() {
	local mountpoint fstype rest

	while read -r _ mountpoint fstype rest; do
		[ "$fstype" = fuse.hybridfs ] && printf '%b\n' "${mountpoint//\\/\\0}"
	done </proc/self/mounts
}

# _hybridfs_options COMMAND: the options it takes.
_hybridfs_options() {
	case $1 in
	stat) echo --json --verbose --help ;;
	promote) echo --range --no-wait --quiet --json --help ;;
	demote | flush | sync) echo --force --quiet --json --help ;;
	pin | unpin) echo --range --quiet --json --help ;;
	status) echo --json --prometheus --help ;;
	top) echo --once --help ;;
	umount) echo --no-flush --quiet --help ;;
	check) echo --repair --scrub --json --help ;;
	esac
}

# _hybridfs_files ACTION WORD: files or directories as readline wants them.
_hybridfs_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -A "$1" -- "$2")
}

# After -o: the last option of a list that is separated by commas.
_hybridfs_mount_option() {
	local word=$1 full=$1 done='' names name

	names='ssd= size= mode=writeback mode=writethrough mode=writearound dirty_ratio=
		dirty_background_ratio= dirty_expire= high_watermark= low_watermark= seq_cutoff=
		promote_hits= passthrough=auto passthrough=off flush_on_unmount no_flush_on_unmount
		stripe= allow_other allow_root ro rw uid= gid= umask='
	if [[ $word == *,* ]]; then
		done=${word%,*},
		word=${word##*,}
	fi
	compopt -o nospace 2>/dev/null
	COMPREPLY=()
	for name in $names; do
		[[ $name == "$word"* ]] && COMPREPLY+=("$done$name")
	done
	# Readline replaces only what follows the last = on the command line.
	if [[ $COMP_WORDBREAKS == *=* ]]; then
		COMPREPLY=("${COMPREPLY[@]#"${full%"${full##*=}"}"}")
	fi
}

_hybridfs() {
	local commands='stat promote demote pin unpin flush sync status top umount check'
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command=${COMP_WORDS[1]} line=${COMP_LINE:0:COMP_POINT}

	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		_hybridfs_files directory "$word"
		mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W \
			"$commands --help --version" -- "$word")
		return
	fi
	if [[ $line =~ [[:space:]]-o[[:space:]]*([^[:space:]]*)$ && " $commands " != *" $command "* ]]; then
		_hybridfs_mount_option "${BASH_REMATCH[1]}"
		return
	fi
	if [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_hybridfs_options "$command")" -- "$word")
		[[ " $commands " == *" $command "* ]] || COMPREPLY=(-o -f -d -s)
		return
	fi
	case $command in
	stat | promote | demote | pin | unpin | flush | sync)
		[ "$previous" = --range ] || _hybridfs_files file "$word"
		;;
	status | top | umount)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(_hybridfs_mountpoints |
			while read -r m; do [[ $m == "$word"* ]] && printf '%q\n' "$m"; done)
		;;
	--help | --version) ;;
	*) _hybridfs_files directory "$word" ;;
	esac
}

complete -F _hybridfs hybridfs
