"""Packing a million buffers, and 100,000: seconds, memory and arena beside the field's rules."""

import resource
import sys
from dataclasses import replace

from packing_instances import any_to_any, chain, training_step
from packing_rows import HEAD, Programs, against_peers, measure, pack, run_peers, verdicts
from results import table_head, write_section

MILLION = 1_000_000
MOST_SECONDS_MILLION, MOST_BYTES_MILLION = 8.0, 2 * 10**9
MOST_SECONDS, MOST_SECONDS_DENSE = 1.0, 3.0


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    programs = Programs(minimalloc=None, vela_python=None)  # both end at some thousands of buffers
    pack(chain(10, 0))
    print("\n".join(table_head(HEAD)))
    million = [chain(MILLION, 0), training_step(MILLION, 0)]
    rows = [measure(instance, "fast", []) for instance in million]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # before anybody else has used any
    slowest = max(row.seconds for row in rows)
    targets = [
        (
            f"a million buffers within {MOST_SECONDS_MILLION:.0f} s and {MOST_BYTES_MILLION / 1e9:.0f} GB: slowest "
            f"{slowest:.2f} s, peak memory of the process {memory / 1e9:.2f} GB, instances and checks included",
            slowest < MOST_SECONDS_MILLION and memory < MOST_BYTES_MILLION,
        )
    ]
    rows = [replace(row, peers=run_peers(row.instance, programs)) for row in rows]

    hundred = [chain(MILLION // 10, 0), training_step(MILLION // 10, 0), any_to_any(MILLION // 10, 0)]
    peers = [run_peers(instance, programs) for instance in hundred]
    first = [measure(instance, "fast", found) for instance, found in zip(hundred, peers, strict=True)]
    rows += first + [measure(instance, "balanced", found) for instance, found in zip(hundred, peers, strict=True)]
    slowest = max(row.seconds for row in first[:-1])
    text = f"100,000 buffers, a first packing within {MOST_SECONDS} s: slowest {slowest:.2f} s"
    targets.append((text, slowest < MOST_SECONDS))
    dense = first[-1].seconds
    text = f"any to any, 100,000 buffers, 50,000 live at once, within {MOST_SECONDS_DENSE:.0f} s: {dense:.2f} s"
    targets.append((text, dense < MOST_SECONDS_DENSE))
    targets.append(against_peers(rows))
    lines = verdicts(targets)
    print("\n".join(["", *lines]))
    if not targets[-1][1]:
        sys.exit("lowtide is above a peer")
    lead = "Seconds of one run; peers as in the section Packing. The quadratic ones end at 100,000 buffers."
    text_lines = [lead, "", *lines, "", *table_head(HEAD), *(row.line() for row in rows)]
    write_section("Packing large instances", "python benchmarks/bench_packing_large.py", "\n".join(text_lines))


if __name__ == "__main__":
    main()
