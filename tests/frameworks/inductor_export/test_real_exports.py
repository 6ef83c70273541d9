"""Exports of the installed Inductor are read with its own estimated peaks."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import lowtide
from lowtide.engine.analysis import Problem
from lowtide.engine.schedule import scheduler
from lowtide.inductor_export import InductorExportModel
from tests.oracles.inductor_exports import COUNTS_RESULTS, Exported, Foo, exports_of

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)  # Inductor's own


def _overwrites(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    product = x @ x
    state.add_(product)
    return (product @ state) @ x + state


def _many_results(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = torch.topk(x, 8)
    q, r = torch.ops.aten.linalg_qr.default(x @ y)
    product: torch.Tensor = q @ r
    return (values.sum() + torch.sort(y)[0].sum()) * places.sum(), product.sum(1)


@cache
def _exports() -> dict[str, Exported]:
    forward, backward = exports_of(Foo(), torch.ones(2048, 1), backward=True)
    (overwrites,) = exports_of(_overwrites, torch.ones(16, 16), torch.ones(16, 16))
    (results,) = exports_of(_many_results, torch.eye(32), torch.eye(32))
    return {"forward": forward, "backward": backward, "overwrites": overwrites, "results": results}


def _peaks(model: InductorExportModel, names: Any) -> dict[str, int]:
    problem = Problem(model.graph, in_place=False)
    return {name: int(problem.evaluate(scheduler(name).order(problem)).peaks[0]) for name in names}


counts_results = pytest.mark.skipif(not COUNTS_RESULTS, reason="this Inductor does not count results")


@counts_results
@pytest.mark.parametrize("name", ["forward", "backward", "overwrites"])
def test_peaks_of_all_orders_are_those_that_inductor_estimates(name: str) -> None:
    exported = _exports()[name]
    assert set(exported.peaks) == {"given", "lpmf", "bfs", "dfs"}
    assert _peaks(InductorExportModel(json.loads(exported.text)), exported.peaks) == exported.peaks


@counts_results
def test_elements_of_results_are_counted_as_inductor_counts_them() -> None:
    exported = _exports()["results"]
    document = json.loads(exported.text)
    assert any(buffer["size_alloc"] > buffer["size_free"] for buffer in document["buffers"])
    model = InductorExportModel(document)
    assert model.graph.unmodeled == ()
    assert _peaks(model, exported.peaks) == exported.peaks


@pytest.mark.parametrize("name", ["forward", "backward", "overwrites", "results"])
def test_the_export_in_the_best_order_is_one_that_needs_as_much_as_planned(name: str, tmp_path: Path) -> None:
    text = _exports()[name].text
    path = tmp_path / f"model__0_{name}_1_fused_5.txt"
    path.write_text(text)
    model = lowtide.open_model(path)
    result = lowtide.minimize(model.graph)
    if COUNTS_RESULTS:
        assert result.peak_bytes["device"] <= min(_exports()[name].peaks.values())
    model.save(result.plan, tmp_path / "planned.json")
    planned = json.loads((tmp_path / "planned.json").read_text())
    again = lowtide.minimize(lowtide.read(tmp_path / "planned.json"), allow=())
    assert again.peak_bytes == result.peak_bytes
    assert planned["buffers"] == json.loads(text)["buffers"]
    assert sorted(map(str, planned["nodes"])) == sorted(map(str, json.loads(text)["nodes"]))
