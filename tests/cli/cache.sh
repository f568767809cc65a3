#!/bin/bash
# The cache of headers: filled by the first command, used by the next, by -o nocache neither, and never in the way.
. "$(dirname "$0")/lib.sh"

cache=$XDG_CACHE_HOME/rankfs
entries()
{
	find "$XDG_CACHE_HOME" -type f 2>/dev/null | wc -l
}
expect_entries()
{
	[ "$(entries)" -eq "$1" ] || fail "$(entries) files in the cache, not $1: $2"
}

model qwen3-30b-a3b --layers 12 --experts 32
"$RANKFS" check "$source" -o nocache >"$work/headers"
prints "^ok" "$RANKFS" check "$source"
expect_entries 0 "files that changed a moment ago"
sleep 2.1
prints "^ok" "$RANKFS" check "$source" -o nocache
expect_entries 0 "-o nocache"
prints "^ok" "$RANKFS" check "$source"
expect_entries 1 "the first time"
cmp "$work/out" "$work/headers" || fail "another answer"
[ "$(stat -c %a "$cache") $(stat -c %a "$cache"/*)" = "700 600" ] || fail "others can read it: $(ls -la "$cache")"
prints "^header cache  yes  1 checkpoint, " "$RANKFS" doctor

# It is read instead of the headers: these say something else now, which only their times tell.
shard=$(ls "$source"/*.safetensors | head -n 1)
opened()
{
	strace -f -e trace=pread64 -P "$shard" -o "$work/trace" "$RANKFS" check "$@" >"$work/out" && grep -c pread "$work/trace"
}
# A sanitizer's search for leaks does not work under strace.
if command -v strace >/dev/null && [[ $RANKFS != */asan/* ]]; then
	[ "$(opened "$source")" -eq 0 ] || fail "a header is read: $(cat "$work/trace")"
	[ "$(opened "$source" -o nocache)" -gt 0 ] || fail "-o nocache reads no header"
fi
"$RANKFS" check "$source" >"$work/out"
cmp "$work/out" "$work/headers" || fail "another answer"

# Changed, replaced, damaged, gone: as without a cache.
touch "$shard"
prints "^ok" "$RANKFS" check "$source"
cmp "$work/out" "$work/headers" || fail "another answer after a touch"
for entry in "$cache"/*; do printf x | dd of="$entry" bs=1 seek=40 conv=notrunc status=none; done
prints "^ok" "$RANKFS" check "$source"
cmp "$work/out" "$work/headers" || fail "another answer from a damaged entry"
mv "$shard" "$work/aside"
fails 32 "missing" "$RANKFS" check "$source"
mv "$work/aside" "$shard"
truncate -s -1 "$shard"
fails 32 "truncated" "$RANKFS" check "$source"

# No cache: no home, one that nothing can be made in, another's.
model qwen3-30b-a3b --layers 12 --experts 32
XDG_CACHE_HOME=/dev/null prints "^ok" "$RANKFS" check "$source"
XDG_CACHE_HOME=/dev/null prints "^header cache  no " "$RANKFS" doctor
XDG_CACHE_HOME=relative HOME=$work/home prints "^ok" "$RANKFS" check "$source"
rm -rf "$cache"
ln -s "$work/elsewhere" "$cache"
mkdir "$work/elsewhere"
prints "^ok" "$RANKFS" check "$source"
[ -z "$(ls -A "$work/elsewhere")" ] || fail "a link was followed"
rm "$cache"
mkdir -m 777 "$cache"
prints "^header cache  no .*others may write" "$RANKFS" doctor
