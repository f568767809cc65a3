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
	"tests/engines/load.sh deepseek-v3 torch_load.py" \
	"tests/engines/load.sh deepseek-v3 deepseek_load.py" \
	"tests/engines/load.sh deepseek-v4-flash deepseek_load.py" \
	"tests/engines/load.sh gpt-oss-20b gpt_oss_load.py gpt-oss" \
	"tests/engines/load.sh saved/qwen3 airllm_load.py airllm" \
	"tests/engines/load.sh saved/llama3 llama_models_load.py llama-models" \
	"tests/engines/load.sh saved/llama3 gguf_load.py llama-models gguf" \
	"tests/engines/load.sh saved/qwen3 gguf_load.py gguf" \
	"tests/engines/load.sh saved/llama3 llama_cpp_load.py llama-models llama-cpp-python" \
	"tests/engines/load.sh saved/qwen2 llama_cpp_load.py llama-cpp-python" \
	"tests/engines/load.sh saved/qwen3 llama_cpp_load.py llama-cpp-python" \
	"tests/engines/states.sh" \
	"tests/engines/no_reader.sh serverlessllm" \
	"tests/engines/no_reader.sh sglang" \
	"tests/engines/vllm.sh llama 1" \
	"tests/engines/vllm.sh llama 2" \
	"tests/engines/vllm.sh llama 1 2" \
	"tests/engines/vllm.sh qwen3-30b-a3b 2" \
	"tests/engines/vllm.sh deepseek-v2-lite 1" \
	"tests/engines/vllm.sh deepseek-v2-lite 2" \
	"tests/engines/vllm.sh qwen2.5-7b-instruct-gptq-int4 2" \
	"tests/engines/vllm.sh qwen2.5-7b-instruct-awq 2" \
	"tests/engines/vllm.sh llama-3.1-8b-fp8-dynamic 2" \
	"tests/engines/vllm.sh llama-3.1-8b-w8a8 1" \
	"tests/engines/vllm.sh minilm 1" \
	"tests/engines/vllm.sh minilm 2"
