"""Greedy transducer search for a CPU: a step scores the next frames of each row, then advances the predictor.

No row waits for another. In label looping (Bataev et al., 2024), all rows wait, for each label, for the row with the
most blanks before it. Positions are Python numbers, which are faster than small tensors. An RNN-T is searched as a TDT
whose labels all have duration 0: in both, a blank advances by at least one frame.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint
from models.search.label_masks import LabelMasks
from models.search.language_model import LanguageModel
from models.search.phrases import BatchPhrases
from models.search.preference import Preference
from models.search.result import SearchResult, confidence

# A step scores about this number of frames when fewer rows are left: a product of a few frames takes as long as that of
# one frame, because both read all weights.
_FRAMES_A_STEP = 4
# Labels whose confidence is computed at a time: one by one takes longer, and the logits of hours fill gigabytes.
_LABELS_RATED_AT_ONCE = 256


@torch.no_grad()
def flat(
    encoded: Tensor,
    lengths: Tensor,
    predictor: AnyPredictor,
    joint: Joint,
    max_symbols: int,
    masks: LabelMasks | None = None,
    phrases: BatchPhrases | None = None,
    language_model: LanguageModel | None = None,
) -> SearchResult:
    """Search a batch; a row's result does not depend on the rest of its batch.

    Args:
        encoded: [batch, frames, width], in the dtype of the joint; choices are made in float32.
        lengths: valid frames of each row, [batch]; later frames change nothing.
        predictor: the predictor.
        joint: the joint of an RNN-T, or of a TDT if it has durations.
        max_symbols: most labels in one frame.
        masks: the labels that each row may write; None for all.
        phrases: the phrases of the rows; they choose among labels, where the best is one, and change no duration.
        language_model: a language model of the labels, which chooses in the same way.

    Returns:
        Tokens with the frame at which each was scored. A TDT token whose duration leads past the end counts; an RNN-T
        ends after a blank at the last frame, or after ``max_symbols`` labels there.
    """
    rows = [_Row(index, length) for index, length in enumerate(lengths.tolist())]
    preference = Preference(len(rows), phrases, language_model)
    form = _Flat(joint.encoder_projection(encoded), predictor, joint, max_symbols, masks, preference)
    going = [row for row in rows if not row.is_done]
    while going:
        form.step(going)
        going = [row for row in going if not row.is_done]
    return form.result(rows)


@dataclass(slots=True)
class _Row:
    """The position of a row of ``length`` frames, and its tokens so far.

    It is at frame ``time``; ``symbols`` is the number of labels in the frame of its last label.
    """

    index: int
    length: int
    time: int = 0
    symbols: int = 0
    tokens: list[int] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.time >= self.length

    def emit(self, token: int, duration: int, max_symbols: int) -> None:
        """Add a label at the row's current frame, and advance by its duration."""
        again = bool(self.frames) and self.frames[-1] == self.time
        self.symbols = self.symbols + 1 if again else 1
        self.tokens.append(token)
        self.frames.append(self.time)
        self.durations.append(duration)
        # ``max_symbols`` is for labels of duration 0; the others leave the frame anyway.
        self.time += duration if duration or self.symbols < max_symbols else 1


