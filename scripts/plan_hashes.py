"""The plans of the sample graphs as hashes: what shows that a change of the code changed no plan.

`python scripts/plan_hashes.py` compares them with `benchmarks/plan_hashes.json` and names every plan that differs;
`--write` renews the file. A commit that means to change plans renews it and says why.
"""

import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import lowtide
from lowtide.engine.offload import Host

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
GRAPHS = BENCHMARKS / "graphs"
HASHES = BENCHMARKS / "plan_hashes.json"
RERUNS = ("reorder", "share", "recompute")
WAYS: dict[str, tuple[float, dict[str, Any]]] = {
    "least peak": (math.inf, {}),
    "85%": (1_000, {"budget": "85%", "allow": ("reorder", "share")}),
    "60%, recompute": (1_000, {"budget": "60%", "allow": RERUNS}),
    "60%, offload": (400, {"budget": "60%", "allow": (*RERUNS, "offload"), "costs": "eager"}),
}
"""How graphs are planned: by name, the most ops, so that all of it stays within a minute or two, and the settings of
`lowtide.minimize`."""
HOST = Host(bandwidth_bytes_per_s=12.5e9)


def hashes_of(path: Path) -> tuple[str, dict[str, str]]:
    """Return the name of a graph and, for every way of planning it, the hash of its plan file."""
    graph = lowtide.read(path)
    found: dict[str, str] = {}
    for way, (most_ops, settings) in WAYS.items():
        if graph.n_ops > most_ops:
            continue
        planned = HOST.added_to(graph) if "offload" in way else graph
        plan = lowtide.minimize(planned, effort="fast", **settings).plan
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "a.plan.json"
            lowtide.write_plan_file(plan, file, planned)
            found[way] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return path.name.removesuffix(".gz").removesuffix(".graph.json"), found


def all_hashes() -> dict[str, dict[str, str]]:
    """Return the hashes of all sample graphs, by name; two graphs are planned at once, the largest first."""
    paths = sorted(GRAPHS.glob("*.graph.json*"), key=lambda path: (-path.stat().st_size, path.name))
    with ProcessPoolExecutor(2) as pool:
        return dict(sorted(pool.map(hashes_of, paths)))


def differences(recorded: dict[str, dict[str, str]], found: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield one line for every plan that is not what was recorded."""
    for name in sorted({*recorded, *found}):
        before, now = recorded.get(name, {}), found.get(name, {})
        for way in [*WAYS, *sorted({*before} - {*WAYS})]:
            if before.get(way) != now.get(way):
                yield f"{name}, {way}: {before.get(way, 'not recorded')} -> {now.get(way, 'not planned')}"


def main() -> None:
    """Compare, or renew with --write; exits with 1 where a plan differs."""
    found = all_hashes()
    if sys.argv[1:] == ["--write"]:
        HASHES.write_text(json.dumps(found, indent=1) + "\n")
        return
    changed = list(differences(json.loads(HASHES.read_text()), found))
    if changed:
        print("\n".join(changed))
        sys.exit(f"{len(changed)} plans changed; if that is meant, run scripts/plan_hashes.py --write and say why")
    print(f"{sum(map(len, found.values()))} plans of {len(found)} graphs are as recorded")


if __name__ == "__main__":
    main()
