"""An optimizer's tensors as inputs of a graph: its state, made where it is made lazily, and its tensor settings."""

from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.optim import NAdam, Optimizer

from lowtide.errors import UnsupportedError, UsageError

_LAZY_FROM_ZERO = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.Adadelta,
    torch.optim.RMSprop,
    torch.optim.SGD,
)


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
        return [entry for entry in self.entries if entry.key not in state.get(parameters[entry.parameter], {})]

    def materialize(self) -> None:
        """Make the missing entries as the optimizer's own first step would."""
        parameters = self.parameters()
        for entry in self.missing():
            initial = 1.0 if isinstance(self.optimizer, NAdam) and entry.key == "mu_product" else 0.0
            form, parameter = entry.form, parameters[entry.parameter]
            made = torch.empty_strided(form.shape, form.stride(), dtype=form.dtype, device=form.device)
            self.optimizer.state[parameter][entry.key] = made.fill_(initial)

    @contextmanager
    def replaced_by(self, parameters: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> Generator[None]:
        """Let the optimizer work on other parameters, state and tensor settings in place of its own."""
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for position, live in enumerate(self.parameters()):
            kept = {key: value for key, value in self.optimizer.state.get(live, {}).items() if not _is_tensor(value)}
            state[parameters[position]].update(kept)
        for entry, tensor in zip(self.entries, tensors[: len(self.entries)], strict=True):
            state[parameters[entry.parameter]][entry.key] = tensor
        replaced = dict(zip(self.settings, tensors[len(self.entries) :], strict=True))
        with swapped(self.optimizer, parameters, state, replaced):
            yield


@contextmanager
def swapped(
    optimizer: Optimizer,
    parameters: Sequence[torch.Tensor],
    state: "defaultdict[Any, dict[str, Any]]",
    settings: dict[tuple[int, str], torch.Tensor],
) -> Generator[None]:
    """Swap an optimizer's parameters, state and some settings; what it does to its own is undone at the end."""
    kept_groups, kept_state = optimizer.param_groups, optimizer.state
    remaining = iter(parameters)
    groups: list[dict[str, Any]] = []
    for index, group in enumerate(kept_groups):
        copied = {key: settings.get((index, key), value) for key, value in group.items()}
        groups.append({**copied, "params": [next(remaining) for _ in group["params"]]})
    before = [settings_of(group) for group in groups]
    optimizer.param_groups, optimizer.state = groups, state
    try:
        yield
        if [settings_of(group) for group in groups] != before:
            raise UnsupportedError(f"{type(optimizer).__name__} changes its settings in a step; no graph can hold that")
    finally:
        optimizer.param_groups, optimizer.state = kept_groups, kept_state


def settings_of(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group's settings that are no tensors, for comparison."""
    return {key: value for key, value in _plain_values(group).items() if key != "params"}


def raw_step(optimizer: Optimizer) -> None:
    """Run the optimizer's update itself, without hooks and graph breaks around it."""
    function: Any = type(optimizer).step
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    try:
        with torch.no_grad():
            function(optimizer)
    except TypeError as error:
        raise UnsupportedError(
            f"{type(optimizer).__name__}.step needs a closure; only a step without arguments can be captured"
        ) from error


def discover_state(optimizer: Optimizer, parameters: Sequence[torch.Tensor]) -> OptimizerState:
    """Find the state of an optimizer by running one update on fake parameters that hold fake gradients.

    Raises UnsupportedError where state is made lazily in a way that is not known, or is no tensor and changes.
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
            state[fake][key] = _form_of(value) if _is_tensor(value) else value
    known = {fake: dict(entries) for fake, entries in state.items()}
    replaced = {(index, key): _form_of(optimizer.param_groups[index][key]) for index, key in settings}
    with swapped(optimizer, parameters, state, replaced):
        raw_step(optimizer)
        first = {fake: _plain_values(entries) for fake, entries in state.items()}
        raw_step(optimizer)
    entries: list[StateEntry] = []
    for position, fake in enumerate(parameters):
        for key, value in state.get(fake, {}).items():
            if _is_tensor(value):
                entries.append(StateEntry(position, key, value))
                if key not in known.get(fake, {}):
                    _check_lazy(optimizer, key)
            elif first[fake].get(key) != value:
                raise UnsupportedError(
                    f"{type(optimizer).__name__} keeps the Python value '{key}' that changes in every step; "
                    "no graph can hold it, use an optimizer that keeps its state in tensors"
                )
    return OptimizerState(optimizer, tuple(entries), settings)


def _check_lazy(optimizer: Optimizer, key: str) -> None:
    damped = type(optimizer) is torch.optim.SGD and any(group["dampening"] for group in optimizer.param_groups)
    if type(optimizer) not in _LAZY_FROM_ZERO or damped:
        raise UsageError(
            f"how {type(optimizer).__name__} starts its state '{key}' is not known; run one ordinary step first"
        )


def _plain_values(entries: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if not _is_tensor(value)}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _form_of(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
