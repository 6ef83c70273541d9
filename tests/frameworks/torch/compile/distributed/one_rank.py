"""What one of two ranks does in the tests beside: `python one_rank.py RANK STORE FOLDER` writes FOLDER/RANK.json."""

import gc
import hashlib
import json
import math
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from regathering import lowest_ratio, regathered
from torch import nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.insert(0, str(Path(__file__).parents[5]))

import lowtide.torch
from lowtide.frameworks.torch.planning.agreement import partners, require_agreement
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from tests.frameworks.torch.kernels_together import kernels_compiled_together

RANK, STORE, FOLDER = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
WIDTH = 32
OPTIONS = {"compiler": "eager", "budget": "60%", "effort": "fast"}
WAYS = ("data_parallel", "fully_sharded", "tensor_parallel")
Wrap = Callable[[nn.Module], nn.Module]


class Block(nn.Module):
    """A residual block of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + self.down(torch.tanh(self.up(self.norm(value))))


class Loss(nn.Module):
    """Blocks with their loss, so that one graph holds all of a step but what the ranks exchange around it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(2)))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.blocks(value).pow(2).mean()


def data_parallel(model: nn.Module) -> nn.Module:
    """Wrap a model in DDP, with buckets so small that TorchDynamo splits the graph."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 12
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)


def fully_sharded(model: nn.Module) -> nn.Module:
    """Shard every block and the rest by FSDP2."""
    for block in model:
        fully_shard(block)
    return fully_shard(model)


def tensor_parallel(model: nn.Module) -> nn.Module:
    """Split the two layers of every block over the ranks."""
    mesh = init_device_mesh("cpu", (2,))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def train(wrap: Wrap, options: dict[str, Any] | None) -> dict[str, Any]:
    """Train three steps, each rank on its own data where the model is replicated."""
    torch._dynamo.reset()
    forget_programs()
    torch.manual_seed(0)
    model = wrap(nn.Sequential(*(Block() for _ in range(2))))
    run = model if options is None else torch.compile(model, backend="lowtide", options=options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses: list[str] = []
    for step in range(3):
        seed = 10 * step + (0 if wrap is tensor_parallel else RANK)
        optimizer.zero_grad()
        loss = run(torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(seed))).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in whole)).hexdigest()
    programs = planned_programs()
    return {
        "values": [losses, digest],
        "fingerprints": [program.graph.fingerprint for program in programs],
        "orders": [program.result.plan.order().tolist() for program in programs],
        "reruns": sum(program.result.reruns for program in programs),
        "schedulers": [program.result.scheduler for program in programs],
        "collectives": [[collectives(module.graph) for module in (each.source, each.module)] for each in programs],
    }


def measured_over_predicted(way: str) -> float:
    """Return the lowest measured peak of forward and backward pass over the predicted one; parameters are small."""
    torch._dynamo.reset()
    forget_programs()
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 20  # PyTorch's own: one bucket, so one graph
    net = Loss()
    if way == "fully_sharded":
        fully_shard(net)
    if way == "tensor_parallel":
        tensor_parallel(net.blocks)
    net.forward = torch.compile(net.forward, backend="lowtide", options=OPTIONS)
    step = nn.parallel.DistributedDataParallel(net) if way == "data_parallel" else net
    batch = torch.randn(4096, WIDTH, generator=torch.Generator().manual_seed(0))

    def measured() -> float:
        found = lowtide.torch.measure(lambda value: step(value).backward(), batch, state=[net], timed_calls=1)
        return found.measured_over_predicted or math.inf

    return lowest_ratio(measured)


def compiled_by_inductor(folder: str | None = None, *, is_odd: bool = False) -> dict[str, Any]:
    """Run a step of a tensor-parallel loss under Inductor; with `is_odd`, one rank has one op more."""
    torch._dynamo.reset()
    forget_programs()
    torch.manual_seed(0)
    net = Loss()
    tensor_parallel(net.blocks)
    options = {"budget": "80%", **({} if folder is None else {"plans": folder})}
    step = torch.compile(lambda value: net(value.sin() if is_odd else value), backend="lowtide", options=options)
    batch = torch.randn(1024, WIDTH, generator=torch.Generator().manual_seed(0))
    loss = step(batch)
    loss.backward()
    (program,) = planned_programs()
    return {
        "difference": abs(loss.item() - net(batch).item()),
        "fingerprint": program.graph.fingerprint,
        "kinds": program.graph.op_kinds,
        "steps": repr(list(program.result.plan.steps())),
        "reruns": program.result.reruns,
        "fits": program.result.shortfall is None,
        "scheduler": program.result.scheduler,
    }


def refused_by_inductor() -> str:
    """Return why a step is refused whose kernels differ on the ranks."""
    try:
        compiled_by_inductor(is_odd=RANK == 1)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        return str(error.inner_exception)
    return ""


def kernels_on_ranks() -> dict[str, Any]:
    """Plan kernels, follow the plan of the first rank, and let the ranks differ."""
    from torch._inductor import config

    with config.patch({"compile_threads": 1, "fx_graph_cache": False, "cpp.simdlen": 1}), kernels_compiled_together():
        planned = compiled_by_inductor()
        folder = FOLDER / "kernel plans"
        if RANK == 0:
            lowtide.torch.save_plans(folder)
        dist.barrier()
        return {
            "planned": planned,
            "followed": compiled_by_inductor(str(folder)),
            "refused": refused_by_inductor(),
        }


def collectives(graph: torch.fx.Graph) -> list[str]:
    """Return what a graph's collectives are, in order."""
    return [str(node.target) for node in graph.nodes if "_c10d_functional" in str(node.target)]


