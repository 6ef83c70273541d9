"""The GPU benchmark, as far as it can be tried without one."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.benchmarks.conftest import Load
from tests.frameworks.torch.reading.measured_scratch import one_thread

CPU = torch.device("cpu")


@pytest.fixture(name="gpu")
def gpu_fixture(load: Load) -> ModuleType:
    return load("gpu")


@pytest.mark.filterwarnings("ignore")  # a tiny model: not every budget can be met
def test_compiled_and_whole_steps_need_no_more_than_predicted(gpu: ModuleType) -> None:
    """In bfloat16 on a CPU, predictions include memory of library kernels that PyTorch's allocator does not see."""
    torch._dynamo.reset()
    with one_thread():
        rows = [gpu.measured_row("GPT-2 medium", way, CPU, "eager", small=True) for way in (gpu.HALF, gpu.WHOLE_STEP)]
    assert all(0 < row.peak_bytes <= 1.01 * row.predicted_bytes for row in rows)


def test_kept_rows_are_not_measured_again(gpu: ModuleType, tmp_path: Path) -> None:
    for way in gpu.WAYS:
        gpu_row = gpu.Row("ResNet-50", way, peak_bytes=2**20, error="out of memory" if way == "eager" else None)
        (tmp_path / f"ResNet-50 {way}.json").write_text(gpu.json.dumps(gpu.asdict(gpu_row)), encoding="utf-8")
    table = gpu.main(["--device", "cpu", "--small", "--rows", "ResNet*", "--folder", str(tmp_path)])
    assert len(table) == 2 + len(gpu.WAYS)
    assert sum("out of memory" in line for line in table) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what happens where there is no GPU")
def test_without_a_gpu_it_says_how_it_can_be_tried(gpu: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "--device cpu --small" in capsys.readouterr().err
