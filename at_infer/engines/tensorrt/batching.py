"""Which batch sizes a plan was tuned for, and how any number of windows is cut into them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from at_infer.config import PLAN_BATCHES
from at_infer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BatchProfile:
    """Smallest, best and largest batch of a plan; TensorRT tunes its kernels for the one in the middle."""

    min: int
    opt: int
    max: int

    def __post_init__(self) -> None:
        if not 1 <= self.min <= self.opt <= self.max:
            raise ConfigError(
                f"batch: {self} is not a profile; give smallest:best:largest, each at least 1 and none falling, "
                f"as in {PLAN_BATCHES}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """`1:32:256`, or one number for a plan of a single batch size."""
        parts = text.split(":")
        if len(parts) not in (1, 3) or not all(part.isascii() and part.isdigit() for part in parts):
            raise ConfigError(f"batch: {text!r} is not a profile; give smallest:best:largest, as in {PLAN_BATCHES}")
        return cls(*(int(part) for part in (parts * 3 if len(parts) == 1 else parts)))

    def __str__(self) -> str:
        return f"{self.min}:{self.opt}:{self.max}"

    def as_list(self) -> list[int]:
        """As in the metadata."""
        return [self.min, self.opt, self.max]


DEFAULT_PROFILE = BatchProfile.parse(PLAN_BATCHES)


@dataclass(frozen=True, slots=True)
class Piece:
    """Windows `start` to `start + count`, run as a batch of `size`; the difference is padding."""

    start: int
    count: int
    size: int


def cut(windows: int, profile: BatchProfile) -> Iterator[Piece]:
    """Cut a number of windows into batches of the profile's three sizes, so that each needs only one CUDA graph.

    Largest batches first, then best ones; only the last piece is padded, by less than one best batch.
    """
    start = 0
    while left := windows - start:
        if left >= profile.max:
            size = profile.max
        elif left <= profile.min:
            size = profile.min  # a single window must not pay for a whole batch
        else:
            size = profile.opt
        piece = Piece(start, min(left, size), size)
        yield piece
        start += piece.count
