"""`lowtide fits` for training steps: the table by size, the code to use next, and one line for what is no model."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import lowtide as lowtide_package
from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.internals.host_memory import cpu_host
from lowtide.reporting.fitting_sizes import FitTable
from lowtide.torch import TrainingStep
from tests.cli.conftest import Command

pytestmark = pytest.mark.usefixtures("cache_of_the_run")
TRAIN = """
import torch
from torch import nn
from lowtide.torch import TrainingStep

def step():
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU())))
    batch = torch.randn(32, 64), torch.randn(32, 64)
    loss_function = lambda model, x, y: (model(x) - y).square().mean()
    return TrainingStep(model, loss_function, torch.optim.AdamW(model.parameters())), batch
"""
CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 64, "n_positions": 128}
SMALL = {**CONFIG, "n_layer": 1, "n_head": 2, "n_embd": 32, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    return path


def _levels(rows: list[dict[str, Any]]) -> list[str | None]:
    return [row["level"] for row in rows]


def test_a_config_gives_a_table_and_code_that_runs_as_it_is_pasted(lowtide: Command, config: Path) -> None:
    """No line is wider than 80 columns but lines of code. The CPU stands in for the GPU."""
    done = lowtide("fits", config, "--device", "4MiB", "--sequence", "64")
    assert done.code == 0
    page, _, code = done.stdout.partition("Next:\n\n")
    assert all(len(line) <= 80 for line in page.splitlines())
    assert "adamw, float32, 64 tokens per row" in page
    assert "fits unchanged" in page
    assert "fits: recompute, +" in page
    assert "does not fit" in page
    on_cpu = code.replace('"cuda"', '"cpu"')
    ran = subprocess.run([sys.executable, "-c", on_cpu], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_sequence_lengths_end_at_the_longest_that_the_model_accepts(lowtide: Command, config: Path) -> None:
    arguments = ("--device", "mps:1GiB", "--largest", "sequence", "--batch", "2", "--precision", "bfloat16")
    printed = json.loads(lowtide("fits", config.parent, *arguments, "--json").stdout)
    assert printed["kind"] == "fits_sizes"
    assert [row["size"] for row in printed["sizes"]] == [64, 128]
    assert printed["largest"] == {"unchanged": 128}
    assert "torch.bfloat16" in "".join(printed["code"])


def test_the_batch_of_a_function_is_resized_in_python_as_well(lowtide: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    source = tmp_path / "train.py:step"
    printed = json.loads(lowtide("fits", source, "--device", "3MiB", "--json").stdout)
    rows = printed["sizes"]
    assert [row["size"] for row in rows][:6] == [1, 2, 4, 8, 16, 32]
    levels = _levels(rows)
    assert levels[0] == "unchanged"
    assert levels[-1] is None
    assert "recompute" in levels
    assert "made.model, made.loss_function, made.optimizer, batch" in "".join(printed["code"])
    table = lowtide_package.fits(source, device="3 MiB", batch=8, progress=False)
    assert isinstance(table, FitTable)
    (row,) = table.rows
    (same,) = (each for each in rows if each["size"] == 8)
    assert (row.level, row.planned_bytes - row.persistent_bytes) == (same["level"], same["peak_bytes"])


def test_a_step_that_accumulates_is_its_last_call(lowtide: Command, tmp_path: Path) -> None:
    """It has the gradients of earlier calls besides its own, and the code passes all parts of the step."""
    text = TRAIN.replace(".parameters())), batch", ".parameters()), accumulate=3, before_update=list), batch")
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "plain.py").write_text(TRAIN)
    found = [
        json.loads(lowtide("fits", tmp_path / name, "--device", "3MiB", "--batch", "64", "--json").stdout)
        for name in ("train.py:step", "plain.py:step")
    ]
    gradients = 8 * (64 * 64 + 64) * 4
    needed = [each["sizes"][0]["baseline_peak_bytes"] for each in found]
    assert needed[0] - needed[1] >= 0.9 * gradients
    assert found[0]["settings"] == "the last of 3 calls, with the gradients of the others"
    code = " ".join("".join(found[0]["code"]).split())
    assert "batch, before_update=made.before_update, accumulate=made.accumulate, budget=" in code


def test_an_id_is_looked_up_in_the_local_cache(
    lowtide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "hub" / "models--someone--small"
    snapshot = cached / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(SMALL))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    done = lowtide("fits", "someone/small", "--device", "t4", "--batch", "1", "--sequence", "64")
    assert done.code == 0
    assert "from_pretrained('someone/small')" in done.stdout
    done = lowtide("fits", "someone/large", "--device", "t4")
    assert done.code == 2
    assert "no file 'someone/large', and no model of this name" in done.stderr
    assert done.stderr.count("\n") <= 2


@pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
def test_a_name_of_timm_gives_a_table_and_code(lowtide: Command) -> None:
    done = lowtide("fits", "vit_tiny_patch16_224", "--device", "t4", "--batch", "2")
    assert done.code == 0, done.stderr
    assert "fits unchanged" in done.stdout
    assert "timm.create_model('vit_tiny_patch16_224')" in done.stdout
    refused = lowtide("fits", "vit_tiny_patch16_224", "--device", "t4", "--sequence", "2")
    assert "classifies images; leave out the sequence length" in refused.stderr


REFUSED = [
    ("weights.pt", "has weights and no program; give its config.json, or train.py:function"),
    ("model.safetensors", "has weights and no program"),
    ("https://huggingface.co/gpt2", "is a URL; download the model"),
    (
        "train.ipynb",
        'call lowtide.fits("train.py:step", device=...) in it, after a cell that begins with %%writefile train.py and '
        "defines step(), which returns (lowtide.torch.TrainingStep(model, loss_function, optimizer), batch)",
    ),
    (
        "train.py",
        "'train.py' names no function; give train.py:make_step, which returns (lowtide.torch.TrainingStep(model, "
        "loss_function, optimizer), batch), or (model, batch) with a model that returns its loss",
    ),
    ("absent.py", "no such file"),
    ("folder", "has no config.json"),
]


@pytest.mark.parametrize(("name", "message"), REFUSED)
def test_what_is_no_model_is_refused_in_one_line_that_names_a_way(
    lowtide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "train.py").write_text("def train(epochs): ...\ndef make_step(): ...\n")
    done = lowtide("fits", name, "--device", "h100")
    assert done.code == 2
    assert message in done.stderr
    assert sum(not line.endswith("...") for line in done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("weights.safetensors", "has weights and no program; give train.py:function that returns (model, batch)"),
        ("https://huggingface.co/gpt2", "is a URL; download the model, then give train.py:function"),
        ("train.ipynb", "is a notebook; call lowtide.plan(model, batch) in it, or give train.py:function"),
    ],
)
def test_plan_refuses_them_in_one_line_as_well(lowtide: Command, name: str, message: str) -> None:
    done = lowtide("plan", name)
    assert done.code == 2
    assert message in done.stderr
    assert sum(not line.endswith("...") for line in done.stderr.splitlines()) == 1


def test_plan_names_fits_for_a_config(lowtide: Command, config: Path) -> None:
    done = lowtide("plan", config)
    assert done.code == 2
    assert "has sizes of a model and no program; use lowtide fits, or give train.py:function" in done.stderr


def test_a_configuration_without_transformers_is_refused_before_a_process_starts(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setenv("LOWTIDE_ABSENT_DEVICE", "1")  # a process that starts would be an error
    with pytest.raises(UsageError, match="needs transformers; install it with: pip install transformers"):
        lowtide_package.fits(str(config), device="h100")


def test_a_model_without_a_loss_is_refused_with_the_result_that_works(lowtide: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\ndef step():\n    return torch.nn.Linear(4, 4), torch.ones(2, 4)\n"
    )
    done = lowtide("fits", tmp_path / "train.py:step", "--device", "h100")
    assert done.code == 2
    assert "and Linear gives a tensor of shape [2, 4]; return (lowtide.torch.TrainingStep(model, " in done.stderr
    assert "loss_function, optimizer), batch), or give a model that returns its loss" in done.stderr


class Squares(nn.Linear):
    """A model that returns its loss."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return super().forward(value).square().mean()


