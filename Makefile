# Every command a developer needs; `make` alone lists them. Needs Python 3.11 or newer and nothing else:
# what the targets use is installed into .venv, or with PYTHON=python3.13 into .venv-3.13, from hashed locks.

PYTHON ?= python3
ARGS ?=
LOAD ?= 8

# A test run starts dozens of servers: where the bytecode of our modules may not be kept, each compiles it anew.
export PYTHONDONTWRITEBYTECODE :=

# .venv is the environment of python3, and an interpreter of another version has one of its own. If there is a .venv, its
# version is compared: python3 is the other one where the other environment is active. An interpreter that does not run
# has no version, and is named by the recipe that needs it.
version_of = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
environment := .venv
ifneq ($(PYTHON),python3)
version := $(call version_of,$(PYTHON))
ifneq ($(version),$(call version_of,$(or $(wildcard .venv/bin/python),python3)))
environment := .venv-$(or $(version),$(notdir $(PYTHON)))
endif
endif
run := $(environment)/bin/python
# uv does not read pip's configuration: without an index of its own, it gets pip's (of the environment, else of a file).
pip_index = $(run) -m pip config list | sed -nE "s/^(:env:|global)\.index-url='(.*)'/\2/p" | head -n 1
uv = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$($(pip_index))}" $(environment)/bin/uv
# Where uv is killed it leaves packages in part, and takes them for complete later: .venv then lacks the stamp of uv, and is
# made anew. Where uv fails (status 1 or 2) it has changed nothing. The stamp is moved, since it keeps its time so.
install = mv $(venv_uv) $(environment)/.unfinished; $(uv) pip install --quiet --python $(run) $(1); status=$$?; \
	[ $$status -gt 2 ] || mv $(environment)/.unfinished $(venv_uv); exit $$status
# A file's tests stay in one process, so that what they share is made once, and those files begin first that take longest
# (tests/conftest.py). Many wait, so two processes more than there are processors; more than 4 would wait for one long file.
in_parallel = -n $(shell $(PYTHON) -c 'import os; print(min(4, 2 + (os.cpu_count() or 1)))') --dist loadfile --no-loadscope-reorder
hours := --timeout 3600

# An environment is up to date when it holds the stamp of what it was made from and of its path:
# contents, not times, so that a fresh clone, a switch of branches and a moved folder are all noticed.
# .venv has three, each for what the one before it lacks: uv, the server, everything.
stamp = $(1)-$(shell (pwd && cat $(2) 2>/dev/null) | cksum | cut -d ' ' -f 1)
venv_uv := $(call stamp,$(environment)/.uv,requirements/uv.txt)
venv_server := $(call stamp,$(environment)/.server,requirements/server.txt requirements/build.txt pyproject.toml client/shardcall/_version.py)
venv := $(call stamp,$(environment)/.dev,requirements/dev.txt)
venv_release := $(call stamp,.venv-release/.made-from,requirements/release.txt)
venv_docs := $(call stamp,.venv-docs/.made-from,requirements/docs.txt pyproject.toml)
venv_protos := $(call stamp,.venv-protos/.made-from,requirements/protos.txt)
node_modules := $(call stamp,protos/node_modules/.made-from,protos/package-lock.json)
node_example := $(call stamp,examples/node/node_modules/.made-from,examples/node/package-lock.json)

.DEFAULT_GOAL := help
.PHONY: help demo cluster-demo notebooks test test-docker test-long test-coverage test-under-load test-all test-hosts test-numpy test-array-api accuracy gpu fuzz mutants soak lint lint-protos buf node-example format bench bench-kernels bench-peers bench-transfer bench-calls bench-heat bench-first-calls bench-traced bench-programs bench-hosts bench-attacks functions docs protos lock release clean venv venv-docs venv-protos

help: ## list the commands
	@echo 'Start with make demo. All commands:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F '|' '{ printf "%-22s %s\n", $$1, $$2 }'

