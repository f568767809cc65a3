#!/bin/bash
# layers.sh LIBRARY KERNELS UNIT-TESTS - prove from the symbols that the layers are what ARCHITECTURE.md says.
#
# slicer is the meaning of a checkpoint and nothing else: it includes nothing from above it, references no FUSE, no CUDA
# and no thread, prints nothing and never ends the process (assert(3) excepted). Nor do kernels, but for CUDA. The unit tests
# run without libfuse.
#
# A family's file is tables and the hooks that these name: it defines its architecture and nothing else that others see, and
# asks only the configuration. No other file than slicer/arch.c, which lists them, knows a family.
set -u
cd "$(dirname "$0")/.." || exit 1

library=$1 kernels=$2 tests=$3
status=0

foreign='fuse_.*|cu[A-Z].*|cuda.*'
threads='pthread_.*|thrd_.*|mtx_.*|cnd_.*|sem_.*'
streams='stdin|stdout|stderr|(__)?v?[fd]?printf(_chk)?|f?puts|f?putc|putchar|fwrite'
streams="$streams|perror|psignal|v?warnx?|v?errx?|error|v?syslog"
ends='exit|_exit|_Exit|quick_exit|abort|raise|kill'
forbidden="^($foreign|$threads|$streams|$ends)$"

offend()
{
	echo "$1"
	echo "$2" | sed 's/^/  /'
	status=1
}

# Each undefined symbol, after the object that wants it; without its version (exit@GLIBC_2.2.5).
undefined()
{
	nm -A -u "$1" | sed -E 's/^[^:]*:([^:]*): +[Uw] ([^@ ]*).*/\1 \2/'
}

symbols=$(undefined "$library") || exit 1
test -n "$symbols" || { echo "$library: no symbols in it"; exit 1; }
found=$(echo "$symbols" | awk -v forbidden="$forbidden" '$2 ~ forbidden')
test -z "$found" || offend "$library: symbols that have no place in the slicer:" "$found"

found=$(grep -nE '#include *["<](fs/|cuda|fuse|pthread|threads\.h|semaphore)' slicer/*.[ch] slicer/*/*.[ch])
test -z "$found" || offend "slicer/: includes from another layer:" "$found"

# kernels.cu.o is nvcc's, with what it adds to any program.
found=$(undefined "$kernels" | awk -v forbidden="^(fuse_.*|$threads|$streams|$ends)$" '$1 != "kernels.cu.o" && $2 ~ forbidden')
test -z "$found" || offend "$kernels: symbols that have no place in it:" "$found"

found=$(grep -nE '#include *["<](fs/|fuse|pthread|threads\.h|semaphore)' cuda/*.[ch]*)
test -z "$found" || offend "cuda/: includes from another layer:" "$found"

families=$(basename -s .c slicer/arch/*.c | sed 's/$/.o/' | paste -sd '|')
asked='sl_config_[a-z0-9_]*|sl_json_u64|sl_json_equal|sl_fail|sl_(has|is|need)_[a-z_]*|sl_always|sl_[a-z0-9]*_spellings'
asked="$asked|str(len|n?cmp|str|chr)|mem(cmp|cpy|set)|__(asan|ubsan|stack_chk)_[a-z0-9_]*"
defined='sl_arch_[a-z0-9_]*|sl_[a-z0-9]*_spellings'

found=$(echo "$symbols" | awk -v in_family="^($families)$" -v asked="^($asked)$" '$1 ~ in_family && $2 !~ asked')
test -z "$found" || offend "slicer/arch/: families that do more than ask the configuration:" "$found"

found=$(nm -A --extern-only --defined-only "$library" | sed -E 's/^[^:]*:([^:]*):[0-9a-f]+ (.) /\1 \2 /' |
	awk -v in_family="^($families)$" -v defined="^($defined)$" '$1 ~ in_family && !($2 ~ /[DR]/ && $3 ~ defined)')
test -z "$found" || offend "slicer/arch/: families that define more than their architecture:" "$found"

found=$(nm -A --defined-only "$library" | sed -E 's/^[^:]*:([^:]*):[0-9a-f]+ (.) /\1 \2 /' |
	awk -v in_family="^($families)$" '$1 ~ in_family && $2 ~ /[bBcC]/')
test -z "$found" || offend "slicer/arch/: families that keep something:" "$found"

found=$(echo "$symbols" | awk -v in_family="^($families|arch.o)$" '$1 !~ in_family && $2 ~ /^sl_arch_[a-z0-9]*$/ && $2 != "sl_arch_find"')
test -z "$found" || offend "slicer/: files that know a family:" "$found"

found=$(nm -D -u "$tests" | grep -oE ' fuse_[a-z_]*'; nm "$tests" | grep -E ' T fuse_'; ldd "$tests" | grep libfuse)
test -z "$found" || offend "$tests: linked with libfuse:" "$found"

exit $status
