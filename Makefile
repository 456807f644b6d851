# Two commands do everything on a fresh Debian 12 or 13:
#   make run    installs what is missing, builds, serves the bundled model on 127.0.0.1:8080
#   make test   installs what is missing, builds and passes every check
# By distribution: deploy/packages.sh.
PACKAGES := $(shell deploy/packages.sh build)
TEST_PACKAGES := $(shell deploy/packages.sh test)

space := $(subst ,, )
# Counts the steps and the seconds, and is never silent for more than five.
# As many at once as there are cores: a unit of the tests may take 2 GiB.
NINJA := NINJA_STATUS="[%f/%t, %es] " deploy/heartbeat.sh "still building" ninja -j $(shell nproc)
CTEST := deploy/heartbeat.sh "still testing" ctest
MODEL ?= deploy/demo-model/quire-demo.gguf
ARGS ?=
# For the container and the portable archive, on either kind of machine: the target's architecture is this machine's or, from x86-64, arm64.
HERE := $(shell dpkg --print-architecture)
TARGETARCH ?= $(HERE)
NVCC := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
# The compiler cache serves every clone: paths are hashed relative to this folder.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := true
export CCACHE_SLOPPINESS ?= time_macros

.PHONY: run test build build-cuda lint tidy quick check long nightly check-roots check-portable check-portable-cuda asan-units tsan-units asan tsan e2e bench bench-server bench-page hostile fuzz \
  packages test-packages arm64-packages packages-for rootfs \
  fuzz-packages screenshots docs agents release image deb check-deploy check-arm64 \
  check-arm64-short portable portable-cuda clean

run: build
	@deploy/install-packages.sh curl  # for the line that the daemon prints
	@exec build/release/quire serve --model $(MODEL) $(ARGS)

build: packages
	@test -f build/release/build.ninja || cmake --preset release
	@$(NINJA) -C build/release quire

# With the CUDA backend: needs nvcc of CUDA 13. The binary serves on machines without a GPU too.
build-cuda: packages
	@test -f build/cuda/build.ninja || cmake --preset cuda
	@$(NINJA) -C build/cuda quire

# In the order in which a mistake shows soonest.
test: test-packages lint check

# Format, forbidden includes, sizes, header comments.
lint:
	@deploy/heartbeat.sh "still reading" tests/lint/run.sh

# Naming, function length and common mistakes, by clang-tidy: minutes for the whole tree, remembered per unit beside the compiler cache.
tidy: build/check/build.ninja
	@deploy/heartbeat.sh "still checking names" tests/lint/tidy.py build/check

# After a change of one API, of whose test file (tests/server/api/*_test.cpp) it runs the cases: make quick API=chat
API ?= chat
quick:
	@test -f build/dev/build.ninja || cmake --preset dev
	@$(NINJA) -C build/dev quire tests/server_tests
	@build/dev/tests/server_tests --filenames-as-tags '[#$(API)_test]'

check: build/check/build.ninja
	$(NINJA) -C build/check
	$(CTEST) --test-dir build/check --output-on-failure --parallel 2
	@tests/skipped.sh build/check

# The rest of the gate beside the sanitizers: one end-to-end script of each kind of state on a device that completes late, with two steps
# in flight; the emulated GPU; every level of instructions; random shapes of every family; thread rules by Clang's analysis.
long: build/check/build.ninja
	$(NINJA) -C build/check all long_programs
	$(CTEST) --test-dir build/check --output-on-failure --parallel 2 -C long -L '^long$$'
	@tests/skipped.sh build/check

# The gate leaves these out, which take hours: every end-to-end script on the late device and on the emulated GPU, corpora of the fuzzers,
# the kernels as nvcc compiles them, the release, all tests under both sanitizers, arm64 under qemu, hostile load, and the two commands
# and the portable archives in bare roots, that of CUDA where nvcc is.
nightly: build/check/build.ninja
	$(NINJA) -C build/check all long_programs nightly_programs
	$(CTEST) --test-dir build/check --output-on-failure --parallel 2 -C nightly -L '^nightly$$'
	@tests/skipped.sh build/check
	$(MAKE) asan tsan check-arm64 hostile check-roots check-portable $(if $(NVCC),check-portable-cuda)
	$(if $(filter amd64,$(HERE)),$(MAKE) check-portable TARGETARCH=arm64)

# `make run` and `make test` as a newcomer would, in a bare root of each distribution: takes root, the network and an hour.
ROOTS ?= debian-12 debian-13
check-roots: test-packages
	deploy/install-packages.sh debootstrap
	for system in $(ROOTS); do tests/deploy/root.sh $$system build/roots/$$system || exit 1; done

# A portable archive in a bare root of each distribution; under qemu with TARGETARCH=arm64 on x86-64.
PORTABLE_ROOTS ?= debian-11 debian-12 debian-13
check-portable: portable
	$(call in_roots,$(PORTABLE))

