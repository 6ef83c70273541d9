"""Steps of models with FSDP2 are captured as one rank's program with its collectives, or refused in one line."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

import lowtide
from lowtide.core.errors import UnsupportedError
from lowtide.engine.graph import Graph
from lowtide.frameworks.torch.internals import fully_sharded
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.torch import TrainingStep

WIDTH, RANKS = 16, 8
ADAMW = torch.optim.AdamW


class Net(nn.Module):
    """Two layers with a loss."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(value))).pow(2).mean()


@pytest.fixture(autouse=True)
def ranks_that_are_played() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield
    dist.destroy_process_group()


def sharded(width: int = WIDTH, **settings: Any) -> Net:
    net = Net(width)
    fully_shard([net.up, net.down], **settings)
    return fully_shard(net, **settings)


def read(
    net: nn.Module, make: Callable[..., torch.optim.Optimizer] = ADAMW, *, width: int = WIDTH, **parts: Any
) -> Graph:
    return lowtide.read((TrainingStep(net, None, make(net.parameters()), **parts), (torch.randn(4, width),)))


def collectives(graph: Graph) -> dict[str, int]:
    """Return the number of collectives by name."""
    return dict(
        Counter(kind.split(".")[-1] for kind, ranks in zip(graph.op_kinds, graph.ranks, strict=True) if ranks > 1)
    )


@pytest.mark.parametrize(("dim", "small_bytes", "exchanges"), [(0, 0, 4), (1, 0, 4), (0, 2**20, 2), (1, 2**20, 4)])
def test_parameters_are_gathered_and_gradients_reduced_once_each(
    dim: int, small_bytes: int, exchanges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they are sharded by columns. Parameters and their state need an eighth; small ones go together."""
    monkeypatch.setattr(fully_sharded, "_SMALL", small_bytes)
    net = sharded(shard_placement_fn=lambda parameter: Shard(min(dim, parameter.dim() - 1)))
    graph = read(net)
    assert collectives(graph) == {"all_gather_into_tensor": exchanges, "reduce_scatter_tensor": exchanges}
    elements = sum(parameter.numel() for parameter in Net().parameters())
    assert sum(graph.persistent_bytes().values()) == pytest.approx(3 * 4 * elements / RANKS, rel=0.02)


def test_one_collective_gathers_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is sharded as one module does not need all of its small parameters at once."""
    monkeypatch.setattr(fully_sharded, "_MOST_TOGETHER", 4 * (2 * WIDTH * WIDTH + 2 * WIDTH))
    net = fully_shard(
        nn.Sequential(*(nn.Linear(WIDTH, 2 * WIDTH) if n % 2 == 0 else nn.Linear(2 * WIDTH, WIDTH) for n in range(4)))
    )
    step = TrainingStep(net, lambda net, value: net(value).sum(), ADAMW(net.parameters()))
    assert collectives(lowtide.read((step, (torch.randn(4, WIDTH),))))["all_gather_into_tensor"] == 4


def test_copies_of_shards_average_their_gradients() -> None:
    """With shards over four ranks and two copies, each reduced gradient is averaged over the copies.

    The two parameters of each layer go together.
    """
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("copies", "shards"))
    graph = read(sharded(mesh=mesh))
    assert collectives(graph) == {"all_gather_into_tensor": 2, "reduce_scatter_tensor": 2, "all_reduce": 2}


def test_mixed_precision_gathers_and_reduces_in_its_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathered weights take half of the bytes, and gradients are cast before they are reduced."""
    monkeypatch.setattr(fully_sharded, "_SMALL", 0)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    graph = read(sharded(mp_policy=policy))
    largest = Counter[str]()
    for kind, writes, ranks in zip(graph.op_kinds, graph.writes, graph.ranks, strict=True):
        if ranks > 1:
            name = kind.split(".")[-1]
            largest[name] = max(largest[name], *(int(graph.sizes[each]) for each in writes))
    elements = 2 * WIDTH * WIDTH
    assert largest["all_gather_into_tensor"] == 2 * elements
    assert largest["reduce_scatter_tensor"] == 4 * elements // RANKS


def test_the_model_keeps_its_hooks_and_parameters() -> None:
    net = sharded()
    before = [dict(module._forward_pre_hooks) for module in net.modules()], list(net.parameters())
    read(net)
    after = [dict(module._forward_pre_hooks) for module in net.modules()], list(net.parameters())
    assert after[0] == before[0]
    assert all(one is other for one, other in zip(after[1], before[1], strict=True))


@pytest.mark.parametrize("make", [torch.optim.Adafactor, torch.optim.Muon])
def test_updates_over_whole_parameters_are_refused(make: Callable[..., torch.optim.Optimizer]) -> None:
    """They would be computed on the parts of one rank, with other results than those of the plain loop."""
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False))
    fully_shard(net)
    with pytest.raises(UnsupportedError, match=f"{make.__name__} computes .* over whole parameters"):
        lowtide.read((TrainingStep(net, lambda net, x: net(x).sum(), make(net.parameters())), (torch.randn(4, WIDTH),)))


def test_parts_of_other_sizes_make_one_program_of_all_ranks() -> None:
    """Of 13 rows, six ranks have two, one has one, and one has none."""
    rows, graphs = [], []
    for rank in range(RANKS):
        dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
        net = sharded(13)
        rows.append(local_part(net.down.bias).shape[0])
        graphs.append(read(net, width=13, before_update=lambda given: nn.utils.clip_grad_norm_(given, 1.0)))
    assert rows == [2] * 6 + [1, 0]
    assert len({graph.fingerprint for graph in graphs}) == 1


def with_tensor_parallelism() -> Net:
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("shards", "parts"))
    net = Net()
    parallelize_module(net, mesh["parts"], {"up": ColwiseParallel()})
    return fully_shard(net, mesh=mesh["shards"])


def without_reductions() -> Net:
    net: Any = sharded()
    net.set_requires_gradient_sync(False)
    return net


def with_a_divisor() -> Net:
    net: Any = sharded()
    net.up.set_gradient_divide_factor(3.0)
    return net


@pytest.mark.parametrize(
    ("make", "width", "reason"),
    [
        (lambda: sharded(offload_policy=CPUOffloadPolicy(pin_memory=False)), WIDTH, "an offload policy; leave it out"),
        (lambda: sharded(mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float16)), WIDTH, "gradients of float16"),
        (with_tensor_parallelism, WIDTH, "also split by tensor parallelism"),
        (without_reductions, WIDTH, "not reduced in each call"),
        (with_a_divisor, WIDTH, "a divisor for gradients of its own"),
    ],
)
def test_settings_that_a_program_cannot_follow_are_refused(make: Callable[[], Net], width: int, reason: str) -> None:
    """One line names the parameter."""
    with pytest.raises(UnsupportedError, match=rf"Linear\.weight of a module with fully_shard .*{reason}") as raised:
        read(make(), width=width)
    assert "\n" not in str(raised.value)


def test_a_grad_scaler_with_distributed_parameters_is_refused() -> None:
    """Ranks may find infinite gradients in other parts."""
    scaler = GradScaler("cpu")
    with pytest.raises(UnsupportedError, match="grad_scaler does not work with distributed parameters"):
        read(sharded(), lambda parameters: ADAMW(parameters, fused=True), grad_scaler=scaler)
