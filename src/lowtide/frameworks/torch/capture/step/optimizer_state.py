"""An optimizer's tensors as inputs of a graph: its state, made where it is made lazily, and its tensor settings."""

from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.capture.step.initial_state import initial_values
from lowtide.frameworks.torch.capture.step.raw_step import Groups, raw_step, settings_of, swapped
from lowtide.frameworks.torch.capture.step.scalar_settings import ScalarSettings
from lowtide.frameworks.torch.internals.distributed import distributed_as, local_part


class StateEntry(NamedTuple):
    """One tensor of an optimizer's state."""

    parameter: int
    """Position among the optimizer's parameters."""
    key: str
    form: torch.Tensor
    """A fake tensor of the entry's form."""


@dataclass(frozen=True, eq=False)
class OptimizerState:
    """All tensors of an optimizer besides its parameters, in a fixed order."""

    optimizer: Optimizer
    entries: tuple[StateEntry, ...]
    settings: tuple[tuple[int, str], ...]
    """Group and key of the settings that are tensors, such as a learning rate."""
    scalars: ScalarSettings
    """The settings that are floats and may change."""
    spells_out_fused: bool
    """Whether updates are plain ones where the optimizer would run a fused kernel."""

    def parameters(self) -> list[torch.Tensor]:
        """Return the optimizer's parameters in the order of its groups."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def labels(self, parameters: Sequence[str]) -> list[str]:
        """Return a name for every tensor, from the names of the parameters in the order of the groups."""
        state = [f"{parameters[entry.parameter]}.{entry.key}" for entry in self.entries]
        return state + [f"optimizer.group{group}.{key}" for group, key in self.settings]

    def live(self) -> list[torch.Tensor]:
        """Return the state tensors, then the tensor settings, that the optimizer holds now."""
        parameters = self.parameters()
        state = [self.optimizer.state[parameters[entry.parameter]][entry.key] for entry in self.entries]
        return state + [self.optimizer.param_groups[group][key] for group, key in self.settings]

    def missing(self) -> list[StateEntry]:
        """Return the entries that the optimizer has not made yet."""
        parameters = self.parameters()
        state = self.optimizer.state
        return [entry for entry in self.entries if state.get(parameters[entry.parameter], {}).get(entry.key) is None]

    def materialize(self) -> None:
        """Make the missing entries as the optimizer's own first step would.

        Raises UsageError for an entry whose start is not known.
        """
        missing = self.missing()
        parameters = self.parameters()
        numbers = initial_values(self.optimizer, [(entry.parameter, entry.key) for entry in missing])
        for entry, number in zip(missing, numbers, strict=True):
            form, parameter = entry.form, parameters[entry.parameter]
            made = torch.empty_strided(form.shape, form.stride(), dtype=form.dtype, device=form.device)
            made.fill_(number)
            is_part = made.shape == local_part(parameter).shape
            self.optimizer.state[parameter][entry.key] = distributed_as(made, parameter) if is_part else made

    def fixed_settings(self) -> list[dict[str, Any]]:
        """Return the settings that are constants of the graph, for comparison."""
        groups: Groups = [settings_of(group) for group in self.optimizer.param_groups]
        self.scalars.put(groups, [None] * len(self.scalars.entries))
        return groups

    @contextmanager
    def replaced_by(
        self, parameters: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], scalars: Sequence[Any]
    ) -> Generator[None]:
        """Let the optimizer work on other parameters, state and settings in place of its own.

        State that the update binds anew is written back into the tensors given.
        """
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for position, live in enumerate(self.parameters()):
            kept = {key: value for key, value in self.optimizer.state.get(live, {}).items() if not _is_tensor(value)}
            state[parameters[position]].update(kept)
        for entry, tensor in zip(self.entries, tensors[: len(self.entries)], strict=True):
            state[parameters[entry.parameter]][entry.key] = tensor

        def adjust(groups: Groups) -> None:
            for (group, key), tensor in zip(self.settings, tensors[len(self.entries) :], strict=True):
                groups[group][key] = tensor
            self.scalars.put(groups, scalars)
            if self.spells_out_fused:
                _spell_out(groups)

        with swapped(self.optimizer, parameters, state, adjust):
            yield
        for entry, tensor in zip(self.entries, tensors[: len(self.entries)], strict=True):
            now = state[parameters[entry.parameter]][entry.key]
            if now is not tensor:
                with torch.no_grad():
                    tensor.copy_(now)


def discover_state(
    optimizer: Optimizer, parameters: Sequence[torch.Tensor], spells_out_fused: bool = False
) -> OptimizerState:
    """Find the state of an optimizer by running one update on fake parameters that hold fake gradients.

    The update is the plain one, in place of a fused kernel, where that is asked for.
    Raises UnsupportedError where state is no tensor and changes.
    """
    settings = tuple(
        (index, key)
        for index, group in enumerate(optimizer.param_groups)
        for key, value in group.items()
        if _is_tensor(value)
    )
    live = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
    for own, fake in zip(live, parameters, strict=True):
        for key, value in optimizer.state.get(own, {}).items():
            state[fake][key] = _form_of(local_part(value)) if _is_tensor(value) else value

    def adjust(groups: Groups) -> None:
        for index, key in settings:
            groups[index][key] = _form_of(optimizer.param_groups[index][key])
        if spells_out_fused:
            _spell_out(groups)

    with swapped(optimizer, parameters, state, adjust):
        raw_step(optimizer)
        first = {fake: _plain_values(entries) for fake, entries in state.items()}
        raw_step(optimizer)
    entries: list[StateEntry] = []
    for position, fake in enumerate(parameters):
        for key, value in state.get(fake, {}).items():
            if _is_tensor(value):
                entries.append(StateEntry(position, key, value))
            elif first[fake].get(key) != value:
                raise UnsupportedError(
                    f"{type(optimizer).__name__} keeps the Python value '{key}' that changes in every step; "
                    "no graph can hold it, use an optimizer that keeps its state in tensors"
                )
    return OptimizerState(optimizer, tuple(entries), settings, ScalarSettings.of(optimizer), spells_out_fused)


def _spell_out(groups: Groups) -> None:
    """Switch fused kernels off."""
    for group in groups:
        if group.get("fused"):
            group.update(fused=False, foreach=False)


def _plain_values(entries: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if not _is_tensor(value)}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _form_of(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
