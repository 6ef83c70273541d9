"""What one rank of a large training run needs, planned on a laptop: nothing is allocated, no other rank exists.

`python examples/frontier.py 8b --data 8 --tensor 1 --budget "80 GiB"` captures the step of one rank of a Llama-like
model, whose weights are sharded over the data-parallel ranks and split over the tensor-parallel ones, and plans it.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import lowtide
from lowtide.graph import Graph
from lowtide.torch import TrainingStep

collectives = torch.ops._c10d_functional
aten = torch.ops.aten


@dataclass(frozen=True)
class Model:
    """The sizes of a Llama-like model."""

    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    vocabulary: int = 128256


GIB = 2**30
PYTORCH_BYTES, BYTES_AN_OP, OPS_A_LAYER = 420_000_000, 21_000, 261
"""What a process with PyTorch takes of the host, and what captures of 8,000 to 33,000 ops took on top."""

MODELS = {
    "tiny": Model(4, 256, 8, 4, 512, 1024),
    "8b": Model(32, 4096, 32, 8, 14336),
    "70b": Model(80, 8192, 64, 8, 28672),
    "405b": Model(126, 16384, 128, 8, 53248),
}


class Gathered(torch.autograd.Function):
    """The whole of a weight of which every rank of a group holds some rows; its gradient is scattered."""

    @staticmethod
    def forward(context: Any, shard: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return collectives.wait_tensor(
            collectives.all_gather_into_tensor(shard, group.size(), group.group_name),
        )

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient,), group = grad_outputs, ctx.group
        scattered = collectives.reduce_scatter_tensor(gradient.contiguous(), "sum", group.size(), group.group_name)
        return collectives.wait_tensor(scattered), None


class Copied(torch.autograd.Function):
    """What goes into layers that are split over a group; its gradient is summed over the ranks."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _summed(grad_outputs[0], ctx.group), None


