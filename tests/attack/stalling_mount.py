"""A mount of one file whose reads can be held back, as those of a network mount: FUSE, spoken by hand. Needs root."""

import ctypes
import errno
import os
import select
import stat
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, ACCESS, INTERRUPT = 1, 2, 3, 14, 15, 18, 25, 26, 34, 36
BATCH_FORGET = 42
ROOT_NODE, FILE_NODE = 1, 2
LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2


def can_mount() -> bool:
    """Is there FUSE, and the right to mount?"""
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


class StallingMount:
    """`folder/name` with this content. Reads that begin in `held` wait, until `go_on` or `fail`."""

    def __init__(self, folder: Path, name: str, content: bytes, held: range) -> None:
        self.folder, self.name, self.content, self.held = folder, name, content, held
        self.stalled = threading.Event()
        """A read waits."""
        self._release, self._error = threading.Event(), 0

    def __enter__(self) -> Self:
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0".encode()
        if LIBC.mount(b"stalling", os.fsencode(self.folder), b"fuse", 0, options) != 0:
            os.close(self.device)
            raise OSError(ctypes.get_errno(), "cannot be mounted")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.fail()
        LIBC.umount2(os.fsencode(self.folder), MNT_DETACH)
        self._thread.join(10)
        os.close(self.device)

    def go_on(self) -> None:
        """The network is back."""
        self._release.set()

    def fail(self) -> None:
        """As a soft mount does after its time limit: an error of input."""
        if not self._release.is_set():
            self._error = errno.EIO
            self._release.set()

    def _serve(self) -> None:
        waiting: list[tuple[int, int, int]] = []
        while True:
            if waiting and self._release.is_set():
                for unique, at, size in waiting:
                    self._answer(unique, self.content[at : at + size], self._error)
                waiting.clear()
            if not select.select([self.device], [], [], 0.02)[0]:
                continue
            try:
                request = os.read(self.device, 1 << 20)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):  # the request was taken back
                    continue
                return  # unmounted
            _, code, unique, node = struct.unpack_from("<IIQQ", request)
            if code == READ:
                _, at, size = struct.unpack_from("<QQI", request, 40)
                if at in self.held and not (self._release.is_set() and not self._error):
                    waiting.append((unique, at, size))
                    self.stalled.set()
                else:
                    self._answer(unique, self.content[at : at + size])
            elif code not in (FORGET, BATCH_FORGET, INTERRUPT):  # these have no answer
                self._answer(unique, *self._reply(code, node, request))

    def _reply(self, code: int, node: int, request: bytes) -> tuple[bytes, int]:
        match code:
            case 26:  # INIT: no read-ahead, so that the end of the file can be read alone
                return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, 0), 0
            case 1:  # LOOKUP
                if request[40:].rstrip(b"\0") != self.name.encode():
                    return b"", errno.ENOENT
                return struct.pack("<QQQQII", FILE_NODE, 0, 60, 60, 0, 0) + self._attributes(FILE_NODE), 0
            case 3:  # GETATTR
                return struct.pack("<QII", 60, 0, 0) + self._attributes(node), 0
            case 14:  # OPEN
                return struct.pack("<QII", 0, 0, 0), 0
            case 18 | 25 | 34:  # RELEASE, FLUSH, ACCESS
                return b"", 0
        return b"", errno.ENOSYS

    def _attributes(self, node: int) -> bytes:
        size, mode = (len(self.content), stat.S_IFREG | 0o644) if node == FILE_NODE else (0, stat.S_IFDIR | 0o755)
        when = (1_700_000_000,) * 3
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, 1, *when, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _answer(self, unique: int, content: bytes, error: int = 0) -> None:
        content = b"" if error else content
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(content), -error, unique) + content)
        except OSError as failed:
            if failed.errno not in (errno.ENOENT, errno.ENODEV):  # who asked is gone
                raise
