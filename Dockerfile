# Steno as an image: docs/operations.md, "Images".
#   docker build -t steno . && docker run --rm -p 8000:8000 steno
# VARIANT is cpu or cuda; both begin with the same slim Debian, because PyTorch's CUDA build brings its libraries and the
# host brings the driver. TORCH_INDEX and TORCH_HASH make the cpu variant 4 GB smaller.
# pip installs wheels of known hashes alone (docker/hashes, by `make hashes`), so no index can give it anything else, and
# nothing is built with what a build fetches. `make digests` adds the digest to the base image.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS torch
ARG VARIANT=cpu
ARG TORCH_VERSION=2.13.0
# The index of PyTorch's CPU builds that pytorch.org shows. Empty: pip's own, whose build carries CUDA; it runs on CPUs too.
ARG TORCH_INDEX=
# The digest of a build that is not pip's own: sha256:...
ARG TORCH_HASH=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# The shipped environment has no pip; the pip of another one installs into it.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/steno
COPY docker/hashes/torch.txt docker/hashes/cuda.txt /build/hashes/
COPY docker/install-torch /build/
RUN /build/install-torch

FROM torch AS dependencies
COPY docker/hashes/packages.txt /build/hashes/
RUN /opt/pip/bin/pip --quiet --python /opt/steno/bin/python install --no-compile --only-binary :all: --require-hashes \
    --requirement /build/hashes/packages.txt
COPY docker/prune.py /build/
# Bytecode is compiled here, because a read-only root cannot keep it; by hash, not by time, so that builds are equal.
RUN /opt/pip/bin/python /build/prune.py /opt/steno /opt/torch \
 && /opt/steno/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/steno/lib /opt/torch

FROM dependencies AS application
COPY docker/hashes/build.txt /build/hashes/
RUN /opt/pip/bin/pip --quiet install --only-binary :all: --require-hashes --requirement /build/hashes/build.txt
COPY pyproject.toml README.md LICENSE /build/steno/
COPY audio /build/steno/audio
COPY benchmarks /build/steno/benchmarks
COPY bulk /build/steno/bulk
COPY cli /build/steno/cli
COPY models /build/steno/models
COPY samples /build/steno/samples
COPY service /build/steno/service
COPY steno /build/steno/steno
COPY training /build/steno/training
COPY transcripts /build/steno/transcripts
RUN /opt/pip/bin/pip --quiet wheel --no-deps --no-build-isolation --no-index --wheel-dir /build/wheel /build/steno \
 && /opt/pip/bin/pip --quiet --python /opt/steno/bin/python install --no-compile --no-deps --no-index \
    --target /opt/application /build/wheel/*.whl \
 && /opt/steno/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/application \
 && mkdir -p /opt/weights/steno/models \
 && mv /opt/application/steno/models/bundled /opt/weights/steno/models/

FROM ${BASE_IMAGE}
ARG VARIANT=cpu
# Triton compiles its launchers with the machine's C compiler, so the cuda variant has one; the cpu variant has none.
RUN groupadd --gid 10001 steno \
 && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /var/cache/steno --shell /usr/sbin/nologin steno \
 && install -d -o 10001 -g 10001 /var/cache/steno \
 && if [ "${VARIANT}" = cuda ]; then \
      headers="$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" \
      && apt-get update -qq \
      && apt-get install -y -qq --no-install-recommends gcc libc6-dev $([ -e "$headers" ] || echo python3-dev) \
      && rm -rf /var/lib/apt/lists/*; \
    fi
# The layers that change least come first, so that a new release of the code is a few hundred kilobytes.
COPY --from=dependencies /opt/torch /opt/torch
COPY --from=dependencies /opt/steno /opt/steno
COPY --from=application /opt/weights /opt/application
COPY --from=application /opt/application /opt/application
COPY docker/healthcheck.py docker/contents.py /opt/steno/
# Lists the packages in the image and their licences.
RUN install -d /usr/share/doc/steno \
 && /opt/steno/bin/python /opt/steno/contents.py / > /usr/share/doc/steno/sbom.cdx.json

# PYTHONSAFEPATH: files in the working folder of `steno transcribe` are not imported as modules.
ENV PATH=/opt/application/bin:/opt/steno/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1 \
    HOME=/var/cache/steno \
    TMPDIR=/tmp \
    XDG_CACHE_HOME=/var/cache/steno \
    HF_HOME=/var/cache/steno/huggingface \
    TRITON_CACHE_DIR=/var/cache/steno/triton \
    CUDA_CACHE_PATH=/var/cache/steno/cuda \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    STENO_HOST=0.0.0.0
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="Steno" \
      org.opencontainers.image.description="Recorded speech to text over HTTP" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /
USER 10001:10001
EXPOSE 8000
# Uploads and long recordings; downloaded models and compiled kernels. Nothing is written elsewhere.
VOLUME ["/tmp", "/var/cache/steno"]
STOPSIGNAL SIGTERM
# Liveness: an engine that loads or restarts is no reason to end the container.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["/opt/steno/bin/python", "/opt/steno/healthcheck.py"]
ENTRYPOINT ["/opt/application/bin/steno"]
CMD ["serve"]
