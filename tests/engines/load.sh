#!/bin/bash
# load.sh MODEL SCRIPT [PACKAGE…] - run a Python script of this directory on a source and a mount of it; the packages are what it
# needs beside the engines that are always there.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

engines_need "${@:3}"
engines_open "$1"
engine "$2" "$source" "$mount"
