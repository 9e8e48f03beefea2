"""`make dist`: are wheel and sdist whole, and do they work in clean environments? Apart from pytest: it takes minutes.

    python -m tests.check_dist dist [--sbom CYCLONEDX_PY] [ENVIRONMENT ...]

Each environment is a new virtual environment with the wheel and one extra: install, `at-infer doctor`, and a demo, on
a model of an earlier demo where there is no PyTorch. For the images, the steps of their Dockerfiles, then the health
check with `watch`. For runtimes of others, their oldest version. It prints a table; what could not be installed is
named, and is an error unless its packages cannot be had without NVIDIA's own index. With `--sbom`, what base and each
extra install is listed in CycloneDX files beside the wheel.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from tests.image_steps import check_health, copy_files, install_commands

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("at_infer", "training", "export")
MOST_BYTES = 1 << 20
ONLINE = {"tensorrt"}
"""Its wheels are placeholders that download from NVIDIA's index while they are installed."""
OPENVINO = """
import sys, numpy, onnxruntime, openvino
session = onnxruntime.InferenceSession(sys.argv[1])
windows = numpy.random.default_rng(0).normal(size=(4, *session.get_inputs()[0].shape[1:]))
given = {"window": windows.astype(numpy.float32)}
expected = session.run(None, given)
found = openvino.compile_model(sys.argv[1], "CPU")(given)
worst = max(float(abs(found[i] - one).max()) for i, one in enumerate(expected))
assert worst < 1e-4, worst
print(f"outputs within {worst:.0e} of ONNX Runtime")
"""


class Environment(NamedTuple):
    """What is installed, in which order."""

    name: str
    extras: str = ""
    then: tuple[tuple[str, ...], ...] = ()
    """Further words for pip."""
    python: str = sys.executable
    source: str = "whl"
    conflicts: int = 0
    """How many `doctor` should find."""
    image: str | None = None
    """A Dockerfile, whose steps are run instead."""
    program: str | None = None
    """Of Python, run at the end with the model as its argument."""


class Report(NamedTuple):
    """A row of the table."""

    name: str
    result: str
    megabytes: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name:<22}{self.megabytes:>8.0f} MB{self.seconds:>7.0f} s  {self.result}"


class Sbom(NamedTuple):
    """Bills of materials: which program writes them, and the beginning of their names."""

    tool: Path
    stem: Path

    def write(self, name: str, venv: Path) -> int:
        """What is in the environment, checked against CycloneDX's schema by its own tool; how many packages."""
        path = self.stem.with_name(f"{self.stem.name}-{name}.cdx.json")
        run(self.tool, "environment", "--output-reproducible", "-o", path, venv / "bin" / "python", cwd=path.parent)
        content = json.loads(path.read_text(encoding="utf-8"))
        for component in content["components"]:  # the wheel came from a folder of this machine
            kept = [one for one in component.get("externalReferences", []) if not one["url"].startswith("file:")]
            component["externalReferences"] = kept
        assert any(component["name"] == "at-infer" for component in content["components"]), f"{path.name}: no at-infer"
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return len(content["components"])


def environments() -> Iterator[Environment]:
    """One for every extra, and for what excludes what."""
    yield Environment("base")
    yield Environment("base of sdist", source="tar.gz")
    for image in ("cpu", "jetpack"):
        yield Environment(f"steps of {image} image", image=image, python=find_python("3.12") or sys.executable)
    for version in ("3.12", "3.13", "3.14"):
        if found := find_python(version):
            yield Environment(f"base, Python {version}", python=found)
    for extra in ("report", "rtx", "rtx-provider", "ray", "train", "export", "tensorrt"):
        yield Environment(extra, f"[{extra}]")
    remove = ("uninstall", "--yes", "onnxruntime")
    yield Environment("onnxruntime-gpu", then=(remove, ("install", "onnxruntime-gpu")))
    yield Environment("oldest onnxruntime", then=(("install", "onnxruntime==1.20.0"),))
    yield Environment("oldest OpenVINO", then=(("install", "openvino==2024.4.0"),), program=OPENVINO)
    yield Environment("both runtimes", then=(("install", "onnxruntime-gpu"),), conflicts=1)


