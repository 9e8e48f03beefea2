#!/usr/bin/env bash
# Score a folder of Parquet files on a Ray cluster, then report on it:
#   examples/ray_job.sh DATA model.onnx OUTPUT [CLUSTER]
# CLUSTER is local (this machine, the default), auto, or ray://head:10001. To resume a stopped run, run it again:
# finished splits are skipped.
set -euo pipefail
data=$1 engine=$2 output=$3 cluster=${4:-local}
at-infer score "$data" --engine "$engine" --ray "$cluster" --explain top -o "$output"
at-infer report "$output" --data "$data" -o "$output.html"
