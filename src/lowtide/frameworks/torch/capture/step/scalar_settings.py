"""An optimizer's float settings as inputs of a graph, so that a schedule may change them from step to step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from torch.optim import Optimizer

_SCHEDULED = ("lr", "betas", "momentum", "weight_decay")
"""What schedules change; any other setting is a constant of the graph."""


class ScalarSetting(NamedTuple):
    """One float among the settings of an optimizer."""

    group: int
    key: str
    part: int | None
    """Position in the setting, where that is a tuple."""

    @property
    def label(self) -> str:
        """The setting's name."""
        return f"optimizer.group{self.group}.{self.key}" + ("" if self.part is None else f"[{self.part}]")


@dataclass(frozen=True, slots=True)
class ScalarSettings:
    """The float settings of an optimizer that a graph takes as inputs, in a fixed order."""

    entries: tuple[ScalarSetting, ...]

    @classmethod
    def of(cls, optimizer: Optimizer) -> "ScalarSettings":
        """Find the floats among the settings that schedules change."""
        return cls(
            tuple(entry for index, group in enumerate(optimizer.param_groups) for entry in _floats(index, group))
        )

    def live(self, optimizer: Optimizer) -> list[Any]:
        """Return the values that the optimizer holds now."""
        groups = optimizer.param_groups
        return [groups[group][key] if part is None else groups[group][key][part] for group, key, part in self.entries]

    def put(self, groups: Sequence[dict[str, Any]], values: Sequence[Any]) -> None:
        """Set the settings in copies of an optimizer's groups to other values."""
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
