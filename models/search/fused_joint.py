"""The joint's part of a step of look-ahead (models/search/look_ahead.py), in two kernels: scores, and choices.

In plain operations a step is some fifty kernels, each faster than its launch. These, and those of the predictor
(models/search/fused_predictor.py), keep intermediate values in registers, and never write the logits. All sums are
float32.

A row is an utterance of the batch. Tiles of scores that no row needs, because it is finished or empty, are skipped.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from models.heads.transducer import Joint
from models.kernels.tiles import Tile, chosen_tile
from models.search.label_masks import LabelMasks
from models.search.state import TransducerState

# With two stages, large tiles fit the shared memory of every GPU since Ampere.
SCORES_OF_FEW, SCORES_OF_MANY = Tile(16, 64), Tile(128, 128, warps=8, stages=2)
# Masks take registers, so a program has half of the rows.
MASKED_SCORES_OF_MANY = Tile(64, 128, warps=8, stages=2)
_WIDTH = 64  # values of a row multiplied at a time


@triton.jit(do_not_specialize=["rows", "frames"])
def _score_tile(
    projected,
    predicted,
    time,
    lengths,
    weight,
    bias,
    masks,
    kinds,
    best,
    choice,
    mass,
    rows,
    frames,
    tiles,
    WINDOW: tl.constexpr,
    JOINT: tl.constexpr,
    COUNT: tl.constexpr,
    OUTPUTS: tl.constexpr,
    MASKED: tl.constexpr,
    ROWS: tl.constexpr,
    LABELS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Compute, for a tile of labels and some (row, frame ahead) pairs, the best score, its label, and the tile's mass.

    The COUNT labels and the durations after them, up to OUTPUTS, are in separate tiles.
    """
    pair = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tile = tl.program_id(1)
    row = pair // WINDOW
    real = row < rows
    frame = tl.load(time + row, mask=real, other=0) + pair % WINDOW
    wanted = frame < tl.load(lengths + row, mask=real, other=0)
    if tl.max(wanted.to(tl.int32), axis=0) > 0:
        label = tile * LABELS + tl.arange(0, LABELS)
        of_labels = tile * LABELS < COUNT
        output = tl.where(of_labels, label, label - tile * LABELS + COUNT)
        known = output < tl.where(of_labels, COUNT, OUTPUTS)
        encoder_row = (row * frames + tl.minimum(frame, frames - 1)) * JOINT
        if MASKED:
            kind = tl.load(kinds + row, mask=wanted, other=0).to(tl.int32)
            masked = wanted[:, None] & (known & of_labels)[None, :]
            scores = tl.load(masks + (kind[:, None] * COUNT + label[None, :]), mask=masked, other=0.0)
        else:
            scores = tl.zeros((ROWS, LABELS), tl.float32)
        for start in range(0, JOINT, WIDTH):
            unit = start + tl.arange(0, WIDTH)
            inside = unit < JOINT
            there = wanted[:, None] & inside[None, :]
            encoder = tl.load(projected + encoder_row[:, None] + unit[None, :], mask=there, other=0.0)
            predictor = tl.load(predicted + row[:, None] * JOINT + unit[None, :], mask=there, other=0.0)
            mixed = tl.maximum((encoder + predictor).to(tl.float32), 0.0)
            place = output[None, :] * JOINT + unit[:, None]
            weights = tl.load(weight + place, mask=inside[:, None] & known[None, :], other=0.0)
            scores += tl.dot(mixed.to(weights.dtype), weights, input_precision="ieee")
        scores += tl.load(bias + output, mask=known, other=0.0)[None, :].to(tl.float32)
        scores = tl.where(known[None, :], scores, float("-inf"))
        top = tl.max(scores, axis=1)
        lowest = tl.min(tl.where(scores == top[:, None], label[None, :], tiles * LABELS - 1), axis=1)
        # A tile whose labels are all masked has no mass, and minus infinity minus itself would not be a number.
        highest = tl.where(top == float("-inf"), 0.0, top) if MASKED else top
        shares = tl.exp(scores - highest[:, None])
        tl.store(best + pair * tiles + tile, top, mask=wanted)
        tl.store(choice + pair * tiles + tile, lowest, mask=wanted)
        tl.store(mass + pair * tiles + tile, tl.sum(shares, axis=1), mask=wanted)


