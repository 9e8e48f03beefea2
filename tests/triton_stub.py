"""A stand-in for a Triton server: answers over its gRPC protocol, by ONNX Runtime. Prints its port.

python tests/triton_stub.py REPOSITORY
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import onnxruntime
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc


class Stub(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Models of a repository, as Triton would find them."""

    def __init__(self, repository: Path) -> None:
        self.sessions, self.configs = {}, {}
        for path in repository.glob("*/config.pbtxt"):
            config = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
            self.configs[config.name] = config
            self.sessions[config.name] = onnxruntime.InferenceSession(str(path.parent / "1" / "model.onnx"))

    def ModelConfig(self, request, _context):  # noqa: N802
        return service_pb2.ModelConfigResponse(config=self.configs[request.name])

    def ModelMetadata(self, request, _context):  # noqa: N802
        config = self.configs[request.name]
        answer = service_pb2.ModelMetadataResponse(name=request.name)
        for tensor in config.input:
            answer.inputs.add(name=tensor.name, datatype="FP32", shape=[-1, *tensor.dims])
        return answer

    def ModelInfer(self, request, context):  # noqa: N802
        (given,) = request.inputs
        assert given.datatype == "FP32"
        windows = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(given.shape)
        if len(windows) > self.configs[request.model_name].max_batch_size:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "batch is too large")
        names = [output.name for output in request.outputs]
        answer = service_pb2.ModelInferResponse(model_name=request.model_name)
        found = self.sessions[request.model_name].run(names, {given.name: windows})
        for name, values in zip(names, found, strict=True):
            answer.outputs.add(name=name, datatype="FP32", shape=values.shape)
            answer.raw_output_contents.append(values.tobytes())
        return answer


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Stub(Path(sys.argv[1])), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    time.sleep(600)  # who started it ends it


if __name__ == "__main__":
    main()
