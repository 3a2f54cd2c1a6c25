"""What a transducer chooses at a frame: a label or the blank, and how far to move on."""

from typing import NamedTuple

import torch
from torch import Tensor

from models.heads.transducer import Joint


class Decision(NamedTuple):
    """Choices; each tensor has the shape of what was chosen at, such as [rows].

    Attributes:
        token: id of the label, or the blank, int64.
        duration: frames to move on by, int64; at least 1 for the blank, and 0 for every label of an RNN-T.
        logits: of labels and blank, float32, [..., labels + 1].
    """

    token: Tensor
    duration: Tensor
    logits: Tensor


def decide(joint: Joint, encoder_frames: Tensor, predicted: Tensor, durations: Tensor) -> Decision:
    """Choose greedily in float32; the lowest index wins a tie.

    Args:
        joint: the joint.
        encoder_frames: projected encoder frames, [..., joint width].
        predicted: projected predictor outputs, whose shape broadcasts with that of the frames.
        durations: ``joint.durations`` as an int64 tensor on the device.
    """
    label_logits, duration_logits = joint.split(joint(encoder_frames, predicted).float())
    token = label_logits.argmax(dim=-1)
    duration = durations[duration_logits.argmax(dim=-1)] if durations.numel() else torch.zeros_like(token)
    return Decision(
        token=token,
        duration=duration.clamp(min=1).where(token == joint.blank, duration),
        logits=label_logits,
    )


def confidence(logits: Tensor, token: Tensor) -> Tensor:
    """Return the probability of each choice among labels and blank.

    Apart from the choice, for it costs as much as all the rest of one, and of blanks nobody asks.

    Args:
        logits: of labels and blank, [rows, labels + 1].
        token: what was chosen, [rows].
    """
    return logits.softmax(dim=1).gather(1, token[:, None]).squeeze(1)
