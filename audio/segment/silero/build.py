"""Rewrite Silero's network so that a frame takes a third of the time: `python -m audio.segment.silero.build`.

The original convolves frame by frame over four positions in time: matrix products with only four columns. Here each
position is a matrix over all frames, [frames, channels], and a convolution is a sum of matrix products. The weights are
the original's, and the probabilities are the same up to rounding. It needs the packages silero-vad and onnx.

The network, for a frame of 512 samples after the last 64 samples of the frame before:

    hops         these 576 samples and 64 mirrored at their end, in five hops of 128
    spectrum     the Fourier transform of each two neighbouring hops: 129 magnitudes at each of four positions
    encoder      four convolutions, with 4, 2, 1 and 1 positions: a vector of 128
    recurrent    an LSTM over the frames
    output       the probability of speech
"""

from importlib.metadata import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

NETWORK = Path(__file__).with_name("network.onnx")
ORIGINAL = "silero_vad_16k_sequence.onnx"

_OPSET = 18
_IR_VERSION = 8  # onnxruntime 1.20 reads it
_STATE = (1, 1, 128)  # layers, batch, width


class _Graph:
    """The nodes and constants of the network so far."""

    def __init__(self, weights: dict[str, NDArray[np.float32]]) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self._weights = weights

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def add(self, kind: str, inputs: list[str], *outputs: str, **attributes: Any) -> tuple[str, ...]:  # noqa: ANN401  # as in onnx
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return outputs

    def product(self, factors: list[tuple[str, str]], result: str, bias: str | None = None) -> str:
        """Return the sum of the matrix products of all factors, [frames, columns], and the bias."""
        total = bias
        for number, (rows, constant) in enumerate(factors):
            inputs = [rows, constant] if total is None else [rows, constant, total]
            (total,) = self.add("Gemm", inputs, f"{result}, term {number}")
        assert total is not None
        return total

    def magnitude(self, position: int, hops: tuple[str, str]) -> str:
        """Return the spectrum's magnitudes of two neighbouring hops, [frames, 129]."""
        basis = self._weights["stft.forward_basis_buffer"][:, 0].T
        halves = [self.constant(f"basis {half}", basis[128 * half :][:128]) for half in range(2)]
        spectrum = self.product(list(zip(hops, halves, strict=True)), f"spectrum {position}")
        (squares,) = self.add("Mul", [spectrum, spectrum], f"squares {position}")
        parts = self.add("Split", [squares], f"real {position}", f"imaginary {position}", axis=-1, num_outputs=2)
        (power,) = self.add("Add", list(parts), f"power {position}")
        (magnitude,) = self.add("Sqrt", [power], f"magnitudes {position}")
        return magnitude

    def convolution(self, layer: int, positions: list[str], centre: int) -> str:
        """Return the output of a layer of the encoder, [frames, out], at ``centre``; beyond the ends are zeros."""
        kernel = self._weights[f"encoder.{layer}.weight"]  # [out, in, taps]
        factors = [
            (positions[position], self.constant(f"weight {layer}, tap {tap}", kernel[:, :, tap].T))
            for tap, position in enumerate(range(centre - 1, centre + 2))
            if 0 <= position < len(positions)
        ]
        bias = self.constant(f"bias {layer}", self._weights[f"encoder.{layer}.bias"])
        (positive,) = self.add(
            "Relu", [self.product(factors, f"sum {layer} at {centre}", bias)], f"{layer} at {centre}"
        )
        return positive


def original() -> ModelProto:
    """Return the network of the package silero-vad."""
    for file in files("silero-vad") or ():
        if file.name == ORIGINAL:
            return onnx.load(str(file.locate()))
    raise FileNotFoundError(f"{ORIGINAL} is not in the installed package silero-vad")


def rewritten(network: ModelProto) -> ModelProto:
    """Return a network of matrix products instead of convolutions, with the same inputs and outputs."""
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in network.graph.initializer}
    graph = _Graph(weights)
    add, constant = graph.add, graph.constant

    (mirrored,) = add("Pad", ["input", constant("64 at the end", np.array([0, 0, 0, 64]))], "mirrored", mode="reflect")
    hops = add("Split", [mirrored], *(f"hop {number}" for number in range(5)), axis=-1, num_outputs=5)
    positions = [graph.magnitude(number, pair) for number, pair in enumerate(pairwise(hops))]
    first = [graph.convolution(0, positions, centre) for centre in range(4)]
    second = [graph.convolution(1, first, centre) for centre in (0, 2)]
    fourth = graph.convolution(3, [graph.convolution(2, second, 0)], 0)

    (lstm,) = (node for node in network.graph.node if node.op_type == "LSTM")
    tensors = [constant(f"recurrent {number}", weights[name]) for number, name in enumerate(lstm.input[1:4])]
    add("Unsqueeze", [fourth, constant("1", np.array([1]))], "steps")
    add("LSTM", ["steps", *tensors, "", "h", "c"], "states", "hn", "cn", hidden_size=_STATE[-1])
    add("Relu", ["states"], "positive")
    add("Reshape", ["positive", constant("a row for each frame", np.array([-1, _STATE[-1]]))], "vectors")
    output = constant("output weight", weights["output.weight"][0])
    add("Gemm", ["vectors", output, constant("output bias", weights["output.bias"])], "score")
    add("Sigmoid", ["score"], "probability")
    add("Reshape", ["probability", constant("a number for each frame", np.array([-1]))], "speech_probs")

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
