"""Every model of the onnx package: read, planned, written, run, and its results compared bit by bit."""

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.case.model import collect_testcases as model_cases
from onnx.backend.test.case.node import collect_testcases as node_cases
from results import write_section

import lowtide
from lowtide.core.errors import LowtideError
from lowtide.frameworks.onnx.loading.load import load_model, load_whole_model
from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.operators.nodes import fed_inputs
from lowtide.frameworks.onnx.shapes.infer import dynamic_dimensions
from lowtide.frameworks.outputs import largest_difference
from lowtide.onnx import OnnxModel

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


@dataclass(frozen=True)
class Given:
    """A model, and the inputs that the package has for it; None where there are none, or others than tensors."""

    name: str
    source: Path | ModelProto
    inputs: dict[str, Any] | None


def all_models() -> Iterator[Given]:
    """Give the models in files, those that the package makes of its operators, and its larger ones."""
    for path in sorted(DATA.rglob("model.onnx")):
        yield Given(path.parent.name, path, _inputs_beside(path))
    # The package warns of infinities in its own examples.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [*node_cases(None), *model_cases()]
    for case in cases:
        if case.model is not None:
            arrays = case.data_sets[0][0] if case.data_sets else []
            yield Given(case.name, case.model, _named(case.model, arrays))


def _inputs_beside(path: Path) -> dict[str, Any] | None:
    model = load_model(path)
    files = [path.parent / "test_data_set_0" / f"input_{number}.pb" for number in range(len(fed_inputs(model.graph)))]
    if not all(value.type.HasField("tensor_type") for value in model.graph.input):
        return None
    read = [TensorProto.FromString(file.read_bytes()) for file in files if file.is_file()]
    return _named(model, list(map(numpy_helper.to_array, read)))


def _named(model: ModelProto, arrays: Sequence[Any]) -> dict[str, Any] | None:
    names = [value.name for value in fed_inputs(model.graph)]
    if len(names) != len(arrays) or not all(isinstance(array, np.ndarray | np.generic) for array in arrays):
        return None
    return dict(zip(names, map(np.asarray, arrays), strict=True))


def dims_of(model: ModelProto, inputs: dict[str, Any] | None) -> dict[str, int]:
    """Return the sizes of dynamic dimensions that the inputs have, 2 for those that nothing tells."""
    dims = dict.fromkeys(dynamic_dimensions(model.graph), 2)
    for value in fed_inputs(model.graph) if inputs else ():
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            name = dim.dim_param or f"{value.name}.{axis}"
            if name in dims and inputs is not None and axis < inputs[value.name].ndim:
                dims[name] = inputs[value.name].shape[axis]
    return dims


def verdict(given: Given) -> str:
    """Say in a few words what came of one model."""
    try:
        model = load_model(given.source)
        dims = dims_of(model, given.inputs)
        opened = OnnxModel(given.source, dims)
        written = opened.apply(lowtide.minimize(opened.graph, effort="fast").plan)
    except LowtideError as error:
        return f"refused by lowtide: {error}"
    if given.inputs is None:
        return "read and written; the package has no tensors to run it on"
    folder = given.source.parent if isinstance(given.source, Path) else None
    try:
        before = measure_peak(load_whole_model(given.source), given.inputs, dims=dims, folder=folder)
    except LowtideError:
        return "read and written; ONNX Runtime does not run the given model"
    try:
        after = measure_peak(written, given.inputs, dims=dims, folder=folder)
    except LowtideError as error:
        return f"BROKEN: {error}"
    return "read, written, equal bits" if largest_difference(before.outputs, after.outputs) == 0 else "DIFFERENT BITS"


def main() -> None:
    """Try all models, print what is not as it should be, and write the section into RESULTS.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, help="try every Nth model only, and write nothing")
    every: int = parser.parse_args().every
    counts: Counter[str] = Counter()
    for given in islice(all_models(), 0, None, every):
        found = verdict(given)
        counts[found.split(":")[0]] += 1
        if not found.startswith("read"):
            print(f"{given.name}: {found}", flush=True)
    rows = [f"| {found} | {count} |" for found, count in counts.most_common()]
    table = "\n".join(
        [f"onnx {onnx.__version__}, {counts.total()} models.", "", "| what came of it | models |", "|---|--:|", *rows]
    )
    print(table)
    if every == 1:
        write_section("Models of the onnx package", "python benchmarks/bench_onnx_package.py", table)


if __name__ == "__main__":
    main()
