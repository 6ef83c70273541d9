"""FSDP2's `fully_shard` in captured programs: parameters are gathered, and gradients reduced, by ops of the program.

FSDP2 gathers in hooks, outside of any graph. In captured programs, other hooks do the same by functional collectives,
which a plan can order and repeat.
"""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.autograd import Function

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.frameworks.torch.internals.padded_parts import part_of, share_unevenly
from lowtide.frameworks.torch.internals.pytree import tree_map_only

_SMALL, _MOST_TOGETHER = 2**20, 2**22
"""Bytes below which gathered parameters share a collective, and the most that it gathers."""
_AVERAGED = (torch.float32, torch.bfloat16)
"""Dtypes that FSDP2 averages in the collective. Other gradients are also scaled before and after it."""


def _states(modules: Iterable[nn.Module]) -> list[Any]:
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    kind = None if fsdp is None else getattr(fsdp, "FSDPModule", None)
    if kind is None:
        return []
    found: list[Any] = [each for module in modules for each in module.modules() if isinstance(each, kind)]
    return list(dict.fromkeys(each._get_fsdp_state() for each in found))


def _groups(state: Any) -> Sequence[Any]:
    """Return the groups of parameters; before PyTorch 2.12 there is at most one."""
    groups = getattr(state, "_fsdp_param_groups", None)
    return [group for group in (groups if groups is not None else [state._fsdp_param_group]) if group is not None]


def reshard(modules: Iterable[nn.Module]) -> None:
    """Shard parameters again, also after a forward pass that left them gathered."""
    for state in _states(modules):
        for group in _groups(state):
            group.reshard()
            for parameter in filter(_is_uneven, group.fsdp_params):
                share_unevenly(parameter.sharded_param, parameter.padded_sharded_param_size[0])


def _is_uneven(parameter: Any) -> bool:
    shards = getattr(parameter.mesh_info, "shard_mesh_size", 1)
    return parameter.fsdp_placement.dim == 0 and parameter._orig_size[0] % shards > 0


def follow_moves(modules: Iterable[nn.Module]) -> None:
    """Let FSDP2 find parameters that got other storage."""
    for state in _states(modules):
        for group in _groups(state):
            for parameter in group.fsdp_params:
                if _is_uneven(parameter):
                    parameter._sharded_param_data = part_of(parameter.sharded_param).view(-1)
                else:
                    parameter.reset_sharded_param()


@dataclass(frozen=True, slots=True)
class _Exchange:
    dim: int
    shards: tuple[int, str] | None
    """Size and name of the group that shares the parameter, if any."""
    copies: tuple[int, str] | None
    """Size and name of the group whose gradients are averaged besides."""
    dtype: torch.dtype
    gradient_dtype: torch.dtype