def find_python(version: str) -> str | None:
    """An interpreter of that version that really starts; None for the one that runs this."""
    path = shutil.which(f"python{version}")
    if path is None or sys.version.startswith(f"{version}."):
        return None
    # A stand-in of pyenv is there even where its version is not chosen.
    where = {"PYENV_VERSION": version} | os.environ
    done = subprocess.run([path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, env=where)
    return done.stdout.strip() if done.returncode == 0 else None


def tracked(*folders: str) -> set[str]:
    """Files that git knows."""
    return set(subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True).stdout.split())


def check_wheel(path: Path, version: str) -> None:
    """Every file of the packages, metadata, licences, and nothing else."""
    with zipfile.ZipFile(path) as wheel:
        sizes = {item.filename: item.file_size for item in wheel.infolist()}
        info = f"at_infer-{version}.dist-info"
        fields = HeaderParser().parsestr(wheel.read(f"{info}/METADATA").decode())
        scripts = wheel.read(f"{info}/entry_points.txt").decode()
    code = {name for name in sizes if not name.startswith(f"{info}/")}
    assert code == tracked(*PACKAGES), f"wheel: {sorted(code ^ tracked(*PACKAGES))}"
    large = [name for name, size in sizes.items() if size > MOST_BYTES]
    assert not large, f"wheel: {large} are larger than 1 MB"
    assert "at-infer = at_infer.__main__:main" in scripts
    licences = {f"{info}/licenses/{name}" for name in fields.get_all("License-File", [])}
    assert len(licences) == 2, licences
    assert licences <= set(sizes)
    assert (fields["Name"], fields["Version"], fields["License-Expression"]) == ("at-infer", version, "MIT")
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["Author"] or fields["Author-email"]
    assert fields.get_all("Project-URL")
    assert "dev" not in fields.get_all("Provides-Extra", [])
    wanted = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)}
    assert wanted <= set(fields.get_all("Classifier", []))


def check_sdist(path: Path) -> None:
    """What it takes to build, test and read the project."""
    with tarfile.open(path) as archive:
        files = {item.name.partition("/")[2]: item.size for item in archive.getmembers() if item.isfile()}
    missing = tracked(*PACKAGES, "tests", "Makefile", "pyproject.toml", "constraints.txt", "LICENSE") - set(files)
    assert not missing, f"sdist: without {sorted(missing)}"
    assert not [name for name in files if name.startswith((".venv", "build/", "dist/"))], "sdist: has what was built"
    large = [name for name, size in files.items() if size > MOST_BYTES]
    assert not large, f"sdist: {large} are larger than 1 MB"


