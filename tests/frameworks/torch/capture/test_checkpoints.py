"""Checkpoints in a model are captured as eager PyTorch runs them, selective policies included."""

from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import lowtide
from lowtide.torch import TrainingStep, training_step

aten = torch.ops.aten


def _saves_products(_: Any, op: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op is aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE


class _Net(nn.Module):
    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Tanh(), nn.Linear(64, 16)) for _ in range(2)
        )
        self.given = given

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            value = checkpoint(layer, value, use_reentrant=False, **self.given) if self.given else layer(value)
        return value.square().mean()


def _step(model: nn.Module) -> tuple[nn.Module, None, torch.optim.Optimizer]:
    return model, None, torch.optim.AdamW(model.parameters())


POLICY = {"context_fn": partial(create_selective_checkpoint_contexts, _saves_products)}


def test_a_selective_policy_saves_what_it_names_and_runs_the_rest_again() -> None:
    batch = torch.randn(32, 16)
    kinds: dict[str, list[str]] = {}
    peaks: dict[str, int] = {}
    for name, given in {"none": {}, "selective": POLICY, "full": {"preserve_rng_state": True}}.items():
        graph = lowtide.read((TrainingStep(*_step(_Net(**given))), (batch,)))
        kinds[name] = [kind.removeprefix("aten.") for kind in graph.op_kinds]
        peaks[name] = lowtide.minimize(graph, allow=["share"], effort="fast").baseline_peak_bytes["cpu"]
    assert kinds["selective"].count("addmm") == kinds["none"].count("addmm") < kinds["full"].count("addmm")
    assert kinds["selective"].count("gelu") == 2 * kinds["none"].count("gelu")
    assert peaks["full"] < peaks["selective"] < peaks["none"]


def test_a_planned_step_with_a_selective_policy_gives_the_bits_of_eager() -> None:
    torch.manual_seed(0)
    model, batch = _Net(**POLICY), torch.randn(32, 16)
    twin = deepcopy(model)
    step, (_, _, optimizer) = training_step(*_step(model), example_batch=(batch,)), _step(twin)
    for _ in range(2):
        loss = twin(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert torch.equal(step(batch), loss)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), twin.parameters(), strict=True))
