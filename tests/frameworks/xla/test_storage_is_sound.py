"""No buffer is overwritten while it is needed: symbolic execution in random orders."""

import random
from pathlib import Path

import numpy as np
import pytest

from lowtide.engine.plan import Plan
from lowtide.frameworks.xla.reading.computation import ReadComputation
from lowtide.frameworks.xla.reading.module import ReadModule, read_module
from lowtide.frameworks.xla.schedule import scheduled
from lowtide.xla import parse_module, verify_schedule
from tests.frameworks.xla.modules import TEXTS, name_of, read_text

ORDERS = 5


def random_order(read: ReadComputation, draw: random.Random) -> list[int]:
    """Return a random order that respects the graph."""
    structure = read.graph.structure
    missing = [len(structure.predecessors[op]) for op in range(read.graph.n_ops)]
    ready = [op for op, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        order.append(ready.pop(draw.randrange(len(ready))))
        for follower in structure.successors[order[-1]].tolist():
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    return order


def execute(read: ReadComputation, order: list[int]) -> None:
    """Run ops on storage that contains names of buffers, and check all reads."""
    points, storage = read.points, read.storage
    content = {storage.of[buffer]: buffer for buffer in storage.parameters}
    handed = {new: old for old, new in read.handed_over.items()}
    defined: dict[int, list[int]] = {}
    for buffer, logical in enumerate(points.buffers):
        defined.setdefault(logical.definer, []).append(buffer)
    for op in order:
        place = read.places[op]
        for buffer in points.reads[place]:
            if storage.of[buffer] is not None:
                assert content.get(storage.of[buffer]) == buffer
        for buffer in defined.get(place, ()):
            where = storage.of[buffer]
            content[where] = buffer
            if where in handed:
                content[handed[where]] = -1  # the same storage
    for buffer in points.result:
        if storage.of[buffer] is not None:
            assert content[storage.of[buffer]] == buffer


def check(read: ReadModule, seed: int) -> None:
    """Execute all computations in several orders, and write the last order of each into the text."""
    draw = random.Random(seed)
    orders: dict[str, list[int]] = {}
    for name, computation in read.computations.items():
        for _ in range(ORDERS):
            orders[name] = random_order(computation, draw)
            assert len(orders[name]) == computation.graph.n_ops
            execute(computation, orders[name])
    verify_schedule(scheduled(read, _plan(read, read.module.entry.name, orders)), read.module)


def _plan(read: ReadModule, name: str, orders: dict[str, list[int]]) -> Plan:
    graph = read.computations[name].graph
    callees = {callee: _plan(read, callee, orders) for callee in graph.called}
    return Plan.from_order(graph, np.asarray(orders[name], np.int32), callees=callees)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_recorded_modules_read_right_values_in_random_orders(path: Path) -> None:
    check(read_module(parse_module(path.read_text(encoding="utf-8"))), 0)


def random_module(seed: int) -> str:
    """Return a module with nested loops and calls over values with short and long live ranges."""
    draw = random.Random(seed)
    size = draw.randint(1, 4)
    state = f"({', '.join(['f32[8]'] * size)})"

    def steps(names: list[str], count: int, prefix: str) -> list[str]:
        lines: list[str] = []
        for number in range(count):
            kind, operands = draw.choice(["add", "dot", "negate", "copy", "call", "pair"]), draw.choices(names, k=2)
            name = f"{prefix}{number}"
            if kind in ("negate", "copy"):
                lines.append(f"{name} = f32[8] {kind}({operands[0]})")
            elif kind == "call":
                lines.append(f"{name} = f32[8] call({operands[0]}, {operands[1]}), to_apply=second")
            elif kind == "pair":
                lines.append(f"{name}t = (f32[8], f32[8]) tuple({operands[0]}, {operands[1]})")
                lines.append(f"{name} = f32[8] get-tuple-element({name}t), index={draw.randint(0, 1)}")
            else:
                lines.append(f"{name} = f32[8] {kind}({operands[0]}, {operands[1]})")
            names.append(name)
        return lines

    def looped(name: str, inner: str | None) -> list[str]:
        names = [f"x{k}" for k in range(size)]
        lines = [f"{name} {{", f"s = {state} parameter(0)"]
        lines += [f"x{k} = f32[8] get-tuple-element(s), index={k}" for k in range(size)]
        lines += steps(names, draw.randint(0, 4), "a")
        if inner is not None:
            lines += loop(names, inner, "w")
            lines += steps(names, draw.randint(0, 3), "b")
        return [*lines, f"ROOT out = {state} tuple({', '.join(draw.choices(names, k=size))})", "}"]

    def loop(names: list[str], body: str, prefix: str) -> list[str]:
        lines = [f"{prefix}i = {state} tuple({', '.join(draw.choices(names, k=size))})"]
        if draw.random() < 0.3:
            lines.append(f"{prefix} = {state} call({prefix}i), to_apply=runs_{body}")
        else:
            lines.append(f"{prefix} = {state} while({prefix}i), condition=cond, body={body}")
        lines += [f"{prefix}{k} = f32[8] get-tuple-element({prefix}), index={k}" for k in range(size)]
        names += [f"{prefix}{k}" for k in range(size)]
        return lines

    names = ["p", "q"]
    aliased = draw.random() < 0.5
    head = "HloModule random" + (", input_output_alias={ {0}: (0, {}, may-alias) }" if aliased else "")
    lines = [head, "second {", "p = f32[8] parameter(0)", "ROOT q = f32[8] parameter(1)", "}"]
    lines += ["cond {", f"s = {state} parameter(0)", "ROOT more = pred[] custom-call(s)", "}"]
    for body, inside in (("inner", None), ("outer", "inner")):
        lines += looped(body, inside)
        lines += [f"runs_{body} {{", f"s = {state} parameter(0)"]
        lines += [f"ROOT w = {state} while(s), condition=cond, body={body}", "}"]
    lines += ["ENTRY main {", "p = f32[8] parameter(0)", "q = f32[8] parameter(1)", "c = f32[8] constant({...})"]
    lines += steps([*names, "c"], 1, "u") + steps(names, draw.randint(1, 5), "a")
    lines += loop(names, draw.choice(["inner", "outer"]), "v") + steps(names, draw.randint(0, 5), "b")
    if draw.random() < 0.5:
        lines += loop(names, "outer", "z") + steps(names, draw.randint(0, 3), "d")
    return "\n".join([*lines, f"ROOT out = {state} tuple({', '.join(draw.choices(names, k=size))})", "}", ""])


@pytest.mark.parametrize("seed", range(150))
def test_random_loops_read_right_values_in_random_orders(seed: int) -> None:
    check(read_text(random_module(seed)), seed)
