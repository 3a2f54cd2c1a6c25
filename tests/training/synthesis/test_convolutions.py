import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

from tests.training.synthesis import hummed
from training.synthesis import convolutions
from training.synthesis.convolutions import with_faster_convolutions

needs_exact_products = pytest.mark.skipif(
    not convolutions._products_are_exact(), reason="this processor's products of signed weights saturate"
)


def network(shapes, *, seed=0, strides=1, groups=1, named=True):
    """Return 8-bit convolutions of one input, each as (taps, dilation, before, after), and their input."""
    random = np.random.default_rng(seed)
    channels, nodes, constants, outputs = 4, [], [], []
    for number, (taps, dilation, before, after) in enumerate(shapes):
        weights = random.integers(0, 255, (6, channels // groups, taps), np.uint8, endpoint=True)
        constants += [
            from_array(weights, f"w{number}"),
            from_array(np.array(random.integers(256), np.uint8), f"z{number}"),
        ]
        nodes.append(
            helper.make_node(
                "ConvInteger",
                ["x", f"w{number}", "zero", f"z{number}"],
                [f"y{number}"],
                name=f"conv{number}" if named else None,
                dilations=[dilation],
                pads=[before, after],
                strides=[strides],
                group=groups,
            )
        )
        outputs.append(helper.make_tensor_value_info(f"y{number}", TensorProto.INT32, None))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, [1, channels, "time"]),
        helper.make_tensor_value_info("zero", TensorProto.UINT8, []),
    ]
    graph = helper.make_graph(nodes, "convolutions", inputs, outputs, constants)
    feed = {
        "x": random.integers(0, 255, (1, channels, 40), np.uint8, endpoint=True),
        "zero": np.array(random.integers(256), np.uint8),
    }
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return made.SerializeToString(), feed


def results(content, feed):
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feed)


def operators(content):
    return {node.op_type for node in onnx.load_model_from_string(content).graph.node}


shapes = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(0, 5), st.integers(0, 5))


@needs_exact_products
@given(shapes=st.lists(shapes, min_size=1, max_size=3), seed=st.integers(0, 2**31), named=st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_sum_is_what_it_was(shapes, seed, named):
    content, feed = network(shapes, seed=seed, named=named)

    faster = with_faster_convolutions(content)

    assert "ConvInteger" not in operators(faster)
    for before, after in zip(results(content, feed), results(faster, feed), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("other", [{"strides": 2}, {"groups": 2}])
def test_other_convolutions_stay(other):
    content, _ = network([(3, 1, 1, 1)], **other)

    assert with_faster_convolutions(content) == content


def test_a_network_without_them_stays():
    content = hummed.network().SerializeToString()

    assert with_faster_convolutions(content) == content


def test_where_products_saturate_the_network_stays(monkeypatch):
    monkeypatch.setattr(convolutions, "_products_are_exact", lambda: False)
    content, _ = network([(3, 1, 1, 1)])

    assert with_faster_convolutions(content) == content


def test_without_onnx_the_network_stays(monkeypatch):
    content, _ = network([(3, 1, 1, 1)])
    monkeypatch.setitem(sys.modules, "onnx", None)

    assert with_faster_convolutions(content) == content
