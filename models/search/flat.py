"""Flat greedy transducer search, for a CPU: a frame of every row a step, and the predictor for those that said a label.

No row waits for another, as in look-ahead, and nothing is scored that is not needed: rows that are done, or have no new
label, are left out by index. Label looping (Bataev et al., 2024) lets every row wait, for each label, for the one that
has most blanks before its own. An RNN-T is searched as the TDT whose labels all have duration 0: both leave a frame by
a blank, which moves on by at least 1.
"""

import torch
from torch import Tensor

from models.heads.transducer import Joint, Predictor
from models.search.decision import confidence, decide
from models.search.drivers.eager import repeat
from models.search.result import SearchResult
from models.search.state import Labels, TransducerState


@torch.no_grad()
def flat(encoded: Tensor, lengths: Tensor, predictor: Predictor, joint: Joint, max_symbols: int) -> SearchResult:
    """Search a batch; every row gives what it gives alone.

    Args:
        encoded: [batch, frames, width], in the dtype of the joint; choices are made in float32.
        lengths: valid frames of each row, [batch]; what lies beyond changes nothing.
        predictor: the predictor.
        joint: the joint of an RNN-T, or of a TDT when it has durations.
        max_symbols: labels after which a frame is left without a blank.

    Returns:
        Tokens with the frame at which each was scored. A TDT token whose duration leads past the end counts; an RNN-T
        leaves its last frame only by a blank or by ``max_symbols``.

    Raises:
        ValueError: if ``max_symbols`` is not positive.
    """
    form = _Flat(joint.encoder_projection(encoded), predictor, joint)
    state = TransducerState(lengths.long(), encoded.size(1), predictor, joint, max_symbols)
    steps = repeat(form.step, state)
    return state.result(columns=min(steps, state.capacity))


class _Flat:
    """The form: one step, and what it needs besides the state."""

    def __init__(self, projected: Tensor, predictor: Predictor, joint: Joint) -> None:
        self._projected = projected
        self._predictor = predictor
        self._joint = joint
        self._durations = torch.tensor(joint.durations, dtype=torch.int64, device=projected.device)

    def step(self, state: TransducerState) -> None:
        """Score a frame of every row that goes on, which emits a label there or moves on."""
        rows = _indices(state.active)
        frame = state.time[rows]
        choice = decide(self._joint, self._projected[rows, frame], state.predicted[rows], self._durations)
        state.time[rows] = frame + choice.duration
        said = _indices(choice.token != self._joint.blank)
        if said.numel() == 0:
            return
        emitting, token = rows[said], choice.token[said]
        labels = Labels.none(state.time)
        labels.found[emitting] = True
        labels.token[emitting] = token
        labels.frame[emitting] = frame[said]
        labels.duration[emitting] = choice.duration[said]
        labels.confidence[emitting] = confidence(choice.logits[said], token)
        state.emit(labels)
        self._advance_predictor(state, labels)

    def _advance_predictor(self, state: TransducerState, labels: Labels) -> None:
        """Let the predictor read the labels of the rows that go on."""
        rows = _indices(labels.found & state.active)
        if rows.numel() == 0:
            return
        before = state.hidden[:, rows], state.cell[:, rows]
        output, (hidden, cell) = self._predictor(labels.token[rows], before)
        state.hidden[:, rows] = hidden
        state.cell[:, rows] = cell
        state.predicted[rows] = self._joint.predictor_projection(output)


def _indices(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(1)
