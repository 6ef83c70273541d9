"""The state and settings of an optimizer as inputs of a graph."""

from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch.optim import SGD, Optimizer

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.frameworks.torch.capture.step.optimizer_update import (
    ByElement,
    Groups,
    parameters_of,
    raw_step,
    settings_of,
    swapped,
)
from lowtide.frameworks.torch.internals.distributed import is_distributed
from lowtide.frameworks.torch.internals.host_memory import empty_on_host, move_part
from lowtide.frameworks.torch.internals.padded_parts import as_owned, part_of

_SCHEDULED = ("lr", "betas", "momentum", "weight_decay")
"""Settings that schedules change. Others are graph constants."""


class ScalarSetting(NamedTuple):
    group: int
    key: str
    part: int | None

    @property
    def label(self) -> str:
        return f"optimizer.group{self.group}.{self.key}" + ("" if self.part is None else f"[{self.part}]")


@dataclass(frozen=True, slots=True)
class ScalarSettings:
    """The float settings that are inputs of a graph."""

    entries: tuple[ScalarSetting, ...]

    @classmethod
    def of(cls, optimizer: Optimizer) -> "ScalarSettings":
        groups = enumerate(optimizer.param_groups)
        return cls(tuple(entry for index, group in groups for entry in _floats(index, group)))

    def live(self, optimizer: Optimizer) -> list[Any]:
        groups = optimizer.param_groups
        return [groups[group][key] if part is None else groups[group][key][part] for group, key, part in self.entries]

    def put(self, groups: Sequence[dict[str, Any]], values: Sequence[Any]) -> None:
        for (group, key, part), value in zip(self.entries, values, strict=True):
            if part is None:
                groups[group][key] = value
            else:
                old = groups[group][key]
                groups[group][key] = (*old[:part], value, *old[part + 1 :])


def _floats(group: int, settings: dict[str, Any]) -> Iterator[ScalarSetting]:
    for key in _SCHEDULED:
        value = settings.get(key)
        if isinstance(value, float):
            yield ScalarSetting(group, key, None)
        elif isinstance(value, tuple):
            parts = cast("tuple[Any, ...]", value)
            yield from (ScalarSetting(group, key, i) for i, part in enumerate(parts) if isinstance(part, float))


class StateEntry(NamedTuple):
    """A state tensor: position of its parameter, key, and a fake tensor of its form."""

    parameter: int
    key: str
    form: torch.Tensor


