#!/bin/bash
# run.sh - run tests one after another and sum them up.
#
#   tests/run.sh COMMAND…    each is one argument, and may have arguments of its own: "tests/layers.sh lib bin"
#
# A test passes with exit code 0 and is skipped with 77; the last line it printed is the reason. What it prints is
# shown only when it fails. A test that is a suite itself, and closes with a line "N passed, N failed, N skipped" or
# with Criterion's synthesis, counts as that many. A sanitizer's report fails the test whose run left it, whatever its
# exit code was (Criterion ends with 0 despite leaks). The last line is the sum, in the same words.
#
#   TEST_TIMEOUT    seconds for one command (default 1800)
set -u
cd "$(dirname "$0")/.." || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM

for options in ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS; do
	export "$options=${!options:-}:log_path=$work/sanitizer"
done
export UBSAN_OPTIONS="$UBSAN_OPTIONS:print_stacktrace=1"

# What is shown must not depend on the GPU of this machine; tests that want one say so (make check-gpu).
export CUDA_VISIBLE_DEVICES=

passed=0 failed=0 skipped=0

# "PASSED FAILED SKIPPED" of a suite's closing line, or nothing.
tally()
{
	tail -n 3 "$1" | sed -n \
		-e 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' \
		-e 's/.*Synthesis: Tested: [0-9]* | Passing: \([0-9]*\) | Failing: \([0-9]*\) | .*/\1 \2 0/p' | tail -n 1
}

show()
{
	sed 's/^/    /' "$@"
}

run()
{
	local name=$1 code seconds=$SECONDS out=$work/out p f s
	timeout "${TEST_TIMEOUT:-1800}" bash -c "exec $name" </dev/null >"$out" 2>&1
	code=$?
	seconds=$((SECONDS - seconds))
	read -r p f s < <(tally "$out")

	if compgen -G "$work/sanitizer*" >/dev/null; then
		echo "FAIL  $name (a sanitizer's report)"
		show "$out" "$work"/sanitizer*
		rm -f "$work"/sanitizer*
		f=$((${f:-0} > 0 ? f : 1))
	elif [ $code -eq 77 ]; then
		echo "skip  $name: $(tail -n 1 "$out")"
		p=${p:-0} f=0 s=$((${s:-0} > 0 ? s : 1))
	elif [ $code -ne 0 ] || [ "${f:-0}" -gt 0 ]; then
		echo "FAIL  $name (exit $code, ${seconds} s)"
		show "$out"
		f=$((${f:-0} > 0 ? f : 1))
	else
		echo "ok    $name${p:+ ($p passed${s:+, $s skipped})} ${seconds} s"
		p=${p:-1}
	fi
	passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
}

for command in "$@"; do
	run "$command"
done

echo "$passed passed, $failed failed, $skipped skipped"
test $failed -eq 0