def run(*words: object, cwd: Path) -> str:
    """A command; its output, or an error with its last line. Nothing of this clone is on its path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=cwd, env=clean)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1][:200])
    return done.stdout


def try_environment(wanted: Environment, source: Path, model: Path, folder: Path, sbom: Sbom | None) -> Report:
    """Install, ask doctor, run the demo, list what was installed."""
    began = time.monotonic()
    venv = folder / "venv"
    # The pip that runs this serves all environments, and only what is imported gets compiled.
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "--quiet", "--disable-pip-version-check")
    try:
        if wanted.image is not None:
            copy_files(dockerfile(wanted.image), folder / "src")
            for command in install_commands(dockerfile(wanted.image), venv, wanted.python):
                run(*shlex.split(command), cwd=folder / "src")
        else:
            run(wanted.python, "-m", "venv", "--without-pip", venv, cwd=folder)
            install = ("install", "--no-compile", "-c", ROOT / "constraints.txt")
            run(*pip, *install, f"{source}{wanted.extras}", cwd=folder)
        for words in wanted.then:
            run(*pip, *words, cwd=folder)
    except RuntimeError as error:
        return Report(wanted.name, f"{'not tried' if wanted.name in ONLINE else 'FAILED'}: pip: {error}")
    try:
        result = check_installed(wanted, venv, model, folder)
        if wanted == Environment("base"):
            result += f"; {check_hint(venv, pip, folder)}"
        if sbom is not None and (wanted.extras or wanted == Environment("base")):
            result += f"; SBOM of {sbom.write(wanted.name, venv)} packages"
    except (RuntimeError, AssertionError) as error:
        result = f"FAILED: {error}"
    size = sum(path.stat().st_size for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
    return Report(wanted.name, result, size / 1e6, time.monotonic() - began)


def check_installed(wanted: Environment, venv: Path, model: Path, folder: Path) -> str:
    """What works there, in a few words."""
    command = venv / "bin" / "at-infer"
    machine = json.loads(run(command, "doctor", "--json", cwd=folder))
    assert machine["broken"] is None, machine["broken"]
    assert len(machine["conflicts"]) == wanted.conflicts, machine["conflicts"]
    extra = wanted.extras.strip("[]")
    assert not extra or machine["extras"][extra]["installed"], f"doctor does not find {extra}"
    trains = machine["extras"]["export"]["installed"]
    run(command, "demo", "--quick", "-o", "demo", *(() if trains else ("--engine", model)), cwd=folder)
    assert (folder / "demo" / "report.html").stat().st_size > 10_000, "the demo has no report"
    said = [f"doctor, demo {'with training' if trains else 'by a given model'}"]
    if wanted.conflicts:
        said.append(f"{len(machine['conflicts'])} conflict named")
    if wanted.image is not None:
        check_health(dockerfile(wanted.image), venv, model, folder)
        said.append("healthy with watch only")
    if wanted.program is not None:
        said.append(run(venv / "bin" / "python", "-c", wanted.program, model, cwd=folder).strip())
    return "; ".join(said)


def check_hint(venv: Path, pip: Sequence[object], folder: Path) -> str:
    """What an error tells to install can be installed: pip finds everything."""
    hint = json.loads(run(venv / "bin" / "at-infer", "doctor", "--json", cwd=folder))["extras"]["report"]["get"]
    first, *words = shlex.split(hint)
    assert first == "pip", hint
    run(*pip, *words, "--dry-run", "-c", ROOT / "constraints.txt", cwd=folder)
    return "its hint for an extra works"


def dockerfile(image: str) -> Path:
    """By its name."""
    return ROOT / "docker" / f"{image}.Dockerfile"


def main() -> None:
    """Check contents, then every environment, one at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sbom", type=Path, metavar="CYCLONEDX_PY", help="write bills of materials with it")
    parser.add_argument("only", nargs="*", help="environments; all of them if none is named")
    args = parser.parse_args()
    version = run(sys.executable, "-c", "import at_infer; print(at_infer.__version__)", cwd=ROOT).strip()
    sources = {kind: next(args.folder.resolve().glob(f"at_infer-{version}*.{kind}")) for kind in ("whl", "tar.gz")}
    check_wheel(sources["whl"], version)
    check_sdist(sources["tar.gz"])
    print(f"{sources['whl'].name} and {sources['tar.gz'].name}: contents and metadata are whole")
    sbom = args.sbom and Sbom(args.sbom.absolute(), args.folder.resolve() / f"at-infer-{version}")
    failed = False
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "demo" / "model.onnx"
        run(sys.executable, "-m", "at_infer", "demo", "--quick", "-o", model.parent, cwd=ROOT)
        for wanted in environments():
            if args.only and wanted.name not in args.only:
                continue
            with tempfile.TemporaryDirectory() as folder:
                report = try_environment(wanted, sources[wanted.source], model, Path(folder), sbom)
            print(report, flush=True)
            failed |= report.result.startswith("FAILED")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
