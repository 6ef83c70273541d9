"""Train torchtitan's Llama debug model on the CPU: python titan.py BACKEND BUDGET OUTPUT, also under torchrun.

torchtitan's own trainer needs a GPU, so this builds its model as the trainer does, with the setting `compile.backend`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torchtitan.distributed.parallel_dims
from torch.distributed.fsdp import FSDPModule
from torchtitan.config import JobConfig
from torchtitan.distributed import ParallelDims
from torchtitan.models.llama3 import get_train_spec

import lowtide.torch
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call

SEQUENCE, BATCH, VOCABULARY = 128, 8, 2048


def parallel_model(backend: str, world: int) -> Any:
    """Return the model with random weights, each block compiled, sharded over `world` ranks."""
    config, spec = JobConfig(), get_train_spec()
    config.training.seq_len = SEQUENCE
    config.training.mixed_precision_param = "float32"
    config.activation_checkpoint.mode = "none"
    config.compile.enable = backend != "none"
    config.compile.backend = backend
    arguments = spec.model_args["debugmodel"]
    arguments.update_from_config(config)
    dims = ParallelDims(dp_replicate=1, dp_shard=world, cp=1, tp=1, pp=1, ep=1, etp=1, world_size=world)
    with torch.device("meta"):
        model = spec.model_cls(arguments)
    model = spec.parallelize_fn(model, dims, config).to_empty(device="cpu")
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no weighted sums
    torch.manual_seed(0)
    with torch.no_grad():
        model.init_weights()
    return model.train()


def trained(model: Any, rank: int) -> dict[str, Any]:
    """Return the losses of four steps, and the peak of the last."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    words = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(rank))
    losses: list[float] = []

    def step() -> None:
        optimizer.zero_grad()
        logits = model(words[:, :-1]).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    for _ in range(3):
        step()
    peak, _ = peak_of_call(step, torch.device("cpu"))
    return {"losses": losses, "peak": peak}


def main(backend: str, budget: str, output: str) -> None:
    """Train, and write losses and peak of the first rank to a file."""
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world > 1:
        torchtitan.distributed.parallel_dims.device_type = "cpu"
        dist.init_process_group("gloo")
    if backend == "lowtide":
        lowtide.torch.configure(budget=budget, compiler="eager")
    model = parallel_model(backend, world)
    found = trained(model, rank)
    if backend == "lowtide":
        found["explained"] = str(lowtide.torch.explain(next(model.layers.children())))
    if rank == 0:
        Path(output).write_text(json.dumps(found), encoding="utf-8")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
