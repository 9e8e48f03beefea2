#!/usr/bin/env bash
# Export and use a checkpoint of the published implementation (thuml/Anomaly-Transformer) without training again:
#   examples/migrate_published.sh MSL_checkpoint.pth train.parquet test.parquet OUTPUT [WINDOW]
# train.parquet is the training data of the checkpoint; scaler and threshold come from it. Never use the test data here.
# The score is the reconstruction error; for the published score use --score-mode published (see docs/method.md).
set -euo pipefail
checkpoint=$1 train=$2 test=$3 output=$4 window=${5:-100}
mkdir -p "$output"
at-infer export "$checkpoint" --published --window "$window" --scale-from "$train" --exclude timestamp \
  --score-mode reconstruction --engine none -o "$output"
at-infer score "$test" --engine "$output/model.onnx" -o "$output/scores.parquet" --explain top
at-infer report "$output/scores.parquet" --data "$test" --engine "$output/model.associations.onnx" -o "$output/report.html"
