"""Label looping: greedy transducer search that steps from label to label (Bataev et al., 2024, arXiv 2406.06220).

The published search, as a baseline; Steno searches by look-ahead on a GPU and flat on a CPU. A step advances each row
over its blanks to its next label, then runs the predictor once for all rows. An RNN-T is searched as a TDT whose labels
all have duration 0: in both, a blank advances by at least one frame.
"""

import torch
from torch import Tensor

from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint
from models.search.drivers.eager import repeat
from models.search.result import SearchResult, confidence
from models.search.state import TransducerState


@torch.no_grad()
def label_looping(
    encoded: Tensor, lengths: Tensor, predictor: AnyPredictor, joint: Joint, max_symbols: int
) -> SearchResult:
    """Search a batch; a row's result does not depend on the rest of its batch.

    Args:
        encoded: [batch, frames, width], in the dtype of the joint; choices are made in float32.
        lengths: valid frames of each row, [batch]; later frames change nothing.
        predictor: the predictor.
        joint: the joint of an RNN-T, or of a TDT if it has durations.
        max_symbols: most labels in one frame.

    Returns:
        Tokens with the frame at which each was scored. A TDT token whose duration leads past the end counts; an RNN-T
        ends after a blank at the last frame, or after ``max_symbols`` labels there.
    """
    form = _LabelLooping(joint.encoder_projection(encoded), predictor, joint)
    state = TransducerState(lengths.long(), encoded.size(1), predictor, joint, max_symbols)
    steps = repeat(form.step, state)
    return state.result(columns=min(steps, state.capacity))


class _LabelLooping:
    """The step of the search, and its tensors besides the state.

    It selects rows by index: one that is done, or waits with its label for the others, costs nothing.
    """

    def __init__(self, projected: Tensor, predictor: AnyPredictor, joint: Joint) -> None:
        self.projected = projected
        self.predictor = predictor
        self.joint = joint
        self.durations = torch.tensor(joint.durations, dtype=torch.int64, device=projected.device)

    def step(self, state: TransducerState) -> None:
        """Emit the next label of each row that has one, and finish the others."""
        labels = self._next_labels(state)
        state.emit(**labels)
        self._advance_predictor(state, labels)

    def _next_labels(self, state: TransducerState) -> dict[str, Tensor]:
        """Advance each active row over its blanks to its next label or its end."""
        labels = _no_labels(state.time)
        rows = _indices(state.active)
        for _ in range(self.projected.size(1)):  # a blank advances by at least a frame
            if rows.numel() == 0:
                break
            frame = state.time[rows]
            scored = self.joint(self.projected[rows, frame], state.predicted[rows]).float()
            logits, of_durations = self.joint.split(scored)
            chosen = logits.argmax(dim=-1)
            blank = chosen == self.joint.blank
            moves = self.durations[of_durations.argmax(dim=-1)] if self.joint.durations else torch.zeros_like(chosen)
            moves = moves.clamp(min=1).where(blank, moves)
            emitting_rows = _indices(~blank)
            emitting, token = rows[emitting_rows], chosen[emitting_rows]
            labels["found"][emitting] = True
            labels["token"][emitting] = token
            labels["frame"][emitting] = frame[emitting_rows]
            labels["duration"][emitting] = moves[emitting_rows]
            labels["confidence"][emitting] = confidence(logits[emitting_rows], token)
            after = frame + moves
            state.time[rows] = after
            rows = rows[blank & (after < state.lengths[rows])]
        return labels

    def _advance_predictor(self, state: TransducerState, labels: dict[str, Tensor]) -> None:
        """Advance the predictor by the labels of active rows; rows without a label are at their end."""
        rows = _indices(state.active)
        if rows.numel() == 0:
            return
        before = state.hidden[:, rows], state.cell[:, rows]
        output, (hidden, cell) = self.predictor(labels["token"][rows], before)
        state.hidden[:, rows] = hidden
        state.cell[:, rows] = cell
        state.predicted[rows] = self.joint.predictor_projection(output)


def _no_labels(like: Tensor) -> dict[str, Tensor]:
    """Return empty labels, as ``emit`` takes them, with the rows and on the device of the int64 tensor ``like``."""
    return {
        "found": torch.zeros_like(like, dtype=torch.bool),
        "token": torch.zeros_like(like),
        "frame": torch.zeros_like(like),
        "duration": torch.zeros_like(like),
        "confidence": torch.zeros_like(like, dtype=torch.float32),
    }


def _indices(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(1)
