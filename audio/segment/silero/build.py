"""Rewrite Silero's network so that a frame takes a third of the time: `python -m audio.segment.silero.build`.

The original computes its convolutions frame by frame, over four places each, which is a product of matrices with four
columns. Here a place of all frames is a matrix with a row for each frame, and a convolution is a sum of products. The
weights are the original's, and the probabilities are the same up to rounding. It needs the packages silero-vad and
onnx, which nothing else does.

The network, for a frame of 512 samples behind 64 of the frame before:

    hops         640 samples, the last 64 mirrored, in five hops of 128
    spectrum     a Fourier transform of each two neighbouring hops: four magnitudes of 129 frequencies
    encoder      four convolutions, which leave four places, then two, then one: a vector of 128
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

    def add(self, kind: str, inputs: list[str], *outputs: str, **attributes: Any) -> tuple[str, ...]:  # noqa: ANN401  # as in onnx
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return outputs

    def product(self, factors: list[tuple[str, str]], result: str, bias: str | None = None) -> str:
        """Return the sum of products of rows and constants; each is added to the sum of those before it."""
        total = bias
        for number, (rows, constant) in enumerate(factors):
            inputs = [rows, constant] if total is None else [rows, constant, total]
            (total,) = self.add("Gemm", inputs, f"{result}, term {number}")
        assert total is not None
        return total

    def magnitude(self, place: int, hops: tuple[str, str]) -> str:
        """Return the magnitudes of the frequencies of two neighbouring hops, [frames, 129]."""
        basis = self._weights["stft.forward_basis_buffer"][:, 0].T
        halves = [self.constant(f"basis {half}", basis[128 * half :][:128]) for half in range(2)]
        spectrum = self.product(list(zip(hops, halves, strict=True)), f"spectrum {place}")
        (squares,) = self.add("Mul", [spectrum, spectrum], f"squares {place}")
        parts = self.add("Split", [squares], f"real {place}", f"imaginary {place}", axis=-1, num_outputs=2)
        (power,) = self.add("Add", list(parts), f"power {place}")
        (magnitude,) = self.add("Sqrt", [power], f"magnitudes {place}")
        return magnitude

    def convolution(self, layer: int, places: list[str], centre: int) -> str:
        """Apply a layer of the encoder to the place ``centre`` and its neighbours, as far as there are any."""
        kernel = self._weights[f"encoder.{layer}.weight"]  # [out, in, taps]
        factors = [
            (places[place], self.constant(f"weight {layer}, tap {tap}", kernel[:, :, tap].T))
            for tap, place in enumerate(range(centre - 1, centre + 2))
            if 0 <= place < len(places)
        ]
        bias = self.constant(f"bias {layer}", self._weights[f"encoder.{layer}.bias"])
        (positive,) = self.add(
            "Relu", [self.product(factors, f"sum {layer} at {centre}", bias)], f"{layer} at {centre}"
        )
        return positive


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
    add, constant = graph.add, graph.constant

    (mirrored,) = add("Pad", ["input", constant("64 at the end", np.array([0, 0, 0, 64]))], "mirrored", mode="reflect")
    hops = add("Split", [mirrored], *(f"hop {number}" for number in range(5)), axis=-1, num_outputs=5)
    places = [graph.magnitude(number, pair) for number, pair in enumerate(pairwise(hops))]
    first = [graph.convolution(0, places, centre) for centre in range(4)]
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
