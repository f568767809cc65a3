#!/bin/bash
# Which GPU is here, and what is said where none is: a driver that is missing, refuses, crashes or talks harms nobody.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
header="hf/tp1/rank-0/config.json"
unset CUDA_VISIBLE_DEVICES

if ! "$RANKFS" doctor | grep -q '^gpu .*none: no NVIDIA driver'; then
	skip "there is an NVIDIA driver here, which a fake one cannot replace"
fi
fails 2 "option 'device': .*\(no NVIDIA driver\|without CUDA\)" "$RANKFS" cat "$source" $header -o device=cuda
fails 2 "option 'device': " "$RANKFS" cat "$source" $header -o device=3
fails 2 "option 'device': " "$RANKFS" export "$source" hf/tp1 "$work/out" -o device=0
fails 1 'wanted is cpu, auto, cuda, or a number from 0 to 63' "$RANKFS" cat "$source" $header -o device=gpu
prints LlamaForCausalLM "$RANKFS" cat "$source" $header -o device=auto
prints LlamaForCausalLM "$RANKFS" cat "$source" $header -o device=cpu

command -v cc >/dev/null || skip "no cc to compile a driver with"
cc -shared -fPIC -o "$work/libcuda.so.1" "$root/tests/cli/fake_cuda.c"
export LD_LIBRARY_PATH=$work

# doctor FAKE PATTERN
doctor()
{
	prints "$2" env FAKE_CUDA="$1" "$RANKFS" doctor
	FAKE_CUDA=$1 prints LlamaForCausalLM "$RANKFS" cat "$source" $header -o device=auto
	FAKE_CUDA=$1 fails 2 "option 'device': " "$RANKFS" cat "$source" $header -o device=cuda
}

doctor "2 9 0" '^gpu  *-  *Fake GPU 0, compute capability 9.0; 2 of them; the driver does CUDA 13.0'
doctor "error 100" '^gpu  *-  *none: the NVIDIA driver does not start: no CUDA-capable device is detected (CUDA error 100)'
doctor "0 9 0" '^gpu  *-  *none: there is no GPU 0: the driver shows 0'
doctor crash '^gpu  *-  *none: the NVIDIA driver fails whoever asks it (signal 6)'
doctor exit '^gpu  *-  *none: the NVIDIA driver fails whoever asks it (exit status 7)'
doctor talk '^gpu  *-  *none: the NVIDIA driver does not start: unknown error (CUDA error 999)'
grep -q 'hello' "$work/out" "$work/err" && fail "the driver was heard"
: >"$work/libcuda.so.1"
doctor "2 9 0" '^gpu  *-  *none: no NVIDIA driver: .*libcuda.so.1: file too short'
