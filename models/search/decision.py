"""The choice of a transducer at a frame: a label or the blank, and how many frames to advance."""

from typing import NamedTuple

import torch
from torch import Tensor

from models.heads.transducer import Joint

# By this a gain of a phrase (phrases.py) is multiplied before it is added to a logit (docs/measured/2026-11.md).
PHRASE_SCALE = 1.0


class Decision(NamedTuple):
    """Choices; the tensors have the shape of the frames, such as [rows].

    Attributes:
        token: id of the label, or the blank, int64.
        duration: frames to advance, int64; at least 1 for the blank, and 0 for each label of an RNN-T.
        logits: logits of labels and blank, float32, [..., labels + 1].
    """

    token: Tensor
    duration: Tensor
    logits: Tensor


def decide(
    joint: Joint, encoder_frames: Tensor, predicted: Tensor, durations: Tensor, added: Tensor | None = None
) -> Decision:
    """Choose greedily in float32; the lowest index wins a tie.

    Args:
        joint: the joint.
        encoder_frames: projected encoder frames, [..., joint width].
        predicted: projected predictor outputs, whose shape broadcasts with that of the frames.
        durations: ``joint.durations`` as an int64 tensor on the device.
        added: added to the logits of labels and blank (label_masks.py), whose shape it broadcasts with.
    """
    label_logits, duration_logits = joint.split(joint(encoder_frames, predicted).float())
    if added is not None:
        label_logits = label_logits + added
    token = label_logits.argmax(dim=-1)
    duration = durations[duration_logits.argmax(dim=-1)] if durations.numel() else torch.zeros_like(token)
    return Decision(
        token=token,
        duration=duration.clamp(min=1).where(token == joint.blank, duration),
        logits=label_logits,
    )


def confidence(logits: Tensor, token: Tensor) -> Tensor:
    """Return the probability of each choice among labels and blank.

    It is not part of ``decide``, because it costs as much as a decision, and blanks need none.

    Args:
        logits: logits of labels and blank, [rows, labels + 1].
        token: the choices, [rows].
    """
    return logits.softmax(dim=1).gather(1, token[:, None]).squeeze(1)
