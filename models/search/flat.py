"""Flat greedy transducer search, for a CPU: the next frames of every row a step, and the predictor for new labels.

No row waits for another, and nothing is scored that is not needed. Label looping (Bataev et al., 2024) lets every row
wait, for each label, for the one that has most blanks before its own. What a row does next is decided in plain numbers,
which costs the host less than the same in tensors: those are for the joint and the predictor. An RNN-T is searched as
the TDT whose labels all have duration 0: both leave a frame by a blank, which moves on by at least 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from models.heads.transducer import Joint, Predictor
from models.search.decision import confidence
from models.search.result import SearchResult

# Frames that a step scores, of all rows together, if there are fewer rows: a product of a few rows takes as long as one
# of one row, whose weights have to be read as well.
_FRAMES_A_STEP = 4
# Labels whose confidence is computed at once: one after the other takes longer, and the logits of hours are gigabytes.
_LABELS_RATED_AT_ONCE = 256


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
    if max_symbols < 1:
        raise ValueError(f"a frame must be allowed at least one label, not max_symbols={max_symbols}")
    rows = [_Row(place, length) for place, length in enumerate(lengths.tolist())]
    form = _Flat(joint.encoder_projection(encoded), predictor, joint, max_symbols)
    going = [row for row in rows if not row.is_done]
    while going:
        form.step(going)
        going = [row for row in going if not row.is_done]
    return form.result(rows)


@dataclass(slots=True)
class _Row:
    """Where a row of ``length`` frames stands, and what it has said: one entry a token."""

    place: int
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

    def say(self, token: int, duration: int, max_symbols: int) -> None:
        """Add a label that was scored where the row stands, and move on as it says."""
        again = bool(self.frames) and self.frames[-1] == self.time
        self.symbols = self.symbols + 1 if again else 1
        self.tokens.append(token)
        self.frames.append(self.time)
        self.durations.append(duration)
        # A label with a duration has left its frame by itself; only those that stayed are counted out.
        self.time += duration if duration or self.symbols < max_symbols else 1


class _Flat:
    """The form: one step, and the tensors it needs."""

    def __init__(self, projected: Tensor, predictor: Predictor, joint: Joint, max_symbols: int) -> None:
        batch, self._columns = projected.shape[:2]
        self._projected = projected.flatten(0, 1)
        self._device = projected.device
        self._predictor = predictor
        self._joint = joint
        self._max_symbols = max_symbols
        start = torch.full((batch,), predictor.blank, device=self._device)
        output, (self._hidden, self._cell) = predictor(start, predictor.initial_state(batch))
        self._predicted: Tensor = joint.predictor_projection(output)
        # Labels without a confidence as yet, with whose they are, and their logits.
        self._unrated: list[tuple[_Row, int]] = []
        self._logits: list[Tensor] = []

    def step(self, going: Sequence[_Row]) -> None:
        """Move every row to its next label, or past the frames that are scored if there is none in them."""
        window = max(1, _FRAMES_A_STEP // len(going))
        logits = self._scored(going, window)
        label_logits, duration_logits = self._joint.split(logits)
        tokens = label_logits.argmax(dim=1).tolist()
        choices = duration_logits.argmax(dim=1).tolist() if self._joint.durations else []
        durations = [self._joint.durations[choice] for choice in choices] or [0] * len(tokens)
        said, at = [], []
        for first, row in zip(range(0, len(tokens), window), going, strict=True):
            begin, end = row.time, min(row.time + window, row.length)
            while row.time < end:
                here = first + row.time - begin
                if tokens[here] != self._joint.blank:
                    row.say(tokens[here], durations[here], self._max_symbols)
                    said.append(row)
                    at.append(here)
                    break
                row.time += max(1, durations[here])
        if said:
            self._unrated += ((row, row.tokens[-1]) for row in said)
            self._logits.append(label_logits.index_select(0, self._indices(at)))
            if len(self._unrated) >= _LABELS_RATED_AT_ONCE:
                self._rate()
            self._advance_predictor([row for row in said if not row.is_done])

    def _scored(self, going: Sequence[_Row], window: int) -> Tensor:
        """Return the logits of the next frames of some rows, float32 [rows * window, labels + 1 + durations]."""
        ahead = range(window)
        frames = [row.place * self._columns + min(row.time + more, row.length - 1) for row in going for more in ahead]
        scored = self._projected.index_select(0, self._indices(frames)).view(len(going), window, -1)
        predicted = self._predicted.index_select(0, self._indices([row.place for row in going]))
        logits: Tensor = self._joint(scored, predicted[:, None])
        return logits.float().flatten(0, 1)

    def _advance_predictor(self, rows: Sequence[_Row]) -> None:
        """Let the predictor read the last labels of some rows."""
        if not rows:
            return
        places = self._indices([row.place for row in rows])
        before = self._hidden.index_select(1, places), self._cell.index_select(1, places)
        output, (hidden, cell) = self._predictor(self._indices([row.tokens[-1] for row in rows]), before)
        self._hidden.index_copy_(1, places, hidden)
        self._cell.index_copy_(1, places, cell)
        self._predicted.index_copy_(0, places, self._joint.predictor_projection(output))

    def result(self, rows: Sequence[_Row]) -> SearchResult:
        """Return what all rows have said."""
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
        """Give the labels that have none their confidence."""
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
