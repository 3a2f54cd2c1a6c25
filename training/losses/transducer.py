"""The loss of transducers: minus the log-probability of transcripts, over all alignments (lattice.py).

A joint scores every label for every frame and number of labels said: of 32 clips of 20 s and 100 labels, for 1,024
labels, 3.3 GB, and as much for the gradients. Here frames and labels of some clips stand in one row, so that no padding
is scored, and go through the joint part by part. Of the scores of a part the few are kept that alignments need; the
gradients of all clips in the row follow at once, so that nothing of them is kept but what is returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad

from models.heads.transducer import Joint
from training.losses.kernels import Operations, operations_on
from training.losses.lattice import align, arcs_of
from training.losses.packed_clips import Nodes, PackedClips, fold, rows_of
from training.losses.scores import Outputs, pull, weigh

_PLAIN = Operations(weigh, pull, align, fold)


@dataclass(frozen=True, slots=True)
class Room:
    """What is held at a time.

    Attributes:
        scores: of a part.
        nodes: of the clips in a row; more than a part's are scored twice, and aligned at once.
    """

    scores: int
    nodes: int


# 64 MB of scores in float32 on a CPU, and 256 MB in half precision on a GPU, which takes as long to align few clips as
# many.
_ROOM = {"cpu": Room(1 << 24, 0), "cuda": Room(1 << 27, 1 << 23)}


def transducer_loss(
    joint: Joint,
    heard: Tensor,
    said: Tensor,
    frames: Tensor,
    tokens: Tensor,
    labels: Tensor,
    *,
    with_durations: bool = True,
    fast_emit: float = 0.0,
    sigma: float = 0.0,
    room: Room | None = None,
) -> Tensor:
    """Return the loss of a batch, the sum of its clips'.

    A clip whose transcript has no alignment, because it has no frame or a TDT cannot say so many labels in them, counts
    nothing. The gradient has no gradient of its own.

    Args:
        joint: scores; its projections were applied already.
        heard: encoder frames, projected for the joint, [batch, frames, joint width].
        said: predictor outputs at the start and after each label, projected too, [batch, labels + 1, joint width].
        frames: of each clip, [batch]; with those of ``labels`` on the host, a GPU is not waited for.
        tokens: labels of the transcripts, [batch, labels].
        labels: of each transcript, [batch].
        with_durations: False takes a TDT for an RNN-T, whose durations learn nothing.
        fast_emit: how much more labels are pulled for than blanks (Yu et al., 2021), which makes them come earlier; the
            loss itself stays what it is.
        sigma: taken from the log-probability of every blank and label of a TDT, which makes it use longer durations.
        room: what is held at a time; None takes what suits the device.

    Returns:
        A number, float32, or float64 if the frames are.
    """
    outputs = Outputs(joint.blank, joint.durations if with_durations else (), fast_emit, sigma)
    transcripts = _Transcripts(frames, tokens, labels)
    operations = operations_on(heard.device, heard.dtype) or _PLAIN
    scorer = _Scorer(joint.activation, outputs, room or _ROOM[heard.device.type], operations)
    weight, bias = joint.output.weight, joint.output.bias
    loss: Tensor = _TransducerLoss.apply(heard, said, weight, bias, transcripts, scorer)  # type: ignore[no-untyped-call]
    return loss


@dataclass(frozen=True, slots=True)
class _Transcripts:
    """What was said in how many frames: [batch], [batch, labels], [batch]."""

    frames: Tensor
    tokens: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True)
class _Scorer:
    """What does not change from batch to batch, but for the weights."""

    activation: nn.Module
    outputs: Outputs
    room: Room
    operations: Operations


class _TransducerLoss(torch.autograd.Function):
    """The loss, whose gradients are computed on the way."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch gives
        heard: Tensor,
        said: Tensor,
        weight: Tensor,
        bias: Tensor,
        transcripts: _Transcripts,
        scorer: _Scorer,
    ) -> Tensor:
        learns = any(ctx.needs_input_grad)
        with torch.autocast(heard.device.type, enabled=False):
            batch = _Batch((heard, said, weight, bias), transcripts, scorer, learns=learns)
            loss = batch.loss()
        if batch.gradients:
            ctx.save_for_backward(*batch.gradients.like(weight, bias))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return *(gradient.to(each.dtype) * each for each in ctx.saved_tensors), None, None


@dataclass(frozen=True, slots=True)
class _Scored:
    """What the joint makes of some nodes.

    Attributes:
        hidden: after its activation, [nodes, joint width].
        logits: of labels, blank and durations, [nodes, outputs].
    """

    hidden: Tensor
    logits: Tensor