def _loss(model: nn.Module, value: torch.Tensor) -> torch.Tensor:
    return model(value).square().mean()


def _program(kind: str) -> tuple[Any, tuple[torch.Tensor]]:
    if kind == "model":
        return Squares(8, 8), (torch.ones(4, 8),)
    model = nn.Linear(8, 8)
    return TrainingStep(model, _loss, torch.optim.SGD(model.parameters())), (torch.ones(4, 8),)


@pytest.mark.parametrize("kind", ["model", "step"])
def test_the_code_for_a_program_given_in_python_defines_all_its_names(kind: str) -> None:
    """It is run as pasted, then its commented calls too. The CPU stands in for the GPU."""
    table = lowtide_package.fits(*_program(kind), device="1GiB", largest="batch", progress=False)
    assert isinstance(table, FitTable)
    code = "\n".join(table.code).replace('"fit"', '"100%"').replace(", fused=True", "")
    program, batch = _program(kind)
    names: dict[str, Any] = {"model": program, "made": program, "batch": batch}
    exec(code, {})
    exec(code.replace("# step", "step").replace("# loss", "loss"), names)
    assert names["loss"].dim() == 0
    assert all(len(line) <= 80 for line in str(table).splitlines())
    assert "\nlargest batch found:\n" in str(table)