class _Flat:
    """The step of the search, and its tensors."""

    def __init__(
        self,
        projected: Tensor,
        predictor: AnyPredictor,
        joint: Joint,
        max_symbols: int,
        masks: LabelMasks | None,
        preference: Preference,
    ) -> None:
        batch, self._padded = projected.shape[:2]
        self._projected = projected.flatten(0, 1)
        self._device = projected.device
        self._predictor = predictor
        self._joint = joint
        self._max_symbols = max_symbols
        self._masks = masks
        start = torch.full((batch,), predictor.blank, device=self._device)
        output, (self._hidden, self._cell) = predictor(start, predictor.initial_state(batch))
        self._predicted: Tensor = joint.predictor_projection(output)
        self._preference = preference
        # Labels that have no confidence yet: row and token id, and their logits.
        self._unrated: list[tuple[_Row, int]] = []
        self._logits: list[Tensor] = []

    def step(self, going: Sequence[_Row]) -> None:
        """Advance each row to its next label, or past the scored frames if there is none."""
        window = max(1, _FRAMES_A_STEP // len(going))
        logits = self._scored(going, window)
        label_logits, duration_logits = self._joint.split(logits)
        if self._masks is not None:
            kinds = self._masks.kinds.index_select(0, self._indices([row.index for row in going]))
            label_logits = label_logits + self._masks.table.index_select(0, kinds).repeat_interleave(window, dim=0)
        tokens = label_logits.argmax(dim=1).tolist()
        choices = duration_logits.argmax(dim=1).tolist() if self._joint.durations else []
        durations = [self._joint.durations[choice] for choice in choices] or [0] * len(tokens)
        emitting, at = [], []
        for first, row in zip(range(0, len(tokens), window), going, strict=True):
            begin, end = row.time, min(row.time + window, row.length)
            while row.time < end:
                here = first + row.time - begin
                if tokens[here] != self._joint.blank:
                    row.emit(tokens[here], durations[here], self._max_symbols)
                    emitting.append(row)
                    at.append(here)
                    break
                row.time += max(1, durations[here])
        if emitting:
            chosen = label_logits.index_select(0, self._indices(at))
            if self._preference:
                self._prefer(emitting, chosen)
            self._unrated += ((row, row.tokens[-1]) for row in emitting)
            self._logits.append(chosen)
            if len(self._unrated) >= _LABELS_RATED_AT_ONCE:
                self._rate()
            self._advance_predictor([row for row in emitting if not row.is_done])

    def _prefer(self, emitting: Sequence[_Row], logits: Tensor) -> None:
        """Replace the last labels of some rows, chosen by logits [rows, labels + 1], by those that they prefer."""
        best = self._indices([row.tokens[-1] for row in emitting])
        at = self._indices([row.index for row in emitting])
        preferred = self._preference.choose(logits[:, : self._joint.blank], best, at, best >= 0)
        for row, token in zip(emitting, preferred.tolist(), strict=True):
            row.tokens[-1] = token

    def _scored(self, going: Sequence[_Row], window: int) -> Tensor:
        """Return the logits of the next frames of some rows, float32 [rows * window, labels + 1 + durations]."""
        ahead = range(window)
        frames = [row.index * self._padded + min(row.time + more, row.length - 1) for row in going for more in ahead]
        scored = self._projected.index_select(0, self._indices(frames)).view(len(going), window, -1)
        predicted = self._predicted.index_select(0, self._indices([row.index for row in going]))
        logits: Tensor = self._joint(scored, predicted[:, None])
        return logits.float().flatten(0, 1)

    def _advance_predictor(self, rows: Sequence[_Row]) -> None:
        if not rows:
            return
        rows_at = self._indices([row.index for row in rows])
        before = self._hidden.index_select(1, rows_at), self._cell.index_select(1, rows_at)
        output, (hidden, cell) = self._predictor(self._indices([row.tokens[-1] for row in rows]), before)
        self._hidden.index_copy_(1, rows_at, hidden)
        self._cell.index_copy_(1, rows_at, cell)
        self._predicted.index_copy_(0, rows_at, self._joint.predictor_projection(output))

    def result(self, rows: Sequence[_Row]) -> SearchResult:
        """Return the tokens of all rows."""
        self._rate()
        longest = max((len(row.tokens) for row in rows), default=0)

        def padded(lists: Sequence[Sequence[float]], dtype: torch.dtype = torch.int64) -> Tensor:
            equal = [[*one, *[0] * (longest - len(one))] for one in lists]
            return torch.tensor(equal, dtype=dtype, device=self._device).view(len(rows), longest)

        frames = padded([row.frames for row in rows])
        durations = padded([row.durations for row in rows]) if self._joint.durations else None
        return SearchResult(
            tokens=padded([row.tokens for row in rows]),
            frames=frames,
            ends=frames + (1 if durations is None else durations),
            durations=durations,
            confidence=padded([row.confidence for row in rows], torch.float32),
            counts=self._indices([len(row.tokens) for row in rows]),
        )

    def _rate(self) -> None:
        if not self._unrated:
            return
        tokens = self._indices([token for _, token in self._unrated])
        rated = confidence(torch.cat(self._logits), tokens).tolist()
        for (row, _), probability in zip(self._unrated, rated, strict=True):
            row.confidence.append(probability)
        self._unrated.clear()
        self._logits.clear()

    def _indices(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)
