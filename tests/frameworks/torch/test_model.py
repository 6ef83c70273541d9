"""PyTorch programs behind the interface that all frameworks share, and what bad input gets."""

import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import GPT2Config, GPT2LMHeadModel

import lowtide
import lowtide.torch as lt
from lowtide.core.errors import InputError, MalformedInputError, UnsupportedError, UsageError, VerificationError
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan
from lowtide.frameworks.torch.reading.in_place import in_place_forms
from lowtide.frameworks.torch.reading.lowering import lower
from lowtide.frameworks.torch.reading.read import Reading


def gpt2_step() -> tuple[lt.TrainingStep, tuple[torch.Tensor]]:
    """Return the training step of a tiny GPT-2 with dropout, as users write it."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=3000, n_positions=32, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).train()
    model.loss_type = "ForCausalLM"
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 3000, (1, 32))
    return lt.TrainingStep(model, lambda m, ids: m(input_ids=ids, labels=ids).loss, optimizer), (tokens,)


@pytest.fixture(scope="module", name="gpt2")
def gpt2_fixture() -> lt.TorchModel:
    """Give the training step of the tiny GPT-2 as a model."""
    model = lowtide.open_model(gpt2_step())
    assert isinstance(model, lt.TorchModel)
    return model


def test_a_planned_gpt2_step_takes_what_was_predicted_and_computes_the_same(gpt2: lt.TorchModel) -> None:
    """The main job on a small scale: peak goes down as predicted, all bits stay."""
    model = gpt2
    result = lowtide.minimize(model.graph)
    measured = model.measure(result.plan, timed_calls=1)
    assert measured.outputs_equal
    assert measured.times is not None
    assert min(measured.times.before_seconds, measured.times.after_seconds) > 0
    assert result.peak_bytes["cpu"] < 0.8 * result.baseline_peak_bytes["cpu"]
    assert abs(measured.before_bytes - result.baseline_peak_bytes["cpu"]) <= 0.02 * measured.before_bytes
    assert abs(measured.after_bytes - result.peak_bytes["cpu"]) <= 0.02 * measured.after_bytes


def test_buffers_carry_the_names_users_know(gpt2: lt.TorchModel) -> None:
    graph = gpt2.graph
    names = set(graph.buffer_names)
    assert {"transformer.wte.weight", "transformer.wte.weight.exp_avg", "input[0]"} <= names
    assert not graph.unmodeled


def test_the_same_program_gives_the_same_graph_every_time(gpt2: lt.TorchModel) -> None:
    assert gpt2.graph.fingerprint == lt.read(gpt2_step()).fingerprint


def test_the_backward_pass_is_planned_on_fake_tensors_alone() -> None:
    """A model too large for any machine can be read: nothing is allocated."""
    with torch._subclasses.FakeTensorMode():
        model = nn.Sequential(nn.Linear(2**17, 2**17), nn.ReLU(), nn.Linear(2**17, 1))
        inputs = torch.ones(4, 2**17)
    graph = lt.read((lambda x: model(x).sum(), (inputs,)))
    assert graph.persistent_bytes()["cpu"] > 2**36


def test_dimensions_are_not_for_pytorch() -> None:
    with pytest.raises(UsageError, match="--dim"):
        lowtide.open_model(gpt2_step(), {"N": 1})


def test_a_planned_program_cannot_be_written_to_a_file(tmp_path: Path) -> None:
    model = lowtide.open_model((nn.ReLU(), (torch.ones(3),)))
    with pytest.raises(UnsupportedError, match="write the plan"):
        model.save(Plan.baseline(model.graph), tmp_path / "out.pt2")
    assert not list(tmp_path.iterdir())


def test_files_that_hold_no_program_are_refused_in_one_line(tmp_path: Path) -> None:
    good = tmp_path / "good.pt2"
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), good)
    content = good.read_bytes()
    broken: dict[str, bytes] = {"empty": b"", "text": b"hello", "cut": content[: len(content) // 2], "flipped": b""}
    middle = content.find(b"{")
    broken["flipped"] = content[:middle] + b"?" + content[middle + 1 :]
    for name, data in broken.items():
        file = tmp_path / f"{name}.pt2"
        file.write_bytes(data)
        with pytest.raises(MalformedInputError) as caught:
            lowtide.open_model(file)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="cannot read"):
        lowtide.open_model(tmp_path / "missing.pt2")


def test_a_program_that_fails_is_refused_in_one_line() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(7, 7)

    with pytest.raises(UnsupportedError, match="cannot be captured: RuntimeError") as caught:
        lowtide.open_model((wrong, (torch.ones(3, 3),)))
    assert "\n" not in str(caught.value)


def test_control_flow_on_values_is_refused() -> None:
    def branching(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(UnsupportedError, match="depends on tensor values"):
        lowtide.open_model((branching, (torch.ones(3),)))


def test_a_closed_over_tensor_that_requires_grad_is_refused() -> None:
    weight = torch.ones(3, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x * weight).sum()

    with pytest.raises(UnsupportedError, match="requires grad"):
        lowtide.open_model((loss, (torch.ones(3),)))


def test_sparse_tensors_and_replaced_storages_are_refused() -> None:
    def sparse(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse()

    def resized(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).resize_(2)

    for function in (sparse, resized):
        with pytest.raises(UnsupportedError):
            _ = lowtide.open_model((function, (torch.ones(4),))).graph


def test_fake_inputs_cannot_be_measured() -> None:
    module = make_fx(lambda x: x + 1, tracing_mode="fake")(torch.ones(3))
    model: Any = lowtide.open_model(module)
    with pytest.raises(UnsupportedError, match="real inputs"):
        model.measure(Plan.baseline(model.graph), timed_calls=1)


def test_importing_lowtide_loads_no_framework() -> None:
    import subprocess
    import sys

    code = "import sys, lowtide; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_program_is_lowered_once_for_its_graph_its_plans_and_what_is_measured(gpt2: lt.TorchModel) -> None:
    lowered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is lower.__code__:
            lowered.append(frame.f_code.co_name)

    program, host = gpt2.captured, Host(bandwidth_bytes_per_s=1e9)
    plan = lowtide.minimize(gpt2.graph, effort="fast").plan
    sys.setprofile(note)
    try:
        model = lt.TorchModel(program)
        model.apply(plan)
        model.measure(plan, timed_calls=1)
        model.with_host(host).apply(Plan.baseline(model.with_host(host).graph))
    finally:
        sys.setprofile(None)
    assert lowered == ["lower"]


def test_the_in_place_forms_of_an_op_are_found_once(gpt2: lt.TorchModel) -> None:
    reading = Reading(gpt2.captured)
    found = [in_place_forms(op, reading.lowered) for op in reading.lowered.ops]
    assert any(found)
    assert all(
        in_place_forms(op, reading.lowered) is forms for op, forms in zip(reading.lowered.ops, found, strict=True)
    )


def test_a_wrong_plan_is_refused_although_another_was_verified(gpt2: lt.TorchModel) -> None:
    model = lt.TorchModel(gpt2.captured)
    plan = lowtide.minimize(model.graph, effort="fast").plan
    model.apply(plan)
    with pytest.raises(VerificationError):
        model.apply(replace(plan, targets=plan.targets[::-1].copy()))
