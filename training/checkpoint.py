"""Checkpoints: tensors and plain values only, written atomically, loaded without running any code."""

import io
import textwrap
import warnings
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from at_infer.errors import AtInferError, CheckpointError
from at_infer.models.agreement import check_knowledge
from at_infer.models.knowledge import Knowledge
from at_infer.models.statistics import upgrade_validation
from at_infer.output import atomic_path
from at_infer.untrusted import check_regular, typed_fields
from training.model import AnomalyTransformer

FORMAT = 2
MOST_VALUES = 10_000_000
"""Outside of tensors."""
FOLDER = 0x10
"""Bit among the attributes of an entry of a zip archive: torch reads nothing of it, in silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Knowledge):
    """A trained model and all that scoring with it needs."""

    state_dict: dict[str, Tensor]
    train: dict[str, Any]
    """TrainConfig, data, versions, sha256 of the checkpoint it started from, history per step and per evaluation."""

    def network(self) -> AnomalyTransformer:
        """The network with its weights, ready to score."""
        network = AnomalyTransformer(self.model)
        network.load_state_dict(self.state_dict)
        return network.eval()

    def save(self, path: Path) -> None:
        """Write the checkpoint, or nothing."""
        write_tensors(path, {"format": FORMAT, **self.to_dict()})

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Read a checkpoint written by `at-infer train`."""
        content = read_tensors(path)
        if not isinstance(content, dict) or not isinstance(content.get("format"), int):
            hint = ""
            if isinstance(content, dict) and any(str(key).startswith("encoder.attn_layers") for key in content):
                hint = "; it looks like one of the published implementation, load it with `published`"
            raise CheckpointError(f"{path}: is not a checkpoint of at-infer{hint}")
        if content["format"] not in (1, FORMAT):
            raise CheckpointError(
                f"{path}: has checkpoint format {content['format']}, this version reads 1 and {FORMAT}; "
                f"upgrade at-infer"
            )
        try:
            if content["format"] == 1:
                content = upgrade_validation(content)
            earlier = {"normal": None, "season": None, "spacing": None, "grid": None}
            plain = {entry.name: {**earlier, **content}[entry.name] for entry in fields(cls)}
            checkpoint = cls(**typed_fields(cls, plain))
            checkpoint._check()
        except KeyError as error:
            raise CheckpointError(f"{path}: is damaged or was edited (no {error})") from None
        except (AttributeError, TypeError, ValueError, RuntimeError, AtInferError) as error:
            reason = textwrap.shorten(str(error), 200)
            raise CheckpointError(f"{path}: is damaged or was edited ({reason})") from None
        return checkpoint

    def _check(self) -> None:
        """Raise if the parts do not fit each other."""
        check_knowledge(self)
        with torch.device("meta"):  # shapes only: a size that was made up allocates nothing
            # A plain copy: torch notes in a state_dict that it was assigned, and would assign it ever after.
            AnomalyTransformer(self.model).load_state_dict(dict(self.state_dict), assign=True)


def write_tensors(path: Path, content: dict[str, Any]) -> None:
    """Save tensors and plain values atomically."""
    with atomic_path(path) as temporary:
        whole = io.BytesIO()  # torch's own file writer speaks of "unexpected pos" where the disk is full
        torch.save(content, whole)
        temporary.write_bytes(whole.getbuffer())


def read_tensors(path: Path) -> Any:
    """Load tensors and plain values; anything that would execute code is refused."""
    check_regular(path, CheckpointError)
    try:
        path.open("rb").close()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice about foreign files is not for our user
            if zipfile.is_zipfile(path):  # torch itself does not look at the checksums of its archive
                with zipfile.ZipFile(path) as archive:
                    if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                        raise CheckpointError(f"{path}: unpacks to more than it holds, as no checkpoint does; refused")
                    folders = [entry.filename for entry in archive.infolist() if entry.external_attr & FOLDER]
                    if folders or archive.testzip() is not None:
                        raise ValueError(f"damaged entries of {path}")
            content = torch.load(path, map_location="cpu", weights_only=True)
        _check_size(path, content)
        return content
    except CheckpointError:
        raise
    except Exception as error:  # foreign bytes make its readers stumble in every way there is
        if "GLOBAL" in str(error):
            raise CheckpointError(f"{path}: holds objects that could run code; refused") from None
        raise CheckpointError(f"{path}: is not a checkpoint, or is damaged") from None


def _check_size(path: Path, content: Any) -> None:
    """An object that is there once may be named often: what is small in a file may be endless to read."""
    values, inside = 0, [content]
    while inside:
        one = inside.pop()
        if isinstance(one, dict | list | tuple):
            values += len(one)
            if values > MOST_VALUES:
                raise CheckpointError(f"{path}: holds more than {MOST_VALUES // 1_000_000} million values; refused")
            inside += one.values() if isinstance(one, dict) else one
