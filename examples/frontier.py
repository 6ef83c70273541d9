"""Plan the memory of one rank of a large training run on a laptop. Nothing is allocated, and no other rank is needed.

`python -m examples.frontier 8b --data 8 --tensor 1 --budget "80 GiB"` captures and plans the step of one rank of a
Llama-like model. Weights are sharded over the data-parallel ranks, layers are split over the tensor-parallel ranks.
`deepseek-v3` is a mixture of experts. Each tensor-parallel rank has other experts and other tokens.
"""

import argparse
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import lowtide
from examples.one_rank.decoder import POLICIES, Decoder
from examples.one_rank.dense import Dense
from examples.one_rank.grouped_mixture import GroupedMixture
from examples.one_rank.mesh import Mesh
from examples.one_rank.mixture import Mixture
from lowtide.engine.graph import Graph
from lowtide.torch import TorchModel, TrainingStep

Model = Dense | Mixture | GroupedMixture
MakeOptimizer = Callable[[Iterator[torch.nn.Parameter]], torch.optim.Optimizer]
GIB = 2**30
PYTORCH_BYTES, BYTES_AN_OP = 420_000_000, 23_000
"""Host memory of a process with PyTorch, and of each captured op (measured for 8,000 to 33,000 ops)."""
OPS_A_LAYER = {Dense: 261, Mixture: 600, GroupedMixture: 400}

MODELS: dict[str, Model] = {
    "tiny": Dense(4, 256, 8, 4, 512, 1024),
    "8b": Dense(32, 4096, 32, 8, 14336),
    "70b": Dense(80, 8192, 64, 8, 28672),
    "405b": Dense(126, 16384, 128, 8, 53248),
    "tiny-mixture": Mixture(4, 256, 4, 512, 1, 8, 2, 128, 1024, 64, 64, 32, 16),
    "qwen3-30b-a3b": GroupedMixture(48, 2048, 32, 4, 128, 128, 8, 768),
    "deepseek-v3": Mixture(61, 7168, 128, 18432, 3, 256, 8, 2048),
}


def host_bytes(model: Model) -> int:
    """Return an estimate of the host memory that capturing a step needs."""
    return PYTORCH_BYTES + BYTES_AN_OP * OPS_A_LAYER[type(model)] * model.layers


def free_bytes() -> int:
    """Return the free memory of the host, on Linux with the caches that it can free."""
    info = Path("/proc/meminfo")
    if info.exists():
        fields = dict(line.split(":") for line in info.read_text().splitlines())
        return int(fields["MemAvailable"].removesuffix("kB")) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_host_memory(model: Model) -> None:
    """Raise SystemExit if the host has too little free memory to capture the model."""
    needed, free = host_bytes(model), free_bytes()
    if needed > free:
        raise SystemExit(
            f"capturing {model.layers} layers needs about {needed / GIB:.1f} GiB of host memory, but only "
            f"{free / GIB:.1f} GiB are free; free some, or capture fewer layers"
        )


def rank_step(
    model: Model,
    mesh: Mesh,
    *,
    batch: int = 1,
    length: int = 8192,
    policy: str = "none",
    optimizer: MakeOptimizer = torch.optim.AdamW,
) -> tuple[TrainingStep, tuple[torch.Tensor]]:
    """Return the step of one rank in bfloat16, and its batch, both as fake tensors without memory."""
    with FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True), torch.device("meta"):
        torch.set_default_dtype(torch.bfloat16)
        decoder = Decoder(model, mesh, policy)
        torch.set_default_dtype(torch.float32)
        tokens = torch.empty(batch, length, dtype=torch.int64)
    return TrainingStep(decoder, None, optimizer(decoder.parameters())), (tokens,)


def captured(
    model: Model,
    *,
    data: int,
    tensor: int,
    length: int = 8192,
    policy: str = "none",
    optimizer: MakeOptimizer = torch.optim.AdamW,
) -> Graph:
    """Capture the step of one rank of data x tensor ranks as a graph."""
    with fake_ranks(data, tensor) as mesh:
        return lowtide.read(rank_step(model, mesh, length=length, policy=policy, optimizer=optimizer))


@contextmanager
def fake_ranks(data: int, tensor: int) -> Generator[Mesh]:
    """Act as one of data x tensor ranks while programs are captured and planned."""
    try:
        yield Mesh.fake(data, tensor)
    finally:
        dist.destroy_process_group()


def plan_rank(
    model: Model,
    *,
    data: int,
    tensor: int,
    budget: str | None = None,
    costs: str = "eager@h100",
    length: int = 8192,
    policy: str = "none",
    rounding: bool = False,
) -> tuple[Graph, lowtide.Result]:
    """Capture and plan the step of one of data x tensor ranks. Return the graph that the plan is for, and the result.

    Without a budget, only the order is planned. `costs` names a profile and a machine. With `rounding`, head and loss
    may be computed in chunks that are equal up to rounding. Raises SystemExit if the host has too little memory.
    """
    check_host_memory(model)
    allow = ["reorder", "share", *(["recompute"] if budget else []), *(["rounding"] if rounding else [])]
    with fake_ranks(data, tensor) as mesh:
        program = TorchModel(rank_step(model, mesh, length=length, policy=policy))
        source = program if rounding else program.graph
        result = lowtide.minimize(source, budget=budget, allow=allow, costs=costs, effort="fast")
        return program.graph_for(result.plan), result


def _percent(result: lowtide.Result) -> str:
    return f"{100 * result.extra_cost / result.base_cost:+.2f} %"


def main() -> None:
    """Plan the step of one rank and print its memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--data", type=int, default=8, help="data-parallel ranks, which share every weight")
    parser.add_argument("--tensor", type=int, default=1, help="tensor-parallel ranks, which split every layer")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--policy", choices=POLICIES, default="none")
    parser.add_argument("--budget", default=None)
    parser.add_argument("--rounding", action="store_true", help="allow chunks of head and loss, equal up to rounding")
    parser.add_argument("--costs", default="eager@h100")
    given = parser.parse_args()
    graph, result = plan_rank(
        MODELS[given.model],
        data=given.data,
        tensor=given.tensor,
        budget=given.budget,
        costs=given.costs,
        length=given.length,
        policy=given.policy,
        rounding=given.rounding,
    )
    space = graph.spaces[0].name
    held, before, after = graph.persistent_bytes()[space], result.baseline_peak_bytes[space], result.peak_bytes[space]
    collectives = int((graph.ranks > 1).sum())
    recomputed = int((graph.ranks[result.plan.order()] > 1).sum()) - collectives
    print(f"{graph.n_ops} ops with {collectives} collectives, {held / GIB:.2f} GiB persistent")
    print(f"peak without persistent buffers: {before / GIB:.2f} -> {after / GIB:.2f} GiB, {result.status}")
    print(f"{result.reruns} recomputed runs with {recomputed} collectives: {_percent(result)} time")
    if result.shortfall is not None:
        print(result.shortfall)


if __name__ == "__main__":
    main()
