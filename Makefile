# SPDX-License-Identifier: Apache-2.0
# One word per chore. PRESET=release|ci|debug|asan|tsan|cuda chooses the build, ARGS goes to the program that runs.
PRESET ?= release
SETUP ?= tools/setup
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
BUILD := build/$(PRESET)
# A first `make run` builds what it runs and no more, a first `make test` builds as `.ci/run` does, in the least time; where
# there is a build already, it is used.
unless_built = $(if $(filter release,$(PRESET)),$(if $(wildcard $(BUILD)/build.ninja),release,$(1)),$(PRESET))
RUN := $(call unless_built,run)
TEST := $(call unless_built,ci)
.DEFAULT_GOAL := help
.PHONY: help setup build run install test soak fuzz bench bench-build bench-gpu format lint docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what the build needs (Debian)
	@$(SETUP)

# Ninja configures again by itself when a CMake file changes.
build/%/build.ninja: CMakePresets.json | setup
	@cmake --preset $*

build: setup $(BUILD)/build.ninja ## Configure and build
	@cmake --build --preset $(PRESET) -j $(JOBS)

run: setup build/$(RUN)/build.ninja ## Train the example on Fashion-MNIST: make run ARGS="--epochs 1"
	@cmake --build --preset $(RUN) -j $(JOBS) --target fashion_mnist tp
	@build/$(RUN)/examples/fashion_mnist $(ARGS)

install: setup build/$(RUN)/build.ninja ## Install the library, its headers and tp: make install PREFIX=/usr/local
	@cmake --build --preset $(RUN) -j $(JOBS) --target tensorpack tp tp-model
	@cmake --install build/$(RUN) --prefix "$(PREFIX)"

test: SETUP += --test
test: setup build/$(TEST)/build.ninja ## Run the tests: make test LABEL=unit, make test LABEL=slow
	@cmake --build --preset $(TEST) -j $(JOBS) --target tensorpack_tests $(if $(filter slow,$(LABEL)),tensorpack_slow_tests)
	@ctest --preset $(TEST) $(if $(LABEL),-L '$(LABEL)',-LE slow)
	@$(if $(LABEL),:,ctest --preset $(TEST) -N -L slow | sed -n 's/^Total Tests: \(.*\)/\1 slow tests left out: make test LABEL=slow/p')

soak: SETUP += --test
soak: build ## Kill and resume trainings: make soak, or make soak ARGS="--kills 200"
ifdef ARGS
	@OMP_NUM_THREADS=1 $(BUILD)/tests/train/soak $(ARGS)
else
	@OMP_NUM_THREADS=1 $(BUILD)/tests/train/soak --small --kills 200
	@OMP_NUM_THREADS=1 $(BUILD)/tests/train/soak --ranks 2 --kills 50
	@OMP_NUM_THREADS=1 $(BUILD)/tests/train/soak --ranks 32 --kills 2
endif

fuzz: SETUP += --test
fuzz: setup $(BUILD)/build.ninja ## Have libFuzzer look for files that readers get wrong, a minute each: make fuzz ARGS=10
	@cmake --preset $(PRESET) >/dev/null  # libFuzzer may be newer than the build
	@cmake --build --preset $(PRESET) -j $(JOBS) --target fuzz
	@tests/fuzz/fuzz_readers $(BUILD)/tests/fuzz/fuzz $(or $(ARGS),60)

bench: SETUP += --bench
bench: build ## Run the benchmarks: make bench ARGS="--filter engine/"
	@$(BUILD)/benchmarks/bench --json build/bench.json $(ARGS)

bench-build: SETUP += --test
bench-build: setup build/$(TEST)/build.ninja ## Measure how long users and contributors wait for the compiler
	@cmake --build --preset $(TEST) -j $(JOBS) --target fashion_mnist test_graph tp
	@tools/bench_build $(TEST)

bench-gpu: build ## Run the benchmarks on a GPU: make bench-gpu PRESET=cuda ARGS="--filter gpu/resnet50"
	@TENSORPACK_BENCH_PYTHON=$${TENSORPACK_BENCH_PYTHON:-python3} \
	  $(BUILD)/benchmarks/gpu/bench_gpu --json build/bench-gpu.json $(ARGS)

format: ## Format the sources
	@tools/format

lint: setup ## Run clang-tidy on the files changed since BASE (default: main)
	@tools/lint $(BASE)

docs: ## Build the API reference into build/docs
	@command -v doxygen >/dev/null || { echo "doxygen is missing: apt-get install doxygen"; exit 1; }
	@mkdir -p build && doxygen docs/Doxyfile && echo "build/docs/html/index.html"

clean: ## Remove every build
	@rm -rf build
