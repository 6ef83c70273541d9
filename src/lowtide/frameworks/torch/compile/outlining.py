"""What is done in chunks, as ops that Inductor calls: each a program of its own, with a plan of its own."""

from torch.fx import GraphModule

from lowtide.engine.graph import Lifetime
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.reading.lowering import lower_body
from lowtide.frameworks.torch.reading.outlined import register_program
from lowtide.frameworks.torch.reading.read import graph_of
from lowtide.frameworks.torch.rewrites.outline_chunks import OutlineChunks
from lowtide.frameworks.torch.rewrites.run import run_rewrites

_SETTINGS = PlanSettings(effort="fast", addresses=False)


def outline_chunks(module: GraphModule) -> GraphModule:
    """Return a program in which what is done in chunks is called: ops that run PyTorch's kernels by a plan."""
    return run_rewrites(module, [OutlineChunks(_hold_planned)])


def _hold_planned(module: GraphModule) -> str:
    lowered = lower_body(module)
    graph = graph_of("chunks", module, lowered)
    found = find_plan(graph, _SETTINGS)
    returned = int(graph.sizes[(graph.buffer_spaces == 0) & (graph.lifetimes == Lifetime.OUTPUT)].sum())
    scratch = found.peak_bytes[graph.spaces[0].name] - returned
    flops, traffic = int(graph.flops.sum()), int(graph.traffic.sum())
    emitted = emit(module, lowered, found.plan, boxed=False)
    return register_program(emitted, scratch_bytes=scratch, flops=flops, traffic_bytes=traffic)
