# The commands of developers and operators. `make serve` installs what serving needs; the others run `make setup` first
# where they need it, which adds the rest.
PYTHON        ?= python3
VENV          ?= .venv
TORCH_VERSION ?= 2.13.0
# The address of a wheel index that holds the torch build you want (CPU or CUDA); empty: pip's own index.
TORCH_INDEX   ?=
# For images: the digest of a build in that index, sha256:...
TORCH_HASH    ?=
# Triton for the tests of GPU kernels: torch's CPU builds on Linux come without it.
TRITON_VERSION ?= 3.6.0
# Builds for CUDA 13, as GPU machines have them: the oldest that Steno takes, and the newest.
CUDA_TORCH_VERSIONS ?= 2.11.0 2.13.0
# Of images: cpu or cuda, and the program that builds them.
VARIANT       ?= cpu
ENGINE        ?= docker
# Empty: the model that ships with Steno.
MODEL         ?=
# Recordings with a manifest.jsonl.
SPEECH        ?= ../shared/speech
ARGS          ?=

BIN   := $(VENV)/bin
# An environment that can serve, and one with what tests, linters, benchmarks and every command need beside that.
SERVING := $(VENV)/.serving
STAMP := $(VENV)/.ready
NEMO  := runs/nemo-venv
NULL  := runs/null-cuda
SHIPPED_TRITON := runs/triton-3.7.1
OPENAI_1 := .clients/openai-1
FRAMEWORKS := .clients/frameworks

.PHONY: setup clients serve nemo-check peers image image-test hashes digests manifests audit test
.PHONY: reference count test-slow test-long test-cpus soak fuzz test-gpu null-cuda lint format bench picture clean

setup: $(STAMP)

