"""Planned orders in HLO text: schedules that XLA accepts, control edges, recorded peaks, refusals."""

from pathlib import Path

import pytest

import lowtide
from lowtide.core.errors import UnsupportedError, VerificationError
from lowtide.engine.plan import Plan
from lowtide.frameworks.xla.jaxlib import hlo_classes
from lowtide.frameworks.xla.schedule import record_peaks, with_order_as_control_edges
from lowtide.frameworks.xla.text.order import reordered
from lowtide.xla import (
    HloModule,
    XlaModel,
    parse_module,
    recorded_peaks,
    remove_schedule,
    schedule,
    verify_schedule,
)
from tests.frameworks.xla.modules import TEXTS, name_of, text_of


def _planned(path: Path) -> tuple[XlaModel, lowtide.Result]:
    model = XlaModel(path)
    return model, lowtide.minimize(model.graph)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_xla_accepts_a_planned_schedule_and_its_peak_is_as_planned(path: Path) -> None:
    model, result = _planned(path)
    module = model.apply(result.plan)
    verify_schedule(module, model.module)
    read_by_xla = hlo_classes().hlo_module_from_text(module.text)
    if hasattr(read_by_xla, "schedule"):  # not in jaxlib 0.10.0
        read_by_xla.schedule().verify()
    again = lowtide.minimize(lowtide.read(parse_module(module.text)), scheduler="given")
    assert again.peak_bytes == result.peak_bytes


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_a_plan_in_program_order_keeps_the_text(path: Path) -> None:
    model = XlaModel(path)
    module = model.apply(Plan.baseline(model.graph))
    assert remove_schedule(module) == remove_schedule(model.module)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_control_edges_allow_only_the_planned_order(path: Path) -> None:
    model, result = _planned(path)
    held = with_order_as_control_edges(model.read, result.plan)
    assert not held.is_scheduled
    hlo_classes().hlo_module_from_text(held.text)
    read = XlaModel(held)
    for computation in read.read.computations.values():
        graph = computation.graph
        assert all(op - 1 in graph.structure.predecessors[op].tolist() for op in range(1, graph.n_ops))
    assert lowtide.minimize(read.graph).peak_bytes == result.peak_bytes


def _swapped(module: HloModule, one: str, other: str) -> HloModule:
    places = module.entry.positions
    order = list(range(len(places)))
    order[places[one]], order[places[other]] = places[other], places[one]
    return reordered(module, {module.entry.name: order})


def test_a_schedule_with_an_operand_after_its_user_raises() -> None:
    module = parse_module(text_of("swap.hlo"))
    verify_schedule(module)
    with pytest.raises(VerificationError, match="comes before its operand predecessor"):
        verify_schedule(_swapped(module, "tuple.2", "while.6"))


def test_a_schedule_against_a_control_edge_raises() -> None:
    text = (
        "HloModule m, is_scheduled=true\nENTRY e {\n  a = f32[] iota()\n  b = f32[] iota(), control-predecessors={a}\n"
    )
    module = parse_module(f"{text}  ROOT c = f32[] add(a, b)\n}}\n")
    verify_schedule(module)
    with pytest.raises(VerificationError, match="control predecessor 'a'"):
        verify_schedule(_swapped(module, "a", "b"))


def test_an_unscheduled_module_raises() -> None:
    with pytest.raises(VerificationError, match="is_scheduled=true"):
        verify_schedule(remove_schedule(parse_module(text_of("swap.hlo"))))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("copy(%a.1)", "copy(%b.1)"),
        ("%copy.9 = f32[256]{0} copy", "%copy.9 = f32[256]{0} negate"),
        ("%copy.9", "%copy.90"),
        (", control-predecessors={%copy.4}", ""),
    ],
)
def test_a_schedule_of_another_program_raises(before: str, after: str) -> None:
    text = text_of("swap.hlo")
    assert before in text
    with pytest.raises(VerificationError):
        verify_schedule(parse_module(text.replace(before, after)), parse_module(text))


def test_unknown_opcodes_are_opaque_and_listed() -> None:
    text = "HloModule m\nENTRY e {\n  p = f32[9] parameter(0)\n  a = f32[9] frobnicate(p), how={1:{2}}\n"
    module = parse_module(f"{text}  ROOT b = f32[9] frobnicate(a)\n}}\n")
    graph = lowtide.read(module)
    assert [op.pure or not op.ordered for op in graph.ops()] == [False, False]
    assert len(graph.unmodeled) == 1
    assert "'frobnicate' is not known (2 instructions)" in graph.unmodeled[0]


def test_a_plan_with_recomputation_raises() -> None:
    text = """HloModule m
ENTRY e {
  p = f32[64] parameter(0)
  wide = f32[4096] broadcast(p), dimensions={}
  a = f32[] dot(wide, wide)
  other = f32[4096] iota()
  b = f32[] dot(other, other)
  c = f32[] dot(wide, wide)
  s = f32[] add(a, b)
  ROOT t = f32[] add(s, c)
}
"""
    model = XlaModel(parse_module(text))
    result = lowtide.minimize(model.graph, budget="17000 B", allow=["recompute"])
    assert result.shortfall is None
    with pytest.raises(UnsupportedError, match=r"\.plan\.json"):
        model.apply(result.plan)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_schedule_is_at_least_reason_to_keep_each_scheduler_of_xla(path: Path) -> None:
    module = parse_module(path.read_text(encoding="utf-8"))
    found = schedule(module)
    assert found.plan.peak_bytes["device"] == min(found.peaks.values())
    verify_schedule(found.module, module)
    assert recorded_peaks(parse_module(found.module.text)) == {
        name: found.peaks[name] for name in ("xla-list", "xla-dfs", "xla-postorder")
    }
    assert hlo_classes().hlo_module_from_text(found.module.text).name == module.name


def test_recorded_peaks_are_added_to_other_attributes_and_replaced() -> None:
    text = 'HloModule m, frontend_attributes={kept="yes"}\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n'
    once = record_peaks(parse_module(text), {"xla-list": 7})
    twice = record_peaks(once, {"xla-list": 8, "xla-dfs": 9})
    assert recorded_peaks(twice) == {"xla-list": 8, "xla-dfs": 9}
    assert 'kept="yes"' in twice.attributes["frontend_attributes"]
    assert recorded_peaks(parse_module(text)) == {}
    assert record_peaks(parse_module(text.replace(', frontend_attributes={kept="yes"}', "")), {}).name == "m"
