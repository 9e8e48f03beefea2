"""Lines of pipes and of files that grow, and the rows they say."""

import os
from pathlib import Path

import pytest

from at_infer.errors import ConfigError, DataError
from at_infer.live import lines as lines_module
from at_infer.live.lines import FollowedLines, PipedLines
from at_infer.live.rows import MissingColumnError, RowReader

# A file that grows


class Follower:
    """Follows a file and keeps what it says."""

    def __init__(self, path: Path, *, position=None, from_end=False) -> None:
        self.said: list[str] = []
        self.lines = FollowedLines(path, position=position, from_end=from_end, say=self.said.append)

    def read(self) -> list[tuple[int, bytes | None]]:
        """Number and text of all lines that are there now."""
        found, idle = [], 0
        while idle < 3:  # the end of a file, the turn to another, and its end
            block = self.lines.read(0)
            found += enumerate(block.lines, start=block.first)
            idle = 0 if block.lines else idle + 1
        return found


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthr")
    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_line_is_read_once_it_is_complete(log):
    follower = Follower(log)
    assert follower.read() == [(1, b"one"), (2, b"two")]
    append(log, "ee\nfo")
    assert follower.read() == [(3, b"three")]
    append(log, "ur\n")
    assert follower.read() == [(4, b"four")]
    assert follower.said == []


def test_a_renamed_file_is_read_to_its_end_before_the_one_in_its_place(log):
    follower = Follower(log)
    follower.read()
    log.rename(log.with_name("log.1"))
    assert follower.read() == []
    append(log.with_name("log.1"), "ee\nlast")
    assert follower.read() == [(3, b"three")]
    log.write_text("new\n")
    assert follower.read() == [(4, b"last"), (1, b"new")]
    assert follower.said == [f"{log}: was replaced; reading the new file"]


def test_a_file_replaced_twice_between_two_looks_is_the_last_one(log):
    follower = Follower(log)
    follower.read()
    for text in ("lost\n", "kept\n"):
        log.with_name("new").write_text(text)
        log.with_name("new").rename(log)
    assert follower.read() == [(3, b"thr"), (1, b"kept")]


def test_a_truncated_file_is_read_from_its_start(log):
    follower = Follower(log)
    follower.read()
    log.write_text("")
    assert follower.read() == []
    append(log, "again\n")
    assert follower.read() == [(1, b"again")]
    assert follower.said == [f"{log}: was truncated; reading it from its start"]


def test_from_the_end_only_lines_to_come_are_read_and_the_first_line_is_known(log):
    append(log, "ee\nunfini")
    lines = Follower(log, from_end=True).lines
    assert lines.read(0).lines == []
    append(log, "shed\n")
    block = lines.read(0)
    assert (block.lines, block.first, block.header) == ([b"unfinished"], 4, b"one")
    append(log, "five\n")
    assert lines.read(0).header is None


def test_a_position_leads_to_the_first_line_that_was_not_read(log):
    first = Follower(log)
    first.read()
    position = first.lines.position()
    append(log, "ee\n")
    second = Follower(log, position=position)
    block = second.lines.read(0)
    assert (block.lines, block.first, block.header) == ([b"three"], 3, b"one")
    assert second.said == []


def test_a_position_is_found_in_the_file_that_was_renamed_meanwhile(log):
    first = Follower(log)
    first.read()
    append(log, "ee\n")
    log.rename(log.with_name("log.1"))
    log.write_text("new\n")
    second = Follower(log, position=first.lines.position())
    assert second.read() == [(3, b"three"), (1, b"new")]
    assert second.said == [f"{log}: was replaced; reading the new file"]


@pytest.mark.parametrize("text", ["other\nlines\n", "one\n"])
def test_a_position_of_a_file_that_is_gone_is_not_used_for_another(log, text):
    first = Follower(log)
    first.read()
    position = first.lines.position()
    log.write_text(text)  # the same inode, as after a deletion it may be
    second = Follower(log, position=position)
    assert [line.decode() for _, line in second.read()] == text.split()
    assert second.said == [f"{log}: is not the file that the state was written for; reading it from its start"]


