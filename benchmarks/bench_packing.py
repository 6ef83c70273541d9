"""Packing against the field's packers in one run: published instances A to E, random ones of up to 10,000 buffers."""

import argparse
import sys

from packing_instances import Instance, chain, published, training_step
from packing_peers.minimalloc import PUBLISHED_SECONDS
from packing_rows import (
    CAPACITY,
    HEAD,
    LIMIT_SECONDS,
    VELA_ITERATIONS,
    Programs,
    Row,
    against_peers,
    measure,
    pack,
    run_peers,
    verdicts,
)
from results import table_head, write_section

MOST_SECONDS_AT_CAPACITY = 0.5
TIMES_FASTER = 10
LARGEST_D = 988 * 1024
SEEDS = range(3)
MOST_SECONDS = {1_000: 0.2, 10_000: 2.0}


def at_capacity(instances: list[Instance], rows: list[Row]) -> tuple[list[str], list[tuple[str, bool]]]:
    """Fit A to E into the published capacity, lowtide and minimalloc; returns a table and the targets."""
    head = ["instance", "lowtide, bytes", "status", "seconds", "minimalloc, bytes", "its seconds", "times faster"]
    lines, ours, theirs, all_fit = table_head(head), list[float](), list[float](), True
    for instance, row in zip(instances, rows, strict=True):
        packed, seconds = pack(instance, capacity=CAPACITY)
        ours.append(seconds)
        all_fit &= packed.arena_bytes <= CAPACITY
        peer = next((peer for peer in row.peers if peer.name.startswith("minimalloc")), None)
        cells = ["not at hand"] * 2 + ["-"]
        if peer:
            theirs.append(peer.seconds)
            cells = [f"{peer.arena_bytes:,}", f"{peer.seconds:.3f}", f"{peer.seconds / seconds:,.0f}x"]
        cells = [instance.name, f"{packed.arena_bytes:,}", str(packed.status), f"{seconds:.3f}", *cells]
        lines.append(f"| {' | '.join(cells)} |")
    same_run = len(theirs) == len(instances)
    against = sum(theirs) if same_run else PUBLISHED_SECONDS
    whose = "minimalloc in this run" if same_run else "minimalloc as published, on another machine"
    targets = [
        (
            f"A to E fit {CAPACITY:,} bytes, each within {MOST_SECONDS_AT_CAPACITY} s: slowest {max(ours):.3f} s",
            all_fit and max(ours) < MOST_SECONDS_AT_CAPACITY,
        ),
        (
            f"together at least {TIMES_FASTER} times faster than {whose}: {sum(ours):.3f} s against {against:.1f} s, "
            f"{against / sum(ours):,.0f} times",
            all_fit and against >= TIMES_FASTER * sum(ours),
        ),
    ]
    return lines, targets


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    Programs.add_options(parser)
    programs = Programs.of(parser.parse_args())
    pack(chain(10, 0))  # loads what is loaded at first use

    instances = published()
    print("\n".join(table_head(HEAD)))
    peers = [run_peers(instance, programs) for instance in instances]
    rows = [measure(instance, "balanced", found) for instance, found in zip(instances, peers, strict=True)]
    least = {row.instance.name: row for row in rows}
    fitted, targets = at_capacity(instances, rows)
    proven = [name for name in "ABCDE" if least[name].arena_bytes == least[name].bound_bytes]
    targets.append((f"minimum of A to E at the bound: {', '.join(proven) or 'none'}", proven == list("ABCDE")))
    found = least["D"].arena_bytes
    targets.append((f"D within {LARGEST_D:,} bytes (988 KiB): {found:,} ({found / 1024:.0f} KiB)", found <= LARGEST_D))

    for n, most_seconds in MOST_SECONDS.items():
        here: list[Row] = []
        for make in (chain, training_step):
            for seed in SEEDS:
                instance = make(n, seed)
                here.append(measure(instance, "balanced", run_peers(instance, programs)))
        slowest, above = max(row.seconds for row in here), sum(row.arena_bytes > row.bound_bytes for row in here)
        text = f"random, {n:,} buffers: {len(here) - above} of {len(here)} at the bound, slowest {slowest:.3f} s "
        targets.append((f"{text}(asked: {most_seconds} s)", not above and slowest < most_seconds))
        rows += here

    targets.append(against_peers(rows))
    lines = verdicts(targets)
    print("\n".join(["", *fitted, "", *lines]))
    if not targets[-1][1]:
        sys.exit("lowtide is above a peer")
    lead = (
        "Seconds of one run. Peers' rules are written from their published descriptions, in Python, so their seconds "
    )
    lead += f"say little; minimalloc and Vela (at most {VELA_ITERATIONS:,} iterations) are their own programs, given "
    lead += f"{LIMIT_SECONDS} s each. Every packing is checked by a sweep."
    text = [lead, "", *lines, "", *fitted, "", *table_head(HEAD), *(row.line() for row in rows)]
    write_section("Packing", "python benchmarks/bench_packing.py", "\n".join(text))


if __name__ == "__main__":
    main()
