"""Kernels on a GPU have the ratios of its published figures as prices; other kernels those of a plain machine."""

import pytest
import torch

from lowtide.engine.costs import PLAIN_MACHINE, devices
from lowtide.frameworks.torch.reading import costs
from lowtide.frameworks.torch.reading.costs import present_device, price_of
from lowtide.frameworks.torch.reading.outlined import Work

LOOP, PRODUCT = Work(2**28), Work(2**24, 2**38, "bfloat16")
H200 = devices()["h200"]


def test_a_gpu_has_prices_in_the_ratios_of_its_run_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "present_device", lambda _: H200)
    loop, product = (price_of(work, "cuda:0") for work in (LOOP, PRODUCT))
    assert product / loop == pytest.approx(H200.seconds(*PRODUCT) / H200.seconds(*LOOP))
    assert loop == pytest.approx(PLAIN_MACHINE.seconds(LOOP.traffic_bytes, 0), rel=0.06)  # launches take longer


def test_a_cpu_has_the_prices_of_the_plain_machine() -> None:
    assert price_of(PRODUCT, "cpu") == PLAIN_MACHINE.seconds(PRODUCT.traffic_bytes, PRODUCT.flops)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (("NVIDIA H200", 90, 141 * 10**9), "h200"),
        (("NVIDIA H100 PCIe", 90, 80 * 10**9), "h100"),
        (("NVIDIA A100-PCIE-40GB", 80, 40 * 10**9), "a100-40"),
        (("a later one", 120, 96 * 10**9), "b200"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_an_unknown_gpu_has_the_prices_of_the_most_similar_one(
    monkeypatch: pytest.MonkeyPatch, kind: tuple[str, int, int], expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(costs, "gpu_kind", lambda _: kind)
    assert present_device.__wrapped__("cuda:0") == devices()[expected]
