"""A hundred dense packings of known height, fitted by lowtide and minimalloc; what each inference and join is worth."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cut_packings import HEIGHT, LEFT_OUT, UNIT, cut_packing
from packing_instances import Instance, published
from packing_peers.minimalloc import minimalloc
from packing_peers.sound import overlap
from packing_rows import Programs, verdicts
from results import table_head, write_section

from lowtide import _native
from lowtide.core.effort import PackingEffort
from lowtide.core.progress import silent
from lowtide.engine.packing.csv_file import read_buffer_file
from lowtide.engine.packing.items import Items, items_of
from lowtide.engine.packing.search import PackSearch

CAPACITY = HEIGHT * UNIT
INSTANCES = 100
EFFORT = PackingEffort(priority_work=100_000_000, exact_work=600_000_000, exact_items=1_000)
"""About a second or two of one core where nothing fits."""
LIMIT_SECONDS = 1.0
"""The most that is asked for, and what minimalloc gets."""
INFERENCE_WORK = 300_000_000
INFERENCES = {
    "floors of sections, with a witness": 1 | 2,
    "the only item that can be lowest": 2,
    "one cut for the whole node": 4,
    "dominance": 8,
    "no alternatives for what raises nothing": 16,
    "decomposition": 32 | 64,
    "ranks of parts from what remains": 64,
    "what was passed over is pushed up": 128,
}
"""The bits of `CanonicalInference`; what needs another one goes with it."""
ALL = 255
JOIN_WORK = 30_000_000
"""About a tenth of a second for the search over joined blocks."""
JOINS = {"parallel": 1, "series": 2, "wheels": 4, "holes": 8, "pads": 16, "cuts": 32}
"""The bits of `Join`."""
ALL_JOINS = 63


@dataclass(frozen=True)
class Fitted:
    """What came of one instance; minimalloc's figures are None where it is not at hand."""

    instance: Instance
    arena_bytes: int
    seconds: float
    method: str
    peer_fits: bool | None
    peer_seconds: float | None

    @property
    def fits(self) -> bool:
        """Whether lowtide keeps the capacity."""
        return self.arena_bytes <= CAPACITY


def fit(instance: Instance, program: Path | None) -> Fitted:
    """Fit one instance; exits where buffers overlap."""
    layout = items_of(instance.buffers)
    started = time.perf_counter()
    search = PackSearch(layout.items, CAPACITY, EFFORT, silent)
    search.run()
    seconds = time.perf_counter() - started
    pair = overlap(*instance.columns, layout.offsets_of(instance.buffers, search.offsets))
    if pair is not None:
        sys.exit(f"{instance.name}: buffers {pair} overlap")
    peer_fits, peer_seconds = None, None
    if program:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "buffers.csv"
            rows = zip(*(column.tolist() for column in instance.columns), strict=True)
            lines = [f"{k},{first},{last},{size}" for k, (first, last, size) in enumerate(rows)]
            path.write_text("\n".join(["id,lower,upper,size", *lines, ""]))
            offsets, peer_seconds = minimalloc(program, path, CAPACITY, limit_seconds=LIMIT_SECONDS)
            peer_fits = offsets is not None
    return Fitted(instance, search.height, seconds, search.method, peer_fits, peer_seconds)


def classes(found: list[Fitted]) -> list[str]:
    """Return a table, one row for each share that is left out."""
    head = ["left out", "instances", "lowtide fits", "within a second", "slowest that fits, s", "minimalloc fits"]
    lines = table_head(head)
    for position, share in enumerate(LEFT_OUT):
        here = found[position :: len(LEFT_OUT)]
        soon = sum(one.fits and one.seconds <= LIMIT_SECONDS for one in here)
        slowest = max((one.seconds for one in here if one.fits), default=0.0)
        peer = "not at hand" if here[0].peer_fits is None else str(sum(bool(one.peer_fits) for one in here))
        cells = [f"{share:.0%}", str(len(here)), str(sum(one.fits for one in here)), str(soon), f"{slowest:.2f}", peer]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def each(found: list[Fitted]) -> list[str]:
    """Return a table, one row for each instance."""
    lines = table_head(["instance", "buffers", "lowtide, bytes", "method", "seconds", "minimalloc, seconds"])
    for one in found:
        peer = (
            "not at hand" if one.peer_seconds is None else f"{one.peer_seconds:.3f}" if one.peer_fits else "none found"
        )
        cells = [one.instance.name, str(len(one.instance.buffers)), f"{one.arena_bytes:,}", one.method]
        lines.append(f"| {' | '.join([*cells, f'{one.seconds:.3f}', peer])} |")
    return lines


