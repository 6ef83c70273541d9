"""Devices by name, or from a file with the same fields."""

import json
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from lowtide.core.errors import InputError, MalformedInputError, UsageError
from lowtide.engine.costs import MACHINES, device_named, devices


@pytest.mark.parametrize("name", list(devices()))
def test_every_device_is_a_machine_and_can_be_written_and_read(name: str, tmp_path: Path) -> None:
    device = device_named(name)
    path = tmp_path / "device.json"
    path.write_bytes(msgspec.json.encode(device))
    assert device_named(str(path)) == device
    assert asdict(MACHINES[name]) == asdict(device.machine)


@pytest.mark.parametrize("name", list(devices()))
def test_a_device_is_no_faster_in_single_than_in_half_precision(name: str) -> None:
    device = device_named(name)
    times = [device.seconds(0, 1e12, dtype) for dtype in ("float16", "tfloat32", "float32")]
    assert times[0] <= times[1]
    assert times[0] <= times[2]
    assert device.seconds(1e9, 0) >= 1e9 / device.memory_bytes_per_second


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("h1000", "h100"),
        ("NVIDIA H100", "h100"),
        ("H-100", "h100"),
        ("Tesla T4", "t4"),
        ("NVIDIA A100", "a100"),
        ("a100_80", "a100-80"),
        ("GeForce RTX 4090", "rtx4090"),
        ("4090", "rtx4090"),
    ],
)
def test_an_unknown_device_is_refused_with_the_nearest_name(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean '{meant}'"):
        device_named(name)


@pytest.mark.parametrize(("field", "value"), [("memory_bytes", -1), ("speed", 1), ("flops_per_second", {})])
def test_a_file_with_wrong_fields_is_refused(field: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**json.loads(msgspec.json.encode(device_named("t4"))), field: value}))
    with pytest.raises(MalformedInputError, match="not a description of a device"):
        device_named(str(path))


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        device_named(str(tmp_path / "none.json"))