@triton.jit
def _walk(
    best,
    choice,
    mass,
    duration_values,
    lengths,
    time,
    symbols,
    last_frame,
    counts,
    tokens,
    token_frames,
    token_durations,
    confidence,
    found_out,
    label_out,
    tiles,
    columns,
    max_symbols,
    BLANK: tl.constexpr,
    WINDOW: tl.constexpr,
    LABEL_TILES: tl.constexpr,
    TILES: tl.constexpr,
    LABELS: tl.constexpr,
    DURATIONS: tl.constexpr,
):
    """Follow the blanks of a row to its next label, store it, and advance the row."""
    row = tl.program_id(0)
    now = tl.load(time + row)
    length = tl.load(lengths + row)
    if now < length:
        count = tl.load(counts + row)
        before = tl.load(symbols + row)
        last = tl.load(last_frame + row)
        tile = tl.arange(0, TILES)
        in_vocabulary = tile < LABEL_TILES
        offset = now * 0
        found = offset
        token = offset
        duration = offset
        probability = 0.0
        for ahead in tl.static_range(WINDOW):
            place = (row * WINDOW + ahead) * tiles
            scores = tl.load(best + place + tile, mask=in_vocabulary, other=float("-inf"))
            top = tl.max(scores, axis=0)
            labels = tl.load(choice + place + tile, mask=in_vocabulary, other=BLANK)
            # Never beyond the blank, even with invalid scores, because it is used as an index.
            label = tl.minimum(tl.min(tl.where(scores == top, labels, BLANK), axis=0), BLANK).to(tl.int64)
            shares = tl.load(mass + place + tile, mask=in_vocabulary, other=0.0) * tl.exp(scores - top)
            jump = offset * 0
            if DURATIONS > 0:
                index = tl.load(choice + place + LABEL_TILES) - LABEL_TILES * LABELS
                # Clamped, because a frame that was not scored has no valid index.
                jump = tl.load(duration_values + tl.maximum(tl.minimum(index, DURATIONS - 1), 0))
            is_here = (offset == ahead) & (now + ahead < length) & (found == 0)
            takes = is_here & (label != BLANK)
            waits = is_here & (label == BLANK)
            token = tl.where(takes, label, token)
            duration = tl.where(takes, jump, duration)
            probability = tl.where(takes, 1 / tl.sum(shares, axis=0), probability)
            found = tl.where(takes, 1, found)
            offset = tl.where(waits, offset + tl.maximum(jump, 1), offset)
        is_found = found > 0
        frame = now + offset
        later = tl.where(is_found, frame + duration, frame)

        column = row * columns + count
        tl.store(tokens + column, token, mask=is_found)
        tl.store(token_frames + column, frame, mask=is_found)
        tl.store(token_durations + column, duration, mask=is_found)
        tl.store(confidence + column, probability, mask=is_found)
        tl.store(counts + row, count + found)

        several = tl.where(last == frame, before + 1, 1)
        tl.store(symbols + row, tl.where(is_found, several, before))
        tl.store(last_frame + row, frame, mask=is_found)
        stuck = is_found & (several >= max_symbols) & (later == frame)
        tl.store(time + row, tl.where(stuck, later + 1, later))
        tl.store(found_out + row, found)
        tl.store(label_out + row, token)
    else:
        tl.store(found_out + row, 0)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the joint for each row and frame ahead, by tiles of labels; all are [rows, window, tiles].

    Attributes:
        best: highest score of the tile, float32; the last tile of a TDT is that of its durations.
        choice: index of the label with that score, the lowest of equals; int32, counted through all tiles.
        mass: sum of the exponentials of the tile's scores, divided by that of the best.
    """

    best: Tensor
    choice: Tensor
    mass: Tensor


class JointKernel:
    """Scores the frames ahead of each row, reduced to what a choice needs.

    Attributes:
        window: number of frames ahead.
        tile_labels: labels of a tile.
        label_tiles: number of tiles of labels.
        tiles: number of all tiles; the last is that of a TDT's durations.
        scores: the last result.
    """

    def __init__(self, joint: Joint, rows: int, window: int, masks: LabelMasks | None = None) -> None:
        """Choose tiles, and allocate the scores of ``rows`` rows.

        Args:
            joint: the joint.
            rows: rows of a batch.
            window: number of frames ahead.
            masks: the labels that each row may write, at addresses that stay; None for all.

        Raises:
            ValueError: if the durations do not fit one tile.
        """
        weight, self._count = joint.output.weight, joint.blank + 1
        self._weight, self._bias = weight.detach(), joint.output.bias.detach()
        self._masks = masks
        many = SCORES_OF_MANY if masks is None else MASKED_SCORES_OF_MANY
        self._tile = chosen_tile(SCORES_OF_FEW, many, rows * window, self._count, weight.dtype)
        self.window, self.tile_labels = window, self._tile.columns
        if len(joint.durations) > self.tile_labels:
            raise ValueError(f"{len(joint.durations)} durations do not fit a tile of {self.tile_labels}")
        self.label_tiles = triton.cdiv(self._count, self.tile_labels)
        self.tiles = self.label_tiles + bool(joint.durations)
        place, device = (rows, window, self.tiles), weight.device
        self.scores = Scores(
            best=torch.zeros(place, dtype=torch.float32, device=device),
            choice=torch.zeros(place, dtype=torch.int32, device=device),
            mass=torch.ones(place, dtype=torch.float32, device=device),
        )

    def __call__(self, projected: Tensor, predicted: Tensor, time: Tensor, lengths: Tensor) -> Scores:
        """Score the frames ahead.

        Args:
            projected: encoder frames, projected for the joint, [rows, frames, joint width].
            predicted: predictor outputs, projected for the joint, [rows, joint width].
            time: the frame that each row scores first, int64 [rows].
            lengths: frames of each row, int64 [rows].

        Returns:
            Scores, valid until the next call; beyond a row's last frame they mean nothing.
        """
        rows, frames, width = projected.shape
        _score_tile[(triton.cdiv(rows * self.window, self._tile.rows), self.tiles)](
            projected,
            predicted,
            time,
            lengths,
            self._weight,
            self._bias,
            *(self._masks or (None, None)),
            self.scores.best,
            self.scores.choice,
            self.scores.mass,
            rows,
            frames,
            self.tiles,
            WINDOW=self.window,
            JOINT=width,
            COUNT=self._count,
            OUTPUTS=len(self._bias),
            MASKED=self._masks is not None,
            ROWS=self._tile.rows,
            LABELS=self._tile.columns,
            WIDTH=_WIDTH,
            num_warps=self._tile.warps,
            num_stages=self._tile.stages,
        )
        return self.scores


class WalkKernel:
    """Finds each row's next label in the scores, stores it and advances the row."""

    def __init__(self, joint: Joint, scoring: JointKernel) -> None:
        self._blank = joint.blank
        self._scoring = scoring
        self._durations = torch.tensor(joint.durations, dtype=torch.int64, device=joint.output.weight.device)

    def __call__(self, scores: Scores, state: TransducerState, found: Tensor, labels: Tensor) -> None:
        """Advance the rows.

        Args:
            scores: scores of the frames ahead of the rows.
            state: the state; changed, except for its predictor.
            found: whether each row has a new label, int64 [rows]; written.
            labels: the new labels, int64 [rows]; written.
        """
        _walk[(len(labels),)](
            scores.best,
            scores.choice,
            scores.mass,
            self._durations,
            state.lengths,
            state.time,
            state.symbols,
            state.last_frame,
            state.counts,
            state.tokens,
            state.frames,
            state.durations,
            state.confidence,
            found,
            labels,
            self._scoring.tiles,
            state.tokens.size(1),
            state.max_symbols,
            BLANK=self._blank,
            WINDOW=self._scoring.window,
            LABEL_TILES=self._scoring.label_tiles,
            TILES=triton.next_power_of_2(self._scoring.label_tiles),
            LABELS=self._scoring.tile_labels,
            DURATIONS=len(self._durations),
            num_warps=1,
        )