$(SERVING): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || \
	  { echo 'There is no $(PYTHON): install Python 3.11 or newer, or name the one to use: make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and Steno needs 3.11 or newer: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo '$(PYTHON) cannot make environments: install its venv module (Debian and Ubuntu: apt install python3-venv)' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==$(TORCH_VERSION) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[serve]'
	touch $@

$(STAMP): $(SERVING)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[serve,tracing,eval,arrow,ray,tensorboard,dev]'
	[ "$$(uname -s)" != Linux ] || $(BIN)/python -c 'import triton' 2>/dev/null || \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps triton==$(TRITON_VERSION) || \
	  echo 'No Triton for this machine: the tests of the kernels for GPUs will be skipped.'
	touch $@

# What tests of the API need beyond setup: OpenAI's JavaScript client (node and npm), its Python client 1.x, the Vercel AI
# SDK, litellm, and LangChain in both languages; half a GB. And axe-core, which looks at the page.
clients: examples/node_modules/.ready tests/clients/node_modules/.ready $(OPENAI_1)/.ready $(FRAMEWORKS)/.ready

examples/node_modules/.ready: examples/package.json
	npm install --prefix examples --silent --no-audit --no-fund --no-package-lock
	touch $@

$(OPENAI_1)/.ready: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(OPENAI_1) \
	  openai==1.109.1 distro==1.9.0
	touch $@

# The peers that LangChain's packages name would be a gigabyte, and are not imported.
tests/clients/node_modules/.ready: tests/clients/package.json
	npm install --prefix tests/clients --silent --no-audit --no-fund --no-package-lock --legacy-peer-deps
	touch $@

$(FRAMEWORKS)/.ready: $(STAMP) tests/clients/python.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(FRAMEWORKS) \
	  --requirement tests/clients/python.txt
	touch $@

serve: $(SERVING)
	$(BIN)/steno serve $(if $(MODEL),--model $(MODEL)) $(ARGS)

# The same tokens here and in NeMo, frame by frame (docs/checkpoints.md).
nemo-check: $(NEMO)/.ready
	$(NEMO)/bin/python -m tests.nemo.compare $(or $(MODEL),bundled) $(SPEECH)/manifest.jsonl $(ARGS)

# Speed beside NeMo, transformers, onnxruntime, onnx-asr and sherpa-onnx, in turns in one process (docs/performance.md).
# ARGS='--batch 8 --engines onnxruntime steno'.
peers: $(NEMO)/.peers
	$(NEMO)/bin/python -m benchmarks.peers $(ARGS)

$(NEMO)/.peers: $(NEMO)/.ready
	$(NEMO)/bin/pip install --quiet onnxruntime==1.31.1 onnx-asr==0.12.0 sherpa-onnx==2.0.1
	touch $@

# NeMo has an environment of its own, because it takes gigabytes that nothing else here needs.
$(NEMO)/.ready:
	$(PYTHON) -m venv $(NEMO)
	$(NEMO)/bin/pip install --quiet torch==$(TORCH_VERSION) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(NEMO)/bin/pip install --quiet 'nemo_toolkit[asr]==3.0.0' torch==$(TORCH_VERSION)
	touch $@

# With a container engine. VARIANT=cuda takes gigabytes, and so does VARIANT=cpu without TORCH_INDEX and TORCH_HASH.
image:
	$(ENGINE) build --build-arg VARIANT=$(VARIANT) --build-arg TORCH_VERSION=$(TORCH_VERSION) \
	  --build-arg TORCH_INDEX=$(TORCH_INDEX) --build-arg TORCH_HASH=$(TORCH_HASH) --build-arg REVISION=$$(git rev-parse HEAD) --tag steno:$(VARIANT) $(ARGS) .

# Builds and runs the image without a container engine (docker/image_test.py). ARGS='--storage-driver vfs'.
image-test: setup
	$(BIN)/python docker/image_test.py --variant $(VARIANT) --build-arg TORCH_INDEX=$(TORCH_INDEX) \
	  --build-arg TORCH_HASH=$(TORCH_HASH) $(ARGS)

# The hashes of what images install (docker/hashes), after a change of pyproject.toml or constraints.txt.
hashes: runs/uv/.ready
	$(PYTHON) docker/hashes.py runs/uv/bin/uv $(TORCH_VERSION)

runs/uv/.ready:
	$(PYTHON) -m venv runs/uv
	runs/uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.9
	touch $@

# Adds digests to the images that the Dockerfile and docker-compose.yml name, or renews them: asks their registries.
digests:
	$(PYTHON) docker/digests.py $(ENGINE) Dockerfile docker-compose.yml

# Known vulnerabilities of the pinned packages; fails too if a package cannot be looked up.
audit: runs/audit/.ready
	{ cat constraints.txt; echo torch==$(TORCH_VERSION); } | \
	  runs/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement /dev/stdin $(ARGS)

runs/audit/.ready:
	$(PYTHON) -m venv runs/audit
	runs/audit/bin/pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	touch $@

# Renders the overlays for Kubernetes with kubectl and validates the result; custom resources are validated with node.
manifests: setup tests/deploy/node_modules/.ready
	$(BIN)/python -m pytest -m "long or not long" tests/deploy/test_kubernetes.py $(ARGS)

tests/deploy/node_modules/.ready: tests/deploy/package.json
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt kubernetes-validate==1.37.0
	npm install --prefix tests/deploy --silent --no-audit --no-fund --no-package-lock
	touch $@

# Two test files at a time; ARGS='-n 0 --pdb': in one process.
test: setup
	$(BIN)/python -m pytest -m "not slow and not long and not gpu" --numprocesses 2 --dist loadfile $(ARGS)

# The other half of the time: tests of 2 s and more. CI runs both.
test-slow: setup
	$(BIN)/python -m pytest -m "slow and not long and not gpu" --numprocesses 2 --dist loadfile $(ARGS)

test-long: setup $(SHIPPED_TRITON)/.ready
	$(BIN)/python -m pytest -m long --timeout 3600 $(ARGS)

# The Triton of the torch in images, for which kernels are compiled too; 200 MB.
$(SHIPPED_TRITON)/.ready:
	[ "$$(uname -s)" != Linux ] || \
	  $(PYTHON) -m pip install --quiet --no-deps --upgrade --target $(SHIPPED_TRITON) triton==3.7.1
	mkdir -p $(SHIPPED_TRITON) && touch $@

# Mixed traffic and faults, twenty minutes (tests/soak). ARGS='--minutes 2 --seed 7'.
soak: setup
	$(BIN)/python -m tests.soak $(ARGS)

# Damaged files for the processes that decode, half an hour (tests/audio/fuzz.py). ARGS='--minutes 1 --seed 7'.
fuzz: setup
	$(BIN)/python -m tests.audio.fuzz $(ARGS)

# As on this processor and on older ones, by hiding instruction sets or by QEMU (tests/cpus/run.sh).
# ARGS='avx2 sse4.2' runs those levels alone.
test-cpus: setup
	bash tests/cpus/run.sh $(BIN)/python $(ARGS)

# Uses the Python at hand, not $(VENV): a GPU machine brings its own torch, whose warnings are no failures, and may
# have no FastAPI.
test-gpu:
	$(PYTHON) -m pytest -W default -m gpu tests/models tests/training/losses $(ARGS)

# Checks the code's calls of CUDA on a machine without a GPU (tests/null_cuda/build.py); takes 2 GB for each version of
# torch. ARGS='gpu_backlog --minutes 30' runs that benchmark instead.
null-cuda: $(CUDA_TORCH_VERSIONS:%=$(NULL)-%/.ready)
	for version in $(CUDA_TORCH_VERSIONS); do bash tests/null_cuda/rehearse.sh $(NULL)-$$version $(ARGS) || exit 1; done

# NVIDIA's libraries are replaced; of them this takes headers. Other packages are those of $(VENV).
$(NULL)-%/.ready: $(STAMP)
	$(PYTHON) -m venv $(NULL)-$*
	$(NULL)-$*/bin/pip install --quiet --no-deps torch===$*
	$(NULL)-$*/bin/pip install --quiet --no-deps cuda-pathfinder \
	  'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cupti==13.0.*' \
	  $$($(NULL)-$*/bin/python -c "from importlib.metadata import requires; print(*(one.partition(';')[0].replace(' ', '') \
	    for one in requires('torch') if one.startswith(('triton', 'cuda-bindings'))))")
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	  > $$($(NULL)-$*/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/beside.pth
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

# The picture of the page in the README, with Chromium.
picture: setup
	$(BIN)/python -m tests.service.page_picture docs/img/page.png

# The tables of settings, metrics and errors in docs, from the code.
reference: setup
	$(BIN)/python -m tests.reference

# Lines of Python by package, lines of the pages of docs, settings and metrics.
count: setup
	@$(BIN)/python -m tests.count

clean:
	rm -rf $(VENV) .clients examples/node_modules tests/clients/node_modules tests/deploy/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
