#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Install the distribution packages that hybridfs needs and the machine does not have yet.
#
#   contrib/setup.sh build       what building it and `make demo` need
#   contrib/setup.sh test        that, and everything the test suite runs
#   contrib/setup.sh bench       what building it and contrib/bench/run need
#   contrib/setup.sh databases   that, and the servers of tests/db; their services are not started
#
# Costs one dpkg-query when all is there. As an ordinary user it goes through sudo, and says so.

set -u

build_packages=(
	gcc make pkg-config libc6-dev
	libfuse3-dev fuse3 libsqlite3-dev libxxhash-dev libjson-c-dev libncurses-dev libcap-dev
)
test_packages=(
	clang clang-tidy clang-format cppcheck shellcheck
	bats jq git rsync sqlite3 inotify-tools attr acl
	e2fsprogs xfsprogs btrfs-progs
)
bench_packages=(fio jq e2fsprogs mergerfs bsdextrautils gnuplot-nox)
# The core package has the server without its service.
database_packages=(postgresql postgresql-contrib mariadb-server-core mariadb-client)

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

usage() {
	sed -n '4,11s/^# \{0,1\}//p' "$0"
}

# missing PACKAGE...: print those that are not installed, one a line.
missing() {
	dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null |
		awk 'NR == FNR { if ($1 == "installed") have[$2] = 1; next } !($1 in have)' \
			- <(printf '%s\n' "$@")
}

# as_root COMMAND...: directly, or through sudo.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		env DEBIAN_FRONTEND=noninteractive "$@"
	else
		sudo env DEBIAN_FRONTEND=noninteractive "$@"
	fi
}

log=$(mktemp) || exit 1
policy=
trap 'rm -f "$log"; [ -z "$policy" ] || as_root rm -f "$policy"' EXIT

# install PACKAGE...: what is missing of them; the package lists are fetched once per run.
updated=
install() {
	local want

	mapfile -t want < <(missing "$@")
	[ "${#want[@]}" -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null ||
			die "needs root or sudo to install: ${want[*]}"
		say "not root: using sudo to install packages"
	fi
	say "installing: ${want[*]}"
	if [ -z "$updated" ]; then
		as_root apt-get -q -o DPkg::Lock::Timeout=300 update >/dev/null ||
			say "apt-get update failed; trying with the package lists that are here"
		updated=yes
	fi
	if ! as_root apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
		-o Dpkg::Use-Pty=0 install --no-install-recommends "${want[@]}" \
		</dev/null >"$log" 2>&1; then
		tail -n 20 "$log" >&2
		die "apt-get could not install: ${want[*]}"
	fi
}

# clang's sanitizer and fuzzer libraries are in a package named after its version.
install_clang_runtime() {
	local major

	major=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
	[ -n "$major" ] && install "libclang-rt-$major-dev"
}

# Servers are wanted as programs: what installing them would start stays down, now and at boot.
install_databases() {
	local new

	mapfile -t new < <(missing "${database_packages[@]}")
	[ "${#new[@]}" -gt 0 ] || return 0
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		printf '#!/bin/sh\nexit 101\n' >"$log.policy"
		as_root install -m 755 "$log.policy" /usr/sbin/policy-rc.d && policy=/usr/sbin/policy-rc.d
		rm -f "$log.policy"
	fi
	install "${new[@]}"
	if [[ " ${new[*]} " == *" postgresql "* ]] && command -v systemctl >/dev/null; then
		as_root systemctl disable -q postgresql >/dev/null 2>&1 ||
			say "could not disable the service postgresql"
	fi
}

# FUSE is a module on some kernels; a container may have to be given the device from outside.
check_fuse() {
	[ -c /dev/fuse ] && return 0
	as_root modprobe fuse 2>/dev/null
	[ -c /dev/fuse ] || say "warning: no /dev/fuse here; hybridfs can be built, not mounted"
}

main() {
	case "${1-}" in
	build | test | bench | databases) ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 1 ;;
	esac

	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		say "not a Debian-like system; please install what these Debian packages hold:"
		say "  ${build_packages[*]}"
		case $1 in
		test | databases) say "  ${test_packages[*]}" ;;
		bench) say "  ${bench_packages[*]}" ;;
		esac
		exit 0
	fi

	case $1 in
	build) install "${build_packages[@]}" ;;
	bench) install "${build_packages[@]}" "${bench_packages[@]}" ;;
	*)
		install "${build_packages[@]}" "${test_packages[@]}"
		install_clang_runtime
		[ "$1" = test ] || install_databases
		;;
	esac
	check_fuse
}

main "$@"
