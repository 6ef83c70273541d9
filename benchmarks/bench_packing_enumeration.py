"""`pack` against enumeration on 3,000 random instances of up to 9 buffers: alignment, gaps, fixed offsets."""

import sys
import time
from pathlib import Path

from results import write_section

from lowtide.engine.packing import pack
from lowtide.engine.packing.validate import validate

sys.path.append(str(Path(__file__).parents[1]))

from tests.oracles.brute_packing import least_arena
from tests.oracles.random_buffers import plain_buffers, tied_buffers

INSTANCES = 3000


def main() -> None:
    """Count mismatches, print and write them."""
    lines = ["| instances | constraints | mismatches | not proven | seconds of `pack` |", "|--:|---|--:|--:|--:|"]
    wrong = 0
    for make, kind in (
        (plain_buffers, "alignment, gaps, fixed offsets"),
        (tied_buffers, "also shared offsets, contiguous groups, pairs that may or must not overlap"),
    ):
        mismatches, unproven, seconds = 0, 0, 0.0
        for seed in range(INSTANCES):
            buffers = make(seed)
            start = time.perf_counter()
            packed = pack(buffers)
            seconds += time.perf_counter() - start
            validate(buffers, packed.offsets, packed.arena_bytes)
            mismatches += packed.arena_bytes != least_arena(buffers)
            unproven += not packed.optimal
        wrong += mismatches
        lines.append(f"| {INSTANCES:,} | {kind} | {mismatches} | {unproven} | {seconds:.2f} |")
    print("\n".join(lines))
    text = "The least arena of every instance is known by enumeration (`tests/oracles/brute_packing.py`).\n\n"
    write_section(
        "Packing against enumeration", "python benchmarks/bench_packing_enumeration.py", text + "\n".join(lines)
    )
    if wrong:
        sys.exit(f"{wrong} arenas are not the least")


if __name__ == "__main__":
    main()
