"""The loss of transducers: minus the log-probability of transcripts, over all alignments (lattice.py).

A joint scores each label for each frame and number of labels emitted: for 32 clips of 20 s and 100 labels, with 1,024
labels, 3.3 GB, and as much for the gradients. Here the nodes of some clips are packed, so that no padding is scored,
and go through the joint part by part. Only the scores that alignments need are kept, and gradients of these clips are
computed at once, so nothing else has to be kept for the backward pass.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad

from models.comparison import compare
from models.device.fast_paths import FAST_PATHS, FastPath
from models.heads.transducer import Joint
from training.losses.kernels import Operations, operations_on
from training.losses.lattice import align, arcs_of
from training.losses.packed_clips import Nodes, PackedClips, fold, rows_of
from training.losses.scores import Outputs, pull, weigh

_PLAIN = Operations(weigh, pull, align, fold)


@dataclass(frozen=True, slots=True)
class Room:
    """Limits on memory."""

    scores: int  # most scores of a part, and most elements of its hidden layer
    nodes: int  # most nodes of clips that are aligned at once. If they are more than a part, they are scored twice


# 64 MB of scores in float32 on a CPU. 256 MB in half precision on a GPU, where aligning many clips takes as long as
# few.
_ROOM = {"cpu": Room(1 << 24, 0), "cuda": Room(1 << 27, 1 << 23)}

# Frames and labels of the clips by which kernels are compared with plain operations.
_COMPARED_CLIPS = ((60, 17), (9, 3), (1, 1), (1, 0))
_COMPARED_ROOM = Room(1 << 24, 0)


def transducer_loss(
    joint: Joint,
    encoded: Tensor,
    predicted: Tensor,
    frames: Tensor,
    tokens: Tensor,
    labels: Tensor,
    *,
    with_durations: bool = True,
    fast_emit: float = 0.0,
    sigma: float = 0.0,
    room: Room | None = None,
) -> Tensor:
    """Return the loss of a batch, the sum over its clips.

    A clip without an alignment counts 0: it has no frames, or no durations of a TDT fit its frames and labels. The
    gradient cannot be differentiated again.

    Args:
        joint: the joint; its projections are applied already.
        encoded: encoder frames, projected for the joint, [batch, frames, joint width].
        predicted: predictor outputs at the start and after each label, projected too, [batch, labels + 1, joint width].
        frames: number of frames of each clip, [batch]. With this and ``labels`` on the host, a GPU is not waited for.
        tokens: labels of the transcripts, [batch, labels].
        labels: number of labels of each transcript, [batch].
        with_durations: False trains a TDT as an RNN-T, without its durations.
        fast_emit: additional weight of the gradients of labels over blanks (Yu et al., 2021), for earlier labels; the
            loss itself does not change.
        sigma: subtracted from the log-probability of each blank and label of a TDT, for longer durations.
        room: limits on memory; None suits the device.

    Returns:
        A scalar, float32, or float64 if the frames are.
    """
    outputs = Outputs(joint.blank, joint.durations if with_durations else (), fast_emit, sigma)
    if FAST_PATHS.suits(encoded.device):
        compare_kernels(encoded.device, encoded.dtype, outputs, joint.output.weight.shape)
    transcripts = _Transcripts(frames, tokens, labels)
    operations = operations_on(encoded.device, encoded.dtype) or _PLAIN
    scorer = _Scorer(joint.activation, outputs, room or _ROOM[encoded.device.type], operations)
    inputs = [encoded, predicted, joint.output.weight, joint.output.bias]
    if not torch.is_grad_enabled():
        inputs = [each.detach() for each in inputs]  # ``needs_input_grad`` does not depend on the mode
    loss: Tensor = _TransducerLoss.apply(*inputs, transcripts, scorer)  # type: ignore[no-untyped-call]
    return loss


@cache
def compare_kernels(device: torch.device, dtype: torch.dtype, outputs: Outputs, shape: torch.Size) -> None:
    """Compare the kernels with plain operations, by the loss of noise and its gradients; see ``compare``.

    ``shape`` is that of the joint's last weights, [outputs, joint width].
    """
    generator = torch.Generator(device).manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    frames, labels = torch.tensor(_COMPARED_CLIPS).T
    most = int(labels.max())
    tokens = (torch.arange(len(labels) * most, device=device) % outputs.blank).view(-1, most)
    tensors = noise(len(frames), int(frames.max()), shape[1]), noise(len(frames), most + 1, shape[1])
    rounded = [each.to(dtype) for each in (*tensors, noise(*shape) / math.sqrt(shape[1]), noise(shape[0]))]

    def loss(dtype: torch.dtype) -> tuple[Tensor, ...]:
        inputs = [each.to(dtype).requires_grad_() for each in rounded]
        scorer = _Scorer(nn.ReLU(), outputs, _COMPARED_ROOM, operations_on(device, dtype) or _PLAIN)
        with torch.enable_grad():
            found = _TransducerLoss.apply(*inputs, _Transcripts(frames, tokens, labels), scorer)  # type: ignore[no-untyped-call]
            return found.detach(), *torch.autograd.grad(found, inputs)

    compare(FastPath.LOSSES, lambda: loss(dtype), lambda: loss(torch.promote_types(dtype, torch.float32)))


@dataclass(frozen=True, slots=True)
class _Transcripts:
    """Numbers of frames, transcripts and numbers of labels: [batch], [batch, labels], [batch]."""

    frames: Tensor
    tokens: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True)
class _Scorer:
    """The parts of the computation that are the same for all batches."""

    activation: nn.Module
    outputs: Outputs
    room: Room
    operations: Operations


class _TransducerLoss(torch.autograd.Function):
    """The loss, whose gradients are computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch gives
        encoded: Tensor,
        predicted: Tensor,
        weight: Tensor,
        bias: Tensor,
        transcripts: _Transcripts,
        scorer: _Scorer,
    ) -> Tensor:
        learns = any(ctx.needs_input_grad)
        inputs = encoded, predicted, weight, bias
        with torch.autocast(encoded.device.type, enabled=False):
            batch = _Batch(inputs, transcripts, scorer, learns=learns)
            loss = batch.loss()
        gradients = zip(batch.gradients, inputs, strict=False)  # none, if they are not wanted
        ctx.save_for_backward(*(each.to(of.dtype) for each, of in gradients))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return *(gradient.to(each.dtype) * each for each in ctx.saved_tensors), None, None


