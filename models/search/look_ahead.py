"""Asynchronous look-ahead: greedy transducer search in which no row waits for another.

Between two labels the predictor's output is constant, so several frames ahead of a row can be scored at once. A step
scores the next few frames of each row (the window), follows the row's blanks to its next label, and advances the
predictor by that label. So a batch takes as many steps as its busiest row has labels, and windows without a label. Flat
search (flat.py) finds the same tokens with fewer products, and is faster on a CPU.

A step has no branch on data and allocates no shape that depends on data, so a CUDA graph can capture it.
"""

import torch
from torch import Tensor

from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint
from models.search.drivers.eager import repeat
from models.search.label_masks import LabelMasks
from models.search.language_model import LanguageModel
from models.search.phrases import BatchPhrases
from models.search.preference import Preference
from models.search.result import SearchResult, confidence
from models.search.state import TransducerState

# Eight frames are 0.64 s at the usual 80 ms; more rarely save a step. With many rows, a step's time is that of its
# scores: half the window then takes a sixth more steps, at four labels a second, but two fifths fewer scores.
WINDOW = 8
_WINDOW_OF_MANY = 4
_MANY_ROWS = 256


def window_of(rows: int) -> int:
    """Return the window, in frames, for a batch of ``rows``."""
    return WINDOW if rows < _MANY_ROWS else _WINDOW_OF_MANY


@torch.no_grad()
def look_ahead(
    encoded: Tensor,
    lengths: Tensor,
    predictor: AnyPredictor,
    joint: Joint,
    max_symbols: int,
    masks: LabelMasks | None = None,
    window: int = WINDOW,
    phrases: BatchPhrases | None = None,
    language_model: LanguageModel | None = None,
) -> SearchResult:
    """Search a batch as ``flat`` does, with equal results, by steps that score ``window`` frames."""
    form = LookAhead(joint.encoder_projection(encoded), predictor, joint, window, masks, phrases, language_model)
    state = TransducerState(lengths.long(), encoded.size(1), predictor, joint, max_symbols)
    steps = repeat(form.step, state)
    return state.result(columns=min(steps, state.capacity))


class LookAhead:
    """The step of the search, and its tensors besides the state.

    Attributes:
        projected: encoder frames, projected for the joint, [batch, frames, joint width].
    """

    def __init__(
        self,
        projected: Tensor,
        predictor: AnyPredictor,
        joint: Joint,
        window: int,
        masks: LabelMasks | None = None,
        phrases: BatchPhrases | None = None,
        language_model: LanguageModel | None = None,
    ) -> None:
        """Prepare to step."""
        self.projected = projected
        self._predictor = predictor
        self._joint = joint
        self._masks = masks
        device = projected.device
        self._durations = torch.tensor(joint.durations, dtype=torch.int64, device=device)
        self._offsets = torch.arange(window, device=device)
        self._rows = torch.arange(projected.size(0), device=device)[:, None]
        self._preference = Preference(projected.size(0), phrases, language_model)

    def restart(self) -> None:
        """Begin new texts, of phrases that may be others at the same addresses."""
        self._preference.restart()

    def step(self, state: TransducerState) -> None:
        """Advance each row to its next label, or past the window if there is none."""
        found, token = self._emit_next(state)
        self._advance_predictor(state, found, token)

    def two_steps(self, state: TransducerState) -> None:
        """Step twice."""
        self.step(state)
        self.step(state)

    def _emit_next(self, state: TransducerState) -> tuple[Tensor, Tensor]:
        """Advance each row to its next label or past the window; return whether there is a label, and its id."""
        frames = state.time[:, None] + self._offsets
        inside = frames < state.lengths[:, None]
        scored = self.projected[self._rows, frames.clamp(max=self.projected.size(1) - 1)]
        logits, durations = self._joint.split(self._joint(scored, state.predicted[:, None]).float())
        if self._masks is not None:
            logits = logits + self._masks.of_rows[:, None]
        tokens = logits.argmax(dim=-1)
        choices = self._durations[durations.argmax(dim=-1)] if len(self._durations) else torch.zeros_like(tokens)
        is_blank = tokens == self._joint.blank
        ahead = choices.clamp(min=1).where(is_blank, choices)
        stop = self._followed(ahead.where(inside, len(self._offsets)), is_blank | ~inside)

        found = stop < len(self._offsets)
        at = stop.clamp(max=len(self._offsets) - 1)[:, None]
        token, duration = tokens.gather(1, at).squeeze(1), ahead.gather(1, at).squeeze(1)
        logits = logits[self._rows, at].squeeze(1)
        if self._preference:  # where no label was found, it is given any
            blank = self._joint.blank
            token = self._preference.choose(logits[:, :blank], token.clamp(max=blank - 1), slice(None), found)
        frame = state.time + stop
        state.time += stop + duration * found
        state.emit(found, token, frame, duration, confidence(logits, token))
        return found, token

    def _followed(self, duration: Tensor, waits: Tensor) -> Tensor:
        """Return the offset in the window of each row's next label, or an offset past the window if there is none.

        Each offset points to where its blank leads, or to itself where there is a label. Pointers are doubled until no
        chain of blanks in the window is longer.

        Args:
            duration: frames that each choice advances by, at least 1 where it waits, [batch, window].
            waits: whether the choice is a blank or its frame is past the row's end, [batch, window].
        """
        window = len(self._offsets)
        pointer = self._offsets + duration * waits
        for _ in range((window - 1).bit_length()):
            pointer = pointer.gather(1, pointer.clamp(max=window - 1)).where(pointer < window, pointer)
        return pointer[:, 0]

    def _advance_predictor(self, state: TransducerState, found: Tensor, token: Tensor) -> None:
        """Advance the predictor by the labels found; rows without a label keep its output."""
        output, (hidden, cell) = self._predictor(token, (state.hidden, state.cell))
        predicted = self._joint.predictor_projection(output)
        found = found[:, None]
        state.hidden.copy_(hidden.where(found, state.hidden))
        state.cell.copy_(cell.where(found, state.cell))
        state.predicted.copy_(predicted.where(found, state.predicted))