class Scorer:
    """A function of a model that returns no loss."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        """Return the model's results."""
        return self.model(value)


def test_a_function_whose_weights_do_not_fit_is_planned_with_weights_on_the_host() -> None:
    """The code of the table is run as it is, and gives the bits of the function."""
    model = nn.Sequential(*(nn.Linear(128, 128, bias=False) for _ in range(6)))
    scorer, batch = Scorer(model), (torch.ones(4, 128),)
    table = lowtide_package.fits(scorer, *batch, device="256KiB", largest="batch", progress=False)
    assert isinstance(table, FitTable)
    assert {row.level for row in table.rows} >= {"offload"}
    names: dict[str, Any] = {"made": scorer, "batch": batch}
    expected = scorer(*batch)
    exec("\n".join(table.code).replace("# step", "step").replace("# result", "result"), names)
    assert torch.equal(names["result"], expected)
    assert any(map(cpu_host.holds, model.parameters()))


def test_a_function_that_returns_gradients_keeps_its_weights_on_the_device() -> None:
    model = nn.Sequential(*(nn.Linear(128, 128, bias=False) for _ in range(6)))
    table = lowtide_package.fits(
        Scorer(nn.Sequential(model, Squares(128, 1))), torch.ones(4, 128), device="256KiB", progress=False
    )
    assert isinstance(table, FitTable)
    assert [row.level for row in table.rows] == [None]


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: lowtide_package.fits({"weight": numpy.ones(2)}, device="h100"), "a state dict has weights and no program"),
    (lambda: lowtide_package.fits("train.py:step", device="h101"), "did you mean 'h100'"),
    (lambda: lowtide_package.fits("train.py:step", device="NVIDIA H100"), "did you mean 'h100'"),
    (lambda: lowtide_package.fits("train.py:step", device="24 gigs"), "unknown device '24 gigs'; choose one of a100, "),
    (lambda: lowtide_package.fits("train.py:step", device=24), "24 is 24 bytes; write '24MiB' or '24GiB'"),
    (lambda: lowtide_package.fits("train.py:step", device="h100", batch=0), "batch is 0"),
    (lambda: lowtide_package.fits("a.onnx", device="h100", batch=2), "only PyTorch training steps have a batch"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_a_wrong_call_is_refused_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
