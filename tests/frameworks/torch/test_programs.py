"""Plans of PyTorch programs as one uses them: found for a program, kept in files, followed, written as .pt2 files."""

from pathlib import Path

import pytest
import torch
from torch import nn

import lowtide
import lowtide.torch as lt
from lowtide.api.opening import open_model
from lowtide.core.errors import FingerprintError, UnsupportedError, UsageError
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.settings import PlanSettings


class Net(nn.Module):
    """Two branches, the second of which a better order runs first; statistics, a buffer that counts, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(32, 64), nn.Linear(64, 32), nn.BatchNorm1d(32)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        wide = torch.relu(self.up(x)) * 2
        left = torch.cat([x] * 8, 1).sum(1, keepdim=True)
        right = torch.cat([x * 2] * 8, 1).sum(1, keepdim=True)
        y = self.norm(self.down(wide)) + left + right * self.scale + torch.tensor([3.0])
        return {"y": y, "shifted": y[1:]}


def exported() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(Net().eval(), (torch.randn(64, 32),))


def embedding_step() -> tuple[lt.TrainingStep, tuple[torch.Tensor, ...]]:
    """A step whose peak is the update of one large table."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(40_000, 32), nn.Flatten(), nn.Linear(128, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    return lt.TrainingStep(model, lambda model, x: model(x).square().sum(), optimizer), (torch.arange(8).view(2, 4),)


def test_minimize_finds_for_a_program_what_the_command_line_finds() -> None:
    program = embedding_step()
    result = lowtide.minimize(program)
    by_command_line = plan_best_form(open_model(program), PlanSettings())
    assert result.peak_bytes == by_command_line.peak_bytes
    assert result.plan.graph_fingerprint == by_command_line.plan.graph_fingerprint
    assert result.peak_bytes["cpu"] < 0.7 * lowtide.minimize(lowtide.read(program)).peak_bytes["cpu"]
    assert (
        lt.measure_captured(lt.capture(program), lowtide.apply(result.plan, program)).peak_bytes
        == (result.peak_bytes["cpu"])
    )


def test_a_model_that_is_open_already_is_planned_without_reading_it_again() -> None:
    model = open_model(embedding_step())
    assert open_model(model) is model
    assert lowtide.minimize(model).peak_bytes == lowtide.minimize(embedding_step()).peak_bytes
    with pytest.raises(UsageError, match="dim"):
        open_model(model, {"n": 3})


def test_a_plan_that_was_saved_for_a_program_is_loaded_for_it_and_for_no_other(tmp_path: Path) -> None:
    program, path = embedding_step(), tmp_path / "step.plan.json.gz"
    plan = lowtide.minimize(program).plan
    lowtide.save_plan(plan, path, program)
    loaded = lowtide.load_plan(path, program)
    assert list(loaded.steps()) == list(plan.steps())
    with pytest.raises(FingerprintError):
        lowtide.load_plan(path, exported())
    with pytest.raises(FingerprintError):
        lowtide.save_plan(plan, tmp_path / "other.plan.json", exported())
    with pytest.raises(UsageError, match=r"\.plan\.json"):
        lowtide.save_plan(plan, tmp_path / "other.pt2", program)


def test_an_exported_program_is_written_in_the_planned_order_and_runs_with_equal_bits(tmp_path: Path) -> None:
    program, path = exported(), tmp_path / "planned.pt2"
    model = open_model(program, output=path)
    result = lowtide.minimize(model)
    model.save(result.plan, path)
    written = torch.export.load(path)
    assert set(written.state_dict) == set(program.state_dict)
    plain, planned = program.module(), written.module()
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(64, 32)
        expected, found = plain(x), planned(x)
        assert list(found) == list(expected)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert torch.equal(planned.get_buffer("calls"), plain.get_buffer("calls"))
    before, after = lowtide.read(program), lowtide.read(path)
    assert lowtide.minimize(after, allow=()).peak_bytes == result.peak_bytes
    assert result.peak_bytes["cpu"] < lowtide.minimize(before, allow=()).peak_bytes["cpu"]


