"""Cutting windows into batches, and keeping two batches in flight on a device made of numpy."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from at_infer.engines.tensorrt.batching import BatchProfile, Piece, cut
from at_infer.engines.tensorrt.lanes import Lane, Slot, Tensor, compute_lanes, run_lanes
from at_infer.errors import ConfigError, EngineError
from tests.fake_gpu import ERROR, FEATURES, OUTPUTS, STEPS, WINDOW, FakeContext, FakeDevice, expected

profiles = st.tuples(*[st.integers(1, 40)] * 3).map(lambda sizes: BatchProfile(*sorted(sizes)))


@pytest.mark.parametrize("text", ["1:32:256", "8:8:8", "1:1:2"])
def test_a_profile_reads_as_it_is_written(text):
    assert str(BatchProfile.parse(text)) == text


def test_one_number_is_a_plan_of_one_batch_size():
    assert BatchProfile.parse("16") == BatchProfile(16, 16, 16)


@pytest.mark.parametrize("text", ["", "1:2", "0:1:2", "3:2:1", "1:32:16", "a:b:c", "1:2:3:4", "-1:2:3", "1.5:2:3", "²"])
def test_a_profile_that_makes_no_sense_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=r"batch: .*1:32:256"):
        BatchProfile.parse(text)


def test_large_batches_come_first_and_the_rest_is_padded_to_the_best_size():
    assert list(cut(300, BatchProfile(1, 32, 256))) == [Piece(0, 256, 256), Piece(256, 32, 32), Piece(288, 12, 32)]


def test_a_single_window_runs_alone():
    assert list(cut(1, BatchProfile(1, 32, 256))) == [Piece(0, 1, 1)]


@given(windows=st.integers(0, 500), profile=profiles)
def test_pieces_cover_every_window_once_in_order_in_sizes_of_the_profile(windows, profile):
    pieces = list(cut(windows, profile))
    assert [i for piece in pieces for i in range(piece.start, piece.start + piece.count)] == list(range(windows))
    assert {piece.size for piece in pieces} <= set(profile.as_list())
    assert all(1 <= piece.count <= piece.size for piece in pieces)


@given(windows=st.integers(1, 500), profile=profiles)
def test_only_the_last_piece_is_padded_and_by_less_than_a_best_batch(windows, profile):
    *full, last = cut(windows, profile)
    assert all(piece.count == piece.size for piece in full)
    assert last.size - last.count < profile.opt


def make_lanes(device, *, count=2, capture=True, largest=1000):
    def new_slot(stream, size):
        return Slot(device, stream, FakeContext(device, largest), (WINDOW, OUTPUTS), size)

    return [Lane(device, new_slot, capture=capture) for _ in range(count)]


def make_windows(count):
    return np.random.default_rng(count).normal(size=(count, STEPS, FEATURES)).astype(np.float32)


def assert_same(found, windows):
    for name, values in expected(windows).items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], values)


@given(count=st.integers(0, 60), profile=profiles, lanes=st.integers(1, 3), capture=st.booleans())
def test_outputs_come_back_in_order_without_padding(count, profile, lanes, capture):
    device = FakeDevice()
    windows = make_windows(count)
    assert_same(run_lanes(make_lanes(device, count=lanes, capture=capture), windows, profile, OUTPUTS), windows)


def test_two_batches_are_in_flight_at_a_time():
    device = FakeDevice()
    run_lanes(make_lanes(device), make_windows(40), BatchProfile(1, 4, 8), OUTPUTS)
    assert device.most_in_flight == 2


def test_each_lane_captures_a_graph_per_batch_size_after_its_first_run_and_then_launches_it():
    device = FakeDevice()
    lanes, windows, profile = make_lanes(device), make_windows(8 * 6), BatchProfile(1, 4, 8)
    run_lanes(lanes, windows, profile, OUTPUTS)
    assert (len(device.graphs), device.launches) == (2, 4)
    assert_same(run_lanes(lanes, windows, profile, OUTPUTS), windows)
    assert (len(device.graphs), device.launches) == (2, 10)
    assert_same(run_lanes(lanes, windows[:3], profile, OUTPUTS), windows[:3])
    assert len(device.graphs) == 3


def test_without_graphs_nothing_is_captured():
    device = FakeDevice()
    run_lanes(make_lanes(device, capture=False), make_windows(40), BatchProfile(1, 4, 8), OUTPUTS)
    assert not device.graphs


def test_a_failed_capture_is_an_error_that_names_the_way_out():
    device = FakeDevice()
    device.capture_fails = True
    with pytest.raises(EngineError, match=r"capturing a CUDA graph failed; open the plan with cuda_graph=False"):
        run_lanes(make_lanes(device), make_windows(3), BatchProfile(1, 4, 8), OUTPUTS)


def test_buffers_are_made_once_per_batch_size_and_lane():
    device = FakeDevice()
    lanes, profile = make_lanes(device), BatchProfile(1, 4, 8)
    for _ in range(3):
        run_lanes(lanes, make_windows(8 * 4), profile, OUTPUTS)
    assert device.pinned_shapes == [(8, STEPS, FEATURES), (8, STEPS), (8, STEPS, FEATURES)] * 2


def test_a_buffer_holds_the_whole_batch():
    assert ERROR.nbytes(7) == 7 * STEPS * 4
    assert Tensor("half", (2, 3), np.dtype(np.float16)).nbytes(5) == 60


def test_a_refused_shape_is_told():
    with pytest.raises(EngineError, match="TensorRT refused a batch of 8"):
        run_lanes(make_lanes(FakeDevice(), largest=4), make_windows(8), BatchProfile(1, 4, 8), OUTPUTS)


def test_after_an_interruption_nothing_is_left_in_flight_and_the_next_run_is_right():
    device = FakeDevice()
    lanes, profile, windows = make_lanes(device), BatchProfile(1, 4, 8), make_windows(30)
    waits = itertools.count()
    wait = device.wait

    def interrupted_wait(stream):
        if next(waits) == 1:
            raise KeyboardInterrupt
        wait(stream)

    device.wait = interrupted_wait
    with pytest.raises(KeyboardInterrupt):
        run_lanes(lanes, windows, profile, OUTPUTS)
    assert not any(device.queues.values())
    device.wait = wait
    assert_same(run_lanes(lanes, windows, profile, OUTPUTS), windows)


def test_computing_without_copies_repeats_the_last_batches_on_the_device():
    device = FakeDevice()
    lanes, profile, windows = make_lanes(device), BatchProfile(1, 4, 8), make_windows(29)
    run_lanes(lanes, windows, profile, OUTPUTS)
    graphs, pinned = len(device.graphs), list(device.pinned_shapes)
    for memory in [memory for memory in device.memory.values() if len(memory) == ERROR.nbytes(8)]:
        memory[:] = bytes(len(memory))
    compute_lanes(lanes, 29, profile)
    assert device.pinned_shapes == pinned
    answers = [np.frombuffer(memory, np.float32) for memory in device.memory.values() if len(memory) == ERROR.nbytes(8)]
    found = {round(float(answer[0]), 5) for answer in answers}
    assert found == {round(float(windows[start].mean(-1)[0]), 5) for start in (8, 16)}  # the last of each lane
    compute_lanes(lanes, 29, profile)
    assert len(device.graphs) == 2 * graphs  # one more for every batch size of every lane


def test_computing_before_anything_ran_is_refused():
    with pytest.raises(EngineError, match="no batch of 8 has run yet"):
        compute_lanes(make_lanes(FakeDevice()), 8, BatchProfile(1, 4, 8))
