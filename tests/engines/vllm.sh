#!/bin/bash
# vllm.sh MODEL TP [PP] - vLLM loads a view with --load-format sharded_state: each worker then holds exactly what it
# holds after loading the source by itself, and says the same, token by token and probability by probability.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

model=$1 tp=$2 pp=${3:-1}
script=generate.py
test "$model" != minilm || script=embed.py
layout=tp$tp
test "$pp" = 1 || layout=$layout-pp$pp

engines_open "$model"
# The last line is the result; vLLM and its libraries say things before it.
engine $script "$source" auto "$tp" "${@:3}" | tail -n 1 >"$work/expected"
engine $script "$mount/vllm/$layout" sharded_state "$tp" "${@:3}" | tail -n 1 >"$work/ours"
grep -q '"state": \[{' "$work/expected"
cmp "$work/expected" "$work/ours" || { head -c 2000 "$work/expected" "$work/ours"; exit 1; }