def refusal(function: Callable[[torch.Tensor], torch.Tensor], **options: Any) -> str:
    """Return why compiling a function is refused."""
    torch._dynamo.reset()
    try:
        torch.compile(function, backend="lowtide", options=OPTIONS | options)(torch.ones(4, requires_grad=True))
    except torch._dynamo.exc.BackendCompilerFailed as error:
        return f"{type(error.inner_exception).__name__}: {error.inner_exception}"
    return ""


def another_program_on_rank_one(value: torch.Tensor) -> torch.Tensor:
    """Reduce something that takes one op more on one of the ranks."""
    return all_reduce(value.sin().cos() if RANK else value.sin(), "sum", dist.group.WORLD).tanh()


def waiting_alone() -> str:
    """Return the warning of a rank whose partner plans nothing."""
    torch._dynamo.reset()
    forget_programs()
    torch.compile(torch.sin, backend="lowtide", options=OPTIONS)(torch.ones(4))
    (program,) = planned_programs()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        together = partners(program.module, True)
        assert together is not None
        if RANK == 0:
            require_agreement(program.graph, "", *together, patience=timedelta(seconds=0.2))
    dist.barrier()
    return " ".join(str(warning.message) for warning in caught)


def main() -> None:
    """Do everything that both ranks do together, and write down what came out."""
    gc.freeze()  # else collecting garbage before every measurement would take most of the time
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{STORE}", rank=RANK, world_size=2, timeout=timedelta(minutes=10)
    )
    found: dict[str, Any] = {}
    for wrap in (data_parallel, fully_sharded, tensor_parallel):
        found[wrap.__name__] = {"eager": train(wrap, None), "planned": train(wrap, OPTIONS)}
    if RANK == 0:
        lowtide.torch.save_plans(FOLDER / "plans")
    dist.barrier()
    found["measured over predicted"] = {way: measured_over_predicted(way) for way in WAYS}
    dist.barrier()
    folder = {"plans": str(FOLDER / "plans")}
    found["loaded"] = train(tensor_parallel, OPTIONS | folder)
    found["no plan"] = refusal(lambda value: value.sin().cos().tanh(), **folder)
    found["another program"] = refusal(another_program_on_rank_one)
    found["another program, anyway"] = refusal(
        lambda value: (value.sin().cos() if RANK else value.sin()).tanh(), same_on_all_ranks=False
    )
    found["alone"] = waiting_alone()
    found["regathered"] = regathered()
    found["kernels"] = kernels_on_ranks()
    (FOLDER / f"{RANK}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
