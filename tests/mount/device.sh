#!/bin/bash
# What computes, and for which GPU: .rankfs/settings and status say so; a GPU that is wanted and missing is said on the terminal.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b

# settings PATTERN [FLAG…]
settings()
{
	mount_rankfs "${@:2}"
	grep -q "$1" "$mnt/.rankfs/settings" || fail "${*:2}: no '$1' in: $(cat "$mnt/.rankfs/settings")"
	"$RANKFS" status "$mnt" | grep -q '^computing: cpu' || fail "status: $("$RANKFS" status "$mnt")"
	umount "$mnt" 2>/dev/null || unmount "$mnt"
}

export CUDA_VISIBLE_DEVICES=
settings '^device=cpu$'
settings '^gpu=sm90$'
settings '^gpu=sm80$' -o gpu=sm80
settings '^device=cpu (.*)$' -o device=auto
fails 2 "option 'device': " "$RANKFS" "$source" "$mnt" -o device=cuda
is_mounted "$mnt" && fail "mounted without the GPU that was wanted"

"$RANKFS" doctor | grep -q '^gpu .*none: no NVIDIA driver' || skip "there is an NVIDIA driver here, which a fake one cannot replace"
command -v cc >/dev/null || skip "no cc to compile a driver with"
cc -shared -fPIC -o "$work/libcuda.so.1" "$root/tests/cli/fake_cuda.c"
export LD_LIBRARY_PATH=$work
FAKE_CUDA="1 8 0" settings '^gpu=sm80$'
FAKE_CUDA="1 8 9" settings '^gpu=sm89$'
FAKE_CUDA="1 10 0" settings '^gpu=sm100$'
FAKE_CUDA="1 10 0" settings '^gpu=sm80$' -o gpu=sm80
FAKE_CUDA="1 12 0" settings '^gpu=sm90$'
FAKE_CUDA="4 9 0" settings '^device=cpu (.*)$' -o device=auto
