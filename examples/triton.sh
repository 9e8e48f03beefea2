#!/usr/bin/env bash
# Write a model repository for NVIDIA Triton from a checkpoint:
#   examples/triton.sh ckpt.pt OUTPUT
# Its files are checked against Triton's own schema, and by `make triton` with a real server, whose ONNX Runtime backend needs NVIDIA's container.
set -euo pipefail
checkpoint=$1 output=$2
mkdir -p "$output"
at-infer export "$checkpoint" -o "$output" --triton "$output/repository" --engine none
echo "serve it, in NVIDIA's Triton container: tritonserver --model-repository=$(cd "$output" && pwd)/repository"
