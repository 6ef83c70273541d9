"""What each verb claims about ten graphs, one row a class of plans: the same class has the same figure everywhere.

Every graph is inspected, compared, planned with a proof, verified with that proof, and planned within 60 % of its peak
with ops that may run again. The script fails where two verbs give one class two figures.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import write_section

GRAPHS = Path(__file__).with_name("graphs")
NAMES = (
    *("gpt2_small_b1s128.step", "bert_base_b1s128.step", "resnet50_b16.step", "unet_plain_b4.step"),
    *("densenet121_b16.fwd", "dlrm24_b4096.step", "llama_tiny_b4s512.step", "darts_imagenet", "randwire_ws32_s0"),
    "syn_sp100_s0",
)
VERBS = ("inspect", "compare", "plan", "verify")


def said(*arguments: object) -> dict[str, Any]:
    """Return what a verb prints as JSON, whatever it exits with."""
    command = [sys.executable, "-m", "lowtide", *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=False).stdout)


def bound(fields: dict[str, Any], over: str) -> str:
    """Return what is claimed of the peak over a class of plans in the first memory space, and whether it is shown."""
    for claim in fields["claims"]:
        if (claim["figure"], claim["over"]) == ("peak", over):
            return f"{claim['at_least']:,}" + (" (shown)" if claim.get("shown") else "")
    return "-"


def rows_of(name: str) -> list[list[str]]:
    """Return the rows of one graph: all orders, and all orders with reruns."""
    graph = GRAPHS / f"{name}.graph.json.gz"
    with tempfile.TemporaryDirectory() as folder:
        plan, proof = Path(folder) / "a.plan.json.gz", Path(folder) / "a.proof.json.gz"
        planned = said("plan", graph, "-o", plan, "--proof", proof)
        by_order = [
            said("inspect", graph),
            said("compare", graph),
            planned,
            said("verify", plan, graph, "--proof", proof),
        ]
        less = Path(folder) / "b.plan.json.gz"
        allowed = ("--allow", "reorder,share,recompute")
        traded = [
            said("plan", graph, "-o", less, "--budget", "60%", *allowed),
            said("verify", less, graph, "--allow-over-budget"),
        ]
    (peak,) = planned["peak_bytes"].values()
    (lower,) = traded[0]["peak_bytes"].values()
    return [
        [name, "orders", f"{peak:,}", planned["status"], *(bound(fields, "orders") for fields in by_order)],
        [name, "reruns", f"{lower:,}", traded[0]["status"], "-", "-", *(bound(fields, "reruns") for fields in traded)],
    ]


def main() -> None:
    """Ask, write the section, and fail where verbs differ."""
    rows = [row for name in NAMES for row in rows_of(name)]
    differing = [row for row in rows if len({cell.split(" ")[0] for cell in row[4:]} - {"-"}) > 1]
    head = ["graph", "class", "planned peak", "status", *VERBS]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    text = (
        "Bytes that no plan of the class can be below, as each verb says; the second row of a graph is planned within "
        f"60 %. Classes with two figures: {len(differing)} of {len(rows)}.\n\n" + "\n".join(lines)
    )
    print(text)
    write_section("What each verb claims", "python benchmarks/bench_claims.py", text)
    if differing:
        sys.exit(1)


if __name__ == "__main__":
    main()
