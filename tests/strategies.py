"""Random graphs for every test: small ones drawn by hypothesis, large ones from a seed."""

from random import Random

from hypothesis import strategies as st

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, Step

_SIZES = (0, 1, 2, 2, 3, 4, 4, 4, 8, 16)
_RECENT = 24


def random_graph(seed: int, n_ops: int) -> Graph:
    """Return the same valid graph for the same seed: most reads go to recent buffers, as in real programs."""
    return _build(seed, n_ops, "seeded", callees=n_ops > 0)


def graphs(max_ops: int = 7, *, callees: bool = True) -> st.SearchStrategy[Graph]:
    """Draw valid graphs that use every feature there is: lifetime classes, mutation, second writers, in-place pairs,
    control edges, scratch, effects, callees, two memory spaces, sizes of zero."""

    def build(seed: int, n_ops: int) -> Graph:
        return _build(seed, n_ops, f"drawn{seed}", callees=callees)

    return st.builds(build, st.integers(0, 10**6), st.sampled_from(range(max_ops + 1)))


def rematerializing_plan(graph: Graph, random: Random) -> Plan:
    """Return a correct plan of a graph in its program order that also reruns pure ops and moves buffers around.

    Every op that may run twice, mutates nothing and still finds all it touched in the state it saw may run again right
    after itself; buffers take a trip to another memory space right
    after an op wrote or touched them.
    """
    steps: list[Step] = []
    for step in Plan.baseline(graph).steps():
        steps.append(step)
        if not isinstance(step, Run):
            continue
        op = graph.op(step.op)
        fresh = graph.structure.allocates[step.op].tolist()
        writes_only_own = not op.mutates and set(op.writes) == set(fresh)
        may_repeat = op.repeatable or (op.pure and (not op.ordered or op.ranks > 1))
        if may_repeat and writes_only_own and random.random() < 0.4:
            steps.extend(Free(buffer) for buffer in fresh if random.random() < 0.5)
            steps.append(Run(step.op))
        touched = graph.structure.touches[step.op].tolist()
        kept = [buffer for buffer in touched if not graph.buffer(buffer).lifetime.freeable]
        for buffer in (*fresh, *kept):
            if len(graph.spaces) > 1 and random.random() < 0.4:
                elsewhere = 1 - int(graph.buffer_spaces[buffer])
                steps += [CopyOut(buffer, elsewhere), Free(buffer), CopyIn(buffer, elsewhere), Free(buffer, elsewhere)]
    return Plan.from_steps(graph, steps)


def _build(seed: int, n_ops: int, name: str, *, callees: bool) -> Graph:
    random, of_machines, of_draws = Random(seed), Random(f"machines {seed}"), Random(f"draws {seed}")
    builder = GraphBuilder(name)
    n_spaces = _add_spaces(builder, random)
    callee_names = _add_callees(builder, random) if callees and n_ops and random.random() < 0.3 else []
    sizes: list[int] = []
    homes: list[int] = []

    def add_buffer(lifetime: Lifetime, like: int | None = None) -> int:
        sizes.append(random.choice(_SIZES) if like is None else sizes[like])
        homes.append(random.randrange(n_spaces) if like is None else homes[like])
        return builder.add_buffer(f"b{len(sizes) - 1}", sizes[-1], lifetime, space=homes[-1])

    at_start = [Lifetime.PERSISTENT, Lifetime.INPUT, Lifetime.DONATED]
    readable = [add_buffer(random.choice(at_start)) for _ in range(random.randint(0, 4))]
    if random.random() < 0.1:
        add_buffer(Lifetime.INTERMEDIATE)  # nothing ever writes or reads it
    for op in range(n_ops):
        recent = readable[-_RECENT:]
        reads = _some(random, recent, 3)
        if readable and random.random() < 0.2:
            reads.append(random.choice(readable))
        mutates = _some(random, recent, 1) if random.random() < 0.25 else []
        again = _some(random, recent, 1) if random.random() < 0.1 else []
        fresh = [
            add_buffer(
                Lifetime.OUTPUT if random.random() < 0.2 else Lifetime.INTERMEDIATE,
                like=random.choice(reads) if reads and random.random() < 0.5 else None,
            )
            for _ in range(random.choice([0, 1, 1, 1, 2, 3]))
        ]
        offered = [(read, written) for read in dict.fromkeys(reads) for written in fresh if random.random() < 0.5]
        builder.add_op(
            f"op{op}",
            random.choice(["add", "relu", "while", "call"]),
            reads=reads,
            writes=again + fresh,
            mutates=mutates,
            after=_some(random, list(range(max(0, op - _RECENT), op)), 2) if random.random() < 0.2 else [],
            in_place=offered,
            scratch_bytes=random.choice([0, 0, 0, 1, 5]),
            pure=random.random() < 0.8,
            ordered=(ordered := random.random() < 0.25),
            repeatable=of_draws.random() < 0.1,
            cost=random.choice([0.0, 0.5, 1.0]),
            flops=random.choice([None, 0.0, 2.0]),
            callees=_some_names(random, callee_names),
            device=random.choice([None, "device", "host", "gpu"]),
            traffic_bytes=of_machines.choice([None, 0, 3]),
            ranks=(ranks := of_machines.choice([1, 2, 3]) if ordered else 1),
            rank_span=ranks + of_machines.choice([0, 2]),
        )
        readable += fresh
    if random.random() < 0.1:
        builder.note("something is not modeled")
    return builder.build()


def _add_spaces(builder: GraphBuilder, random: Random) -> int:
    if random.random() < 0.7:
        return 1
    builder.add_space("device", alignment=random.choice([1, 4]), bandwidth_bytes_per_s={"host": 10})
    builder.add_space("host", alignment=random.choice([1, 64]), bandwidth_bytes_per_s={"device": 8.5})
    return 2


def _add_callees(builder: GraphBuilder, random: Random) -> list[str]:
    """Add up to two callees that live in the memory space every graph has, one of which may call the other."""
    inner = GraphBuilder("inner")
    x = inner.add_buffer("x", random.choice(_SIZES), Lifetime.INPUT)
    y = inner.add_buffer("y", random.choice(_SIZES))
    z = inner.add_buffer("z", random.choice(_SIZES), Lifetime.OUTPUT)
    inner.add_op("first", "mul", reads=[x], writes=[y], scratch_bytes=random.choice([0, 3]))
    inner.add_op("second", "add", reads=[x, y], writes=[z])
    body = inner.build()
    outer = GraphBuilder("outer")
    outer.add_subgraph("body", body)
    w = outer.add_buffer("w", random.choice(_SIZES), Lifetime.OUTPUT)
    outer.add_op("calls", random.choice(["call", "custom"]), writes=[w], callees=["body"])
    builder.add_subgraph("body", body)
    builder.add_subgraph("outer", outer.build())
    return ["body", "outer"]


def _some(random: Random, choices: list[int], most: int) -> list[int]:
    count = min(len(choices), random.randint(0, most))
    return [random.choice(choices) for _ in range(count)]


def _some_names(random: Random, names: list[str]) -> list[str]:
    return [name for name in names if random.random() < 0.3]
