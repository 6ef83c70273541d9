"""Inference of models whose weights do not fit the device, beside rules that keep all weights on the host."""

import argparse
import sys
import time

import torch
from results import ROOT, table_head, write_section

sys.path.insert(0, str(ROOT))

import lowtide
from examples.frontier import MODELS, fake_ranks, rank_step
from lowtide.api.step_captures import SizedStep, no_forms
from lowtide.core.techniques import COST_NOTHING
from lowtide.engine.analysis import simulate
from lowtide.engine.costs import price
from lowtide.engine.costs.devices import device_named
from lowtide.engine.graph import Graph
from lowtide.engine.offload import host_of_device
from lowtide.engine.plan import Plan
from lowtide.engine.planning.settings import PlanSettings

SECTION = "Inference with weights on the host"
COMMAND = "python benchmarks/bench_weights_on_host.py"
GIB = 2**30
CELLS = (
    ("8b", 1, 1024, "t4", 15),
    ("8b", 1, 1024, "t4", 6),
    ("8b", 1, 1, "t4", 6),
    ("70b", 1, 1024, "rtx4090", 23),
    ("70b", 16, 1024, "rtx4090", 23),
    ("70b", 16, 1024, "h100", 79),
    ("qwen3-30b-a3b", 16, 1024, "rtx4090", 23),
    ("405b", 16, 1024, "h100", 79),
)
TECHNIQUES = COST_NOTHING | {"recompute", "offload"}
LEAD = (
    "Forward passes of `examples/frontier.py` in bfloat16 that return the scores of the last token, without a cache of "
    "earlier tokens. Everything is predicted: prices are the peak figures of the device and its link to the host. "
    "`unlimited` is a device that holds everything. `one by one` keeps all weights on the host and copies each before "
    "its layer, which waits for it. `at once` is the same with copies that hide as far as the link allows, in as much "
    "memory as that needs. `lowtide` is one plan within the given memory: some weights stay on the device, and compute "
    "while others arrive."
)


def captured(name: str, batch: int, length: int) -> Graph:
    """Capture the forward pass of a model for the scores of the last token."""
    with fake_ranks(1, 1) as mesh:
        step, (tokens,) = rank_step(MODELS[name], mesh, batch=batch, length=length)
        decoder = step.model.requires_grad_(False)

        def last_scores(tokens: torch.Tensor) -> torch.Tensor:
            value = decoder.embedding(tokens)
            for block in decoder.blocks:
                value = block(value)
            return decoder.head(decoder.norm(value[:, -1:]))

        return lowtide.read(last_scores, tokens)


def lines_of(name: str, batch: int, length: int, device_name: str, gib: int) -> list[str]:
    """Return the lines of one model, size and device."""
    graph, device = captured(name, batch, length), device_named(device_name)
    space, profile = graph.spaces[0].name, f"eager@{device_name}"
    weights, base = graph.persistent_bytes()[space], float(price(graph, profile).seconds.sum())
    link = weights / device.host_bytes_per_second
    program = SizedStep(graph, no_forms, host_of_device(device))
    one_by_one = program.with_state_on_host(program.most_on_host)
    assert one_by_one is not None
    started = time.process_time()
    settings = PlanSettings(
        budget=gib * GIB, host=host_of_device(device), costs=profile, techniques=TECHNIQUES, addresses=False
    )
    result = program.planned(settings)
    took = time.process_time() - started
    on_device = result.persistent_bytes[space] + result.peak_bytes[space]
    rows = [
        ("unlimited", weights + _peak(graph), 0, base, ""),
        ("one by one", _peak(one_by_one.graph), weights, base + link, ""),
        ("at once", None, weights, max(base, link), ""),
        ("lowtide", on_device, result.parameters_on_host_bytes, base * (1 + result.extra_time), f"{took:.0f} s"),
    ]
    if result.shortfall is not None:
        raise SystemExit(f"{name} misses {gib} GiB: {result.shortfall}")
    about = [name, f"{batch} x {length:,}", f"{device_name}, {gib}"]
    lines: list[str] = []
    for way, held, on_host, seconds, planning in rows:
        shown = "" if held is None else f"{held / GIB:.1f}"
        figures = [way, shown, f"{on_host / GIB:.1f}", f"{seconds:.2f} s", f"{seconds / base - 1:+.1%}", planning]
        lines.append(f"| {' | '.join([*about, *figures])} |")
        about = [""] * len(about)
    return lines


def _peak(graph: Graph) -> int:
    return simulate(graph, Plan.baseline(graph)).peak_bytes[graph.spaces[0].name]


def main() -> None:
    """Write the section."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    names = ["model", "tokens", "device, GiB", "way", "device", "host", "time", "extra time", "planning"]
    lines = table_head(names, 4)
    for cell in CELLS:
        found = lines_of(*cell)
        print("\n".join(found), flush=True)
        lines += found
    write_section(SECTION, COMMAND, "\n".join([LEAD, "", *lines]))


if __name__ == "__main__":
    main()
