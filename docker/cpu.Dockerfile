# Scoring on a CPU, x86_64 or ARM, without PyTorch:
#
#   docker build -f docker/cpu.Dockerfile -t at-infer:cpu .
#   docker run --rm -v "$PWD:/data" at-infer:cpu score data.parquet --engine model.onnx -o scores.parquet
#
# This image was never built; a test checks it by the rules of hadolint, and `make dist` runs its pip step.
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY at_infer at_infer
COPY training training
COPY export export
RUN python -m venv /opt/at-infer \
    && /opt/at-infer/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .

FROM python:3.12-slim-bookworm
# A named volume takes over the owner of the folder that it is mounted on.
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin at-infer \
    && install -d -o 10001 /state
COPY --from=build /opt/at-infer /opt/at-infer
ENV PATH="/opt/at-infer/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    AT_INFER_LOG_FORMAT=json
USER 10001
WORKDIR /data
# Of `watch --metrics :9464`; a command that ends by itself is over before the first check.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/metrics', timeout=4)"]
ENTRYPOINT ["at-infer"]
CMD ["--help"]
