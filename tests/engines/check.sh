#!/bin/bash
# check.sh - `make check-engines`: real engines and libraries load what the mount serves, and compute what they
# compute from the source.
set -u
cd "$(dirname "$0")/../.." || exit 1

if ! env=$(tests/engines/install.sh); then
	export ENGINES_MISSING=${env##*$'\n'}
elif ! test -w /dev/fuse || ! command -v fusermount3 >/dev/null; then
	export ENGINES_MISSING="nothing can be mounted here: no /dev/fuse or no fusermount3"
fi
export ENGINES=${env##*$'\n'}

exec tests/run.sh \
	"tests/engines/load.sh llama transformers_load.py" \
	"tests/engines/load.sh llama libraries.py" \
	"tests/engines/load.sh llama torch_load.py" \
	"tests/engines/vllm.sh llama 1" \
	"tests/engines/vllm.sh llama 2" \
	"tests/engines/vllm.sh llama 1 2" \
	"tests/engines/vllm.sh qwen3-30b-a3b 2" \
	"tests/engines/vllm.sh qwen2.5-7b-instruct-gptq-int4 2" \
	"tests/engines/vllm.sh qwen2.5-7b-instruct-awq 2" \
	"tests/engines/vllm.sh llama-3.1-8b-fp8-dynamic 2" \
	"tests/engines/vllm.sh llama-3.1-8b-w8a8 1" \
	"tests/engines/vllm.sh minilm 1" \
	"tests/engines/vllm.sh minilm 2"
