#!/bin/sh
# libfuse.sh - a libfuse with the passthrough API (3.17.1 or later), static, under build/deps/libfuse/.
#
# Debian 12 has 3.14. Debian's own source package of a later release builds on it in seconds: fetched from the mirror
# that this machine's apt uses already, into lists of its own, so that the system's sources stay as they are, and
# verified with Debian's keyring as apt always does. Where the system's libfuse is new enough, or where this cannot be
# done, the system's is used: the same program, without passthrough. Makefile looks for the stamp.
set -eu
cd "$(dirname "$0")/.."

needed=3.17.1
release=trixie
prefix=$PWD/build/deps/libfuse
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

fall_back()
{
	echo "libfuse: using the system's ($(pkg-config --modversion fuse3 2>/dev/null || echo none)), without passthrough: $1"
	exit 0
}

test -e "$prefix/stamp" && exit 0
pkg-config --atleast-version=$needed fuse3 2>/dev/null && exit 0

for tool in apt-get dpkg-source meson ninja; do
	command -v $tool >/dev/null || fall_back "no $tool to build $needed with"
done
test -r $keyring || fall_back "no $keyring to verify Debian's sources with"

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
	awk -v release="$codename" '$2 == release && $3 == "main" { print $1; exit }')
test -n "$mirror" || fall_back "apt's sources name no Debian mirror of $codename"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/source"
chmod -R a+rX "$work"
chown -R _apt "$work/lists" "$work/archives" "$work/source" 2>/dev/null || : # apt downloads as _apt where it can
echo "deb-src [signed-by=$keyring] $mirror $release main" >"$work/sources.list"

apt()
{
	apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$work/lists" -o Dir::Cache="$work" -o APT::Update::Error-Mode=any "$@"
}

log=$work/log
apt update >"$log" 2>&1 || { tail -n 3 "$log" >&2; fall_back "could not read the sources of $release"; }
(cd "$work/source" && apt --only-source --download-only source fuse3) >"$log" 2>&1 ||
	{ tail -n 3 "$log" >&2; fall_back "could not fetch fuse3 of $release"; }
# apt has compared the files with the signed lists; dpkg-source compares them with each other.
dpkg-source -x "$work"/source/fuse3_*.dsc "$work/fuse3" >"$log" 2>&1 ||
	{ tail -n 3 "$log" >&2; fall_back "could not unpack its source"; }

# The prefix is where fusermount3 is looked for, not where it is installed.
{
	meson setup "$work/build" "$work/fuse3" --prefix=/usr --libdir=lib --default-library=static \
		--buildtype=debugoptimized -Dexamples=false -Dutils=false -Dtests=false &&
		ninja -C "$work/build" && DESTDIR="$work/root" meson install -C "$work/build"
} >"$log" 2>&1 || { tail -n 20 "$log" >&2; fall_back "its build failed"; }

mkdir -p "$prefix/lib"
cp -R "$work/root/usr/include" "$prefix/"
cp "$work/root/usr/lib/libfuse3.a" "$prefix/lib/"
sed -n 's/^Version: //p' "$work/root/usr/lib/pkgconfig/fuse3.pc" >"$prefix/stamp"
echo "libfuse: built $(cat "$prefix/stamp")"
