#!/bin/bash
# The README's table of what works is what the program prints; --write puts it there.
set -euo pipefail
cd "$(dirname "$0")/../.."

rankfs=${RANKFS:-build/release/rankfs}
begin='<!-- rankfs list: begin -->' end='<!-- rankfs list: end -->'

with_list()
{
	sed "/^$begin\$/q" README.md
	"$rankfs" list
	sed -n "/^$end\$/,\$p" README.md
}

if test "${1:-}" = --write; then
	new=$(with_list)
	printf '%s\n' "$new" >README.md
	exit
fi
diff <(with_list) README.md || {
	echo "README.md does not say what 'rankfs list' says: run tests/cli/readme.sh --write"
	exit 1
}
