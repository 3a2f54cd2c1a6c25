"""The loss of transducers: minus the log-probability of transcripts, over all alignments (training/losses/lattice.py).

A joint scores every label for every frame and number of labels said: of 32 clips of 20 s and 100 labels, for 1,024
labels, 3 GB, and as much for the gradients. Here it scores some clips at a time, or some frames of a long one, of which
it keeps the few scores that alignments need; the gradients follow at once, before the scores are forgotten. Frames and
labels of all these clips stand in one row, so that no padding is scored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad

from models.heads.transducer import Joint
from models.masking import valid_positions
from training.losses.lattice import align, arcs_of

# Scores that are held at a time: in float32 64 MB on a CPU, where more gains nothing, and 1 GB on a GPU.
_ROOM = {"cpu": 1 << 24, "cuda": 1 << 28}


@dataclass(frozen=True, slots=True)
class TransducerOptions:
    """How the loss departs from minus the log-probability.

    Attributes:
        fast_emit: how much more labels are pulled for than blanks (Yu et al., 2021), which makes them come earlier; the
            loss itself stays what it is.
        sigma: taken from the log-probability of every blank and label of a TDT, which makes it use longer durations.
        clamp: the most that the gradient of a label's or the blank's score may be, or None.
    """

    fast_emit: float = 0.0
    sigma: float = 0.0
    clamp: float | None = None


def transducer_loss(
    joint: Joint,
    heard: Tensor,
    said: Tensor,
    frames: Tensor,
    tokens: Tensor,
    labels: Tensor,
    *,
    with_durations: bool = True,
    options: TransducerOptions = TransducerOptions(),
    room: int | None = None,
) -> Tensor:
    """Return the loss of a batch, the sum of its clips'.

    A clip whose transcript has no alignment, because it has no frame or a TDT cannot say so many labels in them, counts
    nothing. The gradient has no gradient of its own.

    Args:
        joint: scores; its projections were applied already.
        heard: encoder frames, projected for the joint, [batch, frames, joint width].
        said: predictor outputs at the start and after each label, projected too, [batch, labels + 1, joint width].
        frames: of each clip, [batch].
        tokens: labels of the transcripts, [batch, labels].
        labels: of each transcript, [batch].
        with_durations: False takes a TDT for an RNN-T, whose durations learn nothing.
        options: how the loss departs from minus the log-probability.
        room: scores that are held at a time; None takes what suits the device.

    Returns:
        A number, float32, or float64 if the frames are.
    """
    score = _Score(
        joint.activation,
        joint.blank,
        joint.durations if with_durations else (),
        options,
        room or _ROOM[heard.device.type],
    )
    weight, bias = joint.output.weight, joint.output.bias
    loss: Tensor = _TransducerLoss.apply(heard, said, weight, bias, frames, tokens, labels, score)  # type: ignore[no-untyped-call]
    return loss


@dataclass(frozen=True, slots=True)
class _Score:
    """What does not change from clip to clip."""

    activation: nn.Module
    blank: int
    durations: tuple[int, ...]
    options: TransducerOptions
    room: int


class _TransducerLoss(torch.autograd.Function):
    """The loss, whose gradients are computed on the way."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch gives
        heard: Tensor,
        said: Tensor,
        weight: Tensor,
        bias: Tensor,
        frames: Tensor,
        tokens: Tensor,
        labels: Tensor,
        score: _Score,
    ) -> Tensor:
        inputs = heard, said, weight, bias
        learns = any(ctx.needs_input_grad)
        with torch.autocast(heard.device.type, enabled=False):
            batch = _Batch(*inputs, frames, tokens, labels, score, learns=learns)
            loss = batch.loss()
        if learns:
            gradients = zip(batch.gradients, inputs, strict=True)
            ctx.save_for_backward(*(gradient.to(of.dtype) for gradient, of in gradients))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return *(gradient.to(each.dtype) * each for each in ctx.saved_tensors), None, None, None, None


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Some nodes of the lattices of some clips, in one row.

    Attributes:
        heard: places of their frames among those of the batch.
        said: places of their predictions among those of the batch.
        next_label: the label that comes next in the transcript; any at its end.
        place: their places in the clips' lattices.
    """

    heard: Tensor
    said: Tensor
    next_label: Tensor
    place: Tensor

    def parts(self, size: int) -> list["_Nodes"]:
        """Return them in parts of so many."""
        fields = self.heard, self.said, self.next_label, self.place
        return [_Nodes(*part) for part in zip(*(torch.split(field, size) for field in fields), strict=True)]


@dataclass(frozen=True, slots=True)
class _Scored:
    """What the joint makes of some nodes.

    Attributes:
        hidden: after its activation, [nodes, joint width].
        logits: of labels, blank and durations, [nodes, outputs].
        mass: logarithm of the sum of exponentials of labels and blank, [nodes].
    """

    hidden: Tensor
    logits: Tensor
    mass: Tensor


class _Batch:
    """A batch whose loss is computed.

    Attributes:
        gradients: of frames, predictions, weight and bias; nothing unless it learns.
    """

    def __init__(
        self,
        heard: Tensor,
        said: Tensor,
        weight: Tensor,
        bias: Tensor,
        frames: Tensor,
        tokens: Tensor,
        labels: Tensor,
        score: _Score,
        *,
        learns: bool,
    ) -> None:
        self._heard, self._said, self._score = heard, said, score
        self._weight, self._bias = weight.to(heard.dtype), bias.to(heard.dtype)
        self._frames, self._labels = frames, labels
        self._tokens = pad(tokens, (0, 1))  # so that there is one after the last, and one of no transcript
        self._arcs = arcs_of(score.durations)
        self._passing = [place for place, duration in enumerate(score.durations) if duration > 0]  # those of blanks
        self._sum_dtype = torch.promote_types(heard.dtype, torch.float32)
        inputs = (heard, said, weight, bias) if learns else ()
        self.gradients = [torch.zeros_like(each, dtype=self._sum_dtype) for each in inputs]

    def loss(self) -> Tensor:
        """Return the sum of the clips' losses, and add up the gradients."""
        total = torch.zeros((), dtype=self._sum_dtype, device=self._heard.device)
        sizes = list(zip(self._frames.tolist(), self._labels.tolist(), strict=True))
        for first, after in _groups([frames * (labels + 1) for frames, labels in sizes], self._most_nodes):
            total += self._group_loss(first, sizes[first:after])
        return total

    @property
    def _most_nodes(self) -> int:
        return max(1, self._score.room // self._weight.size(0))

    def _group_loss(self, first: int, sizes: Sequence[tuple[int, int]]) -> Tensor:
        """Return the loss of clips that follow each other, and add up its gradients."""
        longest, most = max(frames for frames, _ in sizes), max(labels for _, labels in sizes)
        nodes = self._nodes(first, sizes, longest, most + 1)
        weights = self._heard.new_zeros(len(self._arcs), len(sizes), longest, most + 1, dtype=self._sum_dtype)
        parts = nodes.parts(self._most_nodes)
        scored = None
        for part in parts:
            scored = self._scored(part)
            weights.flatten(1)[:, part.place] = self._arc_weights(scored, part)
        after = first + len(sizes)
        aligned = align(weights, self._arcs, self._frames[first:after], self._labels[first:after])
        if self.gradients:
            shares = aligned.shares.flatten(1)
            for part in parts:
                # Those of a group in one part are still there.
                of_part = scored if scored is not None and len(parts) == 1 else self._scored(part)
                self._learn(of_part, part, shares[:, part.place])
        is_possible = aligned.log_probability > -torch.inf
        return -aligned.log_probability.where(is_possible, 0.0).sum().to(self._sum_dtype)

    def _nodes(self, first: int, sizes: Sequence[tuple[int, int]], longest: int, width: int) -> _Nodes:
        """Return the nodes of clips that follow each other; their lattices have so many frames, and are so wide."""
        clips = slice(first, first + len(sizes))
        within = valid_positions(self._frames[clips], longest)[:, :, None]
        place = (within & valid_positions(self._labels[clips] + 1, width)[:, None]).flatten().nonzero()[:, 0]
        clip, frame, label = first + place // (longest * width), place // width % longest, place % width
        return _Nodes(
            heard=clip * self._heard.size(1) + frame,
            said=clip * self._said.size(1) + label,
            next_label=self._tokens[clip, label],
            place=place,
        )

    def _scored(self, nodes: _Nodes) -> _Scored:
        met = self._heard.flatten(0, 1)[nodes.heard] + self._said.flatten(0, 1)[nodes.said]
        hidden: Tensor = self._score.activation(met)
        logits = linear(hidden, self._weight, self._bias).to(self._sum_dtype)
        return _Scored(hidden, logits, logits[:, : self._score.blank + 1].logsumexp(1))

    def _arc_weights(self, scored: _Scored, nodes: _Nodes) -> Tensor:
        """Return the log-probabilities of arcs, [arcs, nodes]."""
        score = self._score
        blank = scored.logits[:, score.blank] - scored.mass
        label = scored.logits.gather(1, nodes.next_label[:, None])[:, 0] - scored.mass
        if not score.durations:
            return torch.stack((blank, label))
        durations = self._durations(scored).log_softmax(1).T
        return torch.cat((blank + durations[self._passing], label + durations)) - score.options.sigma

    def _durations(self, scored: _Scored) -> Tensor:
        first = self._score.blank + 1
        return scored.logits[:, first : first + len(self._score.durations)]

    def _learn(self, scored: _Scored, nodes: _Nodes, shares: Tensor) -> None:
        """Add up what some nodes add to the gradients; their scores are lost.

        Args:
            scored: what the joint made of them.
            nodes: which.
            shares: of all alignments of their clips those that take their arcs, [arcs, nodes].
        """
        score, options = self._score, self._score.options
        blanks = len([arc for arc in self._arcs if not arc.labels])
        by_blank, by_label = shares[:blanks], shares[blanks:]
        blank, label = by_blank.sum(0), by_label.sum(0) * (1 + options.fast_emit)
        # The gradient of a score: the probability of what it is of, as far as alignments come here, without the share
        # of those that take it.
        of_logits = scored.logits
        tokens = of_logits[:, : score.blank + 1]
        tokens.sub_(scored.mass[:, None]).exp_().mul_((blank + label)[:, None])
        tokens[:, score.blank] -= blank
        tokens.scatter_add_(1, nodes.next_label[:, None], -label[:, None])
        if options.clamp is not None:
            tokens.clamp_(-options.clamp, options.clamp)
        if score.durations:
            taken = by_label.clone()
            taken[self._passing] += by_blank
            durations = self._durations(scored)
            durations.copy_(durations.softmax(1) * taken.sum(0)[:, None] - taken.T)
        else:
            of_logits[:, score.blank + 1 :] = 0
        rounded = of_logits.to(self._weight.dtype)
        of_heard, of_said, of_weight, of_bias = self.gradients
        of_weight += rounded.T @ scored.hidden
        of_bias += of_logits.sum(0)
        met = (rounded @ self._weight) * _slope(score.activation, scored.hidden)
        of_heard.flatten(0, 1).index_add_(0, nodes.heard, met.to(self._sum_dtype))
        of_said.flatten(0, 1).index_add_(0, nodes.said, met.to(self._sum_dtype))


def _slope(activation: nn.Module, after: Tensor) -> Tensor:
    """Return the derivative of an activation by what comes out of it."""
    if isinstance(activation, nn.ReLU):
        return (after > 0).to(after.dtype)
    if isinstance(activation, nn.Tanh):
        return 1 - after.square()
    assert isinstance(activation, nn.Sigmoid)
    return after * (1 - after)


def _groups(nodes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the one after the last of clips that have so many nodes together at most, or are alone."""
    first = held = 0
    for clip, size in enumerate(nodes):
        if held and held + size > most:
            yield first, clip
            first, held = clip, 0
        held += size
    if nodes:
        yield first, len(nodes)
