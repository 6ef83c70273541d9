"""What every framework keeps to, and graph files where it applies: one small program, from reading to measuring."""

import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lowtide
from lowtide.api.opening import save_applied
from lowtide.core.errors import FingerprintError, InputError, UnsupportedError, UsageError, VerificationError
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, Run
from lowtide.engine.planning.plan_file import read_plan
from lowtide.frameworks.model import Model
from lowtide.frameworks.table import FRAMEWORKS, Framework
from tests.contracts.frameworks import ENTRIES, N_OPS, Entry, Known
from tests.sentences import why

KNOWN = Known()
FITTING, TOO_SMALL = KNOWN.best_peak, KNOWN.best_peak // 2
ROWS = {framework.name: framework for framework in FRAMEWORKS}
RUNNABLE = [entry for entry in ENTRIES if entry.run is not None]
IN_TABLE = [entry for entry in ENTRIES if entry.name in ROWS]


def _installed(entry: Entry) -> bool:
    return entry.needs is None or find_spec(entry.needs) is not None


every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
every_framework = pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            entry, marks=pytest.mark.skipif(not _installed(entry), reason=f"there is no package {entry.needs}")
        )
        for entry in RUNNABLE
    ],
    ids=lambda entry: entry.name,
)


@cache
def _opened(entry: Entry) -> Model:
    """Read the program once for all tests, which only look at it."""
    return lowtide.open_model(entry.make(KNOWN.elements))


@cache
def _planned(entry: Entry) -> lowtide.Result:
    return lowtide.minimize(_opened(entry).graph)


def _only(figures: Any) -> int:
    """Return the one figure of a program with one memory space."""
    (figure,) = figures.values()
    return figure


def test_every_framework_in_the_table_has_an_entry_here() -> None:
    assert [entry.name for entry in ENTRIES] == ["graph_file", *ROWS]


@every_entry
def test_the_graph_of_the_program_is_known_to_the_byte(entry: Entry) -> None:
    graph = _opened(entry).graph
    assert graph.n_ops == N_OPS
    assert sorted(graph.sizes.tolist()) == KNOWN.buffer_bytes
    assert _only(graph.persistent_bytes()) == 0
    assert graph.unmodeled == ()


@every_entry
def test_the_program_read_again_or_from_its_file_is_the_same_graph(entry: Entry, tmp_path: Path) -> None:
    program = entry.make(KNOWN.elements)
    expected = _opened(entry).graph.fingerprint
    assert lowtide.read(program).fingerprint == expected
    if entry.write is not None:
        assert lowtide.read(entry.write(program, tmp_path)).fingerprint == expected


@every_entry
def test_predicted_peaks_are_known_to_the_byte(entry: Entry) -> None:
    result = _planned(entry)
    assert _only(result.baseline_peak_bytes) == KNOWN.baseline_peak
    assert _only(result.peak_bytes) == _only(result.lower_bound_bytes) == KNOWN.best_peak
    assert result.status == "optimal"


@every_framework
def test_measured_peaks_are_the_predicted_ones(entry: Entry) -> None:
    measured = _opened(entry).measure(_planned(entry).plan)
    assert (measured.before_bytes, measured.after_bytes) == (KNOWN.baseline_peak, KNOWN.best_peak)
    assert measured.outputs_equal


@every_framework
def test_outputs_of_the_applied_program_are_those_of_the_original(entry: Entry) -> None:
    assert entry.run is not None
    program = entry.make(KNOWN.elements)
    applied = lowtide.apply(_planned(entry).plan, program)
    assert entry.run(applied) == entry.run(program) != b""


@every_entry
def test_a_plan_file_gives_the_plan_back(entry: Entry, tmp_path: Path) -> None:
    model, plan = _opened(entry), _planned(entry).plan
    file, again = tmp_path / "program.plan.json", tmp_path / "again.plan.json"
    save_applied(model, plan, file)
    form, read = read_plan(file, model)
    save_applied(model, read, again)
    assert form.graph is model.graph
    assert list(read.steps()) == list(plan.steps())
    assert file.read_bytes() == again.read_bytes()


@every_entry
def test_a_saved_program_runs_in_the_planned_order_or_no_file_is_written(entry: Entry, tmp_path: Path) -> None:
    model, plan = _opened(entry), _planned(entry).plan
    if entry.name in ROWS:
        assert set(model.file_endings) <= set(ROWS[entry.name].endings_for(entry.make(KNOWN.elements)))
    for ending in model.file_endings:
        model.save(plan, tmp_path / f"planned{ending}")
        planned = lowtide.minimize(lowtide.read(tmp_path / f"planned{ending}"), allow=())
        assert _only(planned.peak_bytes) == KNOWN.best_peak
    if not model.file_endings:
        with pytest.raises(UnsupportedError, match=r"\.plan\.json"):
            model.save(plan, tmp_path / "planned")
        assert not (tmp_path / "planned").exists()


@every_entry
@pytest.mark.parametrize("budget", [f"{FITTING} B", "60%"], ids=["bytes", "percent"])
def test_a_budget_that_some_order_fits_is_met(entry: Entry, budget: str) -> None:
    result = lowtide.minimize(_opened(entry).graph, budget=budget)
    assert result.shortfall is None
    assert _only(result.peak_bytes) == KNOWN.best_peak


