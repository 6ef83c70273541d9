"""One row of a packing table: lowtide and its peers on one instance, in one run, every packing checked."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from packing_instances import Instance
from packing_peers.first_fit import first_fit
from packing_peers.minimalloc import minimalloc
from packing_peers.placed import arena
from packing_peers.sections import live_bytes
from packing_peers.slots import slots
from packing_peers.sound import overlap
from packing_peers.tflite import by_breadth, by_size
from packing_peers.tlsf import tlsf
from packing_peers.tvm import hill_climb
from packing_peers.vela import vela
from packing_peers.xla import xla

import lowtide

Ints = NDArray[np.int64]
CAPACITY = 1_048_576
"""Bytes that A to E are published with."""
QUADRATIC, SEARCHES, PROGRAMS = 100_000, 1_000, 1_000
"""The most buffers that rules of these kinds get; beyond, they take minutes."""
RULES: tuple[tuple[str, Callable[[Ints, Ints, Ints], Ints], int], ...] = (
    ("XLA best fit", xla, QUADRATIC),
    ("TFLite by size", by_size, QUADRATIC),
    ("TFLite by breadth", by_breadth, QUADRATIC),
    ("TVM hill climb", hill_climb, SEARCHES),
    ("first fit", first_fit, sys.maxsize),
    ("TLSF", tlsf, sys.maxsize),
    ("slots", slots, sys.maxsize),
)
VELA_ITERATIONS = 2_000
LIMIT_SECONDS = 30
"""What a program gets for an instance; one that is not done then has found nothing."""
HEAD = [
    *("instance", "buffers", "bound, bytes", "lowtide, bytes", "gap", "status", "effort", "seconds"),
    *("best peer", "its bytes", "its seconds"),
]


@dataclass(frozen=True)
class Programs:
    """Peers that run as programs of their own, where they are at hand."""

    minimalloc: Path | None
    vela_python: Path | None

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add an option for each; the environment gives the defaults."""
        for name, variable, what in (
            ("--minimalloc", "MINIMALLOC", "google/minimalloc's program"),
            ("--vela-python", "VELA_PYTHON", "a Python that has ethos-u-vela"),
        ):
            given = os.environ.get(variable)
            parser.add_argument(name, type=Path, default=given and Path(given), help=f"{what} (default: ${variable})")

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Programs":
        """Return what the options name; exits with one line where a path does not exist."""
        found = cls(options.minimalloc, options.vela_python)
        for path in (found.minimalloc, found.vela_python):
            if path is not None and not path.is_file():
                sys.exit(f"{path}: no such file; give the path of the program")
        return found


@dataclass(frozen=True)
class Peer:
    """What one peer found."""

    name: str
    arena_bytes: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """lowtide's packing of one instance, and the peers'."""

    instance: Instance
    effort: str
    bound_bytes: int
    arena_bytes: int
    status: str
    seconds: float
    peers: list[Peer]

    @property
    def best_peer(self) -> Peer | None:
        """The peer with the smallest arena, of those the quickest; None before any has run."""
        return min(self.peers, key=lambda peer: (peer.arena_bytes, peer.seconds), default=None)

    def line(self) -> str:
        """The row of the table."""
        gap = "none" if self.arena_bytes == self.bound_bytes else f"{self.arena_bytes / self.bound_bytes - 1:.3%}"
        figures = (f"{len(self.instance.buffers):,}", f"{self.bound_bytes:,}", f"{self.arena_bytes:,}", gap)
        best = self.best_peer
        peer = (best.name, f"{best.arena_bytes:,}", f"{best.seconds:.2f}") if best else ("-", "-", "-")
        cells = (self.instance.name, *figures, self.status, self.effort, f"{self.seconds:.3f}", *peer)
        return f"| {' | '.join(cells)} |"


def pack(instance: Instance, **settings: object) -> tuple[lowtide.Packed, float]:
    """Pack with lowtide; returns what came out and the seconds. Exits when buffers overlap or the arena is wrong."""
    started = time.perf_counter()
    packed = lowtide.pack(instance.buffers, **settings)  # type: ignore[arg-type]
    seconds = time.perf_counter() - started
    _check("lowtide", instance, packed.offsets)
    if packed.arena_bytes != arena(packed.offsets, instance.buffers.sizes):
        sys.exit(f"{instance.name}: the arena is not the end of the highest buffer")
    return packed, seconds


def run_peers(instance: Instance, programs: Programs) -> list[Peer]:
    """Run every peer that can handle this many buffers; exits when one gives no packing."""
    n, found = len(instance.buffers), list[Peer]()
    first, last, sizes = instance.columns
    alignment = instance.buffers.alignment.max(initial=1)
    padded = -(-sizes // alignment) * alignment  # no rule knows of alignment; so every end is a multiple of it

    def add(name: str, offsets: Ints, seconds: float) -> None:
        _check(name, instance, offsets)
        found.append(Peer(name, arena(offsets, instance.buffers.sizes), seconds))

    for name, rule, most in RULES:
        if n <= most:
            started = time.perf_counter()
            offsets = rule(first, last, padded)
            add(name, offsets, time.perf_counter() - started)
    answers: list[tuple[str, tuple[Ints | None, float]]] = []
    if programs.vela_python and n <= PROGRAMS:
        settings = {"most_iterations": VELA_ITERATIONS, "limit_seconds": LIMIT_SECONDS}
        answers.append(("Vela hill climb", vela(programs.vela_python, first, last, padded, **settings)))
    if programs.minimalloc and instance.path:
        answer = minimalloc(programs.minimalloc, instance.path, CAPACITY, limit_seconds=LIMIT_SECONDS)
        answers.append(("minimalloc at capacity", answer))
    for name, (offsets, seconds) in answers:
        if offsets is not None:
            add(name, offsets, seconds)
    return found


def measure(instance: Instance, effort: str, peers: list[Peer]) -> Row:
    """Pack with lowtide and print the row."""
    packed, seconds = pack(instance, effort=effort)
    bound = max(packed.lower_bound_bytes, int(live_bytes(*instance.columns)[1].max(initial=0)))
    row = Row(instance, effort, bound, packed.arena_bytes, str(packed.status), seconds, peers)
    print(row.line(), flush=True)
    return row


def against_peers(rows: list[Row]) -> tuple[str, bool]:
    """Say how lowtide's arenas compare with the peers' at the same instance; second, whether none is above any."""
    worst: dict[str, tuple[float, str]] = {}
    for row in rows:
        for peer in row.peers:
            ratio = row.arena_bytes / peer.arena_bytes
            worst[peer.name] = max(worst.get(peer.name, (0.0, "")), (ratio, row.instance.name))
    largest = max(ratio for ratio, _ in worst.values())
    figures = ", ".join(f"{name} {ratio:.4f} ({where})" for name, (ratio, where) in worst.items())
    return f"lowtide's arena against each peer's, largest ratio: {figures}", largest <= 1


def verdicts(targets: list[tuple[str, bool]]) -> list[str]:
    """The targets as a list, each with whether it is met."""
    return [f"- {'met' if met else '**missed**'}: {text}" for text, met in targets]


def _check(name: str, instance: Instance, offsets: Ints) -> None:
    pair = overlap(*instance.columns, offsets)
    if pair is not None or (len(offsets) and offsets.min() < 0):
        sys.exit(f"{instance.name}: {name} gives no packing (buffers {pair})")
