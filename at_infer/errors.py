"""Errors the user can fix."""


class AtInferError(Exception):
    """Something the user can fix; its message reads 'where: what; what to do'.

    The command line prints it as one line and exits with code 1. Any other exception is a bug and keeps
    its traceback.

    >>> from at_infer import AtInferError, Scorer
    >>> try:
    ...     Scorer("nothing.onnx")
    ... except AtInferError as error:
    ...     print(error)
    nothing.onnx: no such file
    """


class ConfigError(AtInferError, ValueError):
    """Settings that cannot work together, or a value outside its range."""


class DataError(AtInferError, ValueError):
    """The rows of an input file cannot be used as they are."""


class CheckpointError(AtInferError):
    """A checkpoint that is damaged, of another program, or unsuitable for its use."""


class OutputError(AtInferError):
    """A file cannot be written."""


class MissingExtraError(AtInferError):
    """An optional dependency is not installed."""


class NotFittedError(AtInferError, ValueError, AttributeError):
    """A detector that is not fitted yet; `hasattr` is false for its attributes, such as `threshold_`."""


class EngineError(AtInferError):
    """An exported model that cannot be opened or run here."""


class ExportError(AtInferError):
    """A model that cannot be exported as requested, or whose ONNX export differs from PyTorch."""


class ClusterError(AtInferError):
    """A Ray cluster that cannot be reached, or whose workers cannot do the work."""
