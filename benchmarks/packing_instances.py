"""What the packing benchmarks place: published instances, random ones with fixed seeds, and plans of graphs."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowtide import Buffers
from lowtide.engine.analysis.live_ranges import live_ranges
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan, StepKind

PUBLISHED = Path(__file__).with_name("buffers")
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Instance:
    """Buffers with a name for the table; `path` is the file they were read from, if any."""

    name: str
    buffers: Buffers
    path: Path | None = None

    @property
    def columns(self) -> tuple[Ints, Ints, Ints]:
        """First and last steps, half-open, and sizes in bytes."""
        return self.buffers.first, self.buffers.last, self.buffers.sizes


def published() -> list[Instance]:
    """Read A to E."""
    found: list[Instance] = []
    for path in sorted(PUBLISHED.glob("minimalloc_*.csv")):
        with path.open(newline="") as file:
            rows = [[int(row[key]) for key in ("lower", "upper", "size")] for row in csv.DictReader(file)]
        first, last, sizes = np.array(rows).T
        found.append(Instance(path.stem.removeprefix("minimalloc_"), Buffers(first, last, sizes), path))
    return found


def chain(n: int, seed: int) -> Instance:
    """Make a chain of ops that each read the result before; every seventh result or so skips some twenty steps."""
    rng = np.random.default_rng(seed)
    born = np.arange(n)
    skips = np.where(rng.random(n) < 0.15, rng.geometric(1 / 20, n), 0)
    last = np.minimum(born + 2 + skips, n + 1)
    return Instance(f"chain with skips, seed {seed}", Buffers(born, last, _layer_sizes(rng, n)))


def training_step(n: int, seed: int) -> Instance:
    """Make a training step: half of what runs forward lives until its mirror image runs backward, gradients briefly."""
    rng = np.random.default_rng(seed)
    forward = n // 3
    saved = rng.random(forward) < 0.5
    up = np.arange(forward)
    steps = 2 * forward
    forward_last = np.where(saved, steps - up, up + 1 + rng.integers(1, 3, forward))
    backward = np.repeat(np.arange(forward, steps), 2)[: n - forward]
    backward = np.concatenate([backward, np.full(n - forward - len(backward), steps - 1)])
    backward_last = np.minimum(backward + 1 + rng.geometric(1 / 4, len(backward)), steps + 1)
    first, last = np.concatenate([up, backward]), np.concatenate([forward_last, backward_last])
    return Instance(f"training step, seed {seed}", Buffers(first, last, _layer_sizes(rng, n)))


def any_to_any(n: int, seed: int) -> Instance:
    """Make live ranges between two random moments each, of random sizes: half of all are live at once in the middle."""
    rng = np.random.default_rng(seed)
    moments = np.sort(rng.permutation(2 * n).reshape(n, 2), axis=1)
    sizes = rng.integers(1, 1 << 20, n)
    return Instance(f"any to any, seed {seed}", Buffers(moments[:, 0], moments[:, 1], sizes))


def _layer_sizes(rng: np.random.Generator, n: int) -> Ints:
    """Draw sizes as layers have them: few distinct large ones that repeat, and a quarter of small ones, in 64 bytes."""
    large = 4096 * rng.integers(1, 512, 24)
    return np.where(rng.random(n) < 0.25, 64 * rng.integers(1, 65, n), rng.choice(large, n))


def plan_instances(name: str, graph: Graph, plan: Plan, transient: NDArray[np.int64]) -> list[Instance]:
    """Return what a plan needs addresses for, per memory space; `transient` is what ops need while they run.

    A buffer that takes over the storage of another one is one buffer with it.
    """
    ranges = live_ranges(graph, plan)
    sizes = graph.sizes[ranges.buffers]
    inputs = (graph.lifetimes[ranges.buffers] == Lifetime.INPUT) | (graph.lifetimes[ranges.buffers] == Lifetime.DONATED)
    first = np.where(inputs & (ranges.first_steps == 0), -1, ranges.first_steps)
    last = ranges.last_steps.copy()
    roots = np.arange(len(ranges))
    for row, before in enumerate(ranges.continues.tolist()):
        if before >= 0:
            roots[row] = roots[before]
            last[roots[row]] = ranges.last_steps[row]
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    found: list[Instance] = []
    for position, space in enumerate(graph.spaces):
        scratch = transient[plan.targets[runs], position]
        busy = runs[scratch > 0]
        here = np.flatnonzero((ranges.continues < 0) & (ranges.spaces == position) & (first < last) & (sizes > 0))
        buffers = Buffers(
            np.concatenate([first[here], busy]),
            np.concatenate([last[here], busy + 1]),
            np.concatenate([sizes[here], scratch[scratch > 0]]),
            alignment=space.alignment,
        )
        if len(buffers):
            found.append(Instance(name if len(graph.spaces) == 1 else f"{name} ({space.name})", buffers))
    return found
