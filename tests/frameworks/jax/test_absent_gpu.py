"""XLA's memory figures for a GPU that is not there. The tests need JAX's plugin for CUDA, but no driver."""

from importlib.util import find_spec
from typing import Any

import jax
import pytest

import lowtide.jax
from lowtide.core.errors import UnsupportedError, UsageError
from tests.frameworks.jax.programs import blocks_arguments, blocks_step
from tests.frameworks.jax.test_state_on_host import ALLOWED, STEP, adam_arguments

HAS_PLUGIN = find_spec("jax_plugins") is not None and any(
    find_spec(f"jax_plugins.xla_cuda{major}") is not None for major in (12, 13)
)
needs_plugin = pytest.mark.skipif(not HAS_PLUGIN, reason="needs JAX's plugin for CUDA")


@pytest.mark.skipif(HAS_PLUGIN, reason="the plugin is installed")
def test_without_the_plugin_a_device_is_refused_in_one_line() -> None:
    with pytest.raises(UnsupportedError, match="pip install jax-cuda12-plugin==") as refused:
        lowtide.jax.fit(blocks_step, "50%", example_args=blocks_arguments(), device="h100")
    assert "\n" not in str(refused.value)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown device 'h101'"):
        lowtide.jax.fit(blocks_step, "50%", example_args=blocks_arguments(), device="h101")


@needs_plugin
def test_a_step_fits_an_absent_gpu_and_cannot_be_called() -> None:
    fitted = lowtide.jax.fit(blocks_step, "50%", example_args=blocks_arguments(), device="h100")
    assert fitted.fits
    assert "more time (estimate for NVIDIA H100 80GB HBM3)" in str(fitted)
    with pytest.raises(UnsupportedError, match="compiled for an absent h100"):
        fitted(*blocks_arguments())


@needs_plugin
@pytest.mark.parametrize("device", ["t4", "a100", "rtx4090", "b200"])
def test_xla_compiles_for_every_generation(device: str) -> None:
    assert lowtide.jax.fit(blocks_step, "100%", example_args=blocks_arguments(), device=device).fits


@needs_plugin
def test_state_on_the_host_takes_no_device_memory() -> None:
    arguments = adam_arguments(16)
    plain = lowtide.jax.measure_compiled(STEP, arguments, device="h100").figures
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(arguments[1]))
    budget = f"{plain.total_bytes - state_bytes * 3 // 4} B"
    fitted = lowtide.jax.fit(STEP, budget, example_args=arguments, device="h100", allow=ALLOWED)
    assert fitted.fits
    figures: Any = fitted.found.best.figures
    assert figures.total_bytes <= plain.total_bytes - state_bytes * 3 // 4
    memory = fitted.found.best.executable.memory_analysis()
    assert memory.host_argument_size_in_bytes == fitted.state_on_host_bytes >= state_bytes // 2
    assert memory.host_alias_size_in_bytes == fitted.state_on_host_bytes
