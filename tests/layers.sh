#!/bin/bash
# layers.sh LIBRARY UNIT-TESTS - prove from the symbols that the layers are what ARCHITECTURE.md says.
#
# slicer is the meaning of a checkpoint and nothing else: it includes nothing from above it, references no FUSE, no CUDA
# and no thread, prints nothing and never ends the process (assert(3) excepted). The unit tests run without libfuse.
set -u
cd "$(dirname "$0")/.." || exit 1

library=$1 tests=$2
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

found=$(grep -nE '#include *["<](fs/|cuda/|fuse|pthread|threads\.h|semaphore)' slicer/*.[ch] slicer/arch/*.[ch])
test -z "$found" || offend "slicer/: includes from another layer:" "$found"

found=$(grep -nE '#include *["<](fuse|pthread|threads\.h)' cuda/*.[ch]* 2>/dev/null)
test -z "$found" || offend "cuda/: includes from another layer:" "$found"

found=$(nm -D -u "$tests" | grep -oE ' fuse_[a-z_]*'; nm "$tests" | grep -E ' T fuse_'; ldd "$tests" | grep libfuse)
test -z "$found" || offend "$tests: linked with libfuse:" "$found"

exit $status
