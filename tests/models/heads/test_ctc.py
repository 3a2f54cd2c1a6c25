"""The CTC head is a linear layer with the blank last."""

import torch

from models.heads.ctc import CTCHead


def test_every_frame_is_scored_by_itself():
    torch.manual_seed(0)
    head = CTCHead(width=4, vocabulary_size=6)
    encoded = torch.randn(2, 3, 4)

    logits = head(encoded)

    assert logits.shape == (2, 3, 7)
    assert head.blank == 6
    torch.testing.assert_close(logits, encoded @ head.projection.weight.T + head.projection.bias)
