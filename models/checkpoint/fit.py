"""Matching the tensors of a file with those of the model that its configuration describes."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from models.checkpoint.errors import TensorMismatchError, shown


class Fit:
    """Takes tensors out of a file one by one; collects what does not fit, and reports it all at once."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._taken: set[str] = set()
        self._problems: list[str] = []

    def take(self, names: tuple[str, ...], shape: Sequence[int]) -> Tensor | None:
        """Return a tensor of real, finite numbers in ``shape``, or note the problem and return None.

        A convolution over one point is a linear layer, so an extra last dimension of 1 is dropped.
        """
        name = next((one for one in names if one in self._tensors), None)
        if name is None:
            self.note(f"{names[0]} {list(shape)} is missing")
            return None
        self._taken.add(name)
        tensor = self._tensors[name]
        if tensor.shape == (*shape, 1):
            tensor = tensor.squeeze(-1)
        if tensor.shape != tuple(shape):
            self.note(f"{name} is {list(tensor.shape)} but must be {list(shape)}")
        elif not tensor.is_floating_point():
            self.note(f"{name} holds {tensor.dtype}, not real numbers")
        elif not all(bound.isfinite() for bound in torch.aminmax(tensor)):
            self.note(f"{name} holds values that are infinite or not numbers")
        else:
            return tensor
        return None

    def take_optional(self, name: str, shape: Sequence[int]) -> Tensor | None:
        """Return a tensor that may be missing."""
        return self.take((name,), shape) if name in self._tensors else None

    def take_network(
        self, wanted: Mapping[str, Tensor], names_of: Callable[[str], tuple[str, ...]]
    ) -> dict[str, Tensor]:
        """Take every tensor of a network.

        Args:
            wanted: a state dict of the network, for names and shapes.
            names_of: returns the names that the file may have for a tensor of the network.

        Returns:
            The network's state dict; complete if no problem was noted.
        """
        state: dict[str, Tensor] = {}
        for name, like in wanted.items():
            if not like.is_floating_point():
                state[name] = torch.zeros(like.shape, dtype=like.dtype)  # batch norm's count of training steps
            elif (tensor := self.take(names_of(name), like.shape)) is not None:
                state[name] = tensor
        return state

    def note(self, problem: str) -> None:
        """Add a problem to the report."""
        self._problems.append(problem)

    def finish(self, ignored: Callable[[str], bool]) -> None:
        """Report all problems.

        Raises:
            TensorMismatchError: naming every tensor that is missing, does not fit, or was not taken.
        """
        left = [name for name in self._tensors if name not in self._taken and not ignored(name)]
        problems = self._problems + [f"{shown(name)} {list(self._tensors[name].shape)} is unexpected" for name in left]
        if problems:
            raise TensorMismatchError(problems)
