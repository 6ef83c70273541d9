"""Measure all calls of an accumulating step as one program."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch

from lowtide.core.errors import UsageError
from lowtide.engine.planning.measured import Measurement
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.tensors import bytes_held_by
from lowtide.frameworks.torch.measure.measure_plan import ToMeasure
from lowtide.frameworks.torch.reading.captured import Binding, Captured


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    call: ToMeasure
    result: Result

    @property
    def inputs(self) -> list[torch.Tensor]:
        return pytree.tensors_in((self.call.captured.example_args, dict(self.call.captured.example_kwargs)))


def measure_accumulation(parts: Sequence[MeasuredPart]) -> Measurement:
    """Measure the calls of a step in order, with gradients kept between them."""
    captured = replace(
        parts[0].call.captured,
        binding=_AllCalls(parts),
        example_args=(),
        example_kwargs={
            "calls": [(part.call.captured.example_args, dict(part.call.captured.example_kwargs)) for part in parts]
        },
    )
    whole = replace(
        parts[0].call,
        captured=captured,
        unmodified=_in_turn([part.call.unmodified for part in parts]),
        planned=_in_turn([part.call.planned for part in parts]),
        predicted_bytes=predicted_bytes(parts),
        may_round=any(part.call.may_round for part in parts),
    )
    unmodified = sum(part.result.base_cost - part.result.chunk_cost for part in parts)
    added = sum(part.result.chunk_cost + part.result.extra_cost for part in parts)
    return replace(whole.measure(), predicted_extra_time=added / unmodified if unmodified else 0.0)


def predicted_bytes(parts: Sequence[MeasuredPart]) -> int:
    """Return the calls' highest predicted peak, with batches of other calls.

    Gradients are added to calls between the first and the last, whose peaks exclude them.
    """
    space = parts[0].call.graph.spaces[0].name
    state = parts[0].result.persistent_bytes[space]
    batches = bytes_held_by([tensor for part in parts for tensor in part.inputs])
    peaks = [
        part.call.predicted_bytes + batches - bytes_held_by(part.inputs) + gradients
        for position, part in enumerate(parts)
        for gradients in [part.result.persistent_bytes[space] - state if 0 < position < len(parts) - 1 else 0]
    ]
    return max(peaks)


def _in_turn(programs: Sequence[Callable[..., Any]]) -> Callable[..., list[Any]]:
    def run(calls: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> list[Any]:
        return [program(*args, **kwargs) for program, (args, kwargs) in zip(programs, calls, strict=True)]

    return run


class _AllCalls(Binding):
    def __init__(self, parts: Sequence[MeasuredPart]) -> None:
        self._captured: list[Captured] = [part.call.captured for part in parts]
        self._bindings = list({id(each.binding): each.binding for each in self._captured}.values())

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        raise UsageError("several calls have no common inputs; call the planned step")

    def finish(self, outputs: list[Any], sources: list[Any]) -> Any:
        raise UsageError("several calls have no common outputs; call the planned step")

    def run_original(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return _in_turn([each.run_original for each in self._captured])(**kwargs)

    def persistent(self) -> list[torch.Tensor]:
        return self._bindings[0].persistent()

    def one_thread(self) -> AbstractContextManager[None]:
        return self._bindings[0].one_thread()

    def materialize(self) -> None:
        for binding in self._bindings:
            binding.materialize()

    def dematerialize(self) -> None:
        for binding in reversed(self._bindings):
            binding.dematerialize()
