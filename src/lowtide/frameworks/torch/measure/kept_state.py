"""State that a measured program changes, saved and restored."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer


class KeptState:
    """CPU copies of tensors, gradients, optimizers and random states."""

    def __init__(self, tensors: Sequence[torch.Tensor], optimizers: Sequence[Optimizer] = ()) -> None:
        self.tensors = list({id(tensor): tensor for tensor in tensors}.values())
        self._gradients = [tensor.grad if tensor.is_leaf else None for tensor in self.tensors]
        self._optimizers = [_KeptOptimizer(optimizer) for optimizer in optimizers]
        gradients = [gradient for gradient in self._gradients if gradient is not None]
        kept = [*self.tensors, *gradients, *(each for optimizer in self._optimizers for each in optimizer.tensors())]
        self._copies = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in kept]
        self._cpu_state = torch.get_rng_state()
        self._cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []

    def clear_gradients(self) -> None:
        for tensor in self.tensors:
            if tensor.is_leaf:
                tensor.grad = None

    def put_back(self) -> None:
        """Restore all but gradients, which are cleared."""
        with torch.no_grad():
            for tensor, copy in self._copies:
                tensor.copy_(copy)
        for optimizer in self._optimizers:
            optimizer.put_back()
        self.clear_gradients()
        torch.set_rng_state(self._cpu_state)
        if self._cuda_states:
            torch.cuda.set_rng_state_all(self._cuda_states)

    def put_back_with_gradients(self) -> None:
        self.put_back()
        for tensor, gradient in zip(self.tensors, self._gradients, strict=True):
            if tensor.is_leaf:
                tensor.grad = gradient


class _KeptOptimizer:
    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = [dict(group) for group in optimizer.param_groups]
        self._state: dict[Any, dict[str, Any]] = {key: dict(value) for key, value in optimizer.state.items()}

    def tensors(self) -> list[torch.Tensor]:
        entries = (entry for each in (*self._state.values(), *self._groups) for entry in each.values())
        return [entry for entry in entries if isinstance(entry, torch.Tensor)]

    def put_back(self) -> None:
        for group, kept in zip(self._optimizer.param_groups, self._groups, strict=True):
            group.clear()
            group.update(kept)
        self._optimizer.state.clear()
        self._optimizer.state.update({key: dict(value) for key, value in self._state.items()})
