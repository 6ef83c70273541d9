"""From anything a user has to a model: which framework reads what, decided without loading any of them."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from lowtide.errors import FingerprintError, LowtideError, UsageError, VerificationError, one_line
from lowtide.files import check_writable
from lowtide.frameworks.content import kind_of_file
from lowtide.frameworks.graph_file import GraphModel, open_graph_file
from lowtide.frameworks.memory_snapshot import open_snapshot
from lowtide.frameworks.model import CopiesToHost, Measurement, Model
from lowtide.frameworks.plan_files_only import PlanFilesOnly
from lowtide.frameworks.table import FRAMEWORKS, framework_of, framework_of_file, way_to_read
from lowtide.graph import Graph
from lowtide.offload import Host
from lowtide.plan import Plan, read_plan_file, write_plan_file

_PLAN_FILES = (".plan.json", ".plan.json.gz")
_FILES = (
    ".graph.json[.gz]",
    *dict.fromkeys(ending for framework in FRAMEWORKS for ending in framework.file_endings),
    ".pickle",
)
_KINDS = f"a {', '.join(_FILES[:-1])} or {_FILES[-1]} file, or package.module:callable"


def open_model(
    source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None, *, trust: bool = False
) -> Model:
    """Read a program once, to plan it, apply the plan and measure.

    `source` is a path (.graph.json[.gz], .onnx, .pt2, .pb, .pbtxt, .hlo, an export of Inductor, a memory snapshot of
    PyTorch, a folder with a SavedModel; where the content tells what it is, that counts and not the name), the name of
    a callable ("package.module:callable") that returns one of the following, or an object: a Graph, an onnx ModelProto,
    a Caffe2 NetDef, a GraphDef, MetaGraphDef, tf.Graph or ConcreteFunction of TensorFlow, a GraphInterface of
    Mesh-TensorFlow, an HLO module of XLA, a ClosedJaxpr of JAX, a torch ExportedProgram, FX GraphModule, captured
    program, or a tuple
    (function or module, example inputs). `dims` gives sizes to dynamic dimensions by name. With `host`, plans may copy
    buffers there and back. A file runs code only with `trust`, and a .pt2 that would is refused without; naming a
    callable runs its module (docs/trust.md).
    Raises UsageError for a source of no known kind, InputError and its kinds for one that cannot be read.
    """
    model = _open(source, dict(dims or {}), trust)
    if host is None:
        return model
    return model.with_host(host) if isinstance(model, CopiesToHost) else PlanFilesOnly(model, host)


def _open(source: Any, bound: Mapping[str, int], trust: bool) -> Model:
    if isinstance(source, Graph):
        return _without_dims(GraphModel(source), bound)
    if isinstance(source, str | Path):
        return _open_name(str(source), bound, trust)
    framework = framework_of(source)
    if framework is not None:
        return framework.load()(source, bound)
    way = way_to_read(source)
    if way is not None:
        raise UsageError(
            f"a {type(source).__name__} alone does not say which tensors stay; give {way}(graph, final=...)"
        )
    raise UsageError(f"cannot read a {type(source).__name__}; give {_KINDS}, or a framework's program object")


def read(source: Any, dims: Mapping[str, int] | None = None, *, trust: bool = False) -> Graph:
    """Read any program into a graph; `source`, `dims`, `trust` and the errors are those of `open_model`."""
    return open_model(source, dims, trust=trust).graph


def apply(
    plan: Plan, source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None, *, trust: bool = False
) -> Any:
    """Return the framework's own kind of program that follows the plan: a callable, a ModelProto, a graph.

    `host` is the one that the plan was made with, for `host.added_to(graph)`. Raises FingerprintError when the plan was
    made for another program or host, UnsupportedError for a plan this framework cannot carry out. `trust` is that of
    `open_model`.
    """
    return open_model(source, dims, host, trust=trust).apply(plan)


def measure(
    plan: Plan, source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None, *, trust: bool = False
) -> Measurement:
    """Run a program as it stands and under the plan, and return the real peaks of live tensor bytes of both.

    Raises what `apply` raises.
    """
    return open_model(source, dims, host, trust=trust).measure(plan)


def check_output(path: Path, model: Model | None = None) -> None:
    """Raise UsageError unless a plan can be written to this path or, with a model, the program that follows it.

    Call it before planning, so that nobody waits for a plan that has nowhere to go.
    """
    endings = (*_PLAN_FILES, *(model.file_endings if model else ()))
    if not path.name.endswith(endings):
        raise UsageError(f"cannot write {path.name!r} here; give a name that ends in {', '.join(endings)}")
    check_writable(path)


def read_plan(path: Path, model: Model, *, over_budget: bool = False) -> tuple[Graph, Plan]:
    """Read and verify a plan file; return the plan, and the graph that it is for: the model's own or that in chunks.

    Raises FingerprintError for a plan of neither, VerificationError unless `over_budget` for one that says itself that
    it does not fit, and what `lowtide.plan.read_plan_file` raises.
    """
    graph, plan = _read_plan(path, model)
    if plan.status == "infeasible" and not over_budget:
        raise VerificationError(
            f"{path}: the plan says itself that it is infeasible, so it does not fit the budget or capacity that it "
            "was made for; plan with more memory, or accept it as it is with --allow-over-budget"
        )
    return graph, plan


def _read_plan(path: Path, model: Model) -> tuple[Graph, Plan]:
    try:
        return model.graph, read_plan_file(path, model.graph)
    except FingerprintError:
        if model.in_chunks is None:
            raise
    return model.in_chunks, read_plan_file(path, model.in_chunks)


def save_applied(model: Model, plan: Plan, path: Path) -> None:
    """Write the program that follows the plan or, where the name ends in .plan.json[.gz], the plan itself.

    Raises UnsupportedError where the framework has no file for programs, UsageError where the file cannot be written.
    """
    if path.name.endswith(_PLAN_FILES):
        write_plan_file(plan, path, _graph_of(plan, model))
    else:
        model.save(plan, path)


def _graph_of(plan: Plan, model: Model) -> Graph:
    chunks = model.in_chunks if plan.graph_fingerprint != model.graph.fingerprint else None
    return model.graph if chunks is None else chunks


def _open_name(name: str, dims: Mapping[str, int], trust: bool) -> Model:
    lower = name.lower()
    kind = kind_of_file(name)
    if kind == "json" or (kind is None and lower.endswith((".json", ".json.gz"))):
        return _without_dims(open_graph_file(name), dims)
    if kind == "memory_snapshot" or (kind is None and lower.endswith(".pickle")):
        return _without_dims(open_snapshot(name), dims)
    framework = framework_of_file(name, kind)
    if framework is not None:
        return framework.load(trust=trust)(name, dims)
    module, colon, attribute = name.partition(":")
    if not colon or "/" in name or not all(part.isidentifier() for part in f"{module}.{attribute}".split(".")):
        raise UsageError(f"cannot tell what {name!r} is; give {_KINDS}")
    program = _call(module, attribute)
    if isinstance(program, str | Path):
        raise UsageError(f"{name} returns a name, {str(program)!r}; return (function or module, example inputs)")
    return open_model(program, dims)


def _call(module: str, attribute: str) -> Any:
    """Import a module, with the working directory on the path as `python -m` has it, and call what it names."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    target: Any = _run_foreign(f"import of {module!r}", lambda: import_module(module))
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise UsageError(f"module {module!r} has no {attribute!r}")
        target = getattr(target, part)
    if not callable(target):
        raise UsageError(f"{module}:{attribute} is not callable; name a function that returns (function, inputs)")
    return _run_foreign(f"{module}:{attribute}()", target)


def _run_foreign(what: str, code: Callable[[], Any]) -> Any:
    """Run code of the user's and turn whatever it raises into one line."""
    try:
        return code()
    except LowtideError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"{what} failed: {error}; run from the folder that holds it, or install it") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{what} failed: {type(error).__name__}: {one_line(error, 1000)}") from error


def _without_dims(model: Model, dims: Mapping[str, int]) -> Model:
    if dims:
        raise UsageError("the program has sizes already, there is no dimension to bind; leave out --dim (dims)")
    return model