class _Gathered(Function):
    """A gathered parameter, with the averaged gradient of this rank's part."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, exchange: _Exchange, rows: int) -> torch.Tensor:
        ctx.exchange, ctx.dtype = exchange, part.dtype
        value = part.to(exchange.dtype)
        if exchange.shards is None:
            return value.view_as(value) if value is part else value
        gathered = _gathered(value, exchange)
        return gathered[:rows] if exchange.dim == 0 else torch.cat(gathered.chunk(exchange.shards[0]), exchange.dim)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        exchange: _Exchange = ctx.exchange
        found = gradients[0].to(exchange.gradient_dtype)
        if exchange.shards is not None and exchange.dim > 0:
            found = torch.cat(found.chunk(exchange.shards[0], exchange.dim))
        elif exchange.shards is not None:
            found = _padded(found, exchange.shards[0])
        return _reduced(found, exchange).to(ctx.dtype), None, None


class _GatheredTogether(Function):
    """Parameters sharded by rows that one collective gathers."""

    @staticmethod
    def forward(
        ctx: Any, exchange: _Exchange, n_ranks: int, all_rows: Sequence[int], *parts: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.exchange, ctx.n_ranks = exchange, n_ranks
        ctx.parts = [(part.shape, part.dtype) for part in parts]
        ctx.set_materialize_grads(False)  # a parameter that is not used gets no gradient
        flat = torch.cat([part.to(exchange.dtype).flatten() for part in parts])
        rows = _gathered(flat, exchange).view(n_ranks, -1).split([part.numel() for part in parts], 1)
        return tuple(
            row.reshape(n_ranks * part.shape[0], *part.shape[1:])[:kept]
            for row, part, kept in zip(rows, parts, all_rows, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        exchange: _Exchange = ctx.exchange
        found: list[torch.Tensor | None] = [None] * len(gradients)
        rows = {
            place: _padded(gradient.to(exchange.gradient_dtype), ctx.n_ranks).reshape(ctx.n_ranks, -1)
            for place, gradient in enumerate(gradients)
            if gradient is not None
        }
        if rows:
            flat = _reduced(torch.cat(list(rows.values()), 1).flatten(), exchange)
            pieces = flat.split([row.shape[1] for row in rows.values()])
            for place, piece in zip(rows, pieces, strict=True):
                shape, dtype = ctx.parts[place]
                found[place] = piece.view(shape).to(dtype)
        return None, None, None, *found


def _padded(gradient: torch.Tensor, n_ranks: int) -> torch.Tensor:
    """Return a gradient with rows of zeros, so that all ranks get as many."""
    more = -gradient.shape[0] % n_ranks
    return torch.constant_pad_nd(gradient, [0, 0] * (gradient.dim() - 1) + [0, more]) if more else gradient


def _gathered(value: torch.Tensor, exchange: _Exchange) -> torch.Tensor:
    gather = torch.ops._c10d_functional.all_gather_into_tensor
    return value if exchange.shards is None else _waited(gather(value.contiguous(), *exchange.shards))


def _reduced(gradient: torch.Tensor, exchange: _Exchange) -> torch.Tensor:
    found = gradient
    if exchange.shards is not None:
        reduce = torch.ops._c10d_functional.reduce_scatter_tensor
        found = _waited(reduce(found.contiguous(), "avg", *exchange.shards))
    if exchange.copies is not None:
        found = _waited(torch.ops._c10d_functional.all_reduce(found, "avg", exchange.copies[1]))
    return found


def _waited(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ops._c10d_functional.wait_tensor(tensor)


@contextmanager
def gathered_by_ops(modules: Iterable[nn.Module], sources: Mapping[int, torch.Tensor]) -> Generator[None]:
    """Gather parameters of `fully_shard` by functional collectives in this context, instead of in FSDP2's hooks.

    `sources` are the local parts by the `id` of the modules' DTensors. Gradients reach them directly: releases of
    PyTorch differ in whether `to_local` gives a part without a gradient zeros. Raises UnsupportedError for settings
    that a program cannot follow.
    """
    with ExitStack() as stack:
        tables: dict[nn.Module, _Parameters] = {}
        for state in _states(modules):
            gatherings = [_Gathering.of(group, each, sources) for group in _groups(state) for each in group.fsdp_params]
            for gathering in gatherings:
                for module, name in gathering.users:
                    if module not in tables:
                        tables[module] = stack.enter_context(_parameters_replaced(module))
                    tables[module].gathered[name] = gathering
            for module in state._modules:
                inner = set(module.modules())
                own = [each for each in gatherings if each.users[0][0] in inner]
                _gather_small_together(own)
                stack.enter_context(_hooks_replaced(state, module, own))
        yield


@dataclass(eq=False)
class _Gathering:
    """A parameter that is gathered once per forward pass, and once in the backward pass.

    The second time is for checkpoints, which may compute a module again without its hooks.
    """

    part: Any
    source: torch.Tensor
    """The local part, which gets gradients."""
    exchange: _Exchange
    rows: int
    """Rows of the gathered parameter, without padding."""
    users: Sequence[tuple[nn.Module, str]]
    in_forward: bool = False
    together: Sequence["_Gathering"] = ()
    """Parameters of the same collective, with this one; empty for a large one."""
    _found: dict[bool, torch.Tensor] = field(default_factory=dict[bool, torch.Tensor])
    """By whether the backward pass runs."""

    @classmethod
    def of(cls, group: Any, parameter: Any, sources: Mapping[int, torch.Tensor]) -> "_Gathering":
        info = parameter._module_info
        shared = zip(info.shared_modules, info.shared_param_names, strict=True)
        part = info.module._parameters[info.param_name]
        users = [(info.module, info.param_name), *shared]
        return cls(part, sources[id(part)], _exchange(group, parameter), parameter._orig_size[0], users)

    def begin(self) -> None:
        self.in_forward = True
        self._found.pop(False, None)

    def value(self) -> Any:
        """Return the gathered parameter during both passes, else this rank's part."""
        in_backward = torch._C._current_graph_task_id() != -1
        if not (self.in_forward or in_backward):
            return self.part
        if in_backward not in self._found:
            self._gather(in_backward)
        return self._found[in_backward]

    def _gather(self, in_backward: bool) -> None:
        if self.exchange.shards is None or len(self.together) < 2:
            self._found[in_backward] = _Gathered.apply(self.source, self.exchange, self.rows)
            return
        sources = [each.source for each in self.together]
        rows = [each.rows for each in self.together]
        values: Any = _GatheredTogether.apply(self.exchange, self.exchange.shards[0], rows, *sources)
        for each, value in zip(self.together, values, strict=True):
            each._found[in_backward] = value


