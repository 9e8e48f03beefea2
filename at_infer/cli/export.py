"""`at-infer export`: a checkpoint in, ONNX graphs and a TensorRT plan out."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from at_infer.cli import published_options as given
from at_infer.cli.options import LogFormat, engine_option, panel, split_names
from at_infer.cli.terminal import say, set_log_format, show
from at_infer.config import DEFAULT_RATIO, PLAN_BATCHES, ExportPrecision, ScoreMode
from at_infer.errors import CheckpointError
from at_infer.installed import load_extra
from at_infer.output import check_folder

if TYPE_CHECKING:
    from export.graphs import Output
    from export.written import FileFacts

graph_option, check_option = panel("Graph"), panel("Parity check")


def export(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint written by at-infer train.", metavar="CHECKPOINT")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the files. Default: that of the checkpoint.")
    ] = None,
    name: Annotated[str, typer.Option(help="First part of the file names.")] = "model",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files of an earlier export.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON line on stdout.")] = False,
    log_format: LogFormat = "text",
    precision: Annotated[
        ExportPrecision,
        graph_option(help="Type of the large matrix products; int8 needs --calibration, int8-dynamic is for CPUs."),
    ] = "fp32",
    calibration: Annotated[
        str | None, graph_option(help="Parquet with calibration data for int8; also used for the parity check.")
    ] = None,
    score_mode: Annotated[
        ScoreMode | None, graph_option(help="Score mode of the graph. Default: the checkpoint's.")
    ] = None,
    outputs: Annotated[
        str | None,
        graph_option(
            help="Outputs of the score graph, comma separated: score, error, discrepancy, reconstruction, shape. "
            "Default: what its score mode needs."
        ),
    ] = None,
    engine: Annotated[
        Literal["auto", "tensorrt", "rtx", "none"],
        engine_option(help="auto: TensorRT if TensorRT and a GPU are present, else TensorRT-RTX, else none."),
    ] = "auto",
    engine_graph: Annotated[
        Literal["score", "associations"], engine_option(help="Graph to build the plan from.")
    ] = "score",
    compute_capability: Annotated[
        str | None, engine_option(help="GPUs to build for with TensorRT-RTX, such as 86,89,120.")
    ] = None,
    batch: Annotated[str, engine_option(help="Minimum, optimum and maximum batch size of the plan.")] = PLAN_BATCHES,
    portable: Annotated[
        bool,
        engine_option(
            "--portable",
            help="With --engine tensorrt: a plan for all GPUs from Ampere on and later TensorRT versions, but slower.",
        ),
    ] = False,
    triton: Annotated[
        Path | None, engine_option(help="Also write a model repository for NVIDIA Triton into this folder.")
    ] = None,
    check_data: Annotated[
        str | None, check_option(help="Parquet with real rows for the parity check. Default: --calibration.")
    ] = None,
    atol: Annotated[float | None, check_option(help="Absolute tolerance, for all outputs.")] = None,
    rtol: Annotated[float | None, check_option(help="Relative tolerance, for all outputs.")] = None,
    published: given.Published = False,
    window: given.Window = None,
    heads: given.Heads = None,
    scale_from: given.ScaleFrom = None,
    columns: given.Columns = None,
    exclude: given.Exclude = None,
    series_column: given.SeriesColumn = None,
    ratio: Annotated[
        float | None,
        given.published_option(
            help="Threshold: fraction of that file's rows above it.", show_default=str(DEFAULT_RATIO)
        ),
    ] = None,
) -> None:
    """Export a checkpoint to ONNX, and to a TensorRT plan where one can be built.

    model.onnx takes raw windows and returns scores, or the residuals that mode fusion needs; model.associations.onnx
    returns the reconstruction and the associations of every layer; model.trt with model.trt.json is the plan. Each
    ONNX file is run and compared with the PyTorch model; export stops if they differ.

    [bold]Examples[/bold]

      at-infer export ckpt.pt

      at-infer export ckpt.pt --precision int8 --calibration train.parquet --compute-capability 86,89

      at-infer export MSL_checkpoint.pth --published --window 100 --scale-from train.parquet -o msl
    """
    set_log_format(log_format)
    folder = checkpoint.parent if output is None else output
    check_folder(folder)
    load_extra("export", "export")
    from at_infer.engines.tensorrt.batching import BatchProfile
    from at_infer.models.kinds import file_sha256
    from export.config import ExportConfig
    from export.pipeline import export_model
    from export.to_tensorrt import parse_compute_capabilities
    from export.written import describe

    config = ExportConfig(
        name=name,
        precision=precision,
        score_mode=score_mode,
        outputs=None
        if outputs is None
        else cast("tuple[Output, ...]", tuple(split_names(outputs))),  # it rejects other names
        data=check_data or calibration,
        calibration=calibration,
        engine=engine,
        engine_graph=engine_graph,
        compute_capabilities=None
        if compute_capability is None
        else tuple(parse_compute_capabilities(compute_capability)),
        batch=BatchProfile.parse(batch),
        portable=portable,
        atol=atol,
        rtol=rtol,
    )
    lacking = given.PublishedOptions(window, heads, scale_from, columns, exclude, series_column, ratio)
    if published:
        source = lacking.read(checkpoint, score_mode)
    else:
        lacking.refuse(checkpoint)
        from training.checkpoint import Checkpoint

        source = Checkpoint.load(checkpoint)
    sha256 = file_sha256(checkpoint)

    try:
        report = export_model(
            source, sha256, folder, config, triton=triton, overwrite=overwrite, inputs=[checkpoint], say=say
        )
    except CheckpointError as error:
        raise CheckpointError(str(error).replace("checkpoint:", f"{checkpoint}:", 1)) from None
    rows = [describe(exported) for exported in report.files]
    if as_json:
        show(json.dumps({"files": [asdict(row) for row in rows], "no_engine": report.no_engine}))
        return
    _print_files(rows)
    if report.no_engine is not None:
        show(report.no_engine)
    show(f"next: at-infer score data.parquet --engine {report.files[0].path} -o scores.parquet")


def _print_files(rows: "list[FileFacts]") -> None:
    show(f"compared with PyTorch on {rows[0].windows} windows:")
    width = max(len(Path(row.file).name) for row in rows)
    for row in rows:
        if row.engine is not None:
            capabilities = ", ".join(str(number) for number in row.engine["compute_capabilities"])
            worth = f"{row.engine['flavour']} {row.engine['version']} for compute capability {capabilities}"
        elif row.agreement:
            found = row.agreement
            worth = (
                f"score off by {found['max_abs']:.1e} at most, rank correlation {found['spearman']:.6f}, "
                f"{found['verdicts_changed']:.3%} of verdicts changed"
            )
        else:
            output, off_by = max(row.max_abs.items(), key=lambda item: item[1])
            worth = f"{output} off by {off_by:.1e} at most"
        show(f"{Path(row.file).name:{width}}  {row.bytes / 1e6:6.2f} MB  {row.precision}  {worth}")
