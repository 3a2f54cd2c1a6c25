"""The predictor's part of a step of look-ahead: a kernel for each layer of its LSTM, and one for the projection.

Rows that found no label in the step keep their state. A tile is skipped if none of its rows has a new label. All sums
are float32.
"""

import triton
import triton.language as tl
from torch import Tensor

from models.heads.transducer import Joint, Predictor
from models.kernels.activations import sigmoid, tanh
from models.kernels.tiles import Tile, chosen_tile

# With two stages, large tiles fit the shared memory of every GPU since Ampere.
UNITS_OF_FEW, UNITS_OF_MANY = Tile(16, 16), Tile(32, 32, warps=8, stages=2)
_WIDTH = 64  # values of a row multiplied at a time


@triton.jit
def _added(gates, x, weight, unit, k, WIDTH: tl.constexpr):
    """Return the four gates with the contribution of a slice of the inputs."""
    known = (k < WIDTH)[:, None] & (unit < WIDTH)[None, :]
    sums = ()
    for gate in tl.static_range(4):
        weights = tl.load(weight + (gate * WIDTH + unit)[None, :] * WIDTH + k[:, None], mask=known, other=0.0)
        sums += (gates[gate] + tl.dot(x, weights, input_precision="ieee"),)
    return sums


@triton.jit(do_not_specialize=["rows"])
def _lstm_layer(
    inputs,
    label_gates,
    labels,
    found,
    hidden,
    hidden_after,
    cell,
    from_input,
    from_hidden,
    bias,
    rows,
    FIRST: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    SLICE: tl.constexpr,
):
    """Advance some units of a layer by one label, for rows with a new label."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    real = row < rows
    known = unit < WIDTH
    wanted = real[:, None] & known[None, :]
    place = row[:, None] * WIDTH + unit[None, :]
    old_hidden = tl.load(hidden + place, mask=wanted, other=0.0)
    is_found = tl.load(found + row, mask=real, other=0) > 0
    if tl.max(is_found.to(tl.int32), axis=0) > 0:
        zeros = tl.zeros((ROWS, UNITS), tl.float32)
        gates = ()
        if FIRST:
            label = tl.load(labels + row, mask=real, other=0)
            of_label = label_gates + label[:, None] * (4 * WIDTH) + unit[None, :]
            for gate in tl.static_range(4):
                gates += (zeros + tl.load(of_label + gate * WIDTH, mask=wanted, other=0.0).to(tl.float32),)
        else:
            for gate in tl.static_range(4):
                shift = tl.load(bias + gate * WIDTH + unit, mask=known, other=0.0)
                gates += (zeros + shift[None, :].to(tl.float32),)
        for start in range(0, WIDTH, SLICE):
            k = start + tl.arange(0, SLICE)
            there = real[:, None] & (k < WIDTH)[None, :]
            before = tl.load(hidden + row[:, None] * WIDTH + k[None, :], mask=there, other=0.0)
            gates = _added(gates, before, from_hidden, unit, k, WIDTH)
            if not FIRST:
                read = tl.load(inputs + row[:, None] * WIDTH + k[None, :], mask=there, other=0.0)
                gates = _added(gates, read, from_input, unit, k, WIDTH)
        write, keep, content, show = gates
        old_cell = tl.load(cell + place, mask=wanted, other=0.0)
        advanced = sigmoid(keep) * old_cell.to(tl.float32) + sigmoid(write) * tanh(content)
        shown = sigmoid(show) * tanh(advanced)
        tl.store(cell + place, advanced.to(old_cell.dtype), mask=wanted & is_found[:, None])
        tl.store(hidden_after + place, tl.where(is_found[:, None], shown.to(old_hidden.dtype), old_hidden), mask=wanted)
    else:
        tl.store(hidden_after + place, old_hidden, mask=wanted)


@triton.jit(do_not_specialize=["rows"])
def _project(
    hidden,
    weight,
    bias,
    found,
    predicted,
    rows,
    WIDTH: tl.constexpr,
    JOINT: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    SLICE: tl.constexpr,
):
    """Project the predictor's output for the joint, for rows with a new label."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    real = row < rows
    known = unit < JOINT
    is_found = tl.load(found + row, mask=real, other=0) > 0
    if tl.max(is_found.to(tl.int32), axis=0) > 0:
        total = tl.zeros((ROWS, UNITS), tl.float32)
        for start in range(0, WIDTH, SLICE):
            k = start + tl.arange(0, SLICE)
            inside = k < WIDTH
            there = is_found[:, None] & inside[None, :]
            values = tl.load(hidden + row[:, None] * WIDTH + k[None, :], mask=there, other=0.0)
            those = inside[:, None] & known[None, :]
            weights = tl.load(weight + unit[None, :] * WIDTH + k[:, None], mask=those, other=0.0)
            total += tl.dot(values, weights, input_precision="ieee")
        shift = tl.load(bias + unit, mask=known, other=0.0)
        place = predicted + row[:, None] * JOINT + unit[None, :]
        value = (total + shift[None, :].to(tl.float32)).to(shift.dtype)
        tl.store(place, value, mask=is_found[:, None] & known[None, :])


class PredictorKernels:
    """Advances the predictor by the new labels, and projects its output for the joint.

    A layer reads the hidden units of all rows and must write them elsewhere, because other programs still read; two
    buffers alternate.
    """

    def __init__(self, predictor: Predictor, joint: Joint) -> None:
        """Take the weights of a folded predictor."""
        assert predictor.label_gates is not None, "the predictor is folded"
        self._label_gates = predictor.label_gates
        self._layers = [
            (from_input.detach(), from_hidden.detach(), (bias.float() + other.float()).detach())
            for from_input, from_hidden, bias, other in predictor.lstm.all_weights
        ]
        self._projection = joint.predictor_projection

    def __call__(
        self, labels: Tensor, found: Tensor, hidden: Tensor, after: Tensor, cell: Tensor, predicted: Tensor
    ) -> None:
        """Advance the rows that found a label.

        Args:
            labels: the new labels, int64 [rows].
            found: whether each row has one, int64 [rows].
            hidden: hidden state of the predictor, [layers, rows, width].
            after: the hidden state after the label; written.
            cell: cell state of the predictor, in the same shape; changed.
            predicted: output of the predictor, projected for the joint, [rows, joint width]; changed.
        """
        rows, width = hidden.shape[1:]
        tile = chosen_tile(UNITS_OF_FEW, UNITS_OF_MANY, rows, width, hidden.dtype)
        grid = triton.cdiv(rows, tile.rows), triton.cdiv(width, tile.columns)
        for layer, (from_input, from_hidden, bias) in enumerate(self._layers):
            _lstm_layer[grid](
                after[max(0, layer - 1)],
                self._label_gates,
                labels,
                found,
                hidden[layer],
                after[layer],
                cell[layer],
                from_input,
                from_hidden,
                bias,
                rows,
                FIRST=layer == 0,
                WIDTH=width,
                ROWS=tile.rows,
                UNITS=tile.columns,
                SLICE=_WIDTH,
                num_warps=tile.warps,
                num_stages=tile.stages,
            )
        weight, bias = self._projection.weight, self._projection.bias
        _project[(grid[0], triton.cdiv(weight.size(0), tile.columns))](
            after[-1],
            weight,
            bias,
            found,
            predicted,
            rows,
            WIDTH=width,
            JOINT=weight.size(0),
            ROWS=tile.rows,
            UNITS=tile.columns,
            SLICE=_WIDTH,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