class Summed(torch.autograd.Function):
    """What comes out of layers that are split over a group, summed over the ranks."""

    @staticmethod
    def forward(_: Any, value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return _summed(value, group)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad_outputs[0], None


def _summed(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    if group.size() == 1:
        return value.view_as(value)
    return collectives.wait_tensor(collectives.all_reduce(value.contiguous(), "sum", group.group_name))


@dataclass(frozen=True)
class Mesh:
    """The groups of rank 0: of those that hold other data, and of those that hold other parts of every layer."""

    data: dist.ProcessGroup
    tensor: dist.ProcessGroup

    @classmethod
    def played(cls, data: int, tensor: int) -> "Mesh":
        """Play rank 0 among data x tensor ranks that do not exist; tensor-parallel ones are neighbors."""
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=data * tensor)
        groups = [dist.new_group(list(ranks)) for ranks in (range(0, data * tensor, tensor), range(tensor))]
        return cls(*cast("list[dist.ProcessGroup]", groups))


class Linear(nn.Module):
    """A linear layer whose weight is gathered over the data-parallel ranks where it is used."""

    def __init__(self, mesh: Mesh, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mesh = mesh
        self.shard = nn.Parameter(torch.empty(outputs // mesh.data.size(), inputs))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(value, Gathered.apply(self.shard, self.mesh.data))


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attend by the flash kernel; without a device, PyTorch would choose products with length x length scores."""
    return aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal=True)[0]


class Block(nn.Module):
    """Attention and a gated layer, both split over the tensor-parallel ranks."""

    def __init__(self, model: Model, mesh: Mesh) -> None:
        super().__init__()
        ranks = mesh.tensor.size()
        self.mesh, self.head = mesh, model.width // model.heads
        self.heads, self.key_heads = model.heads // ranks, model.key_heads // ranks
        self.norm_attention, self.norm_gate = nn.RMSNorm(model.width), nn.RMSNorm(model.width)
        self.query = Linear(mesh, model.width, self.heads * self.head)
        self.key, self.value = (Linear(mesh, model.width, self.key_heads * self.head) for _ in range(2))
        self.out = Linear(mesh, self.heads * self.head, model.width)
        self.gate, self.up = (Linear(mesh, model.width, model.hidden // ranks) for _ in range(2))
        self.down = Linear(mesh, model.hidden // ranks, model.width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        batch, length, _ = value.shape
        given = Copied.apply(self.norm_attention(value), self.mesh.tensor)
        query = self.query(given).view(batch, length, self.heads, self.head).transpose(1, 2)
        key, content = (
            layer(given).view(batch, length, self.key_heads, self.head).transpose(1, 2)
            for layer in (self.key, self.value)
        )
        repeats = self.heads // self.key_heads
        attended = attention(query, key.repeat_interleave(repeats, 1), content.repeat_interleave(repeats, 1))
        value = value + Summed.apply(self.out(attended.transpose(1, 2).flatten(2)), self.mesh.tensor)
        given = Copied.apply(self.norm_gate(value), self.mesh.tensor)
        return value + Summed.apply(self.down(nn.functional.silu(self.gate(given)) * self.up(given)), self.mesh.tensor)


def _saves_products(_: Any, op: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    saved = (
        aten.mm.default,
        aten._scaled_dot_product_flash_attention.default,
        collectives.reduce_scatter_tensor.default,
    )
    return CheckpointPolicy.MUST_SAVE if op in saved else CheckpointPolicy.PREFER_RECOMPUTE


POLICIES: dict[str, Callable[[nn.Module, torch.Tensor], torch.Tensor]] = {
    "none": lambda block, value: block(value),
    "full": lambda block, value: checkpoint(block, value, use_reentrant=False),
    "selective": lambda block, value: checkpoint(
        block,
        value,
        use_reentrant=False,
        context_fn=partial(create_selective_checkpoint_contexts, _saves_products, allow_cache_entry_mutation=True),
    ),
}
"""What blocks keep for the backward pass: all, their input, or products and attention, as in torchtitan."""


class Decoder(nn.Module):
    """Blocks between an embedding and a head; every rank holds the whole of both."""

    def __init__(self, model: Model, mesh: Mesh, policy: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(model.vocabulary, model.width)
        self.blocks = nn.ModuleList(Block(model, mesh) for _ in range(model.layers))
        self.norm, self.head = nn.RMSNorm(model.width), Linear(mesh, model.width, model.vocabulary)
        self.policy = policy

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        value = self.embedding(tokens)
        for block in self.blocks:
            value = POLICIES[self.policy](block, value)
        scores = self.head(self.norm(value))[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(scores, tokens[:, 1:].flatten())


def host_bytes(model: Model) -> int:
    """Return about what capturing a step takes of the host: so much an op, of which layers have so many."""
    return PYTORCH_BYTES + BYTES_AN_OP * OPS_A_LAYER * model.layers


def refuse_what_the_host_cannot_hold(model: Model) -> None:
    """Raise SystemExit, before anything is captured, where that takes more memory than the host has free."""
    needed, free = host_bytes(model), os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > free:
        raise SystemExit(
            f"capturing {model.layers} layers takes about {needed / GIB:.1f} GiB of the host, and {free / GIB:.1f} are "
            "free; free some, or capture fewer layers"
        )


def rank_step(
    model: Model, mesh: Mesh, *, batch: int = 1, length: int = 8192, policy: str = "none"
) -> tuple[TrainingStep, tuple[torch.Tensor]]:
    """Return the step of one rank, in bfloat16 with AdamW, and its batch; both have a form and no memory."""
    with FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True), torch.device("meta"):
        torch.set_default_dtype(torch.bfloat16)
        decoder = Decoder(model, mesh, policy)
        torch.set_default_dtype(torch.float32)
        tokens = torch.empty(batch, length, dtype=torch.int64)
    return TrainingStep(decoder, None, torch.optim.AdamW(decoder.parameters())), (tokens,)


def captured(model: Model, *, data: int, tensor: int, length: int = 8192, policy: str = "none") -> Graph:
    """Capture the step of one rank of data x tensor ranks as a graph."""
    mesh = Mesh.played(data, tensor)
    try:
        # Else a selective policy is taken for a note to a compiler, and all is saved.
        with torch.compiler._non_strict_tracing_context():  # pyright: ignore[reportPrivateUsage]
            return lowtide.read(rank_step(model, mesh, length=length, policy=policy))
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
) -> tuple[Graph, lowtide.Result]:
    """Capture the step of one rank of data x tensor ranks, and plan it within the memory of its device.

    Without a budget, order alone is planned. `costs` names a profile and a machine. Raises SystemExit where the host
    cannot hold the capture.
    """
    refuse_what_the_host_cannot_hold(model)
    graph = captured(model, data=data, tensor=tensor, length=length, policy=policy)
    allow = ["reorder", "share", "recompute"] if budget else ["reorder", "share"]
    return graph, lowtide.minimize(graph, budget=budget, allow=allow, costs=costs, effort="fast")


def main() -> None:
    """Plan the step of one rank and print what it needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--data", type=int, default=8, help="ranks that hold other data, and shards of every weight")
    parser.add_argument("--tensor", type=int, default=1, help="ranks that hold other parts of every layer")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--policy", choices=POLICIES, default="none")
    parser.add_argument("--budget", default=None)
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
    )
    space = graph.spaces[0].name
    held, before, after = graph.persistent_bytes()[space], result.baseline_peak_bytes[space], result.peak_bytes[space]
    print(
        f"{graph.n_ops} ops, {int((graph.ranks > 1).sum())} of them collectives; {held / GIB:.2f} GiB held throughout"
    )
    print(f"peak beside that {before / GIB:.2f} -> {after / GIB:.2f} GiB, {result.status}")
    again = result.plan.order()
    regathered = int((graph.ranks[again] > 1).sum() - (graph.ranks > 1).sum())
    print(
        f"{result.reruns} ops run again, {regathered} of them collectives: {result.extra_cost / result.base_cost:+.2%}"
    )
    if result.shortfall is not None:
        print(result.shortfall)


if __name__ == "__main__":
    main()