def test_what_cannot_be_written_is_said_before_the_program_is_read(tmp_path: Path) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the program was read")

    call = (fails, (torch.randn(3),))
    with pytest.raises(UsageError, match="only an ExportedProgram with fixed sizes can be saved"):
        open_model(call, output=tmp_path / "planned.pt2")
    with pytest.raises(UsageError, match="no folder"):
        open_model(call, output=tmp_path / "none" / "x.plan.json")
    with pytest.raises(UsageError, match=r"ends in \.plan\.json"):
        open_model("no.such.module:function", output=tmp_path / "x.safetensors")
    (tmp_path / "broken.pt2").write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"ends in .*\.pt2"):
        open_model(tmp_path / "broken.pt2", output=tmp_path / "x.onnx")


def test_a_program_of_dynamic_sizes_is_not_written(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(nn.Linear(4, 4), (torch.randn(8, 4),), dynamic_shapes=({0: rows},))
    with pytest.raises(UsageError, match=r"only an ExportedProgram with fixed sizes .*plan\.json"):
        open_model(program, output=tmp_path / "planned.pt2")
    model = open_model(program)
    with pytest.raises(UnsupportedError, match="fixed sizes"):
        model.save(lowtide.minimize(model).plan, tmp_path / "planned.pt2")


def _run(step: lt.PlannedStep, model: nn.Module, sizes: list[int]) -> list[torch.Tensor]:
    losses = [step(torch.arange(4 * size).view(size, 4)) for size in sizes]
    return [*losses, *(parameter.detach().clone() for parameter in model.parameters())]


def _new_step(**settings: object) -> tuple[lt.PlannedStep, nn.Module]:
    step, batch = embedding_step()
    return lt.training_step(step.model, step.loss_function, step.optimizer, batch, **settings), step.model  # pyright: ignore


def test_a_step_follows_a_plan_file_for_its_batch_and_plans_other_batches(tmp_path: Path) -> None:
    path = tmp_path / "step.plan.json"
    program = embedding_step()
    lowtide.save_plan(lowtide.minimize(program, scheduler="given").plan, path, program)
    step, model = _new_step(plan=path)
    assert (step.result.scheduler, step.result.moved_ops) == ("plan file", 0)
    planned, other = _new_step()
    assert planned.result.moved_ops > 0
    expected, found = _run(planned, other, [2, 3, 2]), _run(step, model, [2, 3, 2])
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    with pytest.raises(FingerprintError):
        _new_step(plan=path, clip_grad_norm=1.0)
    with pytest.raises(UsageError, match="eager"):
        _new_step(plan=path, compiler="inductor")


def test_a_step_of_several_calls_follows_the_plans_that_it_saved(tmp_path: Path) -> None:
    first, model = _new_step(accumulate=2)
    assert len(first.save_plans(tmp_path / "plans")) == 2
    again, other = _new_step(accumulate=2, plan=tmp_path / "plans")
    assert again.result.scheduler == "plan file"
    expected, found = _run(first, model, [2, 2]), _run(again, other, [2, 2])
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    with pytest.raises(FingerprintError, match="no plan in"):
        _new_step(plan=tmp_path / "plans")


def test_a_compiled_model_follows_the_plans_that_were_saved_of_it(tmp_path: Path) -> None:
    def run(**options: object) -> list[torch.Tensor]:
        torch.manual_seed(0)
        torch.compiler.reset()
        model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
        compiled = torch.compile(model, backend="lowtide", options={"compiler": "eager", "budget": "80%", **options})
        compiled(torch.randn(512, 16)).sum().backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    expected = run()
    lt.save_plans(tmp_path)
    found = run(plans=tmp_path)
    assert [each.result.scheduler for each in lt.explain().programs][-1] == "plan file"
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
