#!/usr/bin/env bash
# Measures everything on this machine, a Jetson or a PC with an RTX card, and writes one JSON file:
#
#   benchmarks/edge.sh [--quick] [--no-install] [-o edge.json]
#
# --quick       a small model and short measurements, to see that it works
# --no-install  use the Python that is there (PYTHON=..., default python3) instead of making build/edge
# -o FILE       where to write; default edge.json
#
# Runs without a GPU too: it measures the CPU and says what it skipped.
set -euo pipefail

usage() { sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; }

install=yes
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) arguments+=("$1") ;;
    --no-install) install=no ;;
    -o | --output) [ $# -gt 1 ] || { echo "error: $1 needs a file name" >&2; exit 1; }
      arguments+=(-o "$(realpath -m "$2")"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "error: unknown option $1; see --help" >&2; exit 1 ;;
  esac
  shift
done

case " ${arguments[*]-} " in *" -o "*) ;; *) arguments+=(-o "$PWD/edge.json") ;; esac
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if [ "$install" = yes ]; then
  # A Jetson brings its own TensorRT as a package of the system; other machines install TensorRT-RTX.
  if [ -e /etc/nv_tegra_release ]; then extras=export options=--system-site-packages packages=cuda-bindings
  else extras=export,rtx options='' packages=''
  fi
  # shellcheck disable=SC2086 # nothing is no word
  [ -d build/edge ] || "$python" -m venv $options build/edge
  python=build/edge/bin/python
  echo "installing into build/edge"
  "$python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extras]" nvidia-ml-py $packages
fi
exec env PYTHONPATH="$PWD" "$python" -m benchmarks.edge "${arguments[@]}"
