"""Steps of one rank with head and loss in chunks that equal the whole to rounding, beside those that are whole."""

import sys
import time
from typing import Any

import torch
from results import ROOT, write_section

sys.path.insert(0, str(ROOT))

import lowtide
from examples.frontier import MODELS, fake_ranks, rank_step
from lowtide.engine.costs import price
from lowtide.torch import TorchModel

SECTION = "Large steps, with logits in chunks"
COMMAND = "python benchmarks/bench_frontier_chunks.py"
GIB = 2**30
CELLS = (("8b", 8, 1, (24, 17.3, 13)), ("70b", 8, 8, (40, 31, 24)))
"""Models, their meshes, and what their devices hold in GiB: the second is what checkpoints of every block need."""
PROFILE = "eager@h100"
EXACT = ("reorder", "share", "recompute")
WAYS = {"no": EXACT, "to rounding": (*EXACT, "rounding")}
HEAD = "| model | data x tensor | held | budget | chunks | logits | peak | bound | cost | time |"
LEAD = (
    "The step of one rank of `examples/frontier.py`, as in the table of large steps: bfloat16, AdamW, one sequence of "
    "8,192 tokens, a vocabulary of 128,256. Where chunks to rounding are allowed, the plan chooses between the program "
    "as it stands and one that computes head and loss in chunks, forward and backward. Plans are lowtide's, "
    "`--effort fast`, priced for an H100; cost is time beyond the program as it stands. Peaks in GiB with what is held "
    "throughout; the bound is for the program in that form. Times of one core, chunks included; each model is captured "
    "once."
)


def main() -> None:
    """Plan every cell and write the table."""
    torch.set_num_threads(1)
    table = [HEAD, f"|---|---|{'--:|' * 2}---|---|{'--:|' * 4}"]
    print("\n".join(table), flush=True)
    for name, data, tensor, budgets in CELLS:
        with fake_ranks(data, tensor) as mesh:
            program = TorchModel(rank_step(MODELS[name], mesh))
            for budget in budgets:
                for way, allow in WAYS.items():
                    table.append(_row([name, f"{data} x {tensor}"], program, budget, way, allow))
                    print(table[-1], flush=True)
    write_section(SECTION, COMMAND, "\n".join([LEAD, "", *table]))


def _row(first: list[str], program: TorchModel, budget: float, way: str, allow: tuple[str, ...]) -> str:
    started = time.process_time()
    source: Any = program if "rounding" in allow else program.graph
    result = lowtide.minimize(source, budget=int(budget * GIB), allow=allow, costs=PROFILE, effort="fast")
    seconds = time.process_time() - started
    graph = program.graph_for(result.plan)
    space = graph.spaces[0].name
    held = graph.persistent_bytes()[space]
    base = float(price(program.graph, PROFILE).seconds.sum())
    cost = (result.base_cost + result.extra_cost) / base - 1
    cells = [
        *first,
        f"{held / GIB:.1f}",
        f"{budget}",
        way,
        "in chunks" if result.to_rounding else "whole",
        f"{(result.peak_bytes[space] + held) / GIB:.1f}{'' if result.shortfall is None else ', missed'}",
        f"{(result.lower_bound_bytes[space] + held) / GIB:.1f}",
        f"{cost:+.2%}",
        f"{seconds:.0f} s",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
