"""Storage in exports, and one-line errors for broken exports."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide.core.errors import GraphError, InputError, LowtideError, MalformedInputError, UnsupportedError, UsageError
from lowtide.engine.analysis import Problem
from lowtide.engine.plan import Plan, Run
from lowtide.engine.schedule import scheduler
from lowtide.inductor_export import InductorExportModel, apply, load_export, read, save
from tests.oracles.inductor import InductorOfExport


def _buffer(name: str, alloc: int, free: int, deps: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "size_alloc": alloc,
        "size_free": free,
        "size": free,
        "is_input": False,
        "is_output": False,
        "deps": list(deps),
        "unmet_deps": list(deps),
        **more,
    }


def _export(*buffers: dict[str, Any], nodes: dict[str, list[str]] | None = None) -> dict[str, Any]:
    written = {f"op_{b['name']}": [b["name"]] for b in buffers if not b["is_input"]} if nodes is None else nodes
    return {"nodes": [{"name": name, "buffer_names": names} for name, names in written.items()], "buffers": [*buffers]}


def _live(document: dict[str, Any]) -> list[int]:
    """Return live bytes at every node in program order, as Inductor counts them."""
    last: dict[str, int] = {}
    known = {buffer["name"]: buffer for buffer in document["buffers"]}
    for step, node in enumerate(document["nodes"]):
        for name in node["buffer_names"]:
            last.update(dict.fromkeys((name, *known[name]["deps"]), step))
    curve: list[int] = []
    live = sum(buffer["size_alloc"] for buffer in known.values() if buffer["is_input"])
    for step, node in enumerate(document["nodes"]):
        live += sum(known[name]["size_alloc"] for name in node["buffer_names"])
        curve.append(live)
        live -= sum(b["size_free"] for name, b in known.items() if last.get(name) == step and not b["is_output"])
    return curve


RESULTS = _export(
    _buffer("whole", 30, 0),
    _buffer("left", 0, 10, ("whole",)),
    _buffer("right", 0, 20, ("whole",)),
    _buffer("a", 4, 4, ("left",)),
    _buffer("b", 4, 4, ("right", "a"), is_output=True),
)
NESTED = _export(
    _buffer("whole", 33, 0),
    _buffer("inner", 0, 0, ("whole",)),
    _buffer("left", 0, 10, ("inner",)),
    _buffer("right", 0, 20, ("inner",)),
    _buffer("a", 4, 4, ("right",)),
    _buffer("b", 4, 4, ("left", "a")),
)
INPUTS = _export(
    _buffer("kept", 8, 8, is_input=True, is_output=True),
    _buffer("given", 16, 16, is_input=True),
    _buffer("a", 4, 4, ("given", "kept")),
    _buffer("unused", 2, 2, ("a",)),
    _buffer("renamed", 0, 0, ("a",)),
    _buffer("b", 4, 4, ("a", "renamed", "kept"), is_output=True),
)
FUSED = _export(
    _buffer("a", 4, 4),
    _buffer("b", 8, 8),
    _buffer("c", 2, 2, ("a", "b")),
    nodes={"op_a_op_b": ["a", "b"], "op_c": ["c"]},
)


@pytest.mark.parametrize("document", [RESULTS, NESTED, INPUTS, FUSED], ids=["results", "nested", "inputs", "fused"])
def test_live_buffers_of_every_step_are_allocated_and_not_freed(document: dict[str, Any]) -> None:
    """Elements are freed separately; the rest of a result is never freed."""
    model = InductorExportModel(document)
    assert model.graph.unmodeled == ()
    peak = Problem(model.graph, in_place=False).evaluate(Problem(model.graph).given_order()).peaks.tolist()[0]
    assert peak == max(_live(document))


def _random_export(rng: Random) -> dict[str, Any]:
    """Return an export with inputs, fused nodes, results with elements, overwritten buffers and outputs."""
    buffers = [_buffer(f"in{k}", size, size, is_input=True) for k, size in enumerate(rng.choices(range(9), k=3))]
    nodes: dict[str, list[str]] = {}
    for _ in range(rng.randint(1, 12)):
        deps = [b["name"] for b in buffers if (b["size_free"] or not b["size_alloc"]) and rng.random() < 0.3]
        first, size = len(buffers), rng.randint(0, 9)
        if rng.random() < 0.3:
            sizes = rng.choices(range(1, 9), k=rng.randint(1, 3))
            kept = rng.choice((0, 0, 5))
            buffers.append(_buffer(f"b{first}", sum(sizes) + kept, 0, tuple(deps)))
            nodes[f"n{first}"] = [f"b{first}"]
            for place, element in enumerate(sizes, first + 1):
                buffers.append(_buffer(f"b{place}", 0, element, (f"b{first}",), is_output=rng.random() < 0.2))
                nodes[f"n{place}"] = [f"b{place}"]
        elif rng.random() < 0.2:
            names = [f"b{first}", f"b{first + 1}"]
            buffers += [_buffer(name, size, size, tuple(deps)) for name in names]
            nodes[f"n{first}"] = names
        else:
            size = rng.choice((0, size))
            buffers.append(_buffer(f"b{first}", size, size, tuple(deps), is_output=rng.random() < 0.3))
            nodes[f"n{first}"] = [f"b{first}"]
    used = {dep for buffer in buffers for dep in buffer["deps"]}
    for buffer in buffers[:3]:
        buffer["is_output"] = buffer["name"] not in used or rng.random() < 0.3
    return _export(*buffers, nodes=nodes)


@given(st.randoms(use_true_random=False))
def test_peaks_of_random_exports_are_those_of_a_slow_count_in_any_order(rng: Random) -> None:
    document = _random_export(rng)
    model = InductorExportModel(document)
    assert model.graph.unmodeled == ()
    for name in ("given", "dfs", "search"):
        result = lowtide.minimize(model.graph, scheduler=name, in_place=False)
        assert result.peak_bytes["device"] == max(_live(dict(model.apply(result.plan).document)))


@given(st.randoms(use_true_random=False))
def test_breadth_first_and_depth_first_are_inductors_own(rng: Random) -> None:
    """Readers of an element wait for the node of the element, not of the result."""
    document = _random_export(rng)
    for buffer in document["buffers"]:
        buffer["is_output"] &= not buffer["is_input"]  # such inputs stay and count here as nothing
    graph, real = read(document), InductorOfExport(document)
    for name, expected in (("bfs", real.bfs()), ("dfs", real.dfs())):
        order = scheduler(name).order(Problem(graph, in_place=False))
        assert [graph.op_names[op] for op in order.tolist()] == expected


def test_freed_bytes_without_allocation_give_a_note() -> None:
    graph = read(_export(_buffer("a", 4, 10), _buffer("b", 1, 1, ("a",))))
    assert graph.unmodeled == ("buffer 'a' frees 6 bytes that no buffer it reads allocates",)
    assert graph.sizes.tolist() == [4, 1]


def test_a_buffer_that_is_not_described_is_told() -> None:
    graph = read(_export(_buffer("a", 4, 4), nodes={"op": ["a", "b"]}))
    assert graph.unmodeled == ("buffer 'b' is written and has no size",)


def test_unknown_fields_are_kept() -> None:
    document: dict[str, Any] = {"version": 3, **_export(_buffer("a", 4, 4, origin="mm"), _buffer("b", 4, 4))}
    document["nodes"][0]["stream"] = 7
    plan = Plan.from_steps(read(document), [Run(1), Run(0)])
    applied = apply(lowtide.Plan.from_order(read(document), plan.order()), document)
    assert applied.document == {**document, "nodes": document["nodes"][::-1]}
    assert [node.name for node in applied.nodes] == ["op_b", "op_a"]


def test_inputs_that_an_export_leaves_out_are_no_error() -> None:
    document = _export(_buffer("a", 4, 4, ("primals_1",), unmet_deps=[]))
    assert read(document).n_buffers == 1


@pytest.mark.parametrize(
    ("document", "error", "says"),
    [
        ({}, MalformedInputError, "nodes"),
        ({"nodes": []}, MalformedInputError, "buffers"),
        ({"nodes": 3, "buffers": []}, MalformedInputError, "array"),
        (_export(_buffer("a", 4, 4, size_alloc="4")), MalformedInputError, "size_alloc"),
        (_export(_buffer("a", 4, 4, size_free=4.5)), MalformedInputError, "size_free"),
        (_export(_buffer("a", -4, -4)), GraphError, "'a'"),
        (_export(_buffer("a", 2**64, 2**64)), GraphError, "2\\^63"),
        (_export(_buffer("a", 4, 4), _buffer("a", 4, 4)), GraphError, "two buffers"),
        (_export(_buffer("a", 4, 4), nodes={"op": []}), GraphError, "no node writes buffer 'a'"),
        (_export(_buffer("a", 4, 4), nodes={"op": ["a"], "po": ["a"]}), GraphError, "both write 'a'"),
        (_export(_buffer("a", 4, 4, is_input=True), nodes={"op": ["a"]}), GraphError, "which is an input"),
        (_export(_buffer("a", 4, 4, ("b",))), GraphError, "'b'"),
        (_export(_buffer("a", 4, 4, ("b",)), _buffer("b", 4, 4)), GraphError, "order"),
        (_export(_buffer("a", 4, 4, ("b",)), _buffer("b", 4, 4, ("a",))), GraphError, "order"),
    ],
)
def test_a_broken_export_is_refused_in_one_line_that_names_the_place(
    document: dict[str, Any], error: type[LowtideError], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"nodes": document.get("nodes"), **document} if document else {}))
    for source in (document, path) if document and "nodes" in document else (document,):
        with pytest.raises(error, match=says) as refused:
            InductorExportModel(source)
        assert "\n" not in str(refused.value)
        assert source is document or str(path) in str(refused.value)


def test_every_cut_of_an_export_is_refused(tmp_path: Path) -> None:
    text = json.dumps(RESULTS)
    for end in range(0, len(text) - 1, 7):
        (tmp_path / "cut.json").write_text(text[:end])
        with pytest.raises(InputError):
            lowtide.read(tmp_path / "cut.json")


def test_dims_and_repeated_nodes_are_refused() -> None:
    with pytest.raises(UsageError, match="dims"):
        read(RESULTS, {"batch": 2})
    graph = read(RESULTS)
    twice = Plan.from_steps(graph, [Run(0), *(Run(op) for op in range(graph.n_ops))])
    with pytest.raises(LowtideError):
        apply(twice, RESULTS)


def test_an_export_with_a_gz_name_is_gzipped(tmp_path: Path) -> None:
    plan = lowtide.minimize(read(RESULTS)).plan
    save(plan, RESULTS, tmp_path / "planned.json.gz")
    assert (tmp_path / "planned.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert load_export(tmp_path / "planned.json.gz") == apply(plan, RESULTS)
    assert lowtide.read(tmp_path / "planned.json.gz").n_ops == 5


@pytest.mark.parametrize("keys", [["nodes", "buffers"], ["buffers", "nodes"]])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["export", "export.txt", "export.json", "export.graph.json", "export.onnx"])
def test_an_export_is_told_by_its_content(keys: list[str], indent: int | None, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps({key: RESULTS[key] for key in keys}, indent=indent))
    assert isinstance(lowtide.open_model(tmp_path / name), InductorExportModel)


def test_it_cannot_be_measured() -> None:
    model = InductorExportModel(RESULTS)
    with pytest.raises(UnsupportedError, match="--measure"):
        model.measure(Plan.baseline(model.graph))
