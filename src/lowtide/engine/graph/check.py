"""Checks that a graph is a valid program."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import GraphError
from lowtide.core.index_spaces import OpId
from lowtide.engine.graph.graph import Graph, Lifetime
from lowtide.engine.graph.rows import LARGEST, MOST_IDS, MOST_SPACES, Rows
from lowtide.engine.graph.structure import ReadBeforeWriteError

_MOST_SUBGRAPHS = 4096
_DEEPEST_CALL = 64
_MOST_AT_ONCE = 2**62
"""Below 2^63, so alignment cannot overflow."""


def check_graph(graph: Graph) -> None:
    """Raise GraphError for an invalid graph's first violation. O(n + e)."""
    _check_names("memory space", [space.name for space in graph.spaces])
    _check_names("buffer", graph.buffer_names)
    _check_names("op", graph.op_names)
    _check_spaces(graph)
    _check_buffers(graph)
    _check_ops(graph)
    _check_in_place(graph)
    _check_callees(graph)
    _check_total(graph)
    try:
        structure = graph.structure
    except ReadBeforeWriteError as error:
        raise GraphError(
            f"graph {graph.name!r}: op {graph.op_names[error.op]!r} uses buffer {graph.buffer_names[error.buffer]!r} "
            "before any op writes it; list the ops in a valid order, or give the buffer the class input"
        ) from None
    unwritten = (graph.lifetimes == Lifetime.OUTPUT) & (structure.producers < 0)
    _reject(unwritten, lambda b: f"output buffer {graph.buffer_names[b]!r} is never written; name its writer", graph)


def _reject(wrong: NDArray[np.bool_], describe: Callable[[int], str], graph: Graph) -> None:
    if wrong.any():
        raise GraphError(f"graph {graph.name!r}: {describe(int(wrong.argmax()))}")


def _check_names(label: str, names: Sequence[str]) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise GraphError(f"two {label}s are named {name!r}; names must be unique")
        seen.add(name)


def _check_spaces(graph: Graph) -> None:
    if len(graph.spaces) > MOST_SPACES:
        raise GraphError(
            f"graph {graph.name!r} has {len(graph.spaces)} memory spaces; at most {MOST_SPACES} are allowed"
        )
    known = {space.name for space in graph.spaces}
    for space in graph.spaces:
        if space.capacity_bytes is not None and not 0 <= space.capacity_bytes <= LARGEST:
            raise GraphError(
                f"memory space {space.name!r} has capacity {space.capacity_bytes}; give 0 to 2^63 - 1 bytes, or null"
            )
        if not 1 <= space.alignment <= MOST_IDS:
            raise GraphError(
                f"memory space {space.name!r} has alignment {space.alignment}; it must be from 1 to 2^31 - 1"
            )
        for other, speed in space.bandwidth_bytes_per_s.items():
            if other not in known:
                raise GraphError(f"memory space {space.name!r} has a bandwidth to {other!r}, which is not a space")
            if not 0 < speed < float("inf"):
                raise GraphError(f"bandwidth from {space.name!r} to {other!r} is {speed}; it must be positive")


def _check_buffers(graph: Graph) -> None:
    names = graph.buffer_names
    n_spaces = len(graph.spaces)
    _reject(
        (graph.buffer_spaces < 0) | (graph.buffer_spaces >= n_spaces),
        lambda b: f"buffer {names[b]!r} is in memory space {graph.buffer_spaces[b]}, but there are only {n_spaces}",
        graph,
    )
    _reject(
        graph.lifetimes > Lifetime.OUTPUT,
        lambda b: f"buffer {names[b]!r} has lifetime class {graph.lifetimes[b]}; it must be from 0 to 4",
        graph,
    )


def _check_ops(graph: Graph) -> None:
    for verb, rows in (("reads", graph.reads), ("writes", graph.writes), ("mutates", graph.mutates)):
        _check_ids(graph, verb, rows)
    owners = graph.after.owners()
    _reject(
        graph.after.values >= owners,
        lambda i: (
            f"op {graph.op_names[owners[i]]!r} waits for op {_name(graph, int(graph.after.values[i]))}, which does not "
            "come before it; list the ops in a valid order"
        ),
        graph,
    )
    _reject(
        ~(np.isfinite(graph.cost) & (graph.cost >= 0)),
        lambda op: f"op {graph.op_names[op]!r} has cost {graph.cost[op]}; give seconds >= 0",
        graph,
    )
    _reject(
        np.isinf(graph.flops) | (graph.flops < 0),
        lambda op: f"op {graph.op_names[op]!r} has {graph.flops[op]} flops; give a number >= 0, or none",
        graph,
    )
    _reject(
        np.isinf(graph.traffic) | (graph.traffic < 0),
        lambda op: f"op {graph.op_names[op]!r} has {graph.traffic[op]} bytes of traffic; give a number >= 0, or none",
        graph,
    )
    _reject(
        graph.rank_spans < graph.ranks,
        lambda op: (
            f"op {graph.op_names[op]!r} runs on {graph.ranks[op]} ranks among {graph.rank_spans[op]} consecutive ones; "
            "give a rank_span that is at least its ranks"
        ),
        graph,
    )


