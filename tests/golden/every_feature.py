"""One small graph that uses every feature of the format, and a plan for it that uses every kind of step."""

from dataclasses import replace

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run


def every_feature_graph() -> Graph:
    """Return a graph with two memory spaces, all lifetime classes, effects, in-place pairs and a callee."""
    body = GraphBuilder("body")
    x = body.add_buffer("x", 64, Lifetime.INPUT)
    y = body.add_buffer("y", 64, Lifetime.OUTPUT)
    body.add_op("step", "tanh", reads=[x], writes=[y], scratch_bytes=16)

    builder = GraphBuilder("every feature")
    builder.add_space("device", capacity_bytes=4096, alignment=64, bandwidth_bytes_per_s={"host": 1e9})
    host = builder.add_space("host", bandwidth_bytes_per_s={"device": 5e8})
    builder.add_subgraph("loop.body", body.build())
    weight = builder.add_buffer("weight", 256, Lifetime.PERSISTENT)
    tokens = builder.add_buffer("tokens", 32, Lifetime.INPUT, space=host)
    image = builder.add_buffer("image", 128, Lifetime.DONATED)
    hidden = builder.add_buffer("hidden", 128)
    active = builder.add_buffer("active", 128)
    mask = builder.add_buffer("mask", 0)
    result = builder.add_buffer("result", 64, Lifetime.OUTPUT)
    project = builder.add_op(
        "project", "matmul", reads=[weight, image], writes=[hidden], scratch_bytes=100, cost=2.5, flops=9.0
    )
    relu = builder.add_op("relu", "relu", reads=[hidden], writes=[active, mask], in_place=[(hidden, active)])
    builder.add_op("dropout", "dropout", mutates=[active], pure=False, ordered=True, after=[project])
    builder.add_op(
        "loop", "while", reads=[active, tokens], writes=[result], callees=["loop.body"], device="device", after=[relu]
    )
    builder.add_op("update", "sgd", reads=[result], mutates=[weight], pure=False, ordered=True)
    builder.note("aliasing of 'tokens' is not modeled")
    return builder.build()


def every_feature_plan(graph: Graph) -> Plan:
    """Return a correct plan with rematerialization, an in-place pair, copies and a plan for the callee."""
    project, relu, dropout, loop, update = range(graph.n_ops)
    _, _, image, hidden, active, mask, result = range(graph.n_buffers)
    host = 1
    callee = Plan.baseline(graph.subgraphs["loop.body"])
    steps = [Run(project), Free(hidden), Run(project), Free(image), Run(relu, ((hidden, active),)), Free(mask)]
    steps += [Run(dropout), CopyOut(active, host), Free(active), CopyIn(active, host), Free(active, host)]
    steps += [Run(loop), Free(active), CopyOut(result, host), Run(update), Free(result, host)]
    return replace(Plan.from_steps(graph, steps), callees={"loop.body": callee})
