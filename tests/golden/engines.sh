#!/bin/bash
# engines.sh [--write] - which engines can hold which models, as text: all families of tests/zoo/gen.py, each with a byte-pair
# tokenizer beside, against engines.txt. A change that means to change that runs --write and shows the difference to whoever
# reviews it. Why an engine cannot is in tests/cli/engines.sh.
. "$(dirname "$0")/../cli/lib.sh"
golden=$root/tests/golden/engines.txt
gen=$root/tests/zoo/gen.py

# The engines whose first layout is "ok", each once.
engines_of()
{
	"$RANKFS" plan "$1" 2>/dev/null | awk '$2 == "ok" { sub("/[a-z]*p[0-9]*$", "", $1); if (!seen[$1]++) printf " %s", $1 }'
}

cd "$work"
mkdir tokenizer
"$PYTHON" "$root/tests/oracle/tokenizer.py" llama3 tokenizer
for family in $("$PYTHON" "$gen" --list); do
	rm -rf model
	"$PYTHON" "$gen" "$family" model --tiny >/dev/null
	cp tokenizer/* model
	echo "$family:$(engines_of model)"
done >list
if [ "${1:-}" = --write ]; then
	cp list "$golden"
else
	diff "$golden" list >difference || fail "engines hold other models than before (tests/golden/engines.sh --write):
$(cat difference)"
fi
