"""All files of an export, or none: they are written beside their place and take it together."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from at_infer.errors import OutputError
from at_infer.output import take_place


@contextmanager
def staged_files(folder: Path) -> Iterator[Path]:
    """A hidden folder beside the results; gone afterwards, whatever happens."""
    staging = folder / f".at-infer-export.{os.getpid()}"
    is_new = not folder.exists()
    try:
        staging.mkdir(parents=is_new)
        yield staging
    except OSError as error:
        raise OutputError(f"{folder}: could not be written ({error.strerror or error})") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # results are in it
                folder.rmdir()


def publish(staging: Path, folder: Path, *, stale: Sequence[Path]) -> None:
    """Put the finished files in place; what an earlier export left and this one did not write goes."""
    written = sorted(staging.iterdir())
    for path in written:
        take_place(path, folder / path.name)
    for path in stale:
        if path.name not in {file.name for file in written}:
            path.unlink(missing_ok=True)
