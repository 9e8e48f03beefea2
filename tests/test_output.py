"""Files are complete or absent."""

import os
from pathlib import Path

import pytest

from at_infer.errors import OutputError
from at_infer.output import atomic_path, check_writable

NEVER_WRITABLE = Path("/proc")  # not even for root


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_place_that_can_be_written_passes_and_stays_as_it_was(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.pt", overwrite=False)
    assert names(tmp_path) == []
    (tmp_path / "old.pt").write_text("old")
    check_writable(tmp_path / "old.pt", overwrite=True)
    assert (tmp_path / "old.pt").read_text() == "old"


def test_a_file_name_without_a_folder_is_in_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_writable(Path("new.pt"), overwrite=False)
    with atomic_path(Path("new.pt")) as temporary:
        temporary.write_text("x")
    assert names(tmp_path) == ["new.pt"]


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    def refused(path: Path, *, overwrite: bool = True) -> str:
        with pytest.raises(OutputError) as error:
            check_writable(path, overwrite=overwrite)
        return str(error.value)

    (tmp_path / "old.pt").touch()
    assert refused(tmp_path) == f"{tmp_path}: is a folder; give a file name"
    assert "exists already; pass overwrite=True" in refused(tmp_path / "old.pt", overwrite=False)
    assert f"folder {tmp_path}/no does not exist" in refused(tmp_path / "no" / "x.pt")
    assert f"folder {tmp_path}/old.pt does not exist" in refused(tmp_path / "old.pt" / "x.pt")
    assert "cannot write to folder /proc" in refused(NEVER_WRITABLE / "x.pt")
    assert "File name too long" in refused(tmp_path / ("x" * 300))
    assert names(tmp_path) == ["old.pt"]


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert temporary.parent == tmp_path
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["x.pt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "x.pt"
    path.write_text("old")

    def fail() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.pt"]


def test_an_error_of_the_file_system_is_the_users_to_fix(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match=r"x.pt: could not be written \(No space left on device\)"),
        atomic_path(tmp_path / "x.pt"),
    ):
        raise OSError(28, os.strerror(28))
    with pytest.raises(OutputError, match="could not be written"), atomic_path(NEVER_WRITABLE / "x.pt") as temporary:
        temporary.write_text("x")
    assert names(tmp_path) == []


def test_what_a_killed_run_left_is_removed_and_what_a_running_one_writes_is_kept(tmp_path):
    path = tmp_path / "out[1].parquet"
    dead = tmp_path / ".out[1].parquet.999999999.tmp"
    alive = tmp_path / ".out[1].parquet.1.tmp"
    other = tmp_path / ".out1.parquet.999999999.tmp"
    for leftover in (dead, alive, other):
        leftover.touch()
    with atomic_path(path) as temporary:
        temporary.write_text("new")
    assert not dead.exists()
    assert alive.exists()
    assert other.exists()


def test_the_current_folder_is_no_file_name():
    with pytest.raises(OutputError, match="is a folder"):
        check_writable(Path(), overwrite=True)
