"""Trace a trained Anomaly Transformer to ONNX and build TensorRT engines from it."""
