"""Training steps on a CUDA device that is not there: peaks, plans, and errors in one line."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import lowtide
from benchmarks import absent_programs
from lowtide.core.errors import LowtideError, UnsupportedError, UsageError
from lowtide.engine.costs import device_named
from lowtide.engine.plan import verify
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.absent_device.forms import pickled_forms
from lowtide.frameworks.torch.absent_device.messages import Open, Opened
from lowtide.frameworks.torch.absent_device.model import DeviceModel
from lowtide.frameworks.torch.absent_device.process import DeviceProcess
from lowtide.reporting.on_device import OnDevice
from lowtide.torch import TrainingStep
from tests.examples import SHARE
from tests.frameworks.torch.absent_device.programs import (
    CLASSES,
    MANY_CLASSES,
    MANY_ROWS,
    N_BLOCKS,
    N_ROWS,
    WIDTH,
    Blocks,
    batch,
)
from tests.frameworks.torch.recomputed import recomputed_kinds

PROGRAMS = Path(__file__).with_name("programs.py")
FLOAT, HALF, MIB = 4, 2, 2**20


@pytest.fixture(scope="module")
def step() -> DeviceModel:
    return DeviceModel(f"{PROGRAMS}:on_cuda", "h100")


def _facts(model: DeviceModel) -> OnDevice:
    return model.on_device


def test_attention_with_dropout_is_recomputed_from_its_random_state() -> None:
    result = lowtide.plan(f"{PROGRAMS}:attention", device="h100", budget="45%")
    assert result.shortfall is None
    assert any("attention" in kind for kind in recomputed_kinds(result))


def test_persistent_memory_is_that_of_the_parameters_and_of_adams_two_moments(step: DeviceModel) -> None:
    parameters = sum(each.numel() for each in Blocks().parameters())
    n_counters = sum(1 for _ in Blocks().parameters())
    assert _facts(step).persistent_bytes == FLOAT * (3 * parameters + n_counters)


def test_the_compiled_peak_holds_the_wide_activations_and_less_than_the_eager_one(step: DeviceModel) -> None:
    """Each block saves the results of its first product; gradients of all parameters are live at the end."""
    wide = FLOAT * N_BLOCKS * N_ROWS * 4 * WIDTH
    logits = FLOAT * N_ROWS * CLASSES
    facts = _facts(step)
    assert wide + logits <= facts.compiled_peak_bytes < facts.eager_peak_bytes


def _peak(result: Result) -> int:
    return result.peak_bytes[result.graph.spaces[0].name]


def test_kernels_are_faster_than_single_ops(step: DeviceModel) -> None:
    assert 0 < _facts(step).compiled_seconds < _facts(step).eager_seconds


def test_nothing_changes_on_a_device_that_holds_the_program(step: DeviceModel) -> None:
    result = lowtide.plan(step, device="h100")
    assert result.shortfall is None
    assert result.reruns == 0
    assert result.extra_cost == 0
    assert _peak(result) == _facts(step).compiled_peak_bytes


def test_a_plan_within_a_budget_is_verified_priced_by_the_device_and_exact_after_lowering(step: DeviceModel) -> None:
    result = lowtide.plan(step, device="h100", budget="60%")
    verify(result.graph, result.plan)
    assert result.shortfall is None
    assert result.reruns > 0
    assert result.costs == "h100"
    assert _peak(result) <= 0.6 * _facts(step).compiled_peak_bytes
    assert 0 < result.extra_cost < result.base_cost


def test_chunks_are_used_only_where_they_are_faster_if_the_kernels_fit_without(step: DeviceModel) -> None:
    allow = ["reorder", "share", "recompute", "rounding"]
    either = lowtide.plan(step, device="h100", budget="60%", allow=allow)
    without = lowtide.plan(step, device="h100", budget="60%")
    assert either.shortfall is None
    assert either.extra_cost <= without.extra_cost


def test_a_budget_below_every_plan_is_missed_by_the_exact_peak(step: DeviceModel) -> None:
    result = lowtide.plan(step, device="h100", budget="1%")
    assert result.shortfall is not None
    assert result.shortfall.reached_bytes == _peak(result)
    assert not result.shortfall.is_impossible


def test_logits_larger_than_the_budget_are_computed_in_chunks_by_kernels_of_inductor() -> None:
    """The chunks cost less than twice the unmodified step: one product more, and loops that read each chunk once."""
    model = DeviceModel(f"{PROGRAMS}:wide_head", "h100")
    logits = MANY_ROWS * MANY_CLASSES * HALF
    assert _facts(model).compiled_peak_bytes > logits
    budget = logits * 6 // 10 + _facts(model).persistent_bytes
    result = lowtide.plan(model, device="h100", budget=budget)
    assert result.shortfall is None
    assert result.form != "unmodified"
    assert _peak(result) <= logits * 6 // 10
    assert 0 < result.extra_time < 1
    assert result.base_cost + result.extra_cost < _facts(model).eager_seconds


def test_a_device_without_room_for_the_parameters_is_refused_by_their_size(step: DeviceModel) -> None:
    result = lowtide.plan(step, device="h100", budget="1024 B")
    assert result.shortfall is not None
    assert result.shortfall.cause == "persistent buffers"
    assert result.shortfall.needed_bytes == _facts(step).persistent_bytes


def test_an_open_model_stays_on_its_device(step: DeviceModel) -> None:
    with pytest.raises(UsageError, match="was lowered for h100"):
        lowtide.plan(step, device="t4")


def test_a_program_as_it_runs_needs_what_its_lowering_measured(step: DeviceModel) -> None:
    graph, run = step.as_it_runs
    verify(graph, run)
    assert run.peak_bytes[graph.spaces[0].name] == _facts(step).compiled_peak_bytes


def test_a_program_of_this_process_is_the_same_as_one_that_a_function_builds(step: DeviceModel) -> None:
    """The model is on the CPU; only the forms of its tensors are sent."""
    model = lowtide.open_model((Blocks(), batch()), device="h100")
    assert isinstance(model, DeviceModel)
    assert _facts(model).compiled_peak_bytes == _facts(step).compiled_peak_bytes
    assert _facts(model).eager_peak_bytes == _facts(step).eager_peak_bytes


REFUSED: list[tuple[str, type[LowtideError], str]] = [
    ("without_a_loss", UnsupportedError, "has no backward pass"),
    ("of_another_kind", UsageError, r"give \(function or module, inputs\)"),
    ("that_fails", UsageError, r"that_fails\(\) failed: RuntimeError: out of ideas"),
    ("that_is_not_there", UsageError, "has no 'that_is_not_there'"),
]


@pytest.fixture(scope="module")
def process() -> DeviceProcess:
    return DeviceProcess()


def test_a_program_that_needs_the_values_of_tensors_is_built_on_real_ones(process: DeviceProcess) -> None:
    opened: Opened = process.ask(Open(device=device_named("t4"), name=f"{PROGRAMS}:that_needs_values"))
    assert sum(opened.unplanned.persistent_bytes().values()) == FLOAT * (64 * 64 + 64)
    assert opened.unplanned.spaces[0].name == "cuda:0"


def test_programs_that_cannot_be_lowered_are_refused_in_one_line(process: DeviceProcess) -> None:
    device = device_named("t4")
    for name, kind, message in REFUSED:
        with pytest.raises(kind, match=message) as caught:
            process.ask(Open(device=device, name=f"{PROGRAMS}:{name}"))
        assert "\n" not in str(caught.value)


def test_a_program_that_cannot_be_sent_is_refused_before_a_process_starts() -> None:
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        lowtide.open_model((lambda: 0, ()), device="h100")


def test_a_loss_that_cannot_be_sent_is_refused_with_the_way_that_works() -> None:
    model = nn.Linear(4, 4)
    step = TrainingStep(model, lambda model, value: model(value).sum(), torch.optim.SGD(model.parameters()))
    with pytest.raises(UsageError) as caught:
        lowtide.fits(step, torch.ones(2, 4), device="h100")
    assert "lambda" in str(caught.value)
    assert 'with %%writefile train.py, and give the name "train.py:step"' in str(caught.value)
    assert "step() returns (lowtide.torch.TrainingStep(model, loss_function, optimizer), batch)" in str(caught.value)


def test_without_a_compiler_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UnsupportedError, match="needs a C\\+\\+ compiler once"):
        DeviceModel(f"{PROGRAMS}:on_cuda", "h100")


def test_a_process_that_ends_is_an_error_and_no_endless_wait() -> None:
    process = DeviceProcess()
    with pytest.raises(UnsupportedError, match="ended with code"):
        process.ask(_Exits())


class _Exits:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        import os

        return os._exit, (3,)


class Net(nn.Linear):
    """A class that a script defines."""


def test_a_script_without_a_guard_is_told_to_have_one(
    process: DeviceProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The process imports the script to find the class of the model."""
    script = tmp_path / "train.py"
    script.write_text(
        "import lowtide\nfrom torch import nn, ones\n"
        "class Net(nn.Linear):\n    pass\n"
        "lowtide.plan(Net(2, 2), ones(1, 2), device='h100')\n"
    )
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", str(script), raising=False)
    monkeypatch.setattr(main, "Net", Net, raising=False)
    monkeypatch.setattr(Net, "__module__", "__main__")
    content, path = pickled_forms((Net(2, 2), (torch.ones(1, 2),)))
    with pytest.raises(UsageError, match="put its calls under if __name__ == '__main__'"):
        process.ask(Open(device=device_named("h100"), content=content, main=path))


