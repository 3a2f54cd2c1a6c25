"""Learning from a teacher, module by module: the student computes on the same features as the teacher, in each step.

In the first stage, apart, every module learns alone what the teacher's own does between two of the teacher's states, so
no gradient passes through the depth. In the second the layers are chained: the student's state after each layer is
compared with the teacher's, and its posteriors are, too (Hinton et al., 2015; compare Romero et al., 2015). CTC
posteriors are blank nearly everywhere, so frames in which the teacher has a label weigh more.

If a student has fewer layers than its teacher, each learns what several of the teacher's do, and if it has more,
several learn what one does. If it has another width, a linear map for each compared state leads into the student's
space, and its transpose back; maps learn to keep what they can of the teacher's states, and are not exported.
"""

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from models.encoders.conformer import ConformerEncoder, ConformerLayer
from models.encoders.padding import Padding
from training.layer_states import LayerStates, input_frames, module_outputs
from training.objective import Losses
from training.recipe import Teacher
from training.student import StudentNetwork
from training.teacher import Lesson

# Weights in the second stage: of the distance to the teacher's state after each layer but the last, whose weight is 1,
# and of the distance to its posteriors, where a frame weighs 1 + emphasis x the probability that it is not blank.
_STATES, _POSTERIORS, _LABEL_EMPHASIS = 0.3, 3.0, 4.0
# Values whose variance is below this share of the mean variance are compared as if they had that.
_LEAST_VARIANCE = 1e-3


def groups(student: int, teacher: int) -> list[tuple[range, range]]:
    """Return which layers of a student learn what which of its teacher's do; one of both is always a single one."""
    count = min(student, teacher)

    def shared(layers: int) -> list[range]:
        return [range(layers * number // count, layers * (number + 1) // count) for number in range(count)]

    return list(zip(shared(student), shared(teacher), strict=True))


def distillation_losses(
    network: StudentNetwork, features: Tensor, lengths: Tensor, lesson: Lesson, config: Teacher, *, apart: bool
) -> Losses:
    """Return the losses of a batch of features [batch, mels, frames] without padding, by the teacher's lesson.

    With ``apart``, the modules learn alone, in the first stage; else they are chained.
    """
    assert isinstance(network.encoder, ConformerEncoder), "a recipe with a teacher has one"
    assert network.ctc, "a recipe with a teacher has one"
    frames, lengths, positions = input_frames(network.encoder, features, lengths)
    student = _Student(network, positions, Padding(lengths, frames.size(1)))
    pairs = groups(len(network.encoder.layers), len(lesson.layers))
    ends = [lesson.layers[of_teacher[-1]].output for _, of_teacher in pairs]
    wanted = [lesson.layers[0].inputs[0], *ends]
    first = student.compared(frames, wanted[0], 0)
    if apart:
        found, last = _apart(student, pairs, lesson.layers, wanted, config.apart.noise)
        states = torch.stack([first, *found])
        total = states.sum()
    else:
        found, last = _chained(student, pairs, frames, wanted, config.swap)
        states = torch.stack([first, *found])
        total = first + _STATES * states[1:-1].sum() + states[-1]
    posteriors = posterior_loss(network.ctc(last), lesson.log_probabilities, _LABEL_EMPHASIS)
    total = total + (1.0 if apart else _POSTERIORS) * posteriors
    if network.maps:
        total = total + sum(distance(student.kept(state, number), state) for number, state in enumerate(wanted))
    return Losses(total, {"states": states.mean(), "posteriors": posteriors})


class _Student:
    """A student's layers with the positions and the padding of a batch, and the maps to its teacher's states."""

    def __init__(self, network: StudentNetwork, positions: Tensor, padding: Padding) -> None:
        self.layers = [layer for layer in network.encoder.modules() if isinstance(layer, ConformerLayer)]
        self.maps = network.maps
        self.rest = (positions, padding)

    def given(self, state: Tensor, number: int) -> Tensor:
        """Return a teacher's state as an input of the student; nothing is learned about the map from it."""
        return state if self.maps is None else self.maps.into(state, number).detach()

    def kept(self, state: Tensor, number: int) -> Tensor:
        """Return what the maps keep of a teacher's state."""
        assert self.maps
        return self.maps.back(self.maps.into(state, number), number)

    def compared(self, state: Tensor, wanted: Tensor, number: int) -> Tensor:
        """Return the distance of a student's state to the teacher's."""
        state = state.float()
        return distance(state if self.maps is None else self.maps.back(state, number), wanted)


def _apart(
    student: _Student,
    pairs: list[tuple[range, range]],
    layers: list[LayerStates],
    wanted: list[Tensor],
    noise: float,
) -> tuple[list[Tensor], Tensor]:
    """Return the distance of each module, and what the head gets: the teacher's last state."""
    found = []
    for number, (own, of_teacher) in enumerate(pairs):
        if student.maps is None and len(own) == len(of_teacher) == 1:
            layer, states = student.layers[own[0]], layers[of_teacher[0]]
            returned = module_outputs(layer, tuple(noisy(one, noise) for one in states.inputs), *student.rest)
            found += [
                (one.float() - output).square().mean() / output.var().clamp(min=1e-6)
                for one, output in zip(returned, states.outputs, strict=True)
            ]
            found.append(distance(layer.norm(states.sum).float(), states.output))
        else:
            state = noisy(student.given(wanted[number], number), noise)
            for one in own:
                state = student.layers[one](state, *student.rest)
            found.append(student.compared(state, wanted[number + 1], number + 1))
    return found, student.given(wanted[-1], len(pairs))


def _chained(
    student: _Student, pairs: list[tuple[range, range]], state: Tensor, wanted: list[Tensor], swap: float
) -> tuple[list[Tensor], Tensor]:
    """Return the distance after each group of layers, and the last state."""
    found = []
    for number, (own, _) in enumerate(pairs):
        if swap and number:
            swapped = torch.rand(state.size(0), 1, 1, device=state.device) < swap
            state = torch.where(swapped, student.given(wanted[number], number), state.float())
        for layer in own:
            state = student.layers[layer](state, *student.rest)
        found.append(student.compared(state, wanted[number + 1], number + 1))
    return found, state


def noisy(state: Tensor, most: float) -> Tensor:
    """Return a state with noise of up to ``most`` times its standard deviation."""
    return state + torch.randn_like(state) * (state.std() * most * torch.rand((), device=state.device))


def distance(found: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean squared distance of states [batch, time, width], as a share of each value's variance."""
    variance = wanted.var(dim=(0, 1))
    return ((found - wanted).square() / variance.clamp(min=_LEAST_VARIANCE * variance.mean() + 1e-9)).mean()


def posterior_loss(logits: Tensor, wanted: Tensor, label_emphasis: float) -> Tensor:
    """Return the divergence of a student's posteriors from its teacher's, per weighted frame.

    Args:
        logits: the student's, [batch, frames, labels + 1], the blank last.
        wanted: the teacher's log probabilities, in the same shape.
        label_emphasis: a frame weighs 1 + this x the probability that it is not blank.
    """
    probabilities = wanted.exp()
    divergence = (probabilities * (wanted - log_softmax(logits.float(), dim=-1))).sum(dim=-1)
    weights = 1 + label_emphasis * (1 - probabilities[..., -1])
    return (divergence * weights).sum() / weights.sum()