demo: $(venv_server) ## start a private server of 8 devices, ask it the first question, compare with NumPy
	@$(environment)/bin/shardcall demo $(ARGS)
	@printf '\nNext: source $(environment)/bin/activate, and go on with docs/quickstart.md\n'

cluster-demo: ## make one mesh of four containers, ask it the first question, kill one (needs Docker alone)
	@$(PYTHON) deploy/cluster_demo.py

notebooks: $(venv) ## execute the notebooks of examples/notebooks and write their outputs into them
	@$(run) examples/notebooks/execute.py $(ARGS)

test: $(venv) ## run the tests, without the long ones
	@echo 'Testing (make test-all adds the long files; ARGS="-k name" picks some)'
	@$(run) -m pytest $(in_parallel) -m 'not long' $(ARGS)

test-docker: $(venv) ## run the tests of the container and of the cluster (needs Docker)
	@$(run) -m pytest tests/project -n 0 -m docker $(ARGS)

test-long: $(venv) ## run the long tests (ARGS="tests/kernels" picks some, PART=3/40 one of 40 parts)
	@$(run) -m pytest $(in_parallel) -m 'long and not docker and not soak and not fuzz' $(hours) $(if $(PART),--part $(PART)) $(ARGS)

test-under-load: $(venv) ## run the tests beside 8 busy loops (LOAD=20 for more)
	@echo 'Testing beside $(LOAD) busy loops'
	@trap 'kill $$loops' EXIT; for i in $$(seq $(LOAD)); do (while :; do :; done) & loops="$$loops $$!"; done; \
	$(run) -m pytest $(in_parallel) -m 'not long' $(ARGS)

test-coverage: $(venv) ## run the tests, without the long ones, and name modules of which they run few lines in any process
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; chmod 1777 "$$folder"; status=0; \
	$(run) -m coverage run --data-file="$$folder/data" -m pytest $(in_parallel) -m 'not long' $(ARGS) || status=$$?; \
	$(run) tests/module_coverage.py "$$folder/data" && exit $$status

test-all: ## run every test: test-docker, test-long and test-coverage
	@$(MAKE) --no-print-directory test-docker
	@$(MAKE) --no-print-directory test-long
	@$(MAKE) --no-print-directory test-coverage

# Each process of the tests has a cluster of its own: one for each processor is enough. The long tests add shapes and
# layouts, which make test-all computes on one host: across hosts every call takes some 50 ms.
on_hosts = $(run) -m pytest tests/kernels -n auto --dist loadfile -m 'not long'
test-hosts: $(venv) ## run the kernels' tests, without the long ones, on 2 hosts of 4 devices and on 4 of 2 (ARGS=--hosts-relayed)
	@$(on_hosts) --hosts 2 $(ARGS)
	@$(on_hosts) --hosts 4 --hosts-apart $(ARGS)

# The classes of NumPy's tests are shared out one by one: its files are few and long.
test-numpy: $(venv) ## run NumPy's own tests of the functions that the client has, over sharded arrays (ARGS=--every-case: all, in hours)
	@$(run) -m pytest tests/numpy_suite $(in_parallel) --dist loadscope $(ARGS)

test-array-api: $(venv) ## run the tests of the array API standard that SUITE=folder holds (ARGS="--sharded --full": sharded arrays, 40 examples each)
	@$(run) tests/array_api/suite.py "$(SUITE)" $(ARGS)

accuracy: $(venv) ## measure every kernel against extended precision and write docs/accuracy.md (ARGS=--quick: few sizes)
	@cd tests && ../$(run) -m accuracy $(ARGS)

gpu: $(venv) ## on a machine with a GPU: the accuracy table and the first question there; skips elsewhere
	@cd tests && ../$(run) -m accuracy --gpu $(ARGS)

fuzz: $(venv) ## send the server thousands of wrong requests
	@$(run) -m pytest $(in_parallel) -m fuzz $(hours) $(ARGS)

