# One Makefile, not recursive: sources are found by wildcard, objects go to build/$(MODE)/ with their dependencies.
#
#   make                       build/release/rankfs; needs no root and no network
#   make MODE=asan unit        the same targets in another mode: release, asan, tsan, fuzz
#   make check                 installs what is missing (Debian, root), builds everything, runs everything
#
# CC, CFLAGS, CPPFLAGS, LDFLAGS, NVCC, DESTDIR and PREFIX are honoured. `make help` lists the targets.

MODE   ?= release
PREFIX ?= /usr/local
B      := build/$(MODE)
CLANG  ?= clang
PYTHON ?= python3

# V=1 shows the commands.
ifneq ($(V),1)
Q := @
say = @printf '  %-5s %s\n'
else
say = @:
endif

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

# ---------------------------------------------------------------- modes
# To add a mode: its flags here, and its name in MODES.
MODES := release asan tsan fuzz
ifeq ($(filter $(MODE),$(MODES)),)
$(error MODE=$(MODE): not one of $(MODES))
endif

harden  := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong
san     := -fno-omit-frame-pointer -fno-sanitize-recover=all
release_CFLAGS := -O2 -g
release_MODE   := $(harden)
asan_CFLAGS    := -O1 -g
asan_MODE      := $(san) -fsanitize=address,undefined
tsan_CFLAGS    := -O1 -g
tsan_MODE      := $(san) -fsanitize=thread
fuzz_CFLAGS    := -O1 -g
fuzz_MODE      := $(san) -fsanitize=fuzzer-no-link,address,undefined
ifeq ($(MODE),fuzz)
CC := $(CLANG)
endif

CFLAGS ?= $($(MODE)_CFLAGS)

warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings -Wundef \
	-Wpointer-arith -Wcast-qual -Wformat=2 -Wswitch-enum -Wconversion -Wno-sign-conversion
ifeq ($(findstring clang,$(shell $(CC) --version 2>/dev/null)),)
# gcc's guess whether an snprintf may cut its text depends on what it inlined; a message may be cut.
warnings += -Wno-format-truncation
endif
ifneq ($(filter true,$(CI))$(filter 1,$(WERROR)),)
warnings += -Werror
endif

version   := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# The arithmetic of engines is reproduced bit by bit: no product and sum in one rounding.
all_cflags = -std=gnu11 -ffp-contract=off -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. -fPIE $(warnings) $($(MODE)_MODE) -MMD -MP \
	$(CPPFLAGS) $(CFLAGS)
all_ldflags = -pie -Wl,-z,relro,-z,now $($(MODE)_MODE) $(LDFLAGS)

# ---------------------------------------------------------------- libraries libfuse: ours when `make deps` has built
# it (.ci/libfuse.sh says why), else the system's. The passthrough API is 3.17's.
ifneq ($(wildcard build/deps/libfuse/stamp),)
fuse_cflags := -isystem build/deps/libfuse/include -isystem build/deps/libfuse/include/fuse3
fuse_libs   := build/deps/libfuse/lib/libfuse3.a -ldl
fuse_api    := 317
else
fuse_cflags := $(patsubst -I%,-isystem %,$(shell pkg-config --cflags fuse3 2>/dev/null))
fuse_libs   := $(shell pkg-config --libs fuse3 2>/dev/null || echo -lfuse3)
fuse_api    := $(shell pkg-config --atleast-version=3.17.1 fuse3 2>/dev/null && echo 317 || echo 314)
endif
fuse_cflags += -DFUSE_USE_VERSION=$(fuse_api)

slicer_libs := -llz4 -lm
thread_libs := -pthread -ldl

# CUDA: compiled in when there is a compiler for the kernels; the runtime is linked statically, so the same binary runs
# on machines with and without a driver. Contraction is off there too. For sm_80, 89, 90 and 100, as far as nvcc knows
# them; later GPUs get the intermediate code of the last one.
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
ifneq ($(and $(NVCC),$(filter-out fuzz,$(MODE))),)
cuda_home  := $(patsubst %/,%,$(dir $(patsubst %/,%,$(dir $(realpath $(shell command -v $(NVCC)))))))
cuda_obj   := $(B)/cuda/kernels.cu.o $(B)/cuda/runtime_cuda.o
cuda_sms   := $(filter 80 89 90 100,$(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code 2>/dev/null)))
cuda_last  := $(lastword $(cuda_sms))
cuda_arch  := $(foreach sm,$(cuda_sms),-gencode arch=compute_$(sm),code=sm_$(sm)) \
	-gencode arch=compute_$(cuda_last),code=compute_$(cuda_last)
