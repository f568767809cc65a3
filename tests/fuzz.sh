#!/bin/sh
# fuzz.sh TARGET - run tests/fuzz/TARGET.c over its corpus, then for FUZZ_SECONDS (20) on inputs that it
# leads to.
#
# Inputs found in passing are thrown away; one that crashes is kept in build/fuzz/ and named: it belongs into the
# corpus, with the fix.
set -eu
cd "$(dirname "$0")/.."

target=$1
binary=build/fuzz/$target
corpus=tests/fuzz/corpus/${target#fuzz_}

if ! test -x "$binary"; then
	echo "no $binary: clang with its libFuzzer is needed (make deps)"
	exit 77
fi

found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
mkdir -p "$corpus"
"$binary" -runs=0 -artifact_prefix=build/fuzz/ "$corpus"
"$binary" -max_total_time="${FUZZ_SECONDS:-20}" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
	-artifact_prefix=build/fuzz/ "$found" "$corpus"