check-portable-cuda: portable-cuda
	$(call in_roots,portable-cuda)

define in_roots
	deploy/install-packages.sh debootstrap curl
	for system in $(PORTABLE_ROOTS); do tests/deploy/portable.sh build/$$(. build/$(1)/archive.env; echo $$name).tar.gz $$system build/roots/bare-$$system-$(TARGETARCH) || exit 1; done
endef

# What has parsers and memory under AddressSanitizer and UndefinedBehaviorSanitizer, what has threads under ThreadSanitizer. Of
# models their files' parsers are among the fuzzers; kernels, which take ten minutes, are in `make asan`.
ASAN_UNITS := text_tests grammar_tests engine_tests config_tests server_tests
TSAN_UNITS := engine_tests server_tests
asan-units: build/asan/build.ninja
	$(NINJA) -C build/asan $(ASAN_UNITS) fuzzers
	ctest --test-dir build/asan --output-on-failure --parallel 2 -R '^($(subst $(space),|,$(ASAN_UNITS))|fuzz_.*)$$'

tsan-units: build/tsan/build.ninja
	$(NINJA) -C build/tsan $(TSAN_UNITS)
	ctest --test-dir build/tsan --output-on-failure --parallel 2 -R '^($(subst $(space),|,$(TSAN_UNITS)))$$'

# The same tests under AddressSanitizer and UndefinedBehaviorSanitizer.
asan: build/asan/build.ninja
	$(NINJA) -C build/asan
	ctest --test-dir build/asan --output-on-failure --parallel 2

# ThreadSanitizer over what has threads: engine, server, and the whole program.
tsan: build/tsan/build.ninja
	$(NINJA) -C build/tsan quire engine_tests server_tests e2e_scripts
	ctest --test-dir build/tsan --output-on-failure --parallel 2 --label-regex threads

build/fuzz/build.ninja: | fuzz-packages

fuzz-packages:
	@deploy/install-packages.sh clang-16

build/%/build.ninja: | test-packages
	cmake --preset $*

packages:
	@deploy/install-packages.sh $(PACKAGES)

test-packages:
	@deploy/install-packages.sh $(PACKAGES) $(TEST_PACKAGES)
	@command -v node >/dev/null && command -v npm >/dev/null || deploy/install-packages.sh nodejs npm

# Cross build for arm64 and the operation tests on every level of it, under qemu. The short form, of what has the bits of another level,
# is for continuous integration.
ARM64_PROGRAMS := kernel_tests text_tests grammar_tests model_tests engine_tests config_tests server_tests
ARM64_SHORT := arm64_kernels|isa_symbols|arm64_counts
arm64-packages: packages
	@deploy/install-packages.sh $(shell deploy/packages.sh cross)
	@deploy/arm64/sysroot.sh build/arm64-root $(shell deploy/packages.sh arm64)

build/arm64/build.ninja: | test-packages arm64-packages
	cmake --preset arm64

check-arm64-short: build/arm64/build.ninja
	$(NINJA) -C build/arm64 kernel_tests count_product
	ctest --test-dir build/arm64 --output-on-failure --parallel 2 -R '^($(ARM64_SHORT))$$'

# Every test program under qemu, a daemon whose texts are compared with this machine's, and the Debian package.
check-arm64: build/arm64/build.ninja build
	$(NINJA) -C build/arm64 $(ARM64_PROGRAMS) count_product quire quire_pages
	ctest --test-dir build/arm64 --output-on-failure --parallel 2 -R '^($(ARM64_SHORT)|$(subst $(space),|,$(ARM64_PROGRAMS)))$$'
	tests/arm64/texts.py build/release/quire build/arm64/quire build/arm64-root
	cpack --config build/arm64/CPackConfig.cmake -B build

ROOTFS ?= build/rootfs
ifeq ($(TARGETARCH),$(HERE))
packages-for: packages
rootfs: build
	strip -o build/quire-$(TARGETARCH) build/release/quire
	deploy/container/collect-rootfs.sh build/quire-$(TARGETARCH) $(ROOTFS)
else
packages-for: arm64-packages
rootfs: arm64-packages
	@test -f build/arm64-release/build.ninja || cmake --preset arm64-release
	@$(NINJA) -C build/arm64-release quire
	aarch64-linux-gnu-strip -o build/quire-$(TARGETARCH) build/arm64-release/quire
	deploy/container/collect-rootfs.sh build/quire-$(TARGETARCH) $(ROOTFS) build/arm64-root
endif

# build/quire-VERSION-linux-ARCH.tar.gz: one binary that needs glibc 2.34 and nothing else, its licences, install.sh. TARGETARCH=arm64 makes
# that of arm64 on x86-64.
PORTABLE := $(if $(filter $(HERE),$(TARGETARCH)),portable,portable-arm64)
portable: packages-for
	$(call archive,$(PORTABLE))

