# The commands people type. CMake does the work: see CMakePresets.json for what each preset means.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
PYTHON := .venv/bin/python

.PHONY: all build setup setup-run run test test-all replay replay-list test-long test-serving test-ray wheel site asan ubsan tsan fuzz aarch64 format tidy clean
all: build

setup:                ## install what is missing: Debian packages, and Python packages into .venv
	@scripts/setup.sh

build:                ## the library, the command, the Python package and the tests, in build/release
	@scripts/setup.sh configure
	@scripts/setup.sh & setup=$$!; scripts/build.sh release $(JOBS) || { wait; exit 1; }; wait $$setup

setup-run:            ## install what `make run` needs and nothing else
	@scripts/setup.sh run

run:                  ## classify the pictures in examples/digits; print accuracy, the plan, and the time beside ONNX Runtime's
	@scripts/setup.sh compile
	@scripts/setup.sh run & setup=$$!; scripts/build.sh release $(JOBS) octavo_command || { wait; exit 1; }; wait $$setup && scripts/run_demo.sh build/release

test: build           ## every test except the long ones
	@scripts/run_tests.sh build/release $(JOBS)

test-all: build       ## every stage that this machine can run: serving, Ray, exports, wheels in a bare root, sanitizers, long fuzz, GPU programs; goes on where it stopped; ONLY=ray,exports chooses, AGAIN=1 repeats
	@scripts/test_all.sh --jobs $(JOBS) $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)

test-long: build      ## long fuzzing: the C++ tests, 100000 hostile ONNX files under sanitizers, 40000 graphs of placement fuzz; then the Python package's tests
	@scripts/test_long.sh build/release $(JOBS)

test-serving: build   ## every test of octavo serve, the long ones too, with what octavo[serve] asks for alone (in build/serving-venv)
	@scripts/test_serving.sh build/release

replay: build         ## what commit BASE and this tree make of the same networks: plans, tactics, constants, generated code, GPU texts
	@$(PYTHON) scripts/replay.py --base $(or $(BASE),$(error say which commit to compare with: make replay BASE=COMMIT)) --jobs $(JOBS)

replay-list: build    ## write tests/replay.txt anew, after a change of plans or kernels that is intended
	@$(PYTHON) scripts/replay.py --list tests/replay.txt --write

asan ubsan: setup     ## the C++ tests under a sanitizer
	@scripts/build.sh $@ $(JOBS)
	@scripts/run_tests.sh build/$@ $(JOBS)

tsan: setup           ## the tests of modules that have threads, under ThreadSanitizer
	@scripts/build.sh $@ $(JOBS) test_engine test_api
	@scripts/run_tests.sh build/$@ $(JOBS) -L '^(engine|api)$$'

aarch64: setup        ## the portable path cross-compiled for 64-bit Arm, its tests under qemu
	@scripts/aarch64.sh $(JOBS) all

fuzz: setup           ## libFuzzer (needs clang 14): two minutes for each kind of file; FUZZ_SECONDS=n changes that
	@JOBS=$(JOBS) scripts/fuzz.sh $(or $(FUZZ_SECONDS),120)

format:               ## clang-format over every C++ file
	@git ls-files '*.cc' '*.h' | xargs clang-format -i

tidy: build           ## clang-tidy over the library
	@git ls-files 'src/*.cc' | xargs clang-tidy -p build/release --quiet

test-ray: build       ## octavo.ray with Ray (in build/ray-venv): a cluster of several nodes that loses one, a deployment
	@scripts/test_ray.sh build/release

site: build           ## the documentation as web pages, with references made from the commands, docstrings and header: build/site/site
	@scripts/site.sh build/release

wheel: setup          ## the Python wheel and the source distribution, in dist/
	@JOBS=$(JOBS) scripts/wheel.sh

clean:
	rm -rf build
