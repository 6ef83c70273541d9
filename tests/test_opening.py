"""Which framework reads what, and what every model can do."""

import subprocess
import sys
from pathlib import Path

import pytest

import lowtide
from lowtide.api.opening import check_output, save_applied
from lowtide.core.errors import FingerprintError, InputError, UnsupportedError, UsageError, VerificationError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, write_graph_file
from lowtide.engine.plan import Free, Plan, Run
from lowtide.frameworks.graph_file import GraphModel


def _branches(size: int = 100) -> Graph:
    builder = GraphBuilder("branches")
    big = [builder.add_buffer(f"big{k}", size) for k in range(2)]
    small = [builder.add_buffer(f"small{k}", 1, Lifetime.OUTPUT) for k in range(2)]
    for k in range(2):
        builder.add_op(f"grow{k}", "grow", writes=[big[k]])
    for k in range(2):
        builder.add_op(f"shrink{k}", "shrink", reads=[big[k]], writes=[small[k]])
    return builder.build()


def test_a_graph_is_its_own_model() -> None:
    graph = _branches()
    assert lowtide.read(graph) is graph
    assert isinstance(lowtide.open_model(graph), GraphModel)


@pytest.mark.parametrize("name", ["x.graph.json", "x.graph.json.gz", "x.json", "X.JSON"])
def test_graph_files_are_read_by_path_or_name(tmp_path: Path, name: str) -> None:
    write_graph_file(_branches(), tmp_path / name)
    for source in (tmp_path / name, str(tmp_path / name)):
        assert lowtide.read(source).fingerprint == _branches().fingerprint


def test_reading_a_graph_file_loads_no_framework(tmp_path: Path) -> None:
    write_graph_file(_branches(), tmp_path / "x.graph.json")
    command = (
        f"import lowtide, sys; lowtide.apply(lowtide.minimize(lowtide.read({str(tmp_path / 'x.graph.json')!r})).plan, "
        f"{str(tmp_path / 'x.graph.json')!r}); print(*{{'torch', 'onnx', 'rich', 'click'}} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize("source", [42, None, 1.5, {"a": 1}, object(), b"bytes", "no such thing", "a.txt"])
def test_what_nobody_reads_is_a_usage_error(source: object) -> None:
    with pytest.raises(UsageError, match="cannot"):
        lowtide.read(source)


def test_a_missing_file_is_an_input_error_even_with_a_name_no_system_takes() -> None:
    for name in ("missing.graph.json", "a\0b.graph.json", "n" * 300 + ".graph.json"):
        with pytest.raises(InputError, match="cannot read"):
            lowtide.read(name)


def test_dimensions_are_refused_where_there_is_nothing_to_bind(tmp_path: Path) -> None:
    write_graph_file(_branches(), tmp_path / "x.graph.json")
    for source in (_branches(), tmp_path / "x.graph.json"):
        with pytest.raises(UsageError, match="no dynamic dimensions"):
            lowtide.read(source, dims={"batch": 4})


def test_an_applied_graph_runs_in_the_plans_order_with_the_planned_peak(tmp_path: Path) -> None:
    graph = _branches()
    result = lowtide.minimize(graph)
    applied = lowtide.apply(result.plan, graph)
    assert result.peak_bytes["device"] < result.baseline_peak_bytes["device"]
    assert list(applied.op_names) == [graph.op_names[op] for op in result.plan.order()]
    assert lowtide.minimize(applied, allow=()).peak_bytes == result.peak_bytes
    save_applied(lowtide.open_model(graph), result.plan, tmp_path / "out.graph.json")
    assert lowtide.read(tmp_path / "out.graph.json").fingerprint == applied.fingerprint


def test_a_plan_goes_to_a_plan_file_whatever_the_model_is(tmp_path: Path) -> None:
    graph = _branches()
    plan = lowtide.minimize(graph).plan
    save_applied(lowtide.open_model(graph), plan, tmp_path / "out.plan.json.gz")
    assert list(lowtide.read_plan_file(tmp_path / "out.plan.json.gz", graph).steps()) == list(plan.steps())


def test_a_plan_for_another_graph_is_not_applied() -> None:
    with pytest.raises(FingerprintError, match="make a new plan for this graph"):
        lowtide.apply(lowtide.minimize(_branches(size=7)).plan, _branches())


def test_a_plan_that_breaks_the_program_is_not_applied() -> None:
    graph = _branches()
    with pytest.raises(VerificationError, match="shrink0"):
        lowtide.apply(Plan.from_steps(graph, [Run(op) for op in (2, 0, 1, 3)]), graph)


def test_what_a_graph_file_cannot_say_is_unsupported() -> None:
    graph = _branches()
    twice = Plan.from_steps(graph, [Run(0), Free(0), *(Run(op) for op in range(4))])
    with pytest.raises(UnsupportedError, match="runs some ops twice"):
        lowtide.apply(twice, graph)
    with pytest.raises(UnsupportedError, match="cannot be run"):
        lowtide.measure(Plan.baseline(graph), graph)


def test_an_output_is_checked_by_its_name_and_place(tmp_path: Path) -> None:
    model = lowtide.open_model(_branches())
    for name in ("a.plan.json", "a.plan.json.gz", "a.graph.json", "a.graph.json.gz"):
        check_output(tmp_path / name, model)
    check_output(tmp_path / "a.plan.json")
    for name in ("a.graph.json", "a.json"):
        with pytest.raises(UsageError, match=r"ends in \.plan\.json"):
            check_output(tmp_path / name)
    with pytest.raises(UsageError, match=r"\.graph\.json"):
        check_output(tmp_path / "a.onnx", model)
    with pytest.raises(UsageError, match="no folder"):
        check_output(tmp_path / "missing" / "a.plan.json")


def test_a_callable_is_found_by_module_and_dotted_name_and_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_graph_file(_branches(), tmp_path / "x.graph.json")
    (tmp_path / "graph_maker.py").write_text(
        "import lowtide\n"
        "class Nested:\n    'Nothing to call.'\n"
        "    @staticmethod\n    def make():\n        return lowtide.read('x.graph.json')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert lowtide.read("graph_maker:Nested.make").fingerprint == _branches().fingerprint
    with pytest.raises(UsageError, match="not callable"):
        lowtide.read("graph_maker:Nested.__doc__")
    with pytest.raises(UsageError, match=r"has no 'Nested\.missing'"):
        lowtide.read("graph_maker:Nested.missing")


def test_a_result_in_the_place_of_its_plan_is_refused_with_what_to_give() -> None:
    graph = _branches()
    result = lowtide.minimize(graph)
    for given, instead in ((result, "its .plan"), (None, "result.plan")):
        with pytest.raises(UsageError, match=instead):
            lowtide.apply(given, graph)  # pyright: ignore[reportArgumentType]