# build/quire-VERSION-linux-ARCH-cuda.tar.gz: with the CUDA backend and CUDA's runtime; the driver is loaded where there is one. Needs nvcc of
# CUDA 13.
portable-cuda: packages
	$(call archive,portable-cuda)

define archive
	@deploy/install-packages.sh $(shell deploy/packages.sh portable)
	@test -f build/$(1)/build.ninja || cmake --preset $(1)
	@$(NINJA) -C build/$(1) quire quire_pages
	deploy/portable/archive.sh build/$(1) build
endef

# build/quire_*.deb
deb: build
	@$(NINJA) -C build/release quire_pages
	cpack --config build/release/CPackConfig.cmake -B build

# Operations and whole models against what this machine can do; models are made in build/bench. Takes minutes.
bench: build
	tests/bench/run.sh build/release/quire build/bench

# The server's own figures: connections, streams, overhead, time to ready. With BEFORE=BUILD, the build folder of an older commit in
# which these targets were built: both in turns, and their ratios.
bench-server: build/measure/build.ninja
	$(NINJA) -C build/measure quire bench_server bench_daemon
	$(if $(BEFORE),tests/bench/server_ratios.py $(BEFORE) build/measure,tests/bench/server.sh build/measure build/bench)

# Hostile load under AddressSanitizer, then checks of what it left.
MINUTES ?= 30
hostile: build/asan/build.ninja
	$(NINJA) -C build/asan quire
	node tests/stress/hostile.mjs --binary build/asan/quire --minutes $(MINUTES) --patience 20 --growth 1.05

# Every fuzz target with libFuzzer, from its committed corpus; what it finds new stays in build/fuzz.
SECONDS ?= 60
fuzz: build/fuzz/build.ninja
	$(NINJA) -C build/fuzz fuzzers
	tests/fuzz/run.sh build/fuzz $(SECONDS)

# What takes root, the network and minutes: the chart rendered, the container image built and run.
check-deploy: test-packages build
	deploy/install-packages.sh buildah debootstrap qemu-user-static golang-go golang-github-masterminds-sprig-dev golang-github-ghodss-yaml-dev
	tests/deploy/helm.sh build/release/quire
	deploy/container/check-image.sh

# The pictures in the documents, of the page with the bundled model. Takes a minute and a half.
screenshots: build/check/build.ninja
	$(NINJA) -C build/check quire e2e_scripts
	cd build/check/tests/e2e && npm ci --no-audit --no-fund --omit=optional --prefer-offline && \
	  QUIRE_BINARY=$(CURDIR)/build/check/quire QUIRE_MODEL=$(CURDIR)/$(MODEL) node page/screenshots.mjs $(CURDIR)/deploy/docs/images

# First paint, and a conversation of 2,000 messages, in Chromium.
bench-page: build/check/build.ninja
	$(NINJA) -C build/check quire e2e_scripts
	cd build/check/tests/e2e && npm ci --no-audit --no-fund --omit=optional --prefer-offline && \
	  QUIRE_BINARY=$(CURDIR)/build/check/quire QUIRE_MODEL=$(CURDIR)/$(MODEL) node page/page_bench.mjs

# Coding agents, unmodified, in scripted sessions: their packages are a gigabyte.
agents: build/check/build.ninja
	ninja --quiet -C build/check quire_scripted e2e_scripts
	mkdir -p build/check/tests/e2e/agents
	cp tests/e2e/agents/*.mjs tests/e2e/agents/package*.json build/check/tests/e2e/agents
	cd build/check/tests/e2e/agents && npm install --no-package-lock --no-audit --no-fund --prefer-offline && QUIRE_SCRIPTED=$(CURDIR)/build/check/tests/quire-scripted \
	  QUIRE_MODEL=$(CURDIR)/deploy/demo-model/quire-demo.gguf node --test agents.test.mjs

# The guide as a site: build/docs/index.html. Fails on a dead link.
docs:
	@deploy/install-packages.sh mkdocs mkdocs-material python3
	python3 deploy/site/build.py build/docs

# build/release-VERSION: archives of the source and of the portable binary (from x86-64 that of arm64 too, with nvcc that of CUDA), Debian
# package, image where buildah or docker is, chart, SBOMs, checksums, notes. FILES: further ones, such as the package that `make deb` makes
# on Debian 13.
RELEASED := portable $(if $(filter amd64,$(HERE)),portable-arm64) $(if $(NVCC),portable-cuda)
release: deb portable $(if $(NVCC),portable-cuda)
	$(if $(filter amd64,$(HERE)),$(MAKE) portable TARGETARCH=arm64)
	PORTABLE="$(addprefix build/,$(RELEASED))" deploy/release/release.sh build/release "" $(FILES)

# The container image; needs Docker. `make check-deploy` builds and runs it without.
image:
	docker build -t quire .

clean:
	rm -rf build
