# valle-serve in an image; the steps are those of scripts/install. Built by BuildKit (Docker 23 or newer), for its cache
# mounts. Two targets, the same but for what they ask of the host:
#   docker build -t valle-serve:cuda .                                               an NVIDIA GPU
#   docker build -t valle-serve:cpu --target cpu --build-arg TORCH_INDEX_URL=... .   a CPU only
# TORCH_INDEX_URL is the index of PyTorch's wheels for a CPU (its installation page names it), asked beside the usual
# one; it makes the image some gigabytes smaller. Left empty, the usual index gives the CUDA build: it carries its
# CUDA libraries, so no target needs a CUDA base image, and it runs without a GPU too.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# What changes seldom comes first: PyTorch needs the lock alone, the other packages a file of their own; and no edit of
# ours installs anything again.
FROM ${PYTHON_IMAGE} AS build
ARG TORCH_INDEX_URL=""
WORKDIR /srv/valle-serve
COPY --chmod=755 scripts/install scripts/install
COPY requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/pip scripts/install torch
COPY requirements.service.txt ./
RUN --mount=type=cache,target=/root/.cache/pip scripts/install packages
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY valle_serve/__init__.py valle_serve/
RUN --mount=type=cache,target=/root/.cache/pip scripts/install itself

# Our files with modes of their own: a checkout made under a strict umask could not be read by the user.
FROM ${PYTHON_IMAGE} AS files
WORKDIR /srv/valle-serve
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY weights weights
COPY samplers samplers
COPY models models
COPY app app
COPY valle_serve valle_serve
RUN chmod -R u=rwX,go=rX .

FROM ${PYTHON_IMAGE} AS cpu
# The folders of volumes are made here, so that what is mounted on them belongs to the user and not to root. Any other
# user in group 0 may run it too, as OpenShift's do.
RUN useradd --uid 1000 --gid 0 --create-home tts && \
    install -d -o tts -g 0 -m 2775 /home/tts /home/tts/.cache /home/tts/voices
WORKDIR /srv/valle-serve
COPY --from=build /srv/valle-serve/.venv .venv
COPY --from=files /srv/valle-serve/weights weights
COPY --from=files /srv/valle-serve/samplers samplers
COPY --from=files /srv/valle-serve/models models
COPY --from=files /srv/valle-serve/app app
COPY --from=files /srv/valle-serve/valle_serve valle_serve
COPY --from=files /srv/valle-serve/pyproject.toml /srv/valle-serve/README.md /srv/valle-serve/LICENSE /srv/valle-serve/NOTICE ./
# HOME is told, because a user that /etc/passwd does not know would have / for one.
ENV PATH=/srv/valle-serve/.venv/bin:$PATH \
    HOME=/home/tts \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TTS_HOST=0.0.0.0 \
    TTS_PORT=8000 \
    TTS_PORT_FILE=/tmp/valle-serve.port \
    TTS_VOICES=/home/tts/voices
USER 1000:0
# Machine code for the processor that builds; a new volume begins with it. Another processor compiles anew, once.
RUN valle-serve warm && chmod -R g+w /home/tts/.cache
# What was downloaded comes again; uploaded voices do not, so they have a volume that nothing else is in.
VOLUME /home/tts/.cache /home/tts/voices
EXPOSE 8000
# A first start may fetch a model, so that failures of the first five minutes count for nothing.
HEALTHCHECK --interval=15s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; port = int(open(os.environ['TTS_PORT_FILE']).read()); r.build_opener(r.ProxyHandler({})).open(f'http://127.0.0.1:{port}/ready', timeout=4)"]
ENTRYPOINT ["valle-serve"]
CMD ["serve"]
# Last, as they change with every version.
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="valle-serve" \
      org.opencontainers.image.description="Text-to-speech service for AR+NAR EnCodec language models" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-3.0-or-later" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

FROM cpu AS cuda
# Triton, which torch brings, builds what loads our own kernels with a C compiler, at the first start on a card: what it
# links with is the driver's, which no build has. Its results are kept in the volume, too.
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends "gcc=4:12.*" "libc6-dev=2.36-*" && rm -rf /var/lib/apt/lists/*
USER 1000:0
# Which GPUs it gets is for whoever starts it (--gpus, compose): a default here would be all of them, asked or not.
# Machine code that the driver makes of intermediate code, for cards newer than the build, is kept in the volume.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
    CUDA_CACHE_PATH=/home/tts/.cache/cuda \
    TRITON_CACHE_DIR=/home/tts/.cache/triton \
    TTS_DEVICE=cuda