def _gather_small_together(gatherings: Sequence[_Gathering]) -> None:
    """Let small parameters share collectives, whose start takes longer than their transfer."""
    groups: dict[Any, list[_Gathering]] = {}
    filled = Counter[Any]()
    for each in gatherings:
        size = each.part.numel() * each.exchange.dtype.itemsize
        if each.exchange.shards is None or each.exchange.dim > 0 or size >= _SMALL:
            continue
        kind = each.exchange, each.source.requires_grad
        if filled[kind] + size > _MOST_TOGETHER:
            filled[kind] = 0
        if not filled[kind]:
            groups[kind] = []
        filled[kind] += size
        groups[kind].append(each)
        each.together = groups[kind]


class _Parameters(dict[str, Any]):
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.gathered: dict[str, _Gathering] = {}

    def __getitem__(self, name: str) -> Any:
        gathering = self.gathered.get(name)
        return super().__getitem__(name) if gathering is None else gathering.value()


@contextmanager
def _parameters_replaced(module: nn.Module) -> Generator[_Parameters]:
    kept, attributes = module._parameters, vars(module)
    attributes["_parameters"] = table = _Parameters(kept)
    try:
        yield table
    finally:
        attributes["_parameters"] = kept


@contextmanager
def _hooks_replaced(state: Any, module: nn.Module, gatherings: Sequence[_Gathering]) -> Generator[None]:
    policy = state._mp_policy

    def before(_: nn.Module, args: Any, kwargs: Any) -> Any:
        for each in gatherings:
            each.begin()
        return _cast((args, kwargs), policy.param_dtype if policy.cast_forward_inputs else None)

    def after(_: nn.Module, args: Any, output: Any) -> Any:
        for each in gatherings:
            each.in_forward = False
        return _cast(output, policy.output_dtype)

    tables: Any = (module._forward_pre_hooks, before), (module._forward_hooks, after)
    kept = [(table, key, hook, own) for table, own in tables for key, hook in table.items() if _owner_of(hook) is state]
    for table, key, _, own in kept:
        table[key] = own
    try:
        yield
    finally:
        for table, key, hook, _ in kept:
            table[key] = hook


def _cast(value: Any, dtype: torch.dtype | None) -> Any:
    if dtype is None:
        return value
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, value)


def _owner_of(hook: Any) -> Any:
    while not isinstance(hook, MethodType) and hasattr(hook, "__wrapped__"):
        hook = hook.__wrapped__
    return getattr(hook, "__self__", None)


def _exchange(group: Any, parameter: Any) -> _Exchange:
    policy, info = group.mp_policy, group.mesh_info
    dtype = parameter.sharded_param.dtype
    gathered = policy.param_dtype if policy.param_dtype is not None and dtype.is_floating_point else dtype
    exchange = _Exchange(
        parameter.fsdp_placement.dim,
        _size_and_name(getattr(info, "shard_process_group", None)),
        _size_and_name(getattr(info, "replicate_process_group", None)),
        gathered,
        policy.reduce_dtype or gathered,
    )
    reason = next((reason for reason, applies in _obstacles(group, parameter, exchange) if applies), None)
    if reason is not None:
        name = f"{type(parameter._module_info.module).__name__}.{parameter._module_info.param_name}"
        raise UnsupportedError(f"{name} of a module with fully_shard {reason}")
    return exchange


def _obstacles(group: Any, parameter: Any, exchange: _Exchange) -> Iterator[tuple[str, bool]]:
    yield "is also split by tensor parallelism, which is not supported with fully_shard", parameter.is_dtensor
    yield "has an offload policy; leave it out, plans with 'offload' move state themselves", parameter.offload_to_cpu
    has_own = hasattr(local_part(parameter.sharded_param), "fsdp_pre_all_gather")
    yield "is gathered by a function of its own; use plain parameters", has_own
    yield "has a gradient that is not reduced in each call; use accumulate", not group.reduce_grads
    scaled = group.gradient_divide_factor is not None or group.force_sum_reduction_for_comms
    yield "has a divisor for gradients of its own; divide the loss instead", scaled
    yield "has an all-reduce hook; use before_update", group._all_reduce_hook is not None
    name = str(exchange.gradient_dtype).removeprefix("torch.")
    yield f"has gradients of {name}; reduce them in float32", exchange.gradient_dtype not in _AVERAGED


def _size_and_name(group: Any) -> tuple[int, str] | None:
    return None if group is None or group.size() == 1 else (group.size(), group.group_name)
