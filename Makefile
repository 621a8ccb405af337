# This is not the build system (that is CMake), only a helper that runs the usual commands. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup build build-tests demo test test-interpreted test-fast test-all test-random test-cpp-package test-releases test-release test-libraries test-pjrt test-compilers fuzz lint format bench dev wheel test-wheel sdist asan tsan ubsan clean

export PATH := $(CURDIR)/.venv/bin:$(PATH)
CPP := $(shell find include src tests bench tools examples -name '*.cpp' -o -name '*.h')

help:
	@echo "Commands (demo and test set up everything they need on Debian 12; each later run starts in seconds):"
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

setup:
	@tools/setup.sh

build: setup
	@test -f build/release/build.ninja || cmake --preset release
	@cmake --build --preset release
	@tools/setup.sh link

build-tests: build
	@cmake --build --preset release-tests

demo: build ## train the digit classifier on the device `xla`
	python examples/train_digits.py

test: build-tests ## all tests: C++, then Python in two processes, then what compares values once more, interpreted
	ctest --preset release
	python -m pytest -n 2 --times build/test_times/python.txt
	@$(MAKE) --no-print-directory test-interpreted
	@echo "The slowest test files (all: build/test_times/), in seconds of their processes:"
	@sort -rn build/test_times/*.txt | head -12

# Small programs as they run at first (docs/decisions/programs.md): the tests compile all others at once.
INTERPRETED := $(addprefix tests/python/test_,$(addsuffix .py,ops forms modules model_zoo optimizers foreach half_products indexing strides image_order attention rnn composed running_sums))
test-interpreted: build ## what compares values with eager's, interpreted
	XLA_INTERPRETED_OPERATIONS=1000000000 python -m pytest -n 2 --times build/test_times/interpreted.txt tests/fuzz $(INTERPRETED)

test-fast: build-tests ## the C++ tests and the Python tests not marked slow, up to the first failure
	ctest --preset release
	python -m pytest -x -m "not slow"

test-all: build-tests ## the tests with all types and samples of PyTorch's databases of operators, modules and optimizers (SHARD=i/n: a part)
	ctest --preset release
	python -m pytest -n 2 --whole $(if $(SHARD),--shard $(SHARD))

test-random: build-tests ## the Python tests in a random order, which it tells (SEED=n repeats one)
	python -m pytest -n 2 --shuffle=$(or $(SEED),$$(date +%s))

test-releases: setup ## all tests on each release of PyTorch (RELEASES="2.13.0 2.14.1=/path/to/python": these, in environments that are there)
	@tools/run_release_tests.py $(or $(RELEASES),2.13.0 2.14.1 2.15.0) || [ $$? = 77 ]

test-release: setup ## the tests on one release of PyTorch (RELEASE=2.14.1; SHARD=i/n: a part of the Python tests alone, TESTS=...: these)
	@tools/run_release_tests.py $(RELEASE) $(if $(SHARD),--shard $(SHARD)) $(if $(TESTS),--tests "$(TESTS)") || [ $$? = 77 ]

test-libraries: build ## programs of lightning, accelerate, transformers, diffusers, torchao, torchvision and JAX, in environments of their own (fetches them once)
	@TORCH_DEVICE_BACKEND_AUTOLOAD=0 python tools/setup_libraries.py || [ $$? = 77 ]
	python -m pytest tests/libraries

test-cpp-package: build ## C++ programs without Python, among them examples/cpp, against an installed wheel
	tools/test_cpp_package.sh

# The tests are mostly compilation: opt level 0. No disk cache: they count compiled programs. Few
# programs kept: XLA's CPU client maps memory for each, and ends the process where the system has no more mappings.
test-pjrt: build-tests ## the C++ tests and a spread of the Python tests on a PJRT plugin, XLA's CPU client of 4 devices (fetches wheels, 126 MB, once; CPU_WHEEL=fastatomstruct-xla-cpu or xla-cpu-pjrt: another; WHOLE=1: all, SHARD=i/n: a part)
	@plugin=$$(tools/compilers/wheels.py $(CPU_WHEEL)) && tools/compilers/wheels.py --header >/dev/null || { code=$$?; [ $$code = 77 ] && echo "test-pjrt: skipped for the reason above" && exit 0; exit $$code; }; \
	export XLA_TEST_PJRT_PLUGIN=$$plugin XLA_PERSISTENT_CACHE_PATH= XLA_COMPILATION_CACHE_SIZE=512 TF_CPP_MIN_LOG_LEVEL=3 \
		XLA_FLAGS=--xla_backend_optimization_level=0 && \
	cmake --preset release >/dev/null && cmake --build --preset release-tests && \
	build/release/tests/cpp/torch_xla_tests --gtest_filter='Pjrt*:FakeClient*:StableHlo*:*PluginRows*' && \
	PJRT_DEVICE=LIBRARY PJRT_LIBRARY_PATH=$$plugin PJRT_LIBRARY_OPTIONS=cpu_device_count=1 python -m pytest -n 2 $(if $(WHOLE),--whole) $(if $(SHARD),--shard $(SHARD)) tests/fuzz tests/python

test-compilers: build-tests ## compile all rows and models for TPU v5e and v6e, NVIDIA H100, Tenstorrent n150 and the CPU, and a step on a mesh of TPUs, without that hardware (fetches wheels, 410 MB, once; SHARD=i/n: a part; PAGE=1: write docs/accelerators.md)
	@PYTHONPATH=tools python -m compilers $(if $(SHARD),--shard $(SHARD)) $(if $(PAGE),--page docs/accelerators.md) || { code=$$?; [ $$code = 77 ] && echo "test-compilers: skipped for the reason above" && exit 0; exit $$code; }
	@plugin=$$(tools/compilers/wheels.py libtpu) || { code=$$?; [ $$code = 77 ] && exit 0; exit $$code; }; PYTHONPATH=$${plugin%/libtpu/*} python -m pytest -q tests/python/test_compile_only.py -k tpu

fuzz: build ## random programs of every kind against PyTorch eager, with fusion on and off, in pieces, then from disk (PROGRAMS=1000 of each kind)
	python -m tests.fuzz.check --programs $(or $(PROGRAMS),1000)
	python -m tests.fuzz.check --programs $(or $(PROGRAMS),1000) --syncs --deterministic --fusion on
	python -m tests.fuzz.check --programs $(or $(PROGRAMS),1000) --disk

lint: setup ## formatters in check mode, ruff, codespell, direction of includes, names of operations, sizes, words, pages
	@clang-format-19 --dry-run -Werror $(CPP)
	ruff check .
	ruff format --check .
	codespell
	tools/check_includes.py
	tools/check_names.py
	tools/check_sizes.py
	tools/check_words.py
	tools/check_pages.py

format: setup ## format all C++ and Python files
	@clang-format-19 -i $(CPP)
	ruff check --fix --exit-zero .
	ruff format .

bench: build ## this device beside PyTorch eager, torch.compile and (after make test-libraries) JAX: writes docs/performance.md and docs/growth.md
	cmake --build --preset release --target record_bench
	build/release/bench/record_bench
	python bench/compare.py --busy 0,2 --page docs/performance.md
	python bench/growth.py --page docs/growth.md

dev: build ## build in place, so that `import torch_xla` in .venv uses this source tree
	@echo "ready: . .venv/bin/activate"

# RELEASES: interpreters with a release of torch each, or names of releases that test-releases has environments for (else .venv's); PYTHONS: interpreters,
# or folders of their headers (else those that are found). docs/packaging.md has an example.
wheel: setup ## one wheel for several releases of torch and Pythons into dist/ (RELEASES="env/bin/python ..." PYTHONS="python3.12 include/python3.13 ...")
	python tools/make_wheel.py $(if $(RELEASES),--releases $(RELEASES)) $(if $(PYTHONS),--pythons $(PYTHONS))

test-wheel: setup ## the wheel in dist/, installed into bare environments and unpacked systems (RELEASES as for wheel, ROOTS="folder ...")
	python tools/test_wheel.py $(if $(RELEASES),--releases $(RELEASES)) $(if $(ROOTS),--roots $(ROOTS))

sdist: setup ## the sources as an archive for pip into dist/
	python -m build --sdist --no-isolation --outdir dist .

# Python, and the processes that it starts, with a build that is not the one in place.
STAGED = PYTHONPATH=$(CURDIR)/build/$@/stage:$(CURDIR)/tools/staged

asan: setup ## the C++ tests and a short training run under AddressSanitizer
	@test -f build/asan/build.ninja || cmake --preset asan
	@cmake --build --preset asan
	ctest --preset asan
	cmake --install build/asan --prefix build/asan/stage >/dev/null
	$(STAGED) LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0 python examples/train_digits.py --epochs 1

THREADED := Executor*:EnginePool*:Metrics*:*Threads*:SeveralDevices*:Beside*

tsan: setup ## the C++ and Python tests with threads under ThreadSanitizer
	@test -f build/tsan/build.ninja || cmake --preset tsan
	@cmake --build --preset tsan
	TSAN_OPTIONS=suppressions=tests/tsan.supp build/tsan/tests/cpp/torch_xla_tests --gtest_filter='$(THREADED)'
	cmake --install build/tsan --prefix build/tsan/stage >/dev/null
	PYTHONSAFEPATH=1 $(STAGED) LD_PRELOAD="$$(g++ -print-file-name=libtsan.so) $$(g++ -print-file-name=libstdc++.so)" \
	  TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp:die_after_fork=0 python -c \
	  "import pytest, sys, torch_xla; assert 'tsan' in torch_xla.__file__; sys.exit(pytest.main(['tests/python/test_threads.py', 'tests/python/test_torchscript.py', '-k', 'threads and not loader_processes']))"

ubsan: setup ## the C++ tests under UndefinedBehaviorSanitizer
	@test -f build/ubsan/build.ninja || cmake --preset ubsan
	@cmake --build --preset ubsan
	ctest --preset ubsan

clean: ## remove everything built; .venv stays
	rm -rf build dist torch_xla/include torch_xla/lib torch_xla/share