def test_a_script_that_reads_its_arguments_reads_the_same_in_the_process(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nimport lowtide\nfrom torch import nn, ones\n"
        "WIDTH = int(sys.argv[1])\n"
        "class Net(nn.Linear):\n    def forward(self, x):\n        return super().forward(x).square().mean()\n"
        "if __name__ == '__main__':\n"
        "    print(lowtide.fits(Net(WIDTH, WIDTH), ones(2, WIDTH), device='1GiB', batch=2, progress=False))\n"
    )
    done = subprocess.run([sys.executable, script, "64"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fits unchanged" in done.stdout


@pytest.mark.skipif(SHARE < 1, reason="minutes of one core; make test-all")
@pytest.mark.parametrize("name", list(absent_programs.MEASURED_MIB))
def test_compiled_peaks_are_within_two_percent_of_those_that_an_h100_measured(name: str) -> None:
    model = DeviceModel(f"{absent_programs.__file__}:{name}", "h100")
    predicted = _facts(model).compiled_peak_bytes / MIB
    assert predicted == pytest.approx(absent_programs.MEASURED_MIB[name], rel=0.02)


@pytest.mark.skipif(SHARE < 1, reason="minutes of one core; make test-all")
@pytest.mark.parametrize("name", list(absent_programs.CHECKPOINTED_MIB))
def test_plans_of_kernels_meet_the_peak_of_compiled_block_checkpoints(name: str) -> None:
    model = DeviceModel(f"{absent_programs.__file__}:{name}", "h100")
    budget = int(absent_programs.CHECKPOINTED_MIB[name] * MIB) + _facts(model).persistent_bytes
    assert lowtide.plan(model, device="h100", budget=budget).shortfall is None
