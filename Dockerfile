# valle-serve in one image; the steps are those of scripts/install.
#   docker build -t valle-serve .                                         an NVIDIA GPU, or any CPU
#   docker build -t valle-serve:cpu --build-arg TORCH_INDEX_URL=... .     a CPU only, some gigabytes smaller
# TORCH_INDEX_URL is the index of PyTorch's wheels for another target (its installation page names them); left
# empty, the usual index gives the CUDA build, which carries its CUDA libraries and runs without a GPU too.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG TORCH_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1
WORKDIR /srv/valle-serve
COPY pyproject.toml requirements.lock README.md LICENSE NOTICE ./
COPY scripts/install scripts/install
COPY app/__init__.py app/
COPY models/__init__.py models/
COPY samplers/__init__.py samplers/
RUN scripts/install

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="valle-serve" \
      org.opencontainers.image.description="Text-to-speech service for AR+NAR EnCodec language models" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-3.0-or-later"
# The cache folder is made here, so that a volume mounted on it belongs to the user and not to root.
RUN useradd --uid 1000 --user-group --create-home tts && install -d -o tts -g tts /home/tts/.cache
WORKDIR /srv/valle-serve
COPY --from=build /srv/valle-serve/.venv .venv
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY samplers samplers
COPY models models
COPY app app
COPY weights weights
ENV PATH=/srv/valle-serve/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    TTS_HOST=0.0.0.0 \
    TTS_PORT=8000
USER 1000
VOLUME /home/tts/.cache
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(f\"http://127.0.0.1:{os.environ['TTS_PORT']}/ready\", timeout=4)"]
ENTRYPOINT ["valle-serve"]
CMD ["serve"]
