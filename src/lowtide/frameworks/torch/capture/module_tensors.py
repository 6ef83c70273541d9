"""The live tensors of modules."""

import types
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
from torch import nn

from lowtide.frameworks.torch.internals.distributed import distributed_as
from lowtide.frameworks.torch.internals.fully_sharded import follow_moves, gathered_by_ops, reshard
from lowtide.frameworks.torch.internals.host_memory import home_of, may_be_on_host, move_part
from lowtide.frameworks.torch.internals.padded_parts import part_of
from lowtide.frameworks.torch.internals.runtime import reparametrized
from lowtide.frameworks.torch.reading.captured import CaptureMismatchError


def modules_of(*roots: object) -> list[nn.Module]:
    """Return the outermost modules that `roots` are, contain or close over, in discovery order.

    Looks into containers, partial functions, bound methods, closures, defaults and named globals.
    """
    found: list[nn.Module] = []
    seen: set[int] = set()
    waiting: list[object] = list(reversed(roots))
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, nn.Module):
            found.append(item)
        else:
            waiting.extend(reversed(list(_contents(item))))
    inner = {id(child) for module in found for child in module.modules() if child is not module}
    return [module for module in found if id(module) not in inner]


def _contents(item: object) -> Iterator[object]:
    if isinstance(item, list | tuple):
        yield from item
    elif isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, partial):
        yield from (item.func, item.args, item.keywords)
    elif isinstance(item, types.MethodType):
        yield from (item.__func__, item.__self__)
    elif isinstance(item, types.FunctionType):
        for cell in item.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # an empty cell
                continue
        yield from item.__defaults__ or ()
        yield from (item.__kwdefaults__ or {}).values()
        for name in item.__code__.co_names:
            value = item.__globals__.get(name)
            if isinstance(value, nn.Module | types.FunctionType | partial):
                yield value
        yield getattr(item, "__wrapped__", None)
    elif isinstance(item, torch.Tensor | torch.optim.Optimizer | types.ModuleType | type):
        return
    elif hasattr(item, "__dict__") and callable(item):
        yield from vars(item).values()


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


@dataclass(frozen=True, eq=False)
class ModuleTensors:
    """Parameters and buffers of some modules, each tensor once, in a fixed order."""

    modules: tuple[nn.Module, ...]
    names: tuple[tuple[int, str], ...]
    trainable: tuple[bool, ...]

    @classmethod
    def of(cls, modules: list[nn.Module]) -> "ModuleTensors":
        reshard(modules)
        found: dict[int, tuple[tuple[int, str], bool]] = {}
        for index, module in enumerate(modules):
            for name, tensor in _named_tensors(module):
                found.setdefault(id(tensor), ((index, name), tensor.requires_grad))
        entries = found.values()
        return cls(tuple(modules), tuple(name for name, _ in entries), tuple(trains for _, trains in entries))

    def labels(self) -> list[str]:
        return [name if len(self.modules) == 1 else f"module{index}.{name}" for index, name in self.names]

    def live(self) -> list[torch.Tensor]:
        tables = [dict(_named_tensors(module)) for module in self.modules]
        return [tables[index][name] for index, name in self.names]

    def local(self) -> list[torch.Tensor]:
        """Return the current tensors, or this rank's padded parts of DTensors."""
        return list(map(part_of, self.live()))

    def put_on_host(self, homes: Mapping[int, torch.device]) -> None:
        """Move the tensors at some positions to the host of their homes, and others back."""
        if not homes and not may_be_on_host():
            return
        moved = [
            move_part(each, homes.get(place, home_of(part_of(each))), to_host=place in homes)
            for place, each in enumerate(self.live())
        ]
        if any(moved):
            follow_moves(self.modules)

    @contextmanager
    def replaced_by(self, tensors: list[torch.Tensor]) -> Generator[None]:
        """Let the modules use other tensors. Local parts become DTensors again."""
        live = self.live()
        by_identity = {id(own): distributed_as(other, own) for own, other in zip(live, tensors, strict=True)}
        tables = [{name: by_identity[id(own)] for name, own in _named_tensors(module)} for module in self.modules]
        with ExitStack() as stack:
            for module, table in zip(self.modules, tables, strict=True):
                stack.enter_context(reparametrized(module, table))
            sources = {id(by_identity[id(own)]): other for own, other in zip(live, tensors, strict=True)}
            stack.enter_context(gathered_by_ops(self.modules, sources))
            yield


def modes_of(modules: tuple[nn.Module, ...]) -> tuple[bool, ...]:
    return tuple(inner.training for module in modules for inner in module.modules())


def check_modes(modules: tuple[nn.Module, ...], captured: tuple[bool, ...]) -> None:
    if modes_of(modules) != captured:
        raise CaptureMismatchError("a module changed between training and evaluation mode; capture again")