@dataclass(frozen=True, eq=False)
class OptimizerState:
    """All tensors of an optimizer besides its parameters, in a fixed order."""

    optimizer: Optimizer
    entries: tuple[StateEntry, ...]
    settings: tuple[tuple[int, str], ...]
    """Group and key of tensor settings."""
    scalars: ScalarSettings
    spells_out_fused: bool

    def parameters(self) -> list[torch.Tensor]:
        return parameters_of(self.optimizer)

    def labels(self, parameters: Sequence[str]) -> list[str]:
        state = [f"{parameters[entry.parameter]}.{entry.key}" for entry in self.entries]
        return state + [f"optimizer.group{group}.{key}" for group, key in self.settings]

    def live(self) -> list[torch.Tensor]:
        parameters = self.parameters()
        state = [self.optimizer.state[parameters[entry.parameter]][entry.key] for entry in self.entries]
        return state + [self.optimizer.param_groups[group][key] for group, key in self.settings]

    def parts(self) -> list[torch.Tensor]:
        """Return `live`, with this rank's padded parts of DTensors."""
        parameters, live = self.parameters(), self.live()
        owners = [parameters[entry.parameter] for entry in self.entries]
        return [*map(part_of, live, owners), *live[len(owners) :]]

    def missing(self) -> list[StateEntry]:
        parameters = self.parameters()
        state = self.optimizer.state
        return [entry for entry in self.entries if state.get(parameters[entry.parameter], {}).get(entry.key) is None]

    def materialize(self, on_host: Collection[int] = ()) -> None:
        """Create missing entries. Move those in `on_host` to the host, others to the device.

        Raises UsageError if an initial value is unknown.
        """
        missing = self.missing()
        kept_on_host = {self.entries[place][:2] for place in on_host} if missing else set[tuple[int, str]]()
        parameters = self.parameters()
        firsts = initial_values(self.optimizer, [(entry.parameter, entry.key) for entry in missing])
        for entry, first in zip(missing, firsts, strict=True):
            form, parameter = entry.form, parameters[entry.parameter]
            if entry[:2] in kept_on_host:
                made = empty_on_host(form, form.device)
            else:
                made = torch.empty_strided(form.shape, form.stride(), dtype=form.dtype, device=form.device)
            with torch.no_grad():
                made.copy_(part_of(parameter)) if first is None else made.fill_(first)
            is_part = made.shape == part_of(parameter).shape
            self.optimizer.state[parameter][entry.key] = as_owned(made, parameter) if is_part else made
        self._move(on_host)

    def bring_to_device(self) -> None:
        self._move(())

    def _move(self, on_host: Collection[int]) -> None:
        parameters, state = self.parameters(), self.optimizer.state
        for place, (parameter, key, form) in enumerate(self.entries):
            value = state.get(parameters[parameter], {}).get(key)
            if value is not None:
                move_part(value, form.device, to_host=place in on_host, owner=parameters[parameter])

    def fixed_settings(self) -> list[dict[str, Any]]:
        groups: Groups = [settings_of(group) for group in self.optimizer.param_groups]
        self.scalars.put(groups, [None] * len(self.scalars.entries))
        return groups

    @contextmanager
    def replaced_by(
        self, parameters: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], scalars: Sequence[Any]
    ) -> Generator[None]:
        """Let the optimizer update other tensors. State that it replaces is copied into `tensors`."""
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
    """Find the state by two updates on fake parameters.

    Raises UnsupportedError for Python state that changes in every step, and for distributed parameters that are not
    updated element by element.
    """
    settings = tuple(
        (index, key)
        for index, group in enumerate(optimizer.param_groups)
        for key, value in group.items()
        if _is_tensor(value)
    )
    state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
    for own, fake in zip(parameters_of(optimizer), parameters, strict=True):
        for key, value in optimizer.state.get(own, {}).items():
            state[fake][key] = _form_of(part_of(value, own), fake) if _is_tensor(value) else value

    def adjust(groups: Groups) -> None:
        for index, key in settings:
            value = optimizer.param_groups[index][key]
            groups[index][key] = _form_of(value, value)
        if spells_out_fused:
            _spell_out(groups)

    is_distributed_ = any(map(is_distributed, parameters_of(optimizer)))
    with swapped(optimizer, parameters, state, adjust), ByElement(optimizer) if is_distributed_ else nullcontext():
        raw_step(optimizer)
        first = {fake: {key: v for key, v in entries.items() if not _is_tensor(v)} for fake, entries in state.items()}
        raw_step(optimizer)
    entries: list[StateEntry] = []
    for position, fake in enumerate(parameters):
        for key, value in state.get(fake, {}).items():
            if _is_tensor(value):
                entries.append(StateEntry(position, key, value))
            elif first[fake].get(key) != value:
                name = type(optimizer).__name__
                raise UnsupportedError(f"{name} changes the Python value '{key}'; its state must be in tensors")
    return OptimizerState(optimizer, tuple(entries), settings, ScalarSettings.of(optimizer), spells_out_fused)


def _spell_out(groups: Groups) -> None:
    for group in groups:
        if group.get("fused"):
            group.update(fused=False, foreach=False)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _form_of(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    device = parameter.device if value.numel() > 1 else value.device
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)


_FILLS = (0.5, 0.25)
"""Values of trial parameters; gradients are larger by 1. State that differs between them is not constant."""
_NEGATIVE_ZERO = -0.0


class _Recording(dict[str, Any]):
    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        self.first.setdefault(key, value.clone() if isinstance(value, torch.Tensor) else value)
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


def initial_values(optimizer: Optimizer, wanted: Sequence[tuple[int, str]]) -> list[float | None]:
    """Return the initial number of each wanted entry, by updates of small parameters.

    None marks a copy of the parameter, such as master weights. Raises UsageError for other entries without one initial
    number.
    """
    if not wanted:
        return []
    first, second = (_states_before_update(optimizer, fill) for fill in _FILLS)
    return [_value(optimizer, key, first[position].get(key), second[position].get(key)) for position, key in wanted]


def _states_before_update(optimizer: Optimizer, fill: float) -> list[dict[str, Any]]:
    parameters: list[torch.Tensor] = []
    for parameter in parameters_of(optimizer):
        small = torch.full((1,) * parameter.dim(), fill, dtype=parameter.dtype, device="cpu")
        small.grad = torch.full_like(small, fill + 1)
        parameters.append(small)
    state: defaultdict[Any, dict[str, Any]] = defaultdict(_Recording)
    with swapped(optimizer, parameters, state):
        raw_step(optimizer)
    return [getattr(state[parameter], "first", {}) for parameter in parameters]


def _value(optimizer: Optimizer, key: str, one: Any, other: Any) -> float | None:
    is_momentum = isinstance(optimizer, SGD) and key == "momentum_buffer"
    if is_momentum and not any(group["dampening"] for group in optimizer.param_groups):
        return _NEGATIVE_ZERO  # the first update copies the gradient; -0 plus any number is that number
    values = tuple(each.item() for each in (one, other) if isinstance(each, torch.Tensor))
    if values == _FILLS:
        return None
    if len(values) < len(_FILLS) or values[0] != values[1]:
        name = type(optimizer).__name__
        raise UsageError(f"the initial state '{key}' of {name} is not known; run one ordinary step first")
    return float(values[0])
