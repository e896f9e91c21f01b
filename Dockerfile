# valle-serve in an image; the steps are those of scripts/install. Built by BuildKit (Docker 23 or newer), for its cache
# mounts. Two targets, the same but for what they ask of the host:
#   docker build -t valle-serve:cuda .                                               an NVIDIA GPU
#   docker build -t valle-serve:cpu --target cpu --build-arg TORCH_INDEX_URL=cpu .   a CPU only
# TORCH_INDEX_URL is the build of PyTorch, as scripts/install reads it; `cpu` makes the image some gigabytes smaller.
# Left empty, the usual index gives the CUDA build: it carries its CUDA libraries, so no target needs a CUDA base image.
# Behind a mirror of the package index: --secret id=pip,src=pip.conf, which is read while packages are installed and
# kept nowhere.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# An index may have a password in its address: what a stage of the image is built with is in its history.
FROM ${PYTHON_IMAGE} AS index
ARG TORCH_INDEX_URL=""
RUN printf %s "$TORCH_INDEX_URL" >/url

# What changes seldom comes first, and is most of the image: PyTorch by the lock alone, then the other packages. Bytecode
# is made here, on all cores, as the user may not write it; some packages have files that are no Python.
FROM ${PYTHON_IMAGE} AS packages
WORKDIR /srv/valle-serve
COPY --chmod=755 scripts/install scripts/install
COPY requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=bind,from=index,source=/url,target=/url TORCH_INDEX_URL=$(cat /url) scripts/install torch && \
    { .venv/bin/python -m compileall -qq -j 0 .venv/lib || true; }
COPY requirements.service.txt ./
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf scripts/install packages && \
    { .venv/bin/python -m compileall -qq -j 0 .venv/lib || true; }

# The command and the metadata of our own package: the few files that its installation adds to those above. The
# metadata would repeat the README, whose edits then installed it anew.
FROM packages AS itself
COPY pyproject.toml hatch_build.py LICENSE NOTICE ./
COPY app/__init__.py app/version.py app/
COPY valle_serve/__init__.py valle_serve/
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
    touch README.md /began && scripts/install itself && mkdir /added && \
    find .venv -newer /began ! -type d -exec cp --parents --target-directory /added {} +

# Our files with modes of their own: a checkout made under a strict umask could not be read by the user. And with one
# time: numba compares that of a source with the one that it compiled.
FROM ${PYTHON_IMAGE} AS files
WORKDIR /srv/valle-serve
COPY weights /weights
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY cpu cpu
COPY gpu gpu
COPY samplers samplers
COPY models models
COPY app app
COPY valle_serve valle_serve
# The pattern may match nothing, as in an archive, and the licence is there so that something is copied.
COPY LICENSE .gi[t] .git/
RUN python -B -c "import app.version as it; it.NOTE.write_text(it.REVISION)" && rm -r .git && \
    chmod -R u=rwX,go=rX . /weights && find . -exec touch --date @0 {} +

# Machine code of the CPU kernels, for the processor that builds; another one compiles anew, once. The builder keeps it
# under a hash of what it is made of, so that other edits compile nothing. A start copies it to the cache, as a volume
# that is mounted there would hide it.
FROM packages AS kernels
COPY --from=files /weights weights
COPY --from=files /srv/valle-serve ./
RUN --mount=type=cache,target=/kernels \
    { cat requirements.lock cpu/*.py models/int8/*.py samplers/*.py samplers/*/*.py; sed -n "/model name/{p;q}" /proc/cpuinfo; } >/made_of && \
    sha256sum /made_of >/hash && read -r hash _ </hash && kept=/kernels/$hash && \
    { [ -d "$kept" ] || { NUMBA_CACHE_DIR=/new .venv/bin/python -m app warm && cp -a /new "$kept"; }; } && \
    cp -a "$kept" /compiled && chmod -R u=rwX,go=rX /compiled

FROM packages AS runtime
# The folders of volumes are made here, so that what is mounted on them belongs to the user and not to root. Any other
# user in group 0 may run it too, as OpenShift's do.
RUN useradd --uid 1000 --gid 0 --create-home tts && \
    install -d -o tts -g 0 -m 2775 /home/tts /home/tts/.cache /home/tts/voices
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
# What was downloaded comes again; uploaded voices do not, so they have a volume that nothing else is in.
VOLUME /home/tts/.cache /home/tts/voices
EXPOSE 8000
# A first start may fetch a model, so that failures of the first five minutes count for nothing.
HEALTHCHECK --interval=15s --timeout=5s --start-period=300s --retries=3 CMD ["python", "-m", "valle_serve.ready"]
ENTRYPOINT ["valle-serve"]
CMD ["serve"]
LABEL org.opencontainers.image.title="valle-serve" \
      org.opencontainers.image.description="Text-to-speech service for AR+NAR EnCodec language models" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-3.0-or-later"

# Both targets end with our own files, from those that seldom change to those that often do.
FROM runtime AS cpu
COPY --from=files /weights weights
COPY --from=kernels /compiled kernels
COPY --from=itself /added ./
COPY --from=files /srv/valle-serve ./

FROM runtime AS cuda
# Triton, which torch brings, builds what loads our own kernels with a C compiler, at the first start on a card: what it
# links with is the driver's, which no build has. Its results are kept in the volume, too.
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends "gcc=4:12.*" "libc6-dev=2.36-*" && rm -rf /var/lib/apt/lists/*
USER 1000:0
# Which GPUs it gets is for whoever starts it (--gpus, compose): a default here would be all of them, asked or not.
# Machine code that the driver makes of intermediate code, for cards newer than the build, is kept in the volume.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYTORCH_ALLOC_CONF=expandable_segments:True \
    CUDA_CACHE_PATH=/home/tts/.cache/cuda \
    TRITON_CACHE_DIR=/home/tts/.cache/triton \
    TTS_DEVICE=cuda
COPY --from=files /weights weights
COPY --from=kernels /compiled kernels
COPY --from=itself /added ./
COPY --from=files /srv/valle-serve ./
