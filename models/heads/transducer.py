"""The two networks that a transducer adds to an encoder: the predictor and the joint (Graves, 2012)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.device.cpu import has_lstm
from models.device.packed_linear import PackedLinear, is_worth_packing
from models.heads.scores import scores_of

PredictorState = tuple[Tensor, Tensor]


class Predictor(nn.Module):
    """An LSTM over the labels emitted so far, advanced one label at a time.

    The blank is the start symbol. Its embedding, the last row, is zero in models that NeMo trained.
    """

    def __init__(self, vocabulary_size: int, width: int, layers: int) -> None:
        super().__init__()
        self.blank = vocabulary_size
        self.width = width
        self.layers = layers
        self.embedding = nn.Embedding(vocabulary_size + 1, width, padding_idx=vocabulary_size)
        self.lstm = nn.LSTM(width, width, layers)
        # The contribution of each label to the gates of the first layer, [labels + 1, 4 * width]; None before ``fold``.
        self.label_gates: Tensor | None
        self.register_buffer("label_gates", None, persistent=False)
        # For each layer, the product of input and state that gives its gates; for the first, of the state alone. None
        # unless packed.
        self.gates: nn.ModuleList | None = None

    def initial_state(self, batch: int) -> PredictorState:
        """Return the zero state before the start symbol: hidden and cell, each [layers, batch, width].

        The cell is float32 at least, because it is a sum over all labels, which rounding would keep from growing. With
        packed weights it has their dtype: on a CPU, float32 would make a step in bfloat16 a tenth longer.
        """
        hidden = self.embedding.weight.new_zeros(self.layers, batch, self.width)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        return hidden, torch.zeros_like(hidden, dtype=exact if self.gates is None else hidden.dtype)

    def read(self, labels: Tensor) -> Tensor:
        """Return the output at the start and after each label, [batch, labels + 1, width], for training.

        Args:
            labels: [batch, labels]; padding comes last and may be any labels.
        """
        start = labels.new_full((len(labels), 1), self.blank)
        embedded = self.embedding(torch.cat((start, labels), dim=1))
        with _without_missing_lstm(embedded.device):
            output: Tensor = self.lstm(embedded.transpose(0, 1))[0].transpose(0, 1)
        return output

    def forward(self, labels: Tensor, state: PredictorState) -> tuple[Tensor, PredictorState]:
        """Advance every row by one label.

        Args:
            labels: [batch], the label just emitted, or the blank at the start.
            state: hidden and cell, each [layers, batch, width].

        Returns:
            The output [batch, width] and the new state.
        """
        output = labels
        hidden, cell = [], []
        # Not self.lstm(...): on a CPU that repacks all weights at each call, ten times the work of one label.
        for layer in range(self.layers):
            output, layer_cell = self._layer(layer, output, state[0][layer], state[1][layer])
            hidden.append(output)
            cell.append(layer_cell)
        return output, (torch.stack(hidden), torch.stack(cell))

    @torch.no_grad()
    def fold(self) -> None:
        """Prepare inference: compute each label's contribution to the first layer's gates.

        A step spends its time on reading weights, and the first layer then reads half of them: those of its state.
        """
        from_input, _, bias, other_bias = (weight.float() for weight in self.lstm.all_weights[0])
        self.label_gates = linear(self.embedding.weight.float(), from_input, bias + other_bias)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Predictor":  # torch's
        """Convert and move as torch does, but keep the dtype of the labels' gates: a step only adds them."""
        exact = self.label_gates
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if exact is not None and self.label_gates is not None:
            self.label_gates = exact.to(self.label_gates.device)
        return self

    @torch.no_grad()
    def pack(self) -> None:
        """Prepare inference on a CPU, after ``fold``: pack the weights of a step, one product for each layer."""
        assert self.label_gates is not None, "the predictor is folded"
        (_, first, *_), *others = self.lstm.all_weights
        if not is_worth_packing(first):
            return
        merged = (
            PackedLinear(torch.cat([from_input, from_hidden], dim=1), bias + other_bias)
            for from_input, from_hidden, bias, other_bias in others
        )
        self.gates = nn.ModuleList([PackedLinear(first, None), *merged])
        self.label_gates = self.label_gates.to(first.dtype)
        del self.lstm

    def _layer(self, layer: int, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return a layer's new hidden and cell; ``inputs`` are the output of the one below or, in the first, labels."""
        if self.gates is not None and layer > 0:
            gates = self.gates[layer](torch.cat([inputs, hidden], dim=1))
        elif self.gates is not None and self.label_gates is not None:
            gates = self.gates[0](hidden) + self.label_gates.index_select(0, inputs)
        elif self.label_gates is not None and layer == 0:
            gates = self.label_gates[inputs] + hidden @ self.lstm.all_weights[0][1].T
        else:
            inputs = self.embedding(inputs) if layer == 0 else inputs
            from_input, from_hidden, bias, other_bias = self.lstm.all_weights[layer]
            gates = linear(inputs, from_input, bias) + linear(hidden, from_hidden, other_bias)
        write, keep, content, show = gates.to(cell.dtype).chunk(4, dim=1)
        cell = keep.sigmoid() * cell + write.sigmoid() * content.tanh()
        return (show.sigmoid() * cell.tanh()).to(hidden.dtype), cell


def _without_missing_lstm(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which a CPU computes an LSTM in float32 if it cannot in the dtype of autocast."""
    if device.type == "cpu" and torch.is_autocast_enabled("cpu") and not has_lstm(torch.get_autocast_dtype("cpu")):
        return torch.autocast("cpu", enabled=False)
    return nullcontext()


class Joint(nn.Module):
    """Scores labels, the blank and, for TDT, durations from one encoder frame and one predictor output.

    A token-and-duration transducer (TDT; Xu et al., 2023) has one more logit for each of ``durations``, the number of
    frames to advance. Without durations it is the joint of an RNN-T.
    """

    def __init__(
        self,
        encoder_width: int,
        predictor_width: int,
        width: int,
        vocabulary_size: int,
        durations: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.blank = vocabulary_size
        self.durations = durations
        self.encoder_projection = nn.Linear(encoder_width, width)
        self.predictor_projection = nn.Linear(predictor_width, width)
        self.activation = nn.ReLU()
        self.output = nn.Linear(width, vocabulary_size + 1 + len(durations))

    def forward(self, encoder_projected: Tensor, predictor_projected: Tensor) -> Tensor:
        """Return logits [..., labels + 1 + durations]: labels, then the blank, then durations.

        Both inputs [..., width] are already projected, because search projects the encoder's frames once and the
        predictor's output once for each label. Their shapes broadcast.
        """
        return scores_of(self.output, self.activation(encoder_projected + predictor_projected))

    def split(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of labels and blank [..., labels + 1] and those of durations [..., durations]."""
        labels = self.blank + 1
        return logits[..., :labels], logits[..., labels:]
