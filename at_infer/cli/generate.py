"""`at-infer generate`: synthetic data for the other commands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from at_infer.cli.terminal import show
from at_infer.errors import ConfigError, OutputError
from at_infer.output import atomic_paths, check_writable

if TYPE_CHECKING:
    from at_infer.datasets import Family

FEATURES = {"univariate": 1, "multivariate": 5}
FILES = ("train.parquet", "validation.parquet", "test.parquet")


def generate(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the three files; created if necessary.")],
    kind: Annotated[
        str, typer.Option(metavar="univariate|multivariate", help="One feature, or five correlated ones.")
    ] = "univariate",
    features: Annotated[
        int | None, typer.Option(help="Number of features; overrides --kind.", show_default=False)
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Anomalies to make: point-global, point-contextual, pattern-shapelet, pattern-seasonal or "
            "pattern-trend. Repeat it for several; all five if not given.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        tuple[int, int, int],
        typer.Option(metavar="TRAIN VALIDATION TEST", help="Rows of each file."),
    ] = (20_000, 10_000, 20_000),
    share: Annotated[float, typer.Option(help="Share of anomalous rows in the test file.")] = 0.018,
    contamination: Annotated[
        float, typer.Option(help="Share of anomalous rows, without label, in the train and validation files.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Generate synthetic series: normal ones for training, and one with labelled anomalies for testing.

    A noisy sine with the five anomaly families of NeurIPS-TS (Lai et al. 2021), in the sizes the Anomaly
    Transformer paper uses. All files have the columns timestamp and f00, f01, ...; test.parquet also has
    label (0 or 1) and family ("normal" or the kind of anomaly).

    [bold]Example[/bold]: at-infer generate -o data --kind multivariate --share 0.05
    """
    if kind not in FEATURES:
        raise ConfigError(f"--kind: {kind!r} is not known; choose {' or '.join(FEATURES)}")
    paths = [output / name for name in FILES]
    if output.is_dir():
        for path in paths:
            check_writable(path, overwrite=overwrite)
    elif output.exists():
        raise OutputError(f"{output}: is a file; give a folder")

    from at_infer import datasets
    from at_infer.tables import write_table

    parts = datasets.generate(
        rows=rows,
        features=FEATURES[kind] if features is None else features,
        families=cast("list[Family]", family) if family else datasets.FAMILIES,  # it rejects other names
        share=share,
        contamination=contamination,
        seed=seed,
    )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{output}: cannot be created ({error.strerror}); choose another folder") from None

    with atomic_paths(paths) as temporary:  # all three, or none
        for target, columns in zip(temporary, datasets.as_columns(parts), strict=True):
            write_table(target, columns)
    for path, data in zip(paths, parts.values(), strict=True):
        length, width = data.values.shape
        features_text = "1 feature" if width == 1 else f"{width} features"
        show(f"{path}: {length} rows, {features_text}, {data.labels.sum()} anomalous rows")
