"""The README shows what its code prints, and what the demo has printed."""

import runpy
import shlex
from pathlib import Path

import torch

import lowtide
from tests.docs.runnable import blocks, run_page
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO = load_script("record_demo")
RECORD = DEMO.RECORD.read_text(encoding="utf-8")


def test_the_examples_of_the_readme_run(folder: Path) -> None:
    """The training step is that of a small model, the ONNX model that of the tutorial on servers."""
    tutorial = (ROOT / "docs" / "tutorials" / "onnx_server.md").read_text(encoding="utf-8")
    (models,) = (block.text for block in blocks(tutorial) if block.file == "models.py")
    (folder / "models.py").write_text(models, encoding="utf-8")
    runpy.run_path("models.py")["branches"]("model.onnx", width=32, count=4)
    model = torch.nn.Sequential(*(layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())))
    given = {
        "lowtide": lowtide,
        "model": model,
        "batch": (torch.randn(1024, 64), torch.randn(1024, 64)),
        "loss_function": lambda model, x, y: (model(x) - y).square().mean(),
        "optimizer": torch.optim.AdamW(model.parameters()),
    }
    assert run_page(ROOT / "README.md", **given) == 4


def test_the_readme_opens_with_three_lines_of_code() -> None:
    first = next(block for block in blocks(README.partition("## Install")[0]) if block.language == "python")
    assert len(first.text.splitlines()) == 3
    assert len(README.splitlines()) <= 80


def test_every_block_of_the_readme_runs_except_the_demo() -> None:
    assert [block.text for block in blocks(README) if block.language not in ("python", "console")] == [
        DEMO.shown(RECORD)
    ]


def test_the_readme_shows_the_recorded_demo() -> None:
    """When this fails, run scripts/record_demo.py --readme."""
    assert DEMO.page(README, RECORD) == README


def test_the_recorded_demo_is_that_of_make_demo() -> None:
    """When this fails, run scripts/record_demo.py."""
    assert RECORD.partition("\n")[0] == f"$ {shlex.join(DEMO.command())}"
