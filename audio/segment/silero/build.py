"""Rewrite Silero's network so that a frame takes a third of the time: `python -m audio.segment.silero.build`.

The original computes its convolutions frame by frame, over four places each, which is a product of matrices with four
columns. Here the places of all frames are the rows of one matrix. The weights are the original's, and the probabilities
are the same up to rounding. It needs the packages silero-vad and onnx, which nothing else does.

The network, for a frame of 512 samples behind 64 of the frame before:

    hops         640 samples, the last 64 mirrored, in five hops of 128
    spectrum     a Fourier transform of each two neighbouring hops: four magnitudes of 129 frequencies
    encoder      four convolutions over these places, the second and third with a stride of two: one vector of 128
    recurrent    an LSTM over the frames
    output       the probability of speech
"""

from importlib.metadata import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

NETWORK = Path(__file__).with_name("network.onnx")
ORIGINAL = "silero_vad_16k_sequence.onnx"

_OPSET = 18
_IR_VERSION = 8  # which onnxruntime 1.20 reads
_STATE = (1, 1, 128)


class _Graph:
    """The nodes and constants so far."""

    def __init__(self, weights: dict[str, NDArray[np.float32]]) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self._weights = weights

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def numbers(self, *values: int) -> str:
        return self.constant(f"numbers {values}", np.array(values, np.int64))

    def add(self, kind: str, inputs: list[str], outputs: str | list[str], **attributes: Any) -> str:  # noqa: ANN401  # as in onnx
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return outputs[0]

    def neighbours(self, places: str, starts: tuple[int, ...], count: int, stride: int) -> str:
        """Join ``count`` places from each start on: [frames, places, width] to [frames, count, starts x width]."""
        ends = [start + (count - 1) * stride + 1 for start in starts]
        each = [
            self.add(
                "Slice",
                [places, self.numbers(start), self.numbers(end), self.numbers(1), self.numbers(stride)],
                f"{places} from {start}",
            )
            for start, end in zip(starts, ends, strict=True)
        ]
        return self.add("Concat", each, f"{places} joined", axis=-1)

    def convolution(self, joined: str, layer: int, taps: slice) -> str:
        """Apply a layer of the encoder to joined places; only ``taps`` of its kernel meet any."""
        kernel = self._weights[f"encoder.{layer}.weight"][:, :, taps]  # [out, in, taps]
        matrix = self.constant(f"weight {layer}", kernel.transpose(2, 1, 0).reshape(-1, len(kernel)))
        bias = self.constant(f"bias {layer}", self._weights[f"encoder.{layer}.bias"])
        product = self.add("MatMul", [joined, matrix], f"product {layer}")
        return self.add("Relu", [self.add("Add", [product, bias], f"sum {layer}")], f"layer {layer}")


def original() -> ModelProto:
    """Return the network as silero-vad has it."""
    for file in files("silero-vad") or ():
        if file.name == ORIGINAL:
            return onnx.load(str(file.locate()))
    raise FileNotFoundError(f"{ORIGINAL} is not in the installed package silero-vad")


def rewritten(network: ModelProto) -> ModelProto:
    """Return the network with products of matrices in place of its convolutions, with the same inputs and outputs."""
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in network.graph.initializer}
    graph = _Graph(weights)
    add, numbers = graph.add, graph.numbers

    add("Pad", ["input", numbers(0, 0, 0, 64)], "mirrored", mode="reflect")
    add("Reshape", ["mirrored", numbers(-1, 5, 128)], "hops")
    basis = graph.constant("basis", weights["stft.forward_basis_buffer"][:, 0].T)
    add("MatMul", [graph.neighbours("hops", (0, 1), 4, 1), basis], "spectrum")
    add("Mul", ["spectrum", "spectrum"], "squares")
    add("Split", ["squares"], ["real", "imaginary"], axis=-1, num_outputs=2)
    add("Sqrt", [add("Add", ["real", "imaginary"], "power")], "magnitudes")

    add("Pad", ["magnitudes", numbers(0, 1, 0, 0, 1, 0)], "places 0")
    first = graph.convolution(graph.neighbours("places 0", (0, 1, 2), 4, 1), 0, slice(0, 3))
    add("Pad", [first, numbers(0, 1, 0, 0, 0, 0)], "places 1")
    second = graph.convolution(graph.neighbours("places 1", (0, 1, 2), 2, 2), 1, slice(0, 3))
    # Of two places, and then of one, the other taps meet padding.
    both = add("Reshape", [second, numbers(-1, 128)], "places 2")
    fourth = graph.convolution(graph.convolution(both, 2, slice(1, 3)), 3, slice(1, 2))

    (lstm,) = (node for node in network.graph.node if node.op_type == "LSTM")
    tensors = [graph.constant(f"recurrent {number}", weights[name]) for number, name in enumerate(lstm.input[1:4])]
    add("Unsqueeze", [fourth, numbers(1)], "steps")
    add("LSTM", ["steps", *tensors, "", "h", "c"], ["states", "hn", "cn"], hidden_size=_STATE[-1])
    add("Reshape", [add("Relu", ["states"], "positive"), numbers(-1, _STATE[-1])], "vectors")
    output = graph.constant("output weight", weights["output.weight"][0])
    add("Gemm", ["vectors", output, graph.constant("output bias", weights["output.bias"])], "score")
    add("Reshape", [add("Sigmoid", ["score"], "probability"), numbers(-1)], "speech_probs")

    def value(name: str, *shape: str | int) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "silero",
            [value("input", "frames", 576), value("h", *_STATE), value("c", *_STATE)],
            [value("speech_probs", "frames"), value("hn", *_STATE), value("cn", *_STATE)],
            list(graph.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    onnx.checker.check_model(made, full_check=True)
    return made


if __name__ == "__main__":
    onnx.save(rewritten(original()), str(NETWORK))
