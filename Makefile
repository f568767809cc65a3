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
all_cflags = -std=gnu11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. -fPIE $(warnings) $($(MODE)_MODE) -MMD -MP \
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
thread_libs := -pthread

# CUDA: compiled in when there are kernels and a compiler for them; the runtime is linked statically, so the same
# binary runs on machines with and without a driver.
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
cuda_src := $(wildcard cuda/*.cu)
ifneq ($(and $(NVCC),$(cuda_src),$(filter-out fuzz,$(MODE))),)
cuda_obj  := $(cuda_src:%.cu=$(B)/%.cu.o)
cuda_arch := $(foreach sm,80 89 90 100,-gencode arch=compute_$(sm),code=sm_$(sm))
cuda_libs := -L$(dir $(NVCC))../lib64 -lcudart_static -ldl -lrt
nvcc_flags := -std=c++17 -O2 -I. $(cuda_arch) -Xcompiler -fPIE,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
endif
fs_cuda := -DHAVE_CUDA=$(if $(cuda_obj),1,0)

# ---------------------------------------------------------------- what is made
slicer_src := $(wildcard slicer/*.c slicer/arch/*.c)
fs_src     := $(wildcard fs/*.c)
unit_src   := $(wildcard tests/unit/*.c)
fuzz_src   := $(wildcard tests/fuzz/fuzz_*.c)

slicer_obj := $(slicer_src:%.c=$(B)/%.o)
fs_obj     := $(fs_src:%.c=$(B)/%.o)
unit_obj   := $(unit_src:%.c=$(B)/%.o)
fuzz_obj   := $(fuzz_src:%.c=$(B)/%.o)
fuzz_bin   := $(fuzz_src:tests/fuzz/%.c=$(B)/%)

all: $(B)/rankfs ## build rankfs (the default)

$(B)/rankfs: $(fs_obj) $(cuda_obj) $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -o $@ $^ $(fuse_libs) $(slicer_libs) $(cuda_libs) $(thread_libs)

$(B)/libslicer.a: $(slicer_obj)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# What of fs/ needs no FUSE can be tested without: the linker takes from this archive what the tests name, and the
# unit tests are not linked with libfuse.
$(B)/libfs.a: $(filter-out $(B)/fs/main.o,$(fs_obj))
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/unit: $(unit_obj) $(B)/libfs.a $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -o $@ $^ -lcriterion $(slicer_libs) $(thread_libs)

$(fuzz_bin): $(B)/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(B)/libslicer.a
	$(say) LINK $@
	$(Q)$(CC) $(all_ldflags) -fsanitize=fuzzer -o $@ $^ $(slicer_libs)

fuzz-targets: $(fuzz_bin)

$(fs_obj): $(wildcard build/deps/libfuse/stamp)
$(B)/fs/%.o: private all_cflags += $(fuse_cflags) $(fs_cuda) -DRANKFS_VERSION='"$(version)"'
$(B)/%.o: %.c
	$(say) CC $@
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(all_cflags) -c -o $@ $<

$(B)/%.cu.o: %.cu
	$(say) NVCC $@
	$(Q)mkdir -p $(@D)
	$(Q)$(NVCC) $(nvcc_flags) -MMD -MP -c -o $@ $<

-include $(patsubst %.o,%.d,$(slicer_obj) $(fs_obj) $(unit_obj) $(fuzz_obj) $(cuda_obj))

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
asan_tests   := $(foreach t,$(cli_tests) $(mount_tests),"env RANKFS=$(abspath build/asan/rankfs) $(t)")
# Criterion's own workers leak when several run at once (2.4, 48 bytes a worker): one where leaks are looked for.
unit_tests    = "$(B)/unit$(if $(filter asan,$(MODE)), --jobs 1)"
layer_tests   = "tests/layers.sh $(B)/libslicer.a $(B)/unit"
oracle_tests := "$(PYTHON) tests/oracle/check.py" "$(PYTHON) tests/oracle/engines.py" "$(PYTHON) tests/together.py"

check: deps ## install what is missing, build all modes, run every test
	$(MAKE) check-built

# A make of its own: what `deps` has installed changes what this file finds.
check-built: $(B)/rankfs $(B)/unit build-fuzz
	$(MAKE) MODE=asan build/asan/rankfs build/asan/unit
	tests/run.sh $(layer_tests) build/release/unit "build/asan/unit --jobs 1" $(fuzz_tests) $(cli_tests) $(mount_tests) \
		$(asan_tests) $(oracle_tests)

unit: $(B)/unit ## unit tests (MODE=asan for the sanitizers)
	tests/run.sh $(unit_tests)

check-mount: $(B)/rankfs ## the command line, and what a mount shows; needs /dev/fuse
	tests/run.sh $(cli_tests) $(mount_tests)

check-oracle: $(B)/rankfs ## compare every tensor with what the real engine holds
	tests/run.sh $(oracle_tests)

check-fuzz: build-fuzz ## each fuzz target over its corpus, then 20 s of new inputs (FUZZ_SECONDS)
	tests/run.sh $(fuzz_tests)

build-fuzz:
	@! command -v $(CLANG) >/dev/null || $(MAKE) MODE=fuzz fuzz-targets

check-engines: $(B)/rankfs ## load the views into vLLM, transformers, safetensors and numpy (6 GB of packages, once)
	tests/engines/check.sh

layers: $(B)/libslicer.a $(B)/unit ## prove that the slicer needs no FUSE, CUDA or thread, and prints nothing
	tests/run.sh $(layer_tests)

demo: deps ## mount a small checkpoint and show what is in it
	$(MAKE) all
	tests/demo.sh

bench: $(B)/rankfs ## measure the mount against plain files
	tests/bench.sh

bench-quick: $(B)/rankfs ## the same in a minute, with smaller files
	tests/bench.sh --quick

# ---------------------------------------------------------------- the rest
c_files = $(wildcard slicer/*.[ch] slicer/arch/*.[ch] fs/*.[ch] cuda/*.cu cuda/*.[ch] tests/unit/*.[ch] \
	tests/fuzz/*.[ch])

format: ## show where clang-format would change something
	clang-format --dry-run --Werror $(c_files)

clean: ## remove what was built, but for build/deps
	rm -rf $(MODES:%=build/%)

help: ## this list
	@echo "Targets:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18
	@echo "Variables: MODE=$(subst $() ,|,$(MODES)) CC CFLAGS LDFLAGS DESTDIR PREFIX WERROR=1 V=1"

.PHONY: all deps install uninstall check check-built unit check-mount check-oracle check-fuzz build-fuzz fuzz-targets \
	check-engines layers demo bench bench-quick format clean help
