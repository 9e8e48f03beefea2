"""Score a Parquet file with a Triton server, window by window, over gRPC.

    python examples/triton_client.py data.parquet [--url localhost:8001] [--model anomaly_transformer_onnx]

Export with a score mode that the graph computes completely, as `examples/triton.sh` does. Columns and threshold come
from the server. It refuses models that need more than single windows: mode `fusion`, smoothing, a season, a grid.
Needs `pip install 'tritonclient[grpc]' polars`. Tested with a stub of the protocol, and by `make triton` with a real
server.
"""

import argparse
import json
from typing import Any

import numpy as np
import polars as pl  # noqa: TID251 - a client needs nothing of at-infer
import tritonclient.grpc as triton

BATCH = 32


def parameters(client: triton.InferenceServerClient, model: str) -> dict[str, Any]:
    """Parameters that at-infer wrote into the model configuration."""
    config = client.get_model_config(model).config
    return {key.rpartition(".")[2]: json.loads(value.string_value) for key, value in config.parameters.items()}


def check(known: dict[str, Any], model: str) -> None:
    """Stop if scores would differ from those of `at-infer score`."""
    mode = known["score"]["mode"]
    if mode == "fusion":
        raise SystemExit(f"error: {model}: returns no score; export with --score-mode reconstruction")
    more = [name for name in ("season", "grid") if known.get(name)] + ["smooth"] * (known["score"]["smooth"] > 1)
    if more:
        raise SystemExit(f"error: {model}: has a {more[0]}, which this example leaves out; use at-infer score")


def score(client: triton.InferenceServerClient, model: str, windows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(B,N,F) raw values -> scores (B,N)."""
    given = triton.InferInput("window", list(windows.shape), "FP32")
    given.set_data_from_numpy(windows)
    answer = client.infer(model, [given], outputs=[triton.InferRequestedOutput("score")])
    found: np.ndarray[Any, Any] = answer.as_numpy("score")
    return found


def main() -> None:
    """Cut windows side by side, the last one from the end, and print rows above the threshold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--model", default="anomaly_transformer_onnx")
    args = parser.parse_args()
    client = triton.InferenceServerClient(args.url)
    known = parameters(client, args.model)
    check(known, args.model)
    length = int(client.get_model_metadata(args.model).inputs[0].shape[1])
    rows = pl.read_parquet(args.data).select(known["columns"]).to_numpy().astype(np.float32)
    if not np.isfinite(rows).all():
        raise SystemExit(f"error: {args.data}: has missing or infinite values, which only at-infer score fills")
    if len(rows) < length:
        raise SystemExit(f"error: {args.data}: has {len(rows)} rows, a window has {length}")
    starts = [*range(0, len(rows) - length, length), len(rows) - length]
    scores = np.empty(len(rows), np.float32)
    for i in range(0, len(starts), BATCH):
        batch = starts[i : i + BATCH]
        found = score(client, args.model, np.stack([rows[start : start + length] for start in batch]))
        for start, values in reversed(list(zip(batch, found, strict=True))):  # an earlier window has the say
            scores[start : start + length] = values
    threshold = known["threshold"]["value"]
    for row in np.flatnonzero(scores > threshold):
        print(json.dumps({"row": int(row), "score": round(float(scores[row]), 6)}))


if __name__ == "__main__":
    main()
