#!/bin/sh
# deps.sh - install what building and testing needs, on Debian 12 or later; then build libfuse where Debian's is too
# old.
#
# Asks dpkg first: when nothing is missing it is quick and needs neither root nor network. Where it cannot install (no
# root, no apt) it says what is missing and goes on: the build or the test that needs it will say so again.
set -eu
cd "$(dirname "$0")/.."

build="gcc libc6-dev make pkg-config libfuse3-dev libjsmn-dev liblz4-dev"
libfuse="meson ninja-build dpkg-dev debian-archive-keyring xz-utils"
tests="libcriterion-dev fuse3 python3 python3-numpy python3-venv clang libclang-rt-dev clang-format attr mount util-linux procps"

installed()
{
	test "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed
}

missing=
if command -v dpkg-query >/dev/null; then
	for package in $build $libfuse $tests; do
		installed "$package" || missing="$missing $package"
	done
else
	echo "deps: no dpkg here; these Debian packages, or what your system calls them, are needed:"
	echo "deps:   $build $tests"
fi

if [ -n "$missing" ]; then
	if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
		export DEBIAN_FRONTEND=noninteractive
		apt-get -q update || echo "deps: apt-get update failed; trying with the lists that are there" >&2
		# shellcheck disable=SC2086 # a list of packages
		apt-get -q -y --no-install-recommends install $missing ||
			echo "deps: could not install all of:$missing" >&2
	else
		echo "deps: missing, and only root can install them: apt-get install$missing" >&2
	fi
fi

exec .ci/libfuse.sh
