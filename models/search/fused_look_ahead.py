"""Look-ahead for a GPU, with steps of a few Triton kernels (models/search/fused_joint.py, predictor.py)."""

import torch
from torch import Tensor

from models.heads.stateless import AnyPredictor
from models.heads.transducer import Joint, Predictor
from models.search.fused_joint import JointKernel, WalkKernel
from models.search.fused_predictor import PredictorKernels
from models.search.label_masks import LabelMasks
from models.search.state import TransducerState


class FusedLookAhead:
    """The steps of ``LookAhead`` in kernels, two at a time.

    Attributes:
        projected: encoder frames, projected for the joint, [batch, frames, joint width].
    """

    def __init__(
        self, projected: Tensor, predictor: AnyPredictor, joint: Joint, window: int, masks: LabelMasks | None = None
    ) -> None:
        assert isinstance(predictor, Predictor), "its kernels compute an LSTM"
        self.projected = projected
        rows = projected.size(0)
        self._score = JointKernel(joint, rows, window, masks)
        self._walk = WalkKernel(joint, self._score)
        self._advance = PredictorKernels(predictor, joint)
        self._spare = predictor.initial_state(rows)[0]
        self._found = torch.zeros(rows, dtype=torch.int64, device=projected.device)
        self._labels = torch.zeros_like(self._found)

    def two_steps(self, state: TransducerState) -> None:
        """Do two steps, after which the predictor's hidden state is in its first buffer again."""
        for before, after in ((state.hidden, self._spare), (self._spare, state.hidden)):
            scores = self._score(self.projected, state.predicted, state.time, state.lengths)
            self._walk(scores, state, self._found, self._labels)
            self._advance(self._labels, self._found, before, after, state.cell, state.predicted)
