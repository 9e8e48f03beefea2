"""Running plans of TensorRT and TensorRT-RTX on a GPU."""
