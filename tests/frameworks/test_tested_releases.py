"""Releases of frameworks outside of the tested range give one warning, and missing private names one error."""

import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from lowtide.frameworks.tested_releases import JAX, ONNX_RUNTIME, PYTORCH, TENSORFLOW, Releases

_EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("version", ["2.10.0", "2.16.0+cu132", "3.0", "2.9.1"])
def test_a_release_outside_of_the_range_gives_a_warning_that_names_the_range(version: str) -> None:
    plain = re.escape(version.partition("+")[0])
    with pytest.warns(RuntimeWarning, match=f"^lowtide is tested with PyTorch 2.11 to [0-9.]+; {plain} is installed$"):
        PYTORCH.warn(version)


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0a0+git1234.nv26.2", "2.15.0+cu132"])
def test_a_release_in_the_range_gives_no_warning(version: str) -> None:
    with warnings.catch_warnings(action="error"):
        PYTORCH.warn(version)


def test_a_range_of_one_release_is_named_once() -> None:
    with pytest.warns(RuntimeWarning, match=r"^lowtide is tested with TensorFlow 2\.21; 2\.22\.0 is installed$"):
        TENSORFLOW.warn("2.22.0")


def test_an_older_release_needs_an_upgrade() -> None:
    error = PYTORCH.unsupported("2.9.1+cu128", ImportError("no name"))
    assert str(error) == "lowtide needs PyTorch 2.11 or later; 2.9.1 is installed"


_REMOVALS = {
    "torch": "from torch.fx.experimental import symbolic_shapes; del symbolic_shapes.free_unbacked_symbols",
    "jax": "import sys; from jax._src import interpreters; del interpreters.partial_eval; "
    "sys.modules['jax._src.interpreters.partial_eval'] = None",
}


@pytest.mark.parametrize("name", _REMOVALS)
def test_a_missing_private_name_is_one_error_in_a_fresh_process(name: str) -> None:
    pytest.importorskip(name)
    code = f"{_REMOVALS[name]}; import lowtide.{name}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert re.match(r"lowtide\.core\.errors\.UnsupportedError: lowtide needs \w+ [0-9.]+ to [0-9.]+; ", last), last
    assert "During handling" not in run.stderr


@pytest.mark.parametrize(
    ("extra", "package", "releases"),
    [
        ("torch", "torch", PYTORCH),
        ("jax", "jax", JAX),
        ("onnx", "onnxruntime", ONNX_RUNTIME),
        ("tensorflow", "tensorflow-cpu", TENSORFLOW),
    ],
)
def test_the_extras_start_at_the_oldest_tested_release(extra: str, package: str, releases: Releases) -> None:
    assert f"{package}>={releases.oldest[0]}.{releases.oldest[1]}" in _EXTRAS[extra]


def test_no_extra_takes_a_framework_of_the_user_back() -> None:
    frameworks = [need for name in ("torch", "onnx", "jax", "tensorflow", "integrations") for need in _EXTRAS[name]]
    assert [need for need in frameworks if "<" in need or "==" in need] == []