def test_only_files_are_followed(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name, what in (("fifo", "is not a file that grows"), ("absent", "no such file"), (".", "is not a file")):
        with pytest.raises(DataError, match=what):
            Follower(tmp_path / name)


# A pipe


def piped(text: bytes, tmp_path: Path) -> list[bytes | None]:
    (tmp_path / "in").write_bytes(text)
    with (tmp_path / "in").open("rb") as file:
        source = PipedLines(file.fileno())
        found = []
        while (block := source.read(0)) is not None:
            found += block.lines
    return found


def test_the_last_line_of_a_pipe_may_have_no_end(tmp_path):
    assert piped(b"a\n\nb", tmp_path) == [b"a", b"", b"b"]


def test_nothing_in_time_is_no_end():
    reading, writing = os.pipe()
    source = PipedLines(reading)
    assert source.read(0).lines == []
    os.write(writing, b"a\nb")
    assert source.read(0).lines == [b"a"]
    os.close(writing)
    assert source.read(0).lines == [b"b"]
    assert source.read(0) is None
    os.close(reading)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lines_module, "READ_BYTES", 10)
    monkeypatch.setattr(lines_module, "LONGEST_LINE", 20)
    long = b"x" * 100
    assert piped(b"a\n" + long + b"\nb\n" + long, tmp_path) == [b"a", None, b"b", None]


def test_a_folder_as_stdin_is_one_clear_sentence(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(DataError, match=r"stdin: cannot be read \(Is a directory\)"):
        PipedLines(fd).read(0)
    os.close(fd)


# Rows in JSON


def json_reader(**options) -> RowReader:
    return RowReader(["a", "b"], **options)


def test_a_json_object_is_a_row_by_name():
    row = json_reader(time_column="t", series_column="s").read(b' {"s": 1, "b": 2, "x": [], "t": "now", "a": null}\r')
    assert row == ((None, 2), 1, "now")


def test_a_single_feature_is_a_row_too():
    assert RowReader(["a"]).read(b'{"a": true}').values == (True,)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"a": 1, "b"', r"is not JSON \("),
        (b"[1, 2]", "is not a JSON object"),
        (b"7", "is not a JSON object"),
        (b"\xff\xfe", "is not UTF-8"),
        (None, "is too long"),
        (b"[" * 100_000, "is not JSON that can be read"),
        (b'{"a": ' + b"1" * 5000 + b', "b": 1}', "is not JSON that can be read"),
        (b'{"a": "1", "b": 1, "t": 1, "s": 1}', "column 'a' is '1', not a number"),
        (b'{"a": 1, "b": [1], "t": 1, "s": 1}', r"column 'b' is \[1\], not a number"),
        (b'{"a": 1, "t": 1, "s": 1}', "column 'b' is missing among 'a', 't', 's'"),
        (b'{"a": 1, "b": 1, "s": 1}', "the time column 't' is missing among"),
        (b'{"a": 1, "b": 1, "t": 1}', "the series column 's' is missing among"),
        (b'{"a": 1, "b": 1, "t": null, "s": 1}', "column 't' has no value"),
        (b'{"a": 1, "b": 1, "t": 1, "s": NaN}', "column 's' has no value"),
        (b'{"a": 1, "b": 1, "t": 1, "s": Infinity}', "column 's' is inf, neither text nor a number"),
        (b'{"a": 1, "b": 1, "t": 1, "s": {}}', "column 's' is {}, neither text nor a number"),
        (b"{}", "is missing among no columns"),
    ],
)
def test_a_line_of_json_that_is_no_row_is_refused(line, what):
    with pytest.raises(DataError, match=what):
        json_reader(time_column="t", series_column="s", format="json").read(line)


def test_a_row_without_a_column_tells_its_series():
    with pytest.raises(MissingColumnError) as caught:
        json_reader(series_column="s").read(b'{"s": "x", "a": 1}')
    assert caught.value.series == "x"


# Rows in CSV


def csv_reader(header: bytes = b"t,b,x,a,s", **options) -> RowReader:
    reader = RowReader(["a", "b"], time_column="t", series_column="s", **options)
    assert reader.read(b"\xef\xbb\xbf" + header + b"\r") is None
    return reader


