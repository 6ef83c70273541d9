"""The GPU benchmark, as far as it can be tried without one."""

from types import ModuleType

import pytest
import torch

from tests.benchmarks.conftest import Load


@pytest.fixture(name="gpu")
def gpu_fixture(load: Load) -> ModuleType:
    return load("gpu")


@pytest.mark.filterwarnings(
    "ignore"
)  # tiny models: not every budget can be met, and torch warns about its own settings
def test_every_way_runs_on_a_small_model(gpu: ModuleType) -> None:
    """The compiler alone, eager, checkpointed, planned, and torch's own budget: a row each, with peak and time."""
    torch._dynamo.reset()
    head, _, *rows = gpu.main(["--device", "cpu", "--small", "--compiler", "eager", "--only", "GPT-2"])
    ways = [row.split(" | ")[1] for row in rows]
    assert ways[:4] == ["aot_eager", "eager", "eager, every block checkpointed", "lowtide at 50%"]
    assert ways[4].startswith("torch's own budget")
    assert all(row.count(" | ") == head.count(" | ") for row in rows)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what happens where there is no GPU")
def test_without_a_gpu_it_says_how_it_can_be_tried(gpu: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "--device cpu --small" in capsys.readouterr().err
