"""Files are complete or absent: written beside their place, then renamed into it."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from at_infer.errors import OutputError


def check_writable(path: Path, *, overwrite: bool) -> None:
    """Fail before the long work starts if its result could not be written to `path`."""
    try:
        if path.is_dir():
            raise OutputError(f"{path}: is a folder; give a file name")
        if path.exists() and not overwrite:
            raise OutputError(f"{path}: exists already; pass overwrite=True to replace it")
        if not path.parent.is_dir():
            raise OutputError(f"{path}: folder {path.parent} does not exist; create it or choose another")
        probe = _temporary(path)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(f"{path}: cannot write to folder {path.parent} ({error.strerror})") from None


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary sibling of `path` to write to; it takes the place of `path` if the block succeeds."""
    temporary = _temporary(path)
    _remove_leftovers(path)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: could not be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """The same name for every run with this process id, hidden, and on the same file system."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _remove_leftovers(path: Path) -> None:
    """A run that was killed while it wrote could not clean up after itself."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        pid = leftover.suffixes[-2].removeprefix(".") if len(leftover.suffixes) > 1 else ""
        if pid.isdigit() and not _is_running(int(pid)):
            with suppress(OSError):
                leftover.unlink()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # someone else's, or no process at all
        return True
    return True
