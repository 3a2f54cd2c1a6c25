"""Linear maps between the states of a teacher and those of a student of another width, which only training needs."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class StateMaps(nn.Module):
    """A matrix for each state that is compared; its transpose leads back.

    Its rows are orthogonal at first, and learn to keep what they can of the teacher's states.
    """

    def __init__(self, states: int, teacher: int, student: int) -> None:
        """Make maps of ``states`` states from the teacher's width to the student's."""
        super().__init__()
        self.weights = nn.ParameterList(nn.init.orthogonal_(torch.empty(student, teacher)) for _ in range(states))

    def into(self, state: Tensor, number: int) -> Tensor:
        """Return a teacher's state in the student's space."""
        return linear(state, self.weights[number])

    def back(self, state: Tensor, number: int) -> Tensor:
        """Return a student's state in the teacher's space."""
        return linear(state, self.weights[number].T)
