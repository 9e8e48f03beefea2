"""Reading ahead and writing behind: bounded, in order, and no error is lost."""

import threading
from collections.abc import Iterator

import pytest

from at_infer.scoring.overlap import ReadAhead, WriteBehind


class OddError(Exception):
    pass


def put_many(writer: WriteBehind[int]) -> None:
    for i in range(1, 10_000):
        writer.put(i)


def test_items_come_in_order_and_end() -> None:
    reader = ReadAhead(iter(range(1, 100)))
    assert list(reader) == list(range(1, 100))
    reader.close()
    assert reader.busy_s > 0


def test_items_that_are_false_do_not_end_the_stream() -> None:
    assert list(ReadAhead(iter([0, "", [], 1]))) == [0, "", [], 1]


def test_an_error_of_the_reader_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OddError("broken")

    reader = ReadAhead(items())
    coming = iter(reader)
    assert [next(coming), next(coming)] == [1, 2]
    with pytest.raises(OddError, match="broken"):
        next(coming)
    reader.close()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_reader_never_runs_further_ahead_than_it_may(depth: int) -> None:
    made, taken, ahead = 0, 0, []

    def items() -> Iterator[int]:
        nonlocal made
        for _ in range(50):
            made += 1
            ahead.append(made - taken)
            yield made

    reader = ReadAhead(items(), depth)
    for _ in reader:
        taken += 1
    # One in hand that waits for a place, one that was taken a moment before it was counted.
    assert max(ahead) <= depth + 2
    assert taken == 50


def test_closing_a_reader_that_waits_for_a_place_stops_it() -> None:
    made = []

    def items() -> Iterator[int]:
        while True:
            made.append(1)
            yield 1

    reader = ReadAhead(items(), 2)
    assert next(iter(reader)) == 1
    reader.close()
    count = len(made)
    assert count <= 5
    assert not any(thread.name == "read-ahead" for thread in threading.enumerate())
    assert len(made) == count


def test_closing_a_reader_in_the_middle_of_an_item_waits_for_that_item_only() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        begun.set()
        go_on.wait()
        yield 1
        raise AssertionError("nobody asked for more")

    reader = ReadAhead(items())
    begun.wait()
    threading.Timer(0.05, go_on.set).start()
    reader.close()
    assert go_on.is_set()


def test_everything_is_written_in_order_before_close_returns() -> None:
    written: list[int] = []
    writer = WriteBehind(written.append)
    for i in range(1, 50):
        writer.put(i)
    writer.close()
    assert written == list(range(1, 50))
    writer.close()


def test_the_writer_never_lags_further_behind_than_it_may() -> None:
    put, written, behind = 0, 0, []

    def write(_: int) -> None:
        nonlocal written
        behind.append(put - written)
        written += 1

    writer = WriteBehind(write, depth=2)
    for i in range(50):
        put += 1
        writer.put(i)
    writer.close()
    assert max(behind) <= 2 + 2  # in the queue, in hand, and one that waits to be queued
    assert written == 50


def test_an_error_of_the_writer_reaches_the_next_put_and_nothing_more_is_written() -> None:
    written, failed = [], threading.Event()

    def write(item: int) -> None:
        if item == 2:
            failed.set()
            raise OddError("disk full")
        written.append(item)

    writer = WriteBehind(write)
    with pytest.raises(OddError, match="disk full"):
        put_many(writer)
    assert failed.is_set()
    with pytest.raises(OddError):
        writer.close()
    assert written == [1]


def test_an_error_at_the_last_item_reaches_close_once() -> None:
    def write(_: int) -> None:
        raise OddError("disk full")

    writer = WriteBehind(write)
    writer.put(1)
    with pytest.raises(OddError):
        writer.close()
    writer.close()


def test_a_failed_writer_with_a_full_queue_does_not_block() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def write(_: int) -> None:
        begun.set()
        go_on.wait()
        raise OddError("disk full")

    writer = WriteBehind(write, depth=1)
    writer.put(1)
    begun.wait()
    writer.put(2)
    threading.Timer(0.05, go_on.set).start()
    with pytest.raises(OddError):
        put_many(writer)  # the first one waits until the writer has failed
    with pytest.raises(OddError):
        writer.close()