class _Batch:
    """The computation of a batch's loss.

    ``gradients`` are those of frames, predictions, weight and bias, the last two in the dtype of sums; none if they are
    not wanted.
    """

    def __init__(
        self,
        inputs: tuple[Tensor, Tensor, Tensor, Tensor],
        transcripts: _Transcripts,
        scorer: _Scorer,
        *,
        learns: bool,
    ) -> None:
        self._encoded, self._predicted, weight, bias = inputs
        self._weight, self._bias = (each.to(self._encoded.dtype) for each in (weight, bias))
        self._transcripts, self._scorer = transcripts, scorer
        self._tokens = pad(transcripts.tokens, (0, 1))  # a label after the last, also for empty transcripts
        self._arcs = arcs_of(scorer.outputs.durations)
        self._wide = torch.promote_types(self._encoded.dtype, torch.float32)  # dtype of sums
        self._most_nodes = max(1, scorer.room.scores // max(weight.shape))
        dtypes = (None, None, self._wide, self._wide)
        zeros = (torch.zeros_like(each, dtype=dtype) for each, dtype in zip(inputs, dtypes, strict=True))
        self.gradients = tuple(zeros) if learns else ()

    def loss(self) -> Tensor:
        """Return the sum of the clips' losses, and compute the gradients."""
        total = torch.zeros((), dtype=self._wide, device=self._encoded.device)
        sizes = list(zip(self._transcripts.frames.tolist(), self._transcripts.labels.tolist(), strict=True))
        for clips in rows_of(sizes, max(self._most_nodes, self._scorer.room.nodes)):
            total += self._loss_of(clips, PackedClips(sizes[clips], self._tokens[clips], self._encoded.size(1)))
        return total

    def _loss_of(self, clips: slice, row: PackedClips) -> Tensor:
        """Return the loss of some clips, and compute their gradients."""
        device = self._encoded.device
        frames, labels = (
            each[clips].to(device, non_blocking=True) for each in (self._transcripts.frames, self._transcripts.labels)
        )
        operations, outputs = self._scorer.operations, self._scorer.outputs
        weights = self._encoded.new_zeros(len(self._arcs), *row.lattice, dtype=self._wide)
        parts, masses, kept = row.parts(self._most_nodes), [], None
        for part in parts:
            nodes = row.nodes(part)
            scored = self._scored(clips, nodes)
            weighed = operations.weigh(scored[1], nodes.next_label, outputs)
            weights.flatten(1)[:, nodes.lattice_index] = weighed.weights
            masses.append(weighed.mass)
            kept = scored if len(parts) == 1 else None
            del scored  # freed before the next part takes as much
        aligned = operations.align(weights, self._arcs, frames, labels)
        if self.gradients:
            self._learn(clips, row, masses, aligned.shares.flatten(1), kept)
        is_possible = aligned.log_probability != -torch.inf  # so a NaN stays, and stops the run
        return -aligned.log_probability.where(is_possible, 0.0).sum().to(self._wide)

    def _scored(self, clips: slice, nodes: Nodes) -> tuple[Tensor, Tensor]:
        """Return sums after the activation, [nodes, joint width], and logits, [nodes, outputs]."""
        sums = self._encoded[clips].flatten(0, 1)[nodes.frame]
        sums += self._predicted[clips].flatten(0, 1)[nodes.prediction]
        hidden: Tensor = self._scorer.activation(sums)
        return hidden, linear(hidden, self._weight, self._bias)

    def _learn(
        self,
        clips: slice,
        row: PackedClips,
        masses: Sequence[Tensor],
        shares: Tensor,
        scored: tuple[Tensor, Tensor] | None,
    ) -> None:
        """Compute the gradients of some clips, given the shares of arcs, [arcs, lattice entries]."""
        scorer = self._scorer
        encoded, predicted, weight, bias = self.gradients
        of_frames, of_predictions = (
            torch.zeros_like(each[clips], dtype=self._wide).flatten(0, 1) for each in (self._encoded, self._predicted)
        )
        for part, mass in zip(row.parts(self._most_nodes), masses, strict=True):
            nodes = row.nodes(part)
            hidden, logits = scored or self._scored(clips, nodes)
            taken = shares[:, nodes.lattice_index]
            of_logits = scorer.operations.pull(logits, mass, nodes.next_label, taken, scorer.outputs)
            weight += of_logits.T @ hidden
            bias += of_logits.sum(0, dtype=self._wide)
            # Back through ReLU, from the values after it.
            of_sums = torch.ops.aten.threshold_backward(of_logits @ self._weight, hidden, 0)
            scorer.operations.fold(of_sums, row, part, of_frames, of_predictions)
            del hidden, logits, of_logits, of_sums
        encoded[clips] = of_frames.view_as(self._encoded[clips])
        predicted[clips] = of_predictions.view_as(self._predicted[clips])