@every_entry
@pytest.mark.parametrize("budget", [f"{TOO_SMALL} B", "25%"], ids=["bytes", "percent"])
def test_a_budget_that_nothing_fits_is_refused_with_the_op_that_needs_more(entry: Entry, budget: str) -> None:
    result = lowtide.minimize(_opened(entry).graph, budget=budget, allow=["reorder", "share", "recompute"])
    assert result.status == "infeasible"
    assert result.shortfall is not None
    assert re.search("alone needs|tensors live during", why(result.shortfall))
    assert any(f"'{name}'" in why(result.shortfall) for name in _opened(entry).graph.op_names)


@every_entry
def test_a_plan_for_another_program_is_refused_everywhere(entry: Entry, tmp_path: Path) -> None:
    model, other = _opened(entry), lowtide.open_model(entry.make(2 * KNOWN.elements))
    plan = lowtide.minimize(other.graph).plan
    save_applied(other, plan, tmp_path / "other.plan.json")
    with pytest.raises(FingerprintError):
        read_plan(tmp_path / "other.plan.json", model)
    with pytest.raises(FingerprintError):
        model.apply(plan)
    for ending in model.file_endings:
        with pytest.raises(FingerprintError):
            model.save(plan, tmp_path / f"planned{ending}")
    with pytest.raises(FingerprintError if entry in RUNNABLE else UnsupportedError):
        model.measure(plan)


@every_entry
def test_a_plan_that_breaks_the_program_is_not_applied(entry: Entry) -> None:
    model = _opened(entry)
    backwards = Plan.from_steps(model.graph, [Run(op) for op in reversed(range(model.graph.n_ops))])
    with pytest.raises(VerificationError):
        model.apply(backwards)


@every_entry
def test_a_plan_that_copies_to_a_host_goes_to_a_file_and_runs_or_is_refused(entry: Entry, tmp_path: Path) -> None:
    program = entry.make(KNOWN.elements)
    model = lowtide.open_model(program, host=Host(bandwidth_bytes_per_s=1e9))
    result = lowtide.minimize(model.graph, allow=["offload"], budget=f"{FITTING} B")
    assert (result.shortfall is None) == entry.tells_effects
    assert (result.transfers.bytes_out > 0) == entry.tells_effects
    save_applied(model, result.plan, tmp_path / "program.plan.json")
    _, plan = read_plan(tmp_path / "program.plan.json", model, over_budget=not entry.tells_effects)
    assert list(plan.steps()) == list(result.plan.steps())
    if entry.copies_to_host:
        assert entry.run is not None
        applied = model.apply(plan)
        if _installed(entry):
            assert entry.run(applied) == entry.run(program)
    else:
        with pytest.raises(UnsupportedError, match="write a plan"):
            model.apply(plan)


@every_entry
def test_dimensions_that_the_program_does_not_have_are_refused_in_one_line(entry: Entry) -> None:
    with pytest.raises(UsageError) as refused:
        lowtide.read(entry.make(KNOWN.elements), dims={"no such dimension": 4})
    assert "\n" not in str(refused.value)


@every_entry
def test_ops_are_timed_one_by_one_or_refused_with_a_way_around(entry: Entry) -> None:
    model = _opened(entry)
    if entry.times_single_ops:
        assert len(model.measure_costs().seconds) == N_OPS
    else:
        with pytest.raises(UnsupportedError, match="--costs"):
            model.measure_costs()


@pytest.mark.parametrize("entry", IN_TABLE, ids=lambda entry: entry.name)
def test_the_public_module_reads_and_applies_as_lowtide_does(entry: Entry) -> None:
    public = import_module(f"lowtide.{entry.name}")
    program, plan = entry.make(KNOWN.elements), _planned(entry).plan
    assert {"read", "apply"} <= set(public.__all__)
    assert ("measure" in public.__all__) == (entry.run is not None)
    assert public.read(program).fingerprint == _opened(entry).graph.fingerprint
    if entry.run is None or not _installed(entry):
        assert public.apply(plan, program) == lowtide.apply(plan, program)
    else:
        assert entry.run(public.apply(plan, program)) == entry.run(program)


@pytest.mark.parametrize("entry", [entry for entry in RUNNABLE if ROWS[entry.name].extra], ids=lambda entry: entry.name)
def test_a_missing_extra_is_said_in_one_line_with_the_command_that_installs_it(entry: Entry, tmp_path: Path) -> None:
    """Its packages are hidden from the import system of a process of its own."""
    row = ROWS[entry.name]
    path = tmp_path / f"program{row.file_endings[0] if row.file_endings else '.py'}"
    path.write_bytes(b"nobody gets to open this")
    module = f"import lowtide.{row.name}"
    given = repr(str(path)) if row.file_endings else f"'lowtide.{row.name}:read'"
    inspect = f"from lowtide.cli import main; sys.argv = ['lowtide', 'inspect', {given}]; main()"
    advice = f"pip install 'lowtide[{row.extra}]'"
    for code in (f"lowtide.read({given})", module, inspect):
        run = _without_packages(row, code)
        assert run.stdout == ""
        assert run.stderr.strip().endswith(advice)
    assert run.returncode == InputError.exit_code
    assert run.stderr.count("\n") == 1


def _without_packages(row: Framework, code: str) -> subprocess.CompletedProcess[str]:
    hidden = dict.fromkeys(row.packages)
    command = f"import sys; sys.modules.update({hidden}); import lowtide; {code}"
    return subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
