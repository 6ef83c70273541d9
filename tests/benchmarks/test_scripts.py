"""Benchmarks keep up with the code they measure."""

import ast
from importlib import import_module
from importlib.util import find_spec

import pytest

from lowtide.engine.graph.check import check_graph
from tests.benchmarks.conftest import BENCHMARKS, Load


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_script_and_helper_can_be_imported(load: Load, name: str) -> None:
    load(name)


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_what_a_script_imports_from_lowtide_only_when_it_runs_exists(name: str) -> None:
    for node in ast.walk(ast.parse((BENCHMARKS / f"{name}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lowtide"):
            module = import_module(node.module or "")
            names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert [name for name in names if find_spec(f"{node.module}.{name}") is None] == []


def test_generated_graphs_are_valid_programs_of_at_least_the_asked_number_of_ops(load: Load) -> None:
    generate = load("generate")
    for graph in (
        generate.training_step(200),
        generate.training_step(200, checkpointed=True),
        generate.random_program(200, recent=10),
    ):
        check_graph(graph)
        assert graph.n_ops >= 200
