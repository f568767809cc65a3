#!/bin/bash
# cuda.sh BUILD - what was built for GPUs runs where there is none, and a transform cannot be forgotten.
#
# With nvcc: kernels are in the binary, with nothing of C++ and no shared CUDA library, and without a driver it says nothing of
# its own. Without: they were compiled as C, which is skipped here.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1

fail()
{
	echo "$*"
	exit 1
}

compile()
{
	"${CC:-cc}" -x c -std=gnu11 -D_GNU_SOURCE -I. -Werror=implicit-function-declaration -fsyntax-only -
}

# kernels.cu without one line of all.h, but for those that another header needs itself.
lines=$(grep -c '^#include "slicer/transforms/' slicer/transforms/all.h)
compile <cuda/kernels.cu || fail "cuda/kernels.cu does not compile as C"
for i in $(seq "$lines"); do
	line=$(grep '^#include "slicer/transforms/' slicer/transforms/all.h | sed -n "${i}p")
	grep -lF "$line" slicer/transforms/*.h | grep -qv '/all.h$' && continue
	some=$(grep '^#include "slicer/transforms/' slicer/transforms/all.h | sed "${i}d")
	sed "s@#include \"slicer/transforms/all.h\"@${some//$'\n'/\\n}@" cuda/kernels.cu | compile 2>/dev/null &&
		fail "kernels.cu compiles without line $i of slicer/transforms/all.h"
done

test -e "$build/cuda/kernels.cu.o" || { echo "no nvcc here: kernels were compiled for the processor only"; exit 77; }
nm "$build/rankfs" | grep -q ' [tT] cuda_launch$' || fail "$build/rankfs has no kernels in it"
shared=$(ldd "$build/rankfs" | grep -E 'libcuda|libstdc\+\+')
test -z "$shared" || fail "$build/rankfs needs $shared"
