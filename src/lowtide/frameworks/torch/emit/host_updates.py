"""Ops of an update on the host, which runs in its own thread, so that Ctrl-C does not interrupt it."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch

from lowtide.frameworks.torch.emit.transfers import copy_to_host, copy_to_pinned, event_of, like
from lowtide.frameworks.torch.internals.host_memory import HOST, empty_on_host
from lowtide.frameworks.torch.internals.operators import define_operator
from lowtide.frameworks.torch.internals.tensors import memory_of
from lowtide.frameworks.torch.reading.outlined import Outlined, outlined_program

_arriving: dict[int, torch.cuda.Event] = {}
"""Completion of copies to and from tensors on the host, by their address."""
_changed: dict[int, tuple[torch.Tensor, int]] = {}
"""By address of an updated parameter on the host: the tensor, and its input position."""


@cache
def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="lowtide-updates")


def _operand_to_host(source: torch.Tensor) -> torch.Tensor:
    made = copy_to_host(source)
    note_copy(made, event_of(made))
    return made


def note_copy(on_host: torch.Tensor, event: torch.cuda.Event | None) -> None:
    """Let the next update on the host that uses a tensor there wait for a copy."""
    if event is not None:
        _arriving[on_host.data_ptr()] = event


def _update_on_host(
    given: Sequence[torch.Tensor], overwritten: Sequence[torch.Tensor], numbers: Sequence[Any], key: str
) -> list[torch.Tensor]:
    program = outlined_program(key)
    for tensor in (*given, *overwritten):
        event = _arriving.pop(tensor.data_ptr(), None)
        if event is not None:
            event.synchronize()
    results = [
        empty_on_host(torch.empty_strided(shape, strides, dtype=dtype, device="meta"), device)
        for shape, strides, dtype, device in program.forms
    ]
    operands = [each.to(HOST) for each in given]
    under_way = _worker().submit(_run, program, [*operands, *overwritten, *results, *numbers])
    try:
        under_way.result()
    except KeyboardInterrupt:
        under_way.result()
        raise
    finally:
        changed = [*overwritten, *results]
        for position, place in program.parameters:
            _changed[changed[position].data_ptr()] = changed[position], place
    return results


def _run(program: Outlined, arguments: list[Any]) -> None:
    """Run an update, leaving no tensor references in the thread."""
    try:
        with torch.no_grad():
            program.run(*arguments)
    finally:
        arguments.clear()


def _fake_update(
    given: Sequence[torch.Tensor], overwritten: Sequence[torch.Tensor], numbers: Sequence[Any], key: str
) -> list[torch.Tensor]:
    forms = outlined_program(key).forms
    return [torch.empty_strided(shape, strides, dtype=dtype, device=HOST) for shape, strides, dtype, _ in forms]


def _parameter_to_device(parameter: torch.Tensor, source: torch.Tensor) -> None:
    if parameter.device.type == "cuda":
        copy_to_pinned(source, parameter)
    else:
        memory_of(parameter).copy_(memory_of(source))
    _changed.pop(source.data_ptr(), None)


def _fake_copy(parameter: torch.Tensor, source: torch.Tensor) -> None:
    pass


def _fake_operand(source: torch.Tensor) -> torch.Tensor:
    return like(source, HOST)


OPERAND_TO_HOST = define_operator("operand_to_host(Tensor source) -> Tensor", _operand_to_host, _fake_operand)
UPDATE_ON_HOST = define_operator(
    "update_on_host(Tensor[] given, Tensor(a!)[] overwritten, Scalar[] numbers, str key) -> Tensor[]",
    _update_on_host,
    _fake_update,
)
PARAMETER_TO_DEVICE = define_operator(
    "parameter_to_device(Tensor(a!) parameter, Tensor source) -> ()", _parameter_to_device, _fake_copy
)


def finish_updates(inputs: Sequence[Any]) -> None:
    """Copy to the device the parameters whose update an exception left on the host."""
    for tensor, place in list(_changed.values()):
        memory_of(inputs[place]).copy_(memory_of(tensor))
    _changed.clear()
    _arriving.clear()
