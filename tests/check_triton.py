"""`make triton`: repository and client of the examples with a real Triton server. Apart from pytest: it downloads.

    python -m tests.check_triton

The server is that of `nvidia-pytriton`, a package with Triton's program and its Python backend, unpacked and never
installed: it wants an older numpy. It has no ONNX Runtime backend. So the server first gets the repository as it is,
and must find nothing missing but that backend; then the same configuration with another backend, whose model runs the
same ONNX file by ONNX Runtime in Python. Triton's own ONNX Runtime and TensorRT backends stay untried.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from at_infer import score_file
from tests.checkpoints import checkpoint
from tests.scored import rows

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "nvidia-pytriton==0.7.0"
MODEL = "anomaly_transformer_onnx"
START_S = 300
IN_PYTHON = f"""
import sys

sys.path.insert(1, {sysconfig.get_path("purelib")!r})  # this interpreter is embedded, and ignores PYTHONPATH
"""
IN_PYTHON += """
import numpy, onnxruntime, triton_python_backend_utils as triton

# By DLPack: this backend is older than numpy 2, and takes an array of it for an empty one.

class TritonPythonModel:
    def initialize(self, args):
        path = f"{args['model_repository']}/{args['model_version']}/model.onnx"
        self.session = onnxruntime.InferenceSession(path)

    def execute(self, requests):
        windows = (triton.get_input_tensor_by_name(one, "window") for one in requests)
        return [self.answer(numpy.from_dlpack(one)) for one in windows]

    def answer(self, windows):
        names = [output.name for output in self.session.get_outputs()]
        found = zip(names, self.session.run(names, {"window": windows}))
        return triton.InferenceResponse([triton.Tensor.from_dlpack(*one) for one in found])
"""


def unpack(folder: Path) -> Path:
    """Triton's own folder, of its package."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "download", "--no-deps", "--dest", str(folder), PACKAGE], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    triton = folder / "pytriton" / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = triton / "backends" / "python" / "triton_python_backend_stub"
    shutil.copy(triton / "python_backend_stubs" / version / stub.name, stub)
    for program in (triton / "bin" / "tritonserver", stub):
        program.chmod(0o755)
    return triton


def in_python(repository: Path) -> Path:
    """The repository for the Python backend: configuration, model and name stay."""
    changed = repository.with_name("in-python")
    shutil.copytree(repository, changed)
    config = changed / MODEL / "config.pbtxt"
    text = config.read_text(encoding="utf-8").replace('backend: "onnxruntime"', 'backend: "python"')
    config.write_text(text.replace('default_model_filename: "model.onnx"\n', ""), encoding="utf-8")
    (changed / MODEL / "1" / "model.py").write_text(IN_PYTHON, encoding="utf-8")
    return changed


@contextmanager
def server(triton: Path, repository: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A server on this machine, and its log; ended with the block."""
    words = [f"--model-repository={repository}", f"--backend-directory={triton / 'backends'}", f"--grpc-port={port}"]
    words += ["--grpc-address=127.0.0.1", "--allow-http=false", "--allow-metrics=false"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR"))}
    log = repository.with_suffix(".log")
    with log.open("w") as output:
        command = [str(triton / "bin" / "tritonserver"), *words]
        with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, env=environment) as process:
            try:
                yield process, log
            finally:
                process.terminate()


def wait_until_ready(process: subprocess.Popen[str], log: Path, port: int) -> str:
    """The server's version, once it serves the model."""
    import tritonclient.grpc as client

    ends = time.monotonic() + START_S
    while time.monotonic() < ends and process.poll() is None:
        try:
            with client.InferenceServerClient(f"127.0.0.1:{port}") as asked:
                if asked.is_model_ready(MODEL):
                    return str(asked.get_server_metadata().version)
        except client.InferenceServerException:
            time.sleep(1)
    sys.exit(f"error: the server does not serve {MODEL}:\n{log.read_text()}")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def check(folder: Path) -> str:
    """Export, serve, ask; what was found, in one line."""
    triton = unpack(folder)
    checkpoint().save(folder / "ckpt.pt")
    data = rows(205).with_columns(pl.when(pl.int_range(pl.len()) == 77).then(99.0).otherwise("f01").alias("f01"))
    data.write_parquet(folder / "data.parquet")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    example = ["bash", str(ROOT / "examples" / "triton.sh"), "ckpt.pt", "."]
    subprocess.run(example, cwd=folder, env=os.environ | {"PATH": programs}, check=True)
    port = free_port()
    with server(triton, folder / "repository", port) as (process, log):
        process.wait(START_S)
    refused = [line for line in log.read_text().splitlines() if MODEL in line and "UNAVAILABLE" in line]
    assert len(refused) == 1, log.read_text()
    assert "unable to find backend library for backend 'onnxruntime'" in refused[0], refused[0]
    with server(triton, in_python(folder / "repository"), port) as (process, log):
        version = wait_until_ready(process, log, port)
        client = [sys.executable, str(ROOT / "examples" / "triton_client.py"), "data.parquet"]
        command = [*client, "--url", f"127.0.0.1:{port}"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    flagged = {answer["row"]: answer["score"] for answer in map(json.loads, said.splitlines())}
    score_file(folder / "data.parquet", folder / "model.onnx", folder / "scores.parquet")
    expected = pl.read_parquet(folder / "scores.parquet").filter("is_anomaly")
    assert 77 in flagged
    assert list(flagged) == expected["row"].to_list()
    worst = max(abs(score - own) / own for score, own in zip(flagged.values(), expected["score"], strict=True))
    assert worst < 1e-4, worst
    return f"Triton {version}: flags the {len(flagged)} rows of at-infer score, scores within {worst:.0e}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(check(Path(name)))
