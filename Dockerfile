# valle-serve in an image; the steps are those of scripts/install. Two targets, the same but for what they ask
# of the host:
#   docker build -t valle-serve:cuda .                                               an NVIDIA GPU
#   docker build -t valle-serve:cpu --target cpu --build-arg TORCH_INDEX_URL=... .   a CPU only
# TORCH_INDEX_URL is the index of PyTorch's wheels for a CPU (its installation page names it), which makes the
# image some gigabytes smaller. Left empty, the usual index gives the CUDA build: it carries its CUDA libraries,
# so no target needs a CUDA base image, and it runs without a GPU too.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG TORCH_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1
WORKDIR /srv/valle-serve
COPY pyproject.toml requirements.lock README.md LICENSE NOTICE ./
COPY --chmod=755 scripts/install scripts/install
COPY app/__init__.py app/
COPY models/__init__.py models/
COPY samplers/__init__.py samplers/
RUN scripts/install

FROM ${PYTHON_IMAGE} AS cpu
LABEL org.opencontainers.image.title="valle-serve" \
      org.opencontainers.image.description="Text-to-speech service for AR+NAR EnCodec language models" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-3.0-or-later"
# The folders of volumes are made here, so that what is mounted on them belongs to the user and not to root.
RUN useradd --uid 1000 --user-group --create-home tts && \
    install -d -o tts -g tts /home/tts/.cache /home/tts/voices
WORKDIR /srv/valle-serve
COPY --from=build /srv/valle-serve/.venv .venv
# The modes are set, because a checkout made under a strict umask could not be read by the user.
COPY --chmod=755 pyproject.toml README.md LICENSE NOTICE ./
COPY --chmod=755 samplers samplers
COPY --chmod=755 models models
COPY --chmod=755 app app
COPY --chmod=755 weights weights
ENV PATH=/srv/valle-serve/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TTS_HOST=0.0.0.0 \
    TTS_PORT=8000 \
    TTS_VOICES=/home/tts/voices
USER 1000
# What was downloaded comes again; uploaded voices do not, so they have a volume that nothing else is in.
VOLUME /home/tts/.cache /home/tts/voices
EXPOSE 8000
# A first start may fetch a model, so that failures of the first five minutes count for nothing.
HEALTHCHECK --interval=15s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(f\"http://127.0.0.1:{os.environ['TTS_PORT']}/ready\", timeout=4)"]
ENTRYPOINT ["valle-serve"]
CMD ["serve"]

FROM cpu AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
