"""Files are complete or absent."""

import os
from pathlib import Path

import pytest

from at_infer.errors import OutputError
from at_infer.output import atomic_path, atomic_paths, check_writable, notes_to

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


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to_pipe").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "to_pipe", Path("/dev/null"), Path("/dev/stdout")):
        with pytest.raises(OutputError, match="is not a regular file"):
            check_writable(path, overwrite=True)
    with (
        pytest.raises(OutputError, match="is not a regular file"),
        atomic_path(tmp_path / "pipe") as temporary,
    ):
        temporary.write_text("x")
    assert names(tmp_path) == ["pipe", "to_pipe"]


def test_an_input_of_the_command_is_never_its_output(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.touch()
    (tmp_path / "same.onnx").symlink_to(model)
    for output in (model, tmp_path / "same.onnx"):
        with pytest.raises(OutputError, match=r"is also the input .*model\.onnx; choose another output"):
            check_writable(output, overwrite=True, inputs=[None, "data://x", tmp_path / "absent", model])
    check_writable(tmp_path / "other", overwrite=True, inputs=[model])


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch()
    for mode in (0o600, 0o664):
        path.chmod(mode)
        with atomic_path(path) as temporary:
            assert temporary.stat().st_mode & 0o777 == mode
            temporary.write_text("new")
        assert path.stat().st_mode & 0o777 == mode


def test_a_link_is_replaced_itself_and_that_is_said(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    for target in (victim, tmp_path / "absent"):
        link.symlink_to(target)
        with pytest.raises(OutputError, match=r"exists already, a link to .*; pass overwrite=True to replace the link"):
            check_writable(link, overwrite=False)
        said: list[str] = []
        with notes_to(said.append):
            check_writable(link, overwrite=True)
        assert said == [f"note: {link}: is a link to {target}; the link is replaced, {target} stays as it is"]
        with atomic_path(link) as temporary:
            temporary.write_text("new")
        assert not link.is_symlink()
        assert victim.read_text() == "precious"
        link.unlink()


def test_a_link_planted_under_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    planted = tmp_path / f".out.{os.getpid()}.tmp"
    planted.symlink_to(victim)
    check_writable(tmp_path / "out", overwrite=False)
    planted.symlink_to(victim)
    with atomic_path(tmp_path / "out") as temporary:
        temporary.write_text("new")
    assert victim.read_text() == "precious"
    assert names(tmp_path) == ["out", "victim"]


def test_of_several_files_none_is_replaced_if_one_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, synced = [tmp_path / name for name in "abc"], []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 3:
            raise OSError(28, os.strerror(28))

    def write() -> None:
        with atomic_paths(paths) as temporary:
            for one in temporary:
                one.write_text("new")

    for path in paths:
        path.write_text("old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OutputError, match="c: could not be written"):
        write()
    assert [path.read_text() for path in paths] == ["old"] * 3
    assert len(list(tmp_path.iterdir())) == 3
    write()
    assert [path.read_text() for path in paths] == ["new"] * 3
