#!/bin/bash
# load.sh MODEL SCRIPT - run a Python script of this directory on a source and a mount of it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

engines_open "$1"
engine "$2" "$source" "$mount"