cuda_libs  := -L$(cuda_home)/lib64 -lcudart_static -ldl -lrt
nvcc_flags := -std=c++17 -O2 -I. -fmad=false -ftz=false -prec-div=true -prec-sqrt=true $(cuda_arch) \
	-Xcompiler -fPIE,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
endif
fs_cuda := -DHAVE_CUDA=$(if $(cuda_obj),1,0)

# ---------------------------------------------------------------- what is made
slicer_src := $(wildcard slicer/*.c slicer/arch/*.c slicer/transforms/*.c slicer/recipes/*.c)
fs_src     := $(wildcard fs/*.c)
cuda_src   := $(filter-out cuda/runtime_cuda.c,$(wildcard cuda/*.c))
stress_src := $(wildcard tests/stress/*.c)
unit_src   := $(wildcard tests/unit/*.c)
fuzz_src   := $(wildcard tests/fuzz/fuzz_*.c)

slicer_obj := $(slicer_src:%.c=$(B)/%.o)
fs_obj     := $(fs_src:%.c=$(B)/%.o)
cuda_obj   += $(cuda_src:%.c=$(B)/%.o) $(B)/cuda/kernels_host.o
unit_obj   := $(unit_src:%.c=$(B)/%.o)
fuzz_obj   := $(fuzz_src:%.c=$(B)/%.o)
more_obj   := $(B)/tests/kernel/case.o $(B)/tests/kernel/bench.o $(stress_src:%.c=$(B)/%.o)
stress_bin := $(stress_src:tests/stress/%.c=$(B)/stress-%)
fuzz_bin   := $(fuzz_src:tests/fuzz/%.c=$(B)/%)

all: $(B)/rankfs ## build rankfs (the default)

$(B)/rankfs: $(fs_obj) $(B)/libkernels.a $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -o $@ $^ $(fuse_libs) $(slicer_libs) $(cuda_libs) $(thread_libs)

$(B)/libslicer.a: $(slicer_obj)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# The backend on a GPU, and the same on the processor, which only tests take from it.
$(B)/libkernels.a: $(cuda_obj)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# What of fs/ needs no FUSE can be tested without: the linker takes from this archive what the tests name, and the
# unit tests are not linked with libfuse.
$(B)/libfs.a: $(filter-out $(B)/fs/main.o,$(fs_obj))
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/unit: $(unit_obj) $(B)/libfs.a $(B)/libkernels.a $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -o $@ $^ -lcriterion $(slicer_libs) $(cuda_libs) $(thread_libs)

$(B)/kernel-case: $(B)/tests/kernel/case.o $(B)/tests/kernel/bench.o $(B)/libfs.a $(B)/libkernels.a $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -o $@ $^ $(slicer_libs) $(cuda_libs) $(thread_libs)

$(B)/ops: $(B)/tests/bench/ops.o $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -o $@ $^ $(slicer_libs)

$(fuzz_bin): $(B)/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -fsanitize=fuzzer -o $@ $^ $(slicer_libs)

$(stress_bin): $(B)/stress-%: $(B)/tests/stress/%.o $(B)/libfs.a $(B)/libkernels.a $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -o $@ $^ $(slicer_libs) $(cuda_libs) $(thread_libs)

fuzz-targets: $(fuzz_bin)

$(fs_obj): $(wildcard build/deps/libfuse/stamp)
$(B)/tests/kernel/%.o: private all_cflags += $(fs_cuda)
$(B)/fs/%.o: private all_cflags += $(fuse_cflags) $(fs_cuda) -DRANKFS_VERSION='"$(version)"'
# Loops over weights are worth vectors. Comparisons of floats stay what they are: nobody asks which flags they raise.
ifeq ($(MODE),release)
$(B)/slicer/transforms/%.o: private all_cflags += -O3 -fno-trapping-math
endif

$(B)/%.o: %.c
	$(say) CC $@
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(all_cflags) -c -o $@ $<

$(B)/%.cu.o: %.cu
	$(say) NVCC $@
	$(Q)mkdir -p $(@D)
	$(Q)$(NVCC) $(nvcc_flags) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

# The same source as C. What C allows and C++ refuses is found where there is no nvcc, too.
$(B)/cuda/kernels_host.o: cuda/kernels.cu
	$(say) CC $@
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -x c $(all_cflags) -Wc++-compat -Werror=implicit-function-declaration -c -o $@ $<

$(B)/cuda/runtime_cuda.o: private all_cflags += -isystem $(cuda_home)/include

-include $(patsubst %.o,%.d,$(slicer_obj) $(fs_obj) $(unit_obj) $(fuzz_obj) $(cuda_obj) $(more_obj) \
	$(B)/tests/bench/ops.o)

# ---------------------------------------------------------------- install
deps: ## install what building and testing needs (Debian, root), and build libfuse where the system's is too old
	.ci/deps.sh

units := $(wildcard mount-helpers/*.service mount-helpers/*.mount)

install: $(B)/rankfs ## install the binary, the mount(8) helper, man pages and systemd units; honours DESTDIR, PREFIX
	install -D -m 755 $(B)/rankfs $(DESTDIR)$(PREFIX)/bin/rankfs
	install -D -m 755 mount-helpers/mount.rankfs $(DESTDIR)/sbin/mount.rankfs
	install -D -m 644 fs/rankfs.1 $(DESTDIR)$(PREFIX)/share/man/man1/rankfs.1
	install -D -m 644 mount-helpers/mount.rankfs.8 $(DESTDIR)$(PREFIX)/share/man/man8/mount.rankfs.8
	for unit in $(units); do \
		install -D -m 644 $$unit $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/} || exit 1; \
	done

uninstall: ## remove what install installed
	rm -f $(DESTDIR)$(PREFIX)/bin/rankfs $(DESTDIR)/sbin/mount.rankfs \
		$(DESTDIR)$(PREFIX)/share/man/man1/rankfs.1 $(DESTDIR)$(PREFIX)/share/man/man8/mount.rankfs.8 \
		$(units:mount-helpers/%=$(DESTDIR)$(PREFIX)/lib/systemd/system/%)

# ---------------------------------------------------------------- tests
# Every suite is a list of commands for tests/run.sh, so that `check` is the lists one after another, and one summary.
export RANKFS := $(abspath $(B)/rankfs)
export PYTHON
export PYTHONDONTWRITEBYTECODE := 1

mount_tests  := $(filter-out %/lib.sh,$(wildcard tests/mount/*.sh))
cli_tests    := $(filter-out %/lib.sh,$(wildcard tests/cli/*.sh tests/golden/*.sh))
fuzz_tests   := $(foreach f,$(fuzz_src:tests/fuzz/%.c=%),"tests/fuzz.sh $(f)")
# The same bytes in every mode: what is staged in other memory, and what is read where nothing is staged or passed through.
mode = $(foreach t,$(2),"env RANKFS_TEST_OPTIONS=$(1) $(t)")
stage_tests  := $(filter-out %/stage_modes.sh,$(filter tests/mount/stage_%,$(mount_tests)))
read_tests   := $(patsubst %,tests/mount/%.sh,basic big modified over_source reads replaced walk xattr)
mode_tests   := $(foreach m,memory=tmpfs memory=memfd,$(call mode,$(m),$(stage_tests))) \
	$(foreach m,stage=off nopassthrough,$(call mode,$(m),$(read_tests)))
asan_tests   := $(foreach t,$(cli_tests) $(mount_tests),"env RANKFS=$(abspath build/asan/rankfs) $(t)")
# Criterion's own workers leak when several run at once (2.4, 48 bytes a worker): one where leaks are looked for.
unit_tests    = "$(B)/unit$(if $(filter asan,$(MODE)), --jobs 1)"
layer_tests   = "tests/layers.sh $(B)/libslicer.a $(B)/libkernels.a $(B)/unit"
stress_tests := $(stress_src:tests/stress/%.c=build/tsan/stress-%)
kernel_cases  = $(PYTHON) tests/kernel/check.py $(B)/kernel-case
kernel_more   = "$(PYTHON) tests/kernel/sizes.py $(B)/kernel-case cuda-host" \
	"tests/cuda.sh $(B)" tests/kernel/view.sh "$(PYTHON) tests/kernel/states.py"
kernel_tests  = "$(kernel_cases)" $(kernel_more)
# Other tests see no GPU.
with_gpu     := $(if $(filter undefined,$(origin CUDA_VISIBLE_DEVICES)),env -u CUDA_VISIBLE_DEVICES,env \
	CUDA_VISIBLE_DEVICES=$(CUDA_VISIBLE_DEVICES))
gpu_tests     = "$(with_gpu) $(PYTHON) tests/kernel/check.py $(B)/kernel-case --gpu" \
	"$(with_gpu) $(PYTHON) tests/kernel/sizes.py $(B)/kernel-case cuda"
oracle_tests := "$(PYTHON) tests/oracle/check.py" "$(PYTHON) tests/oracle/engines.py" "$(PYTHON) tests/together.py"

check: deps ## install what is missing, build all modes, run every test
	$(MAKE) check-built

# A make of its own: what `deps` has installed changes what this file finds.
check-built: $(B)/rankfs $(B)/unit $(B)/kernel-case build-fuzz
	$(MAKE) MODE=asan build/asan/rankfs build/asan/unit
	$(MAKE) MODE=tsan $(stress_tests)
	tests/run.sh $(layer_tests) $(stress_tests) build/release/unit "build/asan/unit --jobs 1" $(fuzz_tests) $(cli_tests) $(mount_tests) \
		$(mode_tests) $(asan_tests) $(kernel_tests) $(gpu_tests) $(oracle_tests)

unit: $(B)/unit ## unit tests (MODE=asan for the sanitizers)
	tests/run.sh $(unit_tests)

check-mount: $(B)/rankfs ## the command line, and what a mount shows; needs /dev/fuse
	tests/run.sh $(cli_tests) $(mount_tests)

check-modes: $(B)/rankfs ## the mount's tests again in each mode: other memory, no staging, no passthrough
	tests/run.sh $(mode_tests)

check-oracle: $(B)/rankfs ## compare every tensor with what the real engine holds
	tests/run.sh $(oracle_tests)

check-kernel: $(B)/kernel-case $(B)/rankfs ## compare what is computed for kernels with what vLLM's own functions make, bit for bit
	tests/run.sh $(kernel_more)
	$(kernel_cases)

check-gpu: $(B)/kernel-case ## the same by a GPU, at other sizes as well; skipped where there is none
	tests/run.sh $(gpu_tests)

check-stress: ## many threads at once, under ThreadSanitizer
	$(MAKE) MODE=tsan $(stress_tests)
	tests/run.sh $(stress_tests)

check-fuzz: build-fuzz ## each fuzz target over its corpus, then 20 s of new inputs (FUZZ_SECONDS)
	tests/run.sh $(fuzz_tests)

build-fuzz:
	@! command -v $(CLANG) >/dev/null || $(MAKE) MODE=fuzz fuzz-targets

check-engines: $(B)/rankfs ## the engines themselves load the views, and say the same (6 GB of packages, once)
	tests/engines/check.sh

layers: $(B)/libslicer.a $(B)/libkernels.a $(B)/unit ## prove that the slicer needs no FUSE, CUDA or thread, and prints nothing
	tests/run.sh $(layer_tests)

demo: deps ## mount a small checkpoint and show what is in it
	$(MAKE) all
	tests/demo.sh

bench: $(B)/rankfs bench-ops ## measure the mount against plain files, and what is computed against memcpy
	tests/bench.sh

bench-ops: $(B)/ops ## measure what is computed for kernels against memcpy, one core
	$(B)/ops

bench-gpu: $(B)/kernel-case ## how fast each kernel is, against a copy on the same GPU
	$(PYTHON) tests/kernel/sizes.py $(B)/kernel-case bench || test $$? -eq 77

bench-quick: $(B)/rankfs ## the same in two minutes, with smaller files
	tests/bench.sh --quick

# ---------------------------------------------------------------- the rest
c_files = $(wildcard slicer/*.[ch] slicer/*/*.[ch] fs/*.[ch] cuda/*.cu cuda/*.[ch] tests/unit/*.[ch] tests/kernel/*.[ch] \
	tests/fuzz/*.[ch] tests/stress/*.c tests/cli/*.c tests/bench/*.c)

format: ## show where clang-format would change something
	clang-format --dry-run --Werror $(c_files)

clean: ## remove what was built, but for build/deps
	rm -rf $(MODES:%=build/%)

help: ## this list
	@echo "Targets:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18
	@echo "Variables: MODE=$(subst $() ,|,$(MODES)) CC CFLAGS LDFLAGS DESTDIR PREFIX WERROR=1 V=1"

.PHONY: all deps install uninstall check check-built unit check-mount check-modes check-oracle check-kernel check-gpu check-stress check-fuzz build-fuzz fuzz-targets \
	check-engines layers demo bench bench-gpu bench-ops bench-quick format clean help
