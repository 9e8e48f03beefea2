#!/usr/bin/env bash
# A model repository for NVIDIA Triton from a checkpoint:
#   examples/triton.sh ckpt.pt OUTPUT
# Triton itself was never run here: it needs its container. The repository's files are checked against Triton's own schema.
set -euo pipefail
checkpoint=$1 output=$2
mkdir -p "$output"
at-infer export "$checkpoint" -o "$output" --triton "$output/repository" --engine none
echo "serve it: docker run --rm -p 8000:8000 -v $(cd "$output" && pwd)/repository:/models nvcr.io/nvidia/tritonserver:25.08-py3 tritonserver --model-repository=/models"