def worth(instances: list[Instance], switches: dict[str, int], search: Callable[[Items, int], int]) -> list[str]:
    """Return a table: how many fit, and how long the search takes, when what some bits stand for is left out."""
    lines = table_head(["without", "fits", "seconds"])
    for name, bits in {"nothing": 0, **switches}.items():
        fits, started = 0, time.perf_counter()
        for instance in instances:
            fits += search(items_of(instance.buffers).items, bits) == 0
        lines.append(f"| {name} | {fits} of {len(instances)} | {time.perf_counter() - started:.2f} |")
        print(lines[-1], flush=True)
    return lines


def canonically(items: Items, without: int) -> int:
    """Search without some inferences."""
    return _native.pack_within_canonically(items.native(), items.steps, CAPACITY, INFERENCE_WORK, ALL & ~without)[0]


def joined(items: Items, without: int) -> int:
    """Search without some joins."""
    return _native.pack_within_joined(items.native(), CAPACITY, JOIN_WORK, ALL_JOINS & ~without)[0]


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    Programs.add_options(parser)
    parser.add_argument("--challenging", type=Path, help="minimalloc's benchmarks/challenging; else A to E alone")
    options = parser.parse_args()
    program = Programs.of(options).minimalloc
    if options.challenging:
        files = sorted(options.challenging.glob("*.csv"))
        ready = [Instance(path.name[0], read_buffer_file(path).buffers, path) for path in files]
    else:
        ready = published()
    known = [fit(instance, program) for instance in ready]
    print("\n".join(each(known)), flush=True)
    cut = [fit(cut_packing(seed), program) for seed in range(INSTANCES)]
    print("\n".join(classes(cut)), flush=True)
    soon = sum(one.fits and one.seconds <= LIMIT_SECONDS for one in cut)
    every = [*known, *cut]
    slower = [one for one in every if one.peer_fits and (not one.fits or one.seconds > (one.peer_seconds or 0.0))]
    names = f": {', '.join(one.instance.name for one in slower)}" if slower else ""
    targets = [
        (
            f"published instances fitted: {sum(one.fits for one in known)} of {len(known)}, in "
            f"{sum(one.seconds for one in known):.2f} s together",
            all(one.fits for one in known),
        ),
        (
            f"cut ones fitted at their known height: {sum(one.fits for one in cut)} of {len(cut)}",
            all(one.fits for one in cut),
        ),
        (f"99 % of them within {LIMIT_SECONDS:.0f} s: {soon} of {len(cut)}", soon >= 0.99 * len(cut)),
    ]
    if program:
        targets.append((f"never slower than minimalloc: slower on {len(slower)} of {len(every)}{names}", not slower))
    by_second = [one.instance for one in every if one.method == "second-exact-search" or one in known]
    inferred = worth(by_second, INFERENCES, canonically)
    by_joins = worth([one.instance for one in cut], JOINS, joined)
    lead = (
        f"Rectangles of {HEIGHT} units cut into buffers (`benchmarks/cut_packings.py`); the most alive at once are the "
        f"capacity. Work is limited to a second or two an instance; minimalloc gets {LIMIT_SECONDS:.0f} s."
    )
    heading = (
        "The second exact search with each inference off in turn, on the published instances and the cut ones that "
        "`pack` fits by it:"
    )
    of_joins = f"The search over joined blocks with each join off in turn, on all cut instances, work {JOIN_WORK:,}:"
    tables = [*classes(cut), "", *each(known), "", heading, "", *inferred, "", of_joins, "", *by_joins, "", *each(cut)]
    text = [lead, "", *verdicts(targets), "", *tables]
    print("\n".join(verdicts(targets)))
    write_section("Packing cut rectangles", "python benchmarks/bench_packing_cut.py", "\n".join(text))


if __name__ == "__main__":
    main()
