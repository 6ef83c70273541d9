"""One of two ranks of the tests beside: `python one_rank.py RANK STORE FOLDER` writes FOLDER/RANK.json."""

import json
import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[5]))

import lowtide.torch
from lowtide.core.errors import LowtideError
from lowtide.engine.graph import GRADIENT_FROM_HOST
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.frameworks.torch.planning.plan_folder import digest_of
from lowtide.torch import TrainingStep

RANK, STORE, FOLDER = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
WIDTH, STEPS = 32, 4
ON_HOST = {"budget": "220KiB", "allow": ["reorder", "share", "recompute", "offload"]}
MIXED = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}


class Block(nn.Module):
    """A residual block of two layers, and one without gradients.

    With `checkpoints` "inside" its hooks, it runs again without them.
    """

    def __init__(self, checkpoints: str, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.unused = nn.Linear(width, width)
        self.checkpoints = checkpoints

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.run, value, use_reentrant=False) if self.checkpoints == "inside" else self.run(value)

    def run(self, value: torch.Tensor) -> torch.Tensor:
        return value + self.down(torch.tanh(self.up(self.norm(value))))


class Net(nn.Module):
    """Blocks between two layers, with a loss; with `checkpoints` around or inside blocks, these run again."""

    def __init__(self, checkpoints: str, width: int, blocks: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(checkpoints, width) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, width)
        self.checkpoints = checkpoints

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.first(value)
        for block in self.blocks:
            value = checkpoint(block, value, use_reentrant=False) if self.checkpoints == "around" else block(value)
        return self.head(self.norm(value)).pow(2).mean()


def sharded(checkpoints: str = "", width: int = WIDTH, blocks: int = 3, **settings: Any) -> Net:
    """Shard every block, the last two layers together, and the rest, by FSDP2."""
    torch.manual_seed(0)
    net = Net(checkpoints, width, blocks)
    for block in net.blocks:
        fully_shard(block, **settings)
    fully_shard([net.norm, net.head], **settings)
    return fully_shard(net, **settings)


def uneven(**settings: Any) -> Net:
    """Return a net whose parameters two ranks cannot share evenly."""
    return sharded(width=WIDTH + 1, **settings)


def small() -> Net:
    """Return a net of two blocks, for searches of state on the host."""
    return sharded(blocks=2)


def batches(width: int = WIDTH) -> list[torch.Tensor]:
    """Return other batches on each rank."""
    generator = torch.Generator().manual_seed(RANK)
    return [torch.randn(64, width, generator=generator) for _ in range(STEPS)]


def clipped(parameters: list[torch.Tensor]) -> None:
    nn.utils.clip_grad_norm_(parameters, 0.05)


def trained(make: Callable[[], Net], plan: dict[str, Any] | None, **parts: Any) -> dict[str, Any]:
    """Train a few steps, with a plan or by the plain loop; evaluate between steps."""
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    values = batches(net.first.in_features)
    planned = None if plan is None else lowtide.torch.training_step(net, None, optimizer, values[0], **parts, **plan)
    step: Any = TrainingStep(net, None, optimizer, **parts) if planned is None else planned
    losses: list[float] = []
    for value in values:
        losses.append(step(value).item())
        if planned is not None:
            planned.to_device()
        with torch.no_grad():
            losses.append(net(values[-1]).item())
    state = [each for entries in optimizer.state.values() for each in entries.values()]
    tensors = [local_part(each).detach() for each in (*net.parameters(), *state)]
    found: dict[str, Any] = {"losses": losses, "tensors": [each.tolist() for each in tensors]}
    if planned is not None:
        graph, result = planned.graph, planned.result
        found |= {
            "plan": digest_of(result.plan),
            "fits": result.shortfall is None,
            "reruns": result.reruns,
            "host bytes": result.persistent_bytes.get("host", 0),
            "collectives": int((graph.ranks > 1).sum()),
            "waiting": list(graph.op_kinds).count(GRADIENT_FROM_HOST),
        }
    return found


def both_ways(make: Callable[[], Net], plan: dict[str, Any], **parts: Any) -> dict[str, Any]:
    plain, planned = trained(make, None, **parts), trained(make, plan, **parts)
    equal = {key: plain[key] == planned.pop(key) for key in ("losses", "tensors")}
    return {"equal": equal, **planned}


def resumed(plan: dict[str, Any] | None) -> list[Any]:
    """Train with frozen weights, write a distributed checkpoint, read it elsewhere, and go on; return all tensors."""

    def run(values: list[torch.Tensor], state: dict[str, Any] | None) -> tuple[dict[str, Any], list[Any]]:
        net = uneven(blocks=2)
        for layer in (net.first, *(block.unused for block in net.blocks)):
            layer.requires_grad_(False)
        optimizer = torch.optim.AdamW([each for each in net.parameters() if each.requires_grad], lr=1e-2)
        if state is not None:
            empty = dict(zip(("model", "optimizer"), get_state_dict(net, optimizer), strict=True))
            checkpoints.load(empty, checkpoint_id=str(folder))
            set_state_dict(net, optimizer, model_state_dict=empty["model"], optim_state_dict=empty["optimizer"])
        step: Any = TrainingStep(net, None, optimizer)
        if plan is not None:
            step = lowtide.torch.training_step(net, None, optimizer, values[0], **plan)
        for value in values:
            step(value)
        now = dict(zip(("model", "optimizer"), get_state_dict(net, optimizer), strict=True))
        return now, [local_part(each).tolist() for each in net.parameters()]

    folder, half = FOLDER / ("plain" if plan is None else "planned"), STEPS // 2
    values = batches(WIDTH + 1)
    state, _ = run(values[:half], None)
    checkpoints.save(state, checkpoint_id=str(folder))
    return run(values[half:], state)[1]


def refusal(**plan: Any) -> str:
    """Return the error of a step for which the ranks differ."""
    net = sharded()
    try:
        lowtide.torch.training_step(net, None, torch.optim.AdamW(net.parameters()), batches()[0], **plan)
    except LowtideError as error:
        return str(error)
    return ""


def main() -> None:
    """Train in all ways, and write the results."""
    warnings.simplefilter("ignore", UserWarning)  # of missed budgets
    torch.set_num_threads(1)
    os.environ["LOWTIDE_CACHE"] = str(FOLDER / f"plans of {RANK}")  # a resumed step has the plan of its first half
    dist.init_process_group(
        "gloo", init_method=f"file://{STORE}", rank=RANK, world_size=2, timeout=timedelta(minutes=10)
    )
    less = {"budget": "50%", "allow": ["reorder", "share", "recompute"]}
    found = {
        "ordered": both_ways(sharded, {}, before_update=clipped),
        "recomputed": both_ways(sharded, less),
        "on the host": both_ways(small, ON_HOST, before_update=clipped),
        "mixed precision": both_ways(lambda: sharded(**MIXED), less),
        "checkpoints around": both_ways(lambda: sharded("around"), {}),
        "checkpoints inside": both_ways(lambda: sharded("inside"), {}),
        "accumulated": both_ways(sharded, {}, accumulate=2),
        "accumulated on the host": both_ways(small, {**ON_HOST, "budget": "170KiB"}, accumulate=2),
        "uneven": both_ways(lambda: uneven(**MIXED), less, before_update=clipped),
        "uneven, accumulated": both_ways(uneven, {}, accumulate=2, before_update=clipped),
        "free memory": both_ways(sharded, {"budget": "fit"}),
        "resumed": resumed(ON_HOST) == resumed(None),
        "refused": refusal(budget="60%" if RANK else "70%"),
    }
    (FOLDER / f"{RANK}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