def test_csv_is_read_by_the_names_in_its_header():
    assert csv_reader().read(b'5,1e3,"text, and more",-2,"pump ""7"""\r') == ([-2.0, 1000.0], 'pump "7"', "5")


def test_an_empty_field_is_missing_and_words_are_truth_values():
    assert csv_reader().read(b"5,,x,true,s").values == [True, None]
    assert csv_reader().read(b"5, 7 ,x,false,s").values == [False, 7.0]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"5,1,x,2", "has 4 fields, the header names 5"),
        (b"5,1,x,2,s,6", "has 6 fields, the header names 5"),
        (b"5,one,x,2,s", "column 'b' is 'one', not a number"),
        (b"5,1_000,x,2,s", "column 'b' is '1_000', not a number"),
        (b",1,x,2,s", "column 't' has no value"),
        (b"5,1,x,2,", "column 's' has no value"),
        (b'5,1,x,2,"s', r"is not CSV \("),
    ],
)
def test_a_line_of_csv_that_is_no_row_is_refused(line, what):
    with pytest.raises(DataError, match=what):
        csv_reader().read(line)


def test_a_value_with_an_underscore_in_another_column_is_no_matter():
    assert csv_reader().read(b"5,1,x_y,2,s_1") == ([2.0, 1.0], "s_1", "5")


def test_a_header_in_the_middle_counts_from_there_on():
    reader = csv_reader()
    assert reader.read(b"t,b,x,a,s") is None
    assert reader.read(b"a,b,s,t") == "the columns change to 'a', 'b', 's', 't'"
    assert reader.read(b"1,2,x,4") == ([1.0, 2.0], "x", "4")


def test_below_a_header_without_a_column_nothing_is_read_by_the_old_one():
    reader = csv_reader(b"t,a,b,s")
    with pytest.raises(DataError, match="column 'b' is missing among 't', 'a', 'c', 's'"):
        reader.read(b"t,a,c,s")
    with pytest.raises(DataError, match="is not a JSON object, nor a CSV header"):
        reader.read(b"1,2,3,x")
    assert reader.read(b"t,b,a,s") is None
    assert reader.read(b"1,2,3,x") == ([3.0, 2.0], "x", "1")


def test_a_series_named_like_a_column_is_no_header():
    with pytest.raises(DataError, match="column 'b' is 'oops', not a number"):
        csv_reader(b"t,a,b,s").read(b"1,2,oops,a")


def test_the_first_line_tells_json_from_csv_for_every_file():
    reader = json_reader()
    assert reader.read(b"") is None
    with pytest.raises(DataError, match="is not a JSON object, nor a CSV header"):
        reader.read(b"garbage")
    assert reader.read(b'{"a": 1, "b": 2}').values == (1, 2)
    with pytest.raises(DataError, match="is not JSON"):
        reader.read(b"a,b")
    reader.start()
    assert reader.read(b"b,a") is None
    assert reader.read(b"1,2").values == [2.0, 1.0]


@pytest.mark.parametrize(
    ("header", "what"), [(b"a,t,s", "column 'b' is missing"), (b"a,b,t,s,a", "column 'a' is there twice")]
)
def test_a_header_that_cannot_be_used_is_refused(header, what):
    reader = RowReader(["a", "b"], time_column="t", series_column="s", format="csv")
    with pytest.raises(DataError, match=rf"is not a CSV header \({what}"):
        reader.read(header)


def test_names_can_be_given_for_csv_without_a_header():
    reader = RowReader(["a", "b"], header=["b", "a"])
    assert reader.read(b"1,2").values == [2.0, 1.0]
    reader.start()
    assert reader.read(b"b,a") is None, "it may have one all the same"
    assert reader.read(b"3,4").values == [4.0, 3.0]
    with pytest.raises(ConfigError, match="header: column 'b' is missing among 'a'; name every column"):
        RowReader(["a", "b"], header=["a"])
    with pytest.raises(ConfigError, match="leave `header` out"):
        RowReader(["a", "b"], header=["a", "b"], format="json")


def test_one_column_cannot_be_time_and_series():
    with pytest.raises(ConfigError, match="cannot be the time and the series column at once"):
        RowReader(["a"], time_column="t", series_column="t")