def _check_ids(graph: Graph, verb: str, rows: Rows) -> None:
    wrong = rows.values >= graph.n_buffers
    if wrong.any():
        first = int(wrong.argmax())
        op = graph.op_names[int(rows.owners()[first])]
        raise GraphError(
            f"graph {graph.name!r}: op {op!r} {verb} buffer {rows.values[first]}, but there are only "
            f"{graph.n_buffers} buffers, counted from 0"
        )


def _check_in_place(graph: Graph) -> None:
    if not len(graph.in_place.values):
        return
    _check_ids(graph, "names in place", graph.in_place)
    ops = np.flatnonzero(np.diff(graph.in_place.offsets)).astype(np.int32)
    pairs = graph.in_place.take(ops)
    odd = np.diff(pairs.offsets) % 2 == 1
    if odd.any():
        op = graph.op_names[int(ops[odd.argmax()])]
        raise GraphError(f"op {op!r}: in_place must hold pairs of a read and a written buffer")
    owners, reads, writes = pairs.owners()[::2], pairs.values[::2], pairs.values[1::2]
    wrong = ~_are_among(owners, reads, graph.reads.take(ops)) | ~_are_among(owners, writes, graph.writes.take(ops))
    wrong |= reads == writes
    if wrong.any():
        first = int(wrong.argmax())
        op = graph.op_names[int(ops[owners[first]])]
        raise GraphError(
            f"op {op!r}: in-place pair [{reads[first]}, {writes[first]}] must pair a "
            "buffer the op reads with another one it writes"
        )


def _are_among(owners: NDArray[np.int32], ids: NDArray[np.int32], rows: Rows) -> NDArray[np.bool_]:
    return np.isin(owners * np.int64(MOST_IDS) + ids, rows.owners() * np.int64(MOST_IDS) + rows.values)


def _check_callees(graph: Graph) -> None:
    if len(graph.subgraphs) > _MOST_SUBGRAPHS:
        raise GraphError(f"graph {graph.name!r} has more than {_MOST_SUBGRAPHS} subgraphs; inline the small ones")
    for op, names in enumerate(graph.callees):
        for name in names:
            if name not in graph.subgraphs:
                raise GraphError(f"op {graph.op_names[op]!r} calls graph {name!r}, which is not a subgraph")
            _check_spaces_match(graph, name, graph.subgraphs[name])
    if graph.call_depth > _DEEPEST_CALL:
        raise GraphError(f"graph {graph.name!r} nests calls more than {_DEEPEST_CALL} deep; inline some of them")


def _check_total(graph: Graph) -> None:
    if graph.most_bytes > _MOST_AT_ONCE:
        raise GraphError(
            f"graph {graph.name!r} may need {graph.most_bytes} bytes at once, including scratch and callees; the limit "
            "is 2^62: check the units of its sizes"
        )


def _check_spaces_match(graph: Graph, name: str, callee: Graph) -> None:
    known = {space.name for space in graph.spaces}
    for space in callee.spaces:
        if space.name not in known:
            raise GraphError(f"graph {name!r} uses memory space {space.name!r}, which its caller does not have")


def _name(graph: Graph, op: OpId) -> str:
    return repr(graph.op_names[op]) if op < graph.n_ops else f"number {op}"


def callee_order(calls: dict[str, Iterable[str]]) -> list[str]:
    """Return graph names with callees first; raises GraphError for recursive calls."""
    order: list[str] = []
    state: dict[str, int] = {}
    for root in calls:
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                state[name] = 2
                order.append(name)
            elif state.get(name) != 2:
                state[name] = 1
                stack.append((name, True))
                for callee in calls.get(name, ()):
                    if state.get(callee) == 1:
                        raise GraphError(f"graph {callee!r} calls itself through {name!r}; calls must not be recursive")
                    if callee not in state:
                        stack.append((callee, False))
    return order
