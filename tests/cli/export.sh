#!/bin/bash
# export: the files that cat gives; goes on where it was; does not take another rank's files for its own; refuses clearly.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
mkdir "$source/original"
echo params >"$source/original/params.json"
cd "$work"

prints "^12 files, " "$RANKFS" export model vllm/tp2 out.d/a
for file in out.d/a/*.* out.d/a/original/params.json; do
	"$RANKFS" cat model "vllm/tp2/${file#out.d/a/}" | cmp - "$file" || fail "$file differs"
done
[ "$(stat -c %Y out.d/a/model-rank-0-part-0.safetensors)" -eq "$(stat -c %Y model/model-00004-of-00004.safetensors)" ] ||
	fail "the time is not the source's"
[ -z "$(find out.d -name '.*.partial')" ] || fail "partial files are left"

# Once more: nothing to do. One that was cut, one that is missing, one with another time, a partial one: done again.
prints "^0 files, .*; 12 were there already$" "$RANKFS" export model vllm/tp2 out.d/a
truncate -s 100 out.d/a/model-rank-0-part-1.safetensors
rm out.d/a/model-rank-0-part-2.safetensors
touch out.d/a/model-rank-0-part-3.safetensors
head -c 100 model/config.json >out.d/a/.model-rank-0-part-2.safetensors.partial
prints "^3 files, .*; 9 were there already$" "$RANKFS" export model vllm/tp2 out.d/a -j 1
"$RANKFS" cat model vllm/tp2/model-rank-0-part-1.safetensors | cmp - out.d/a/model-rank-0-part-1.safetensors
[ -z "$(find out.d -name '.*.partial')" ] || fail "partial files are left"
prints "^12 files, " "$RANKFS" export model vllm/tp2 out.d/a --force

# Files of the other rank have the same names, sizes and times.
"$RANKFS" export model hf/tp2/rank-0 rank >/dev/null
prints "^5 files, .*; 3 were there already$" "$RANKFS" export model hf/tp2/rank-1 rank
for file in rank/*.safetensors; do
	"$RANKFS" cat model "hf/tp2/rank-1/${file#rank/}" | cmp - "$file" || fail "$file is of the other rank"
done

prints "^1 files, " "$RANKFS" export model vllm/tp2/config.json one
cmp one/config.json model/config.json
"$RANKFS" export model source copy >/dev/null
diff -r model copy || fail "source/ is not the source"
"$RANKFS" export model tensors/tp1 tensors >/dev/null
[ "$(find tensors -name '*.npy' | wc -l)" -eq 33 ] || fail "not 33 tensors"

fails 32 "lies inside the checkpoint" "$RANKFS" export model vllm/tp2 model/sub/dir
ln -s model link
fails 32 "lies inside the checkpoint" "$RANKFS" export model vllm/tp2 link/sub
fails 32 "do not divide by tp 3" "$RANKFS" export model vllm/tp3 none
[ ! -e none ] || fail "a refused export has made its directory"
echo x >file
fails 32 "cannot be opened: Not a directory" "$RANKFS" export model vllm/tp2 file

# More than there is room for: both numbers, and nothing written.
if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
	fails 2 "3.89 MiB (4,.* bytes) are to be written, [0-9.]* [KM]iB (.* bytes) are free" unshare -m bash -c \
		'mkdir small && mount -t tmpfs -o size=1M tmpfs small && "$1" export model vllm/tp2 small/x' - "$RANKFS"
fi
