#!/usr/bin/env bash
# Write a model repository for NVIDIA Triton from a checkpoint:
#   examples/triton.sh ckpt.pt OUTPUT
# Triton itself was not run (it needs its container). The repository's files are checked against Triton's own schema.
set -euo pipefail
checkpoint=$1 output=$2
mkdir -p "$output"
at-infer export "$checkpoint" -o "$output" --triton "$output/repository" --engine none
echo "serve it, in NVIDIA's Triton container: tritonserver --model-repository=$(cd "$output" && pwd)/repository"