mutants: $(venv) ## change the source at random and count the changes that the tests notice (ARGS="--count 60 --seed 1")
	@cd tests && ../$(run) -m mutants $(ARGS)

soak: $(venv) ## load the server for an hour, with faults and attacks, and watch its memory
	@$(run) -m pytest -m soak --timeout 7200 $(ARGS)

lint: $(venv) ## check format, lint and types of the Python, and lint the protos where npm is installed
	$(run) -m ruff format --check .
	$(run) -m ruff check .
	$(run) -m mypy
	$(run) -m mypy benchmarks examples/*.py examples/gallery/*.py site_pages tests/project/typed_results.py
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory lint-protos; \
	elif [ "$$REQUIRE_ALL_TESTS" = 1 ]; then echo 'buf lint needs npm, which is not installed' >&2; exit 1; \
	else echo 'buf lint: skipped, npm is not installed'; fi

# By the order of versions, in which 0.10.0 follows 0.9.0.
last_release = $(shell ls protos/released | sort --version-sort | tail -n 1)
lint-protos: $(node_modules) ## lint the protos with buf, and compare them with the last release (needs npm)
	cd protos && node_modules/.bin/buf lint
	cd protos && node_modules/.bin/buf breaking --against released/$(last_release)

buf: $(node_modules) ## install what lints the protos (needs npm)

node-example: $(node_example) ## install what the client in JavaScript needs (needs npm)

format: $(venv) ## format the Python and mend what ruff can mend
	$(run) -m ruff format .
	$(run) -m ruff check --fix .

bench: $(venv) ## measure the first question against its floors, on this machine
	@echo 'Running benchmarks/first_question.py'
	@$(run) benchmarks/first_question.py $(ARGS)

bench-kernels: $(venv) ## measure the kernel library next to its floors, and what auto makes of it
	@$(run) benchmarks/kernels.py $(ARGS)

bench-peers: $(venv) ## install the benchmarks' peers, each into an environment of its own
	@$(run) benchmarks/install_peers.py $(ARGS)

bench-transfer: $(venv) ## measure transfers of arrays to the server and back, next to floors and peers
	@$(run) benchmarks/transfer.py $(ARGS)

bench-calls: $(venv) ## measure small calls, next to bare floors
	@$(run) benchmarks/calls.py $(ARGS)

bench-heat: $(venv) ## measure the heat equation on the mesh, next to a jitted function and NumPy
	@$(run) benchmarks/heat.py $(ARGS)

bench-first-calls: $(venv) ## measure first calls of small arrays and starts, next to JAX in process
	@$(run) benchmarks/first_calls.py $(ARGS)

bench-attacks: $(venv) ## measure calls of one client beside attacks of another
	@$(run) benchmarks/attacks.py $(ARGS)

bench-traced: $(venv) ## measure functions that run as one program, next to JAX in process
	@$(run) benchmarks/traced.py $(ARGS)

bench-programs: $(venv) ## measure programs of large arrays, next to JAX in process and NumPy (ARGS="--only hdiff --mib 4")
	@$(run) benchmarks/programs.py $(ARGS)

bench-hosts: $(venv) ## measure meshes of 1, 2, 4 and 8 worker processes, next to a server with one
	@$(run) benchmarks/hosts.py $(ARGS)

functions: $(venv) ## write what the table of functions says: the methods of clients, and docs/functions.md
	@cd tests && ../$(run) -m project.client_methods && ../$(run) -m project.numpys_functions

# The programs of the gallery run here; GALLERY=false leaves them out.
docs: $(venv_docs) ## build the documentation site into site/, and execute the gallery of programs (ARGS="--site-dir DIR")
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict $(ARGS)
	@echo 'Open site/index.html'

protos: $(venv_protos) ## generate the committed stubs from protos/
	protos/generate .venv-protos/bin/python

# The other locks follow dev.txt, so that what is tested is what is shipped.
compile = $(uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make lock' $(ARGS)
lock: $(venv_uv) ## write requirements/*.txt anew from pyproject.toml (ARGS=--upgrade for newer versions)
	@echo 'Writing requirements/*.txt'
	@$(compile) pyproject.toml --extra server --extra otel --extra zarr --group dev --output-file requirements/dev.txt
	@$(compile) pyproject.toml --constraints requirements/dev.txt --output-file requirements/client.txt
	@$(compile) pyproject.toml --constraints requirements/dev.txt --extra server --output-file requirements/server.txt
	@$(compile) pyproject.toml --constraints requirements/dev.txt --extra cuda13 --output-file requirements/server-cuda13.txt
	@$(compile) --group build --constraints requirements/dev.txt --output-file requirements/build.txt
	@$(compile) --group release --constraints requirements/dev.txt --output-file requirements/release.txt
	@$(compile) pyproject.toml --constraints requirements/dev.txt --extra server --group docs --output-file requirements/docs.txt
	@$(compile) --group protos --output-file requirements/protos.txt
	@$(compile) --group uv --output-file requirements/uv.txt
	@echo 'protobuf<7' | $(compile) pyproject.toml --constraints - --output-file requirements/client-protobuf6.txt

release: $(venv_release) $(node_modules) ## build the wheel, the sdist and SBOMs into dist/, and try them (needs npm; uploads nothing)
	@.venv-release/bin/python deploy/release.py $(ARGS)

clean: ## remove the environments and everything built
	rm -rf .venv .venv-* protos/node_modules examples/node/node_modules dist build site
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

venv: $(venv)

venv-docs: $(venv_docs)

venv-protos: $(venv_protos)

$(venv_uv):
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("shardcall needs Python 3.11 or newer, and \
	this is %d.%d; name another one with PYTHON=python3.12" % sys.version_info[:2])'
	@echo 'Making $(environment)'
	@$(PYTHON) -m venv --clear $(environment)
	@$(run) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/uv.txt
	@touch $@

$(venv_server): $(venv_uv)
	@echo 'Installing the server into $(environment) from requirements/server.txt'
	@rm -f $(environment)/.server-* $(environment)/.dev-*
	@$(call install,--require-hashes --requirement requirements/server.txt --requirement requirements/build.txt)
	@$(call install,--no-deps --no-build-isolation --editable .)
	@touch $@

$(venv): $(venv_server)
	@echo 'Installing what the tests need into $(environment) from requirements/dev.txt'
	@rm -f $(environment)/.dev-*
	@$(call install,--require-hashes --requirement requirements/dev.txt)
	@touch $@

# grpcio-tools is pinned to an old protobuf for the sake of the stubs' readers, and cannot share an
# environment with a current grpcio-health-checking.
$(venv_protos): $(venv_uv)
	@echo 'Making .venv-protos from requirements/protos.txt'
	@$(uv) venv --quiet --clear --python $(run) .venv-protos
	@$(uv) pip install --quiet --python .venv-protos/bin/python --require-hashes --requirement requirements/protos.txt
	@touch $@

# With the server, whose kernels and settings are described, and which executes the gallery.
$(venv_docs): $(venv_uv)
	@echo 'Making .venv-docs from requirements/docs.txt'
	@$(uv) venv --quiet --clear --python $(run) .venv-docs
	@$(uv) pip install --quiet --python .venv-docs/bin/python --require-hashes --requirement requirements/docs.txt
	@$(uv) pip install --quiet --python .venv-docs/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

# With pip, and not with uv: a release does not depend on .venv.
$(venv_release):
	@echo 'Making .venv-release from requirements/release.txt'
	@$(PYTHON) -m venv --clear .venv-release
	@.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/release.txt
	@touch $@

$(node_example):
	@echo 'Installing gRPC for JavaScript into examples/node/node_modules'
	@cd examples/node && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Not `npm ci`: it refuses a lock that lacks a platform's binary, and a registry need not have them all.
$(node_modules):
	@echo 'Installing buf into protos/node_modules'
	@rm -rf protos/node_modules
	@cd protos && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
