#!/usr/bin/env bash
# A checkpoint of the published implementation (thuml/Anomaly-Transformer) into use, without training again:
#   examples/migrate_published.sh MSL_checkpoint.pth train.parquet test.parquet OUTPUT [WINDOW]
# train.parquet is the data it was trained on: it gives scaler and threshold. Never the test data.
# The score is the reconstruction error; --score-mode published would keep theirs (docs/method.md says why not).
set -euo pipefail
checkpoint=$1 train=$2 test=$3 output=$4 window=${5:-100}
mkdir -p "$output"
at-infer export "$checkpoint" --published --window "$window" --scale-from "$train" --exclude timestamp \
  --score-mode reconstruction --engine none -o "$output"
at-infer score "$test" --engine "$output/model.onnx" -o "$output/scores.parquet" --explain top
at-infer report "$output/scores.parquet" --data "$test" --engine "$output/model.associations.onnx" -o "$output/report.html"
