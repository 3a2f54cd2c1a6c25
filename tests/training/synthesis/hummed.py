"""A stand-in for Kokoro's files: a network with the same inputs and outputs that hums, and tables of styles."""

import numpy as np
import onnx
from onnx import TensorProto, helper

SECONDS_A_PHONEME, TABLES = 0.06, 3


def write(folder):
    """Write both files; return their paths."""
    model, styles = folder / "model.onnx", folder / "styles.npz"
    onnx.save(network(), model)
    np.savez(styles, **tables())
    return model, styles


def network():
    """Return a hum as long as the tokens at that speed; the style's first number is its pitch in kHz."""
    inputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "n"]),
        helper.make_tensor_value_info("style", TensorProto.FLOAT, [1, 256]),
        helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]),
    ]
    constants = {
        "samples a token": np.float32(24_000 * SECONDS_A_PHONEME),
        "zero": np.float32(0),
        "one": np.float32(1),
        "first": np.int64(0),
        "radians": np.float32(2 * np.pi * 1000 / 24_000),
        "level": np.float32(0.3),
        "scalar": np.array([], np.int64),
    }
    steps = [
        ("Size", ["tokens"], "count"),
        ("Cast", ["count"], "tokens said"),
        ("Mul", ["tokens said", "samples a token"], "samples"),
        ("Div", ["samples", "speed"], "stretched"),
        ("Reshape", ["stretched", "scalar"], "length"),
        ("Range", ["zero", "length", "one"], "time"),
        ("Flatten", ["style"], "row"),
        ("Reshape", ["row", "all"], "values"),
        ("Gather", ["values", "first"], "kilohertz"),
        ("Mul", ["kilohertz", "radians"], "pitch"),
        ("Mul", ["time", "pitch"], "phase"),
        ("Sin", ["phase"], "wave"),
        ("Mul", ["wave", "level"], "audio"),
    ]
    constants["all"] = np.array([-1], np.int64)
    nodes = [
        helper.make_node(name, inputs, [output], **({"to": TensorProto.FLOAT} if name == "Cast" else {}))
        for name, inputs, output in steps
    ]
    graph = helper.make_graph(
        nodes,
        "hum",
        inputs,
        [helper.make_tensor_value_info("audio", TensorProto.FLOAT, ["samples"])],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def tables():
    """Return style tables: their first number is 0.2, 0.3 and so on, a little more for each phoneme."""
    random = np.random.default_rng(0)
    found = {f"table{number}": random.normal(size=(510, 1, 256)).astype(np.float32) for number in range(TABLES)}
    for number, table in enumerate(found.values()):
        table[:, 0, 0] = 0.2 + 0.1 * number + np.arange(510) / 100_000
    return found
