"""A whole module scheduled: XLA's three schedulers beside the search, the peaks recorded in the module."""

from pathlib import Path

import pytest
from jaxlib import _hlo as hlo

from lowtide.frameworks.xla.schedule import record_peaks
from lowtide.xla import parse_module, recorded_peaks, schedule, verify_schedule
from tests.frameworks.xla.modules import TEXTS, name_of


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_a_module_is_scheduled_no_worse_than_by_any_of_xlas_schedulers(path: Path) -> None:
    module = parse_module(path.read_text(encoding="utf-8"))
    found = schedule(module)
    assert found.plan.peak_bytes["device"] == min(found.peaks.values())
    verify_schedule(found.module, module)
    assert recorded_peaks(parse_module(found.module.text)) == {
        name: found.peaks[name] for name in ("xla-list", "xla-dfs", "xla-postorder")
    }
    assert hlo.hlo_module_from_text(found.module.text).name == module.name


def test_recorded_peaks_stand_beside_other_attributes_and_are_replaced() -> None:
    text = 'HloModule m, frontend_attributes={kept="yes"}\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n'
    once = record_peaks(parse_module(text), {"xla-list": 7})
    twice = record_peaks(once, {"xla-list": 8, "xla-dfs": 9})
    assert recorded_peaks(twice) == {"xla-list": 8, "xla-dfs": 9}
    assert 'kept="yes"' in twice.attributes["frontend_attributes"]
    assert recorded_peaks(parse_module(text)) == {}
    assert record_peaks(parse_module(text.replace(', frontend_attributes={kept="yes"}', "")), {}).name == "m"
