"""Files are complete or absent: written beside their place, then renamed into it."""

import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from at_infer.errors import OutputError
from at_infer.untrusted import check_name

temporary_files: set[Path] = set()
"""Those that are being written."""


_say: ContextVar[Callable[[str], None]] = ContextVar("say", default=lambda _: None)


@contextmanager
def notes_to(say: Callable[[str], None]) -> Iterator[None]:
    """While this is open, `say` receives notes about outputs."""
    before = _say.set(say)
    try:
        yield
    finally:
        _say.reset(before)


def check_folder(folder: Path) -> None:
    """It is there, or can be made."""
    if not folder.is_dir() and (folder.exists() or not folder.parent.is_dir()):
        what = "is not a folder; choose another" if folder.exists() else "parent folder does not exist; create it"
        raise OutputError(f"{folder}: {what}")


def check_writable(path: Path, *, overwrite: bool, inputs: Iterable[str | Path | None] = ()) -> None:
    """Fail before the long work starts if its result could not be written to `path`.

    Only a regular file that is none of the command's `inputs` is ever replaced. A link is replaced itself, with a note.
    """
    check_name(path, OutputError)
    try:
        if path.is_dir():
            raise OutputError(f"{path}: is a folder; give a file name")
        _check_replaceable(path)
        _refuse_inputs(path, inputs)
        target = path.readlink() if path.is_symlink() else None
        if target is not None and not overwrite:
            raise OutputError(
                f"{path}: exists already, a link to {target}; pass overwrite=True to replace the link, which leaves "
                f"{target} as it is"
            )
        if path.exists() and not overwrite:
            raise OutputError(f"{path}: exists already; pass overwrite=True to replace it")
        if not path.parent.is_dir():
            raise OutputError(f"{path}: folder {path.parent} does not exist; create it or choose another")
        probe = _temporary(path)
        _create(probe)
        probe.unlink()
    except OSError as error:
        raise OutputError(f"{path}: cannot write to folder {path.parent} ({error.strerror})") from None
    if target is not None:
        _say.get()(f"note: {path}: is a link to {target}; the link is replaced, {target} stays as it is")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary sibling of `path` to write to; it takes the place of `path` if the block succeeds."""
    with atomic_paths([path]) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The same for several files: none takes its place before all are on the disk."""
    with ExitStack() as made:
        written = [made.enter_context(_beside(path)) for path in paths]
        yield written
        for temporary, path in zip(written, paths, strict=True):
            with _naming(path), temporary.open("rb+") as file:
                os.fsync(file.fileno())
        for temporary, path in zip(written, paths, strict=True):
            with _naming(path):
                take_place(temporary, path)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """An empty file that is gone at the end, unless it has been renamed."""
    temporary = _temporary(path)
    _remove_leftovers(path)
    try:
        with _naming(path):
            _check_replaceable(path)
            temporary_files.add(temporary)
            _create(temporary, _mode(path))
            yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        temporary_files.discard(temporary)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: could not be written ({error.strerror or error})") from error


def take_place(temporary: Path, path: Path) -> None:
    """Rename a finished file; it keeps the mode of the one it replaces."""
    mode = _mode(path)
    if mode is not None:
        temporary.chmod(mode)
    temporary.replace(path)


def _check_replaceable(path: Path) -> None:
    """A device, a pipe or a socket is never replaced by a file, nor is a link to one, such as /dev/stdout."""
    is_magic = path.is_symlink() and str(path.readlink()).startswith("/proc/")
    with suppress(FileNotFoundError, NotADirectoryError):
        if is_magic or not stat.S_ISREG(path.stat().st_mode):
            raise OutputError(f"{path}: is not a regular file, and is not replaced by one; choose another output")


def _refuse_inputs(path: Path, inputs: Iterable[str | Path | None]) -> None:
    for one in inputs:
        with suppress(OSError, ValueError):  # absent, or a URL: never the output
            if one is not None and path.samefile(one):
                raise OutputError(f"{path}: is also the input {one}; choose another output")


def _create(temporary: Path, mode: int | None = None) -> None:
    """Create an empty file exclusively: an existing one of that name, such as a planted link, is not opened."""
    temporary.unlink(missing_ok=True)
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
    try:
        if mode is not None:
            os.fchmod(opened, mode)
    finally:
        os.close(opened)


def _mode(path: Path) -> int | None:
    """That of the file to be replaced; None for a new one, which gets what the umask leaves."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return stat.S_IMODE(found.st_mode) & 0o777 if stat.S_ISREG(found.st_mode) else None


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
