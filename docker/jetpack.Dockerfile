# Plans on a Jetson with JetPack 7.2 (Orin, Thor): TensorRT 10.16, CUDA 13.2, Python 3.12.
#
#   docker build -f docker/jetpack.Dockerfile -t at-infer:jetpack .
#   docker run --rm --runtime nvidia -v "$PWD:/data" at-infer:jetpack score data.parquet --engine model.trt -o scores.parquet
#
# This image was never built or run. BASE may be any image with JetPack's own TensorRT and its Python bindings; plans run
# only with the TensorRT that built them, so export in the same image (extra `export`, which brings PyTorch).
ARG BASE=nvcr.io/nvidia/l4t-jetpack:r39.2.0
# hadolint ignore=DL3006
FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY at_infer at_infer
COPY training training
COPY export export
# Packages of the system stay visible: TensorRT comes with JetPack, not from an index.
ARG EXTRAS=""
RUN python3 -m venv --system-site-packages /opt/at-infer \
    && /opt/at-infer/bin/pip install --no-cache-dir --disable-pip-version-check ".${EXTRAS}" "cuda-bindings>=12.8,<14" \
    && useradd --uid 10001 --create-home --shell /usr/sbin/nologin --groups video at-infer
ENV PATH="/opt/at-infer/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    AT_INFER_LOG_FORMAT=json
USER 10001
WORKDIR /data
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/metrics', timeout=4)"]
ENTRYPOINT ["at-infer"]
CMD ["--help"]