@dataclass(slots=True)
class _Gradients:
    """Those of frames and predictions, in their dtype, and those of weight and bias, in which parts are summed."""

    heard: Tensor
    said: Tensor
    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, inputs: tuple[Tensor, Tensor, Tensor, Tensor], wide: torch.dtype) -> "_Gradients":
        """Return some that are zero."""
        heard, said, weight, bias = inputs
        return cls(
            torch.zeros_like(heard),
            torch.zeros_like(said),
            torch.zeros_like(weight, dtype=wide),
            torch.zeros_like(bias, dtype=wide),
        )

    def like(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return them, each in the dtype of what it is of."""
        return self.heard, self.said, self.weight.to(weight.dtype), self.bias.to(bias.dtype)


class _Batch:
    """A batch whose loss is computed.

    Attributes:
        gradients: of the loss, once it is computed; None if they are not wanted.
    """

    def __init__(
        self,
        inputs: tuple[Tensor, Tensor, Tensor, Tensor],
        transcripts: _Transcripts,
        scorer: _Scorer,
        *,
        learns: bool,
    ) -> None:
        """Take what goes in.

        Args:
            inputs: frames, predictions, weight and bias.
            transcripts: what was said.
            scorer: how.
            learns: whether gradients are wanted.
        """
        self._heard, self._said, weight, bias = inputs
        self._weight, self._bias = (each.to(self._heard.dtype) for each in (weight, bias))
        self._transcripts, self._scorer = transcripts, scorer
        self._tokens = pad(transcripts.tokens, (0, 1))  # so that there is one after the last, and one of no transcript
        self._arcs = arcs_of(scorer.outputs.durations)
        self._wide = torch.promote_types(self._heard.dtype, torch.float32)  # what is summed
        self._most_nodes = max(1, scorer.room.scores // weight.size(0))
        self.gradients = _Gradients.of(inputs, self._wide) if learns else None

    def loss(self) -> Tensor:
        """Return the sum of the clips' losses, and compute the gradients."""
        total = torch.zeros((), dtype=self._wide, device=self._heard.device)
        sizes = list(zip(self._transcripts.frames.tolist(), self._transcripts.labels.tolist(), strict=True))
        for clips in rows_of(sizes, max(self._most_nodes, self._scorer.room.nodes)):
            total += self._loss_of(clips, PackedClips(sizes[clips], self._tokens[clips], self._heard.size(1)))
        return total

    def _loss_of(self, clips: slice, row: PackedClips) -> Tensor:
        """Return the loss of some clips, and compute their gradients."""
        device = self._heard.device
        frames, labels = (
            each[clips].to(device, non_blocking=True) for each in (self._transcripts.frames, self._transcripts.labels)
        )
        operations, outputs = self._scorer.operations, self._scorer.outputs
        weights = self._heard.new_zeros(len(self._arcs), *row.lattice, dtype=self._wide)
        parts, masses, kept = row.parts(self._most_nodes), [], None
        for part in parts:
            nodes = row.nodes(part)
            scored = self._scored(clips, nodes)
            weighed = operations.weigh(scored.logits, nodes.next_label, outputs)
            weights.flatten(1)[:, nodes.place] = weighed.weights
            masses.append(weighed.mass)
            kept = scored if len(parts) == 1 else None
            del scored  # before the next part takes as much
        aligned = operations.align(weights, self._arcs, frames, labels)
        if self.gradients:
            self._learn(self.gradients, clips, row, masses, aligned.shares.flatten(1), kept)
        is_possible = aligned.log_probability > -torch.inf
        return -aligned.log_probability.where(is_possible, 0.0).sum().to(self._wide)

    def _scored(self, clips: slice, nodes: Nodes) -> _Scored:
        met = self._heard[clips].flatten(0, 1)[nodes.heard]
        met += self._said[clips].flatten(0, 1)[nodes.said]
        hidden: Tensor = self._scorer.activation(met)
        return _Scored(hidden, linear(hidden, self._weight, self._bias))

    def _learn(
        self,
        gradients: _Gradients,
        clips: slice,
        row: PackedClips,
        masses: Sequence[Tensor],
        shares: Tensor,
        scored: _Scored | None,
    ) -> None:
        """Compute the gradients of some clips.

        Args:
            gradients: what they go into.
            clips: which.
            row: their nodes.
            masses: of the scores of its parts, as ``weigh`` gave them.
            shares: of all alignments those that take an arc, [arcs, places of nodes].
            scored: what the joint made of the nodes, if it is still there.
        """
        scorer = self._scorer
        of_heard, of_said = (
            torch.zeros_like(each[clips], dtype=self._wide).flatten(0, 1) for each in (self._heard, self._said)
        )
        for part, mass in zip(row.parts(self._most_nodes), masses, strict=True):
            nodes = row.nodes(part)
            found = scored or self._scored(clips, nodes)
            taken = shares[:, nodes.place]
            of_logits = scorer.operations.pull(found.logits, mass, nodes.next_label, taken, scorer.outputs)
            gradients.weight += of_logits.T @ found.hidden
            gradients.bias += of_logits.sum(0, dtype=self._wide)
            met = _through(scorer.activation, of_logits @ self._weight, found.hidden)
            scorer.operations.fold(met, row, part, of_heard, of_said)
            del found, of_logits, met
        gradients.heard[clips] = of_heard.view_as(self._heard[clips])
        gradients.said[clips] = of_said.view_as(self._said[clips])


def _through(activation: nn.Module, gradient: Tensor, after: Tensor) -> Tensor:
    """Return the gradient before an activation by the one after it, and by what came out of it."""
    result: Tensor
    if isinstance(activation, nn.ReLU):
        result = torch.ops.aten.threshold_backward(gradient, after, 0)
    elif isinstance(activation, nn.Tanh):
        result = torch.ops.aten.tanh_backward(gradient, after)
    else:
        assert isinstance(activation, nn.Sigmoid)
        result = torch.ops.aten.sigmoid_backward(gradient, after)
    return result
