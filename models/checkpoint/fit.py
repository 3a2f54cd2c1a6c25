"""Match the tensors of a checkpoint with those of the model that its configuration describes."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from models.errors import TensorMismatchError, shown


class Fit:
    """Takes the tensors of a checkpoint by name and shape; collects all problems, and reports them together."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._taken: set[str] = set()
        self._problems: list[str] = []

    def take(self, names: tuple[str, ...], shape: Sequence[int]) -> Tensor | None:
        """Return the tensor with the first of ``names`` that exists, or note a problem and return None.

        Its values must be finite floating-point numbers in ``shape``. A last dimension of 1 beyond ``shape`` is
        dropped: a convolution of kernel size 1 is a linear layer.
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
            self.note(f"{name} holds {tensor.dtype}, not floating-point numbers")
        elif not all(bound.isfinite() for bound in torch.aminmax(tensor)):
            self.note(f"{name} holds values that are infinite or not numbers")
        else:
            return tensor
        return None

    def take_optional(self, name: str, shape: Sequence[int]) -> Tensor | None:
        """Do as ``take``, but return None without noting a problem if the tensor is missing."""
        return self.take((name,), shape) if name in self._tensors else None

    def take_network(
        self, wanted: Mapping[str, Tensor], names_of: Callable[[str], tuple[str, ...]]
    ) -> dict[str, Tensor]:
        """Take every tensor of a network.

        Args:
            wanted: the network's state dict, for names and shapes.
            names_of: returns the checkpoint's possible names of a tensor of the network.

        Returns:
            The state dict from the checkpoint; complete if no problem was noted.
        """
        state: dict[str, Tensor] = {}
        for name, like in wanted.items():
            if not like.is_floating_point():
                state[name] = torch.zeros(like.shape, dtype=like.dtype)  # num_batches_tracked, for training only
            elif (tensor := self.take(names_of(name), like.shape)) is not None:
                state[name] = tensor
        return state

    def note(self, problem: str) -> None:
        """Add a problem to the report."""
        self._problems.append(problem)

    def finish(self, ignored: Callable[[str], bool]) -> None:
        """Report all problems; tensors that were not taken are problems too, unless ``ignored``.

        Raises:
            TensorMismatchError: if there is any problem.
        """
        left = [name for name in self._tensors if name not in self._taken and not ignored(name)]
        problems = self._problems + [f"{shown(name)} {list(self._tensors[name].shape)} is unexpected" for name in left]
        if problems:
            raise TensorMismatchError(problems)
