"""Lines as they come: from a pipe, or from a file that grows, is rotated and is truncated."""

import os
import select
import stat
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from at_infer.errors import DataError

READ_BYTES = 1 << 16
LONGEST_LINE = 1 << 24
POLL_S = 0.05
HEAD_BYTES = 1024  # the start of a file tells it from another that got its inode number

Say = Callable[[str], None]


@dataclass(slots=True)
class Block:
    """Whole lines, without their ends; None for one that is too long to be kept."""

    lines: list[bytes | None]
    first: int
    """Number of the first line in its file, from 1."""
    header: bytes | None = None
    """First line of the file, if this is the first block of it that is read and begins further down."""


@dataclass(frozen=True, slots=True)
class Position:
    """Position in a file, for a restart."""

    inode: int
    head: tuple[int, int]
    """Length of the file's start that is compared, and its checksum."""
    offset: int
    """Of the first line that was not given out."""
    lines: int
    """Given out so far."""


class Lines(Protocol):
    """A source of lines."""

    name: str
    """For messages."""

    def read(self, timeout_s: float) -> Block | None:
        """The next lines, none if none came in time; None at the end."""

    def position(self) -> Position | None:
        """Position for a restart; None if the input cannot be read again."""

    def close(self) -> None:
        """Close what was opened."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class _Cutter:
    """Cuts what was read of one file into lines."""

    def __init__(self, *, lines: int = 0, offset: int = 0) -> None:
        self.lines = lines
        """Given out so far."""
        self.read = offset
        """Bytes taken in so far."""
        self.rest = b""
        self.too_long = False

    @property
    def offset(self) -> int:
        """Where the first line starts that was not given out."""
        return self.read - len(self.rest)

    def cut(self, data: bytes) -> Block:
        """Lines that have come to their end."""
        self.read += len(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        lines: list[bytes | None] = [*whole]
        if self.too_long and lines:
            lines[0], self.too_long = None, False
        if self.too_long or len(self.rest) > LONGEST_LINE:
            self.rest, self.too_long = b"", True
        return self._block(lines)

    def end(self) -> Block:
        """The last line of a file may have no end."""
        last: list[bytes | None] = [None] if self.too_long else [self.rest] if self.rest else []
        self.rest, self.too_long = b"", False
        return self._block(last)

    def _block(self, lines: list[bytes | None]) -> Block:
        self.lines += len(lines)
        return Block(lines, self.lines - len(lines) + 1)


class PipedLines:
    """Lines of a file descriptor, until it ends."""

    def __init__(self, fd: int, name: str = "stdin") -> None:
        self.fd, self.name = fd, name
        self._cutter = _Cutter()
        self._ended = False

    def read(self, timeout_s: float) -> Block | None:
        """The data available now, or the first to arrive in time."""
        if self._ended:
            return None
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return self._cutter.cut(b"")
        try:
            data = os.read(self.fd, READ_BYTES)
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror})") from None
        self._ended = not data
        return self._cutter.cut(data) if data else self._cutter.end()

    def position(self) -> None:
        """A pipe does not go back."""
        return

    def close(self) -> None:
        """The descriptor belongs to the caller."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FollowedLines:
    """Lines of a file that grows, and of whatever takes its place under the same name; without end.

    A file that is renamed is read to its end before the new one. A file that shrinks is read from its start.
    """

    def __init__(self, path: Path, *, position: Position | None, from_end: bool, say: Say) -> None:
        self.path, self.name, self.say = path, str(path), say
        self._cutter = _Cutter()
        self._header: bytes | None = None
        self.fd = self._open(path)
        try:
            if position is not None:
                self._go_on(position)
            elif from_end:
                self._skip_to_end()
        except BaseException:
            os.close(self.fd)
            raise

    def read(self, timeout_s: float) -> Block:
        """What was added, or the first that is added in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            data = os.read(self.fd, READ_BYTES)
            block = self._cutter.cut(data) if data else self._turn_over()
            if block.lines:
                block.header, self._header = self._header, None
            left = deadline - time.monotonic()
            if block.lines or left <= 0:
                return block
            if not data:
                time.sleep(min(POLL_S, left))

    def position(self) -> Position:
        """File and place of the first line that was not given out."""
        length = min(self._cutter.offset, HEAD_BYTES)
        return Position(
            inode=os.fstat(self.fd).st_ino,
            head=(length, zlib.crc32(os.pread(self.fd, length, 0))),
            offset=self._cutter.offset,
            lines=self._cutter.lines,
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: Path) -> int:
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise DataError(f"{path}: is not a file that grows; pipe it into at-infer watch instead")
            return os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise DataError(f"{path}: no such file; it must exist at the start") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None

    def _turn_over(self) -> Block:
        """At the end of the file: is it still the one under that name, and as long as it was?"""
        nothing = self._cutter.cut(b"")
        mine = os.fstat(self.fd)
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return nothing  # renamed, and nothing in its place yet
        if (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino):
            if mine.st_size < self._cutter.read:
                self.say(f"{self.path}: was truncated; reading it from its start")
                os.lseek(self.fd, 0, os.SEEK_SET)
                self._cutter = _Cutter()
            return nothing
        if data := os.read(self.fd, READ_BYTES):  # written after the last look at it
            return self._cutter.cut(data)
        try:
            fresh = self._open(self.path)
        except DataError:
            if not self.path.exists():
                return nothing  # gone again
            raise
        self.say(f"{self.path}: was replaced; reading the new file")
        os.close(self.fd)
        last = self._cutter.end()
        self.fd, self._cutter = fresh, _Cutter()
        return last

    def _go_on(self, position: Position) -> None:
        """Find the file that was followed, under its name or as one of its neighbours, and the place in it."""
        candidates = [self.path]
        with suppress(OSError):
            candidates += [p for p in self.path.parent.iterdir() if p.stat().st_ino == position.inode]
        for path in candidates:
            with suppress(DataError):
                fd = self._open(path)
                if self._is_file_of(fd, position):
                    os.close(self.fd)
                    self.fd = fd
                    self._start_at(position.lines, position.offset)
                    return
                os.close(fd)
        self.say(f"{self.path}: is not the file that the state was written for; reading it from its start")

    def _is_file_of(self, fd: int, position: Position) -> bool:
        length, crc = position.head
        found = os.fstat(fd)
        same = found.st_ino == position.inode and found.st_size >= position.offset
        return bool(same and zlib.crc32(os.pread(fd, length, 0)) == crc)

    def _skip_to_end(self) -> None:
        """Start behind the last line that is complete."""
        lines = offset = read = 0
        while data := os.read(self.fd, READ_BYTES):
            if b"\n" in data:
                lines += data.count(b"\n")
                offset = read + data.rindex(b"\n") + 1
            read += len(data)
        self._start_at(lines, offset)

    def _start_at(self, lines: int, offset: int) -> None:
        if offset:
            first, end, _ = os.pread(self.fd, min(offset, LONGEST_LINE), 0).partition(b"\n")
            self._header = first if end else None
        os.lseek(self.fd, offset, os.SEEK_SET)
        self._cutter = _Cutter(lines=lines, offset=offset)
