"""Gradients that wait on the host between the calls of an accumulating step.

PyTorch refuses a `.grad` on another device than its parameter, so they have their own memory.
"""

from dataclasses import dataclass, field

import torch

from lowtide.frameworks.torch.internals.host_memory import empty_on_host, home_of
from lowtide.frameworks.torch.internals.padded_parts import as_owned, part_of


@dataclass(eq=False)
class WaitingGradients:
    """Memory on the host by position of the optimizer's parameter."""

    _memory: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    _present: set[int] = field(default_factory=set[int])

    def clear(self) -> None:
        """Drop all gradients, but keep their memory."""
        self._present.clear()

    def note(self, position: int) -> None:
        self._present.add(position)

    def memory(self, position: int, parameter: torch.Tensor) -> torch.Tensor:
        part = part_of(parameter)
        if position not in self._memory:
            self._memory[position] = empty_on_host(part, home_of(part))
        return self._memory[position]

    def take(self, position: int, parameter: torch.Tensor, *, on_host: bool) -> torch.Tensor | None:
        """Return the gradient on the host or in `.grad`, moved there if needed; None if there is none."""
        gradient = parameter.grad
        if on_host:
            memory = self.memory(position, parameter)
            if gradient is not None:
                memory.copy_(part_of(gradient, parameter))
                parameter.grad = None
                self.note(position)
            return memory if position in self._present else None
        if position in self._present:
            memory, home = self._memory[position], home_of(part_of(parameter))
            made = torch.empty_strided(memory.shape, memory.stride(), dtype=memory.dtype, device=home)
            gradient = parameter.grad = as_owned(made.copy_(memory), parameter)
            self._present.discard(position)
        return None if gradient is None else part_of(gradient, parameter)
