#!/usr/bin/env bash
# Write a model repository for NVIDIA Triton from a checkpoint:
#   examples/triton.sh ckpt.pt OUTPUT [SCORE_MODE]
# Triton sees single windows. The default score, mode `fusion`, needs the rows around them, so the graph would return no score. SCORE_MODE is therefore
# `reconstruction`, another score than that of `at-infer score` with a default export; `at-infer evaluate` tells how much worse it is on your data.
# The files are checked against Triton's own schema, and by `make triton` with a real server, whose ONNX Runtime backend needs NVIDIA's container.
set -euo pipefail
checkpoint=$1 output=$2 mode=${3:-reconstruction}
mkdir -p "$output"
at-infer export "$checkpoint" -o "$output" --score-mode "$mode" --triton "$output/repository" --engine none
echo "serve it, in NVIDIA's Triton container: tritonserver --model-repository=$(cd "$output" && pwd)/repository"
echo "then: python examples/triton_client.py data.parquet; the same scores without a server: at-infer score data.parquet --engine $output/model.onnx -o scores.parquet"
