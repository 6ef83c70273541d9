"""From anything a user has to a model: which framework reads what, decided without loading any of them."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from lowtide.core.errors import FingerprintError, LowtideError, UsageError, one_line
from lowtide.core.files import check_writable
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, checked_plan, write_plan_file
from lowtide.engine.planning.measured import Measurement
from lowtide.frameworks.content import kind_of_file
from lowtide.frameworks.graph_file import GraphModel, open_graph_file
from lowtide.frameworks.memory_snapshot import open_snapshot
from lowtide.frameworks.model import Model, is_model
from lowtide.frameworks.table import FRAMEWORKS, Framework, framework_of, framework_of_file, way_to_read

ModelKind = TypeVar("ModelKind", bound=Model)
PLAN_FILES = (".plan.json", ".plan.json.gz")
_FILES = (
    ".graph.json[.gz]",
    *dict.fromkeys(ending for framework in FRAMEWORKS for ending in framework.file_endings),
    ".pickle",
)
_WRITTEN = tuple(
    dict.fromkeys((".graph.json", ".graph.json.gz", *(ending for each in FRAMEWORKS for ending in each.writes)))
)
_KINDS = f"a {', '.join(_FILES[:-1])} or {_FILES[-1]} file, or package.module:callable"


def open_model(
    source: Any,
    dims: Mapping[str, int] | None = None,
    host: Host | None = None,
    *,
    trust: bool = False,
    output: Path | None = None,
) -> Model:
    """Read a program once, to plan it, apply the plan and measure.

    `source` is a path (.graph.json[.gz], .onnx, .pt2, .pb, .pbtxt, .hlo, an export of Inductor, a memory snapshot of
    PyTorch, a folder with a SavedModel; where the content tells what it is, that counts and not the name), the name of
    a callable ("package.module:callable") that returns one of the following, or an object: a Graph, an onnx ModelProto,
    a Caffe2 NetDef, a GraphDef, MetaGraphDef, tf.Graph or ConcreteFunction of TensorFlow, a GraphInterface of
    Mesh-TensorFlow, an HLO module of XLA, a ClosedJaxpr of JAX, a torch ExportedProgram, FX GraphModule, captured
    program, a tuple (function or module, example inputs), or a model that is open already. `dims` gives sizes to
    dynamic dimensions by name. With `host`, plans may copy buffers there and back. A file runs code only with `trust`,
    and a .pt2 that would is refused without; naming a callable runs its module (docs/trust.md). `output` is where the
    program shall go that follows a plan, or the plan.
    Raises UsageError for a source of no known kind, and for an output that cannot hold its program, both before
    anything is read; InputError and its kinds for a source that cannot be read.
    """
    if output is not None:
        check_writable(output)
    model = _open(source, dict(dims or {}), trust, output)
    if host is not None:
        model = model.with_host(host)
    if output is not None:
        check_output(output, model)
    return model


def _open(source: Any, bound: Mapping[str, int], trust: bool, output: Path | None) -> Model:
    if isinstance(source, Graph):
        return _without_dims(GraphModel(source), bound)
    if isinstance(source, str | Path):
        return _open_name(str(source), bound, trust, output)
    if is_model(source):
        return _without_dims(source, bound)
    framework = framework_of(source)
    if framework is not None:
        _check_ending(output, framework.endings_for(source), _only_written(framework))
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
    return open_model(source, dims, host, trust=trust).apply(checked_plan(plan))


def measure(
    plan: Plan, source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None, *, trust: bool = False
) -> Measurement:
    """Run a program as it stands and under the plan, and return the real peaks of live tensor bytes of both.

    Raises what `apply` raises.
    """
    return open_model(source, dims, host, trust=trust).measure(checked_plan(plan))


def check_output(path: Path, model: Model | None = None) -> None:
    """Raise UsageError unless a plan can be written to this path or, with a model, the program that follows it.

    Call it before planning, so that nobody waits for a plan that has nowhere to go.
    """
    written = [each for each in FRAMEWORKS if path.name.endswith(each.file_endings)] if model else []
    _check_ending(path, model.file_endings if model else (), _only_written(written[0]) if written else "")
    check_writable(path)


def _check_ending(path: Path | None, of_programs: Iterable[str], note: str = "") -> None:
    """Raise UsageError unless a path names a plan file, or ends as programs do; `note` says which of them do."""
    endings = (*PLAN_FILES, *of_programs)
    if path is not None and not path.name.endswith(endings):
        raise UsageError(f"cannot write {path.name!r} here{note}; give a name that ends in {', '.join(endings)}")


def _only_written(framework: Framework) -> str:
    """Say what alone of a framework's programs can be written; nothing where all can."""
    only, note = framework.writes_only, framework.writes_only_with
    return f", where only an {' or '.join(only)} {note}can be written to {', '.join(framework.writes)}" if only else ""


def check_annotated(model: Model, path: Path | None) -> None:
    """Raise UsageError unless what is written to this path has room for what a plan says of it."""
    if path is None or path.name.endswith(PLAN_FILES) or not model.takes_notes:
        raise UsageError("--annotate notes a plan in the metadata of a model's nodes; give an .onnx MODEL and OUTPUT")


def save_applied(model: Model, plan: Plan, path: Path, *, annotate: bool = False) -> None:
    """Write the program that follows the plan or, where the name ends in .plan.json[.gz], the plan itself.

    With `annotate`, which `check_annotated` allows, the program says of its parts what the plan says of them. Raises
    UnsupportedError where the framework has no file for programs, UsageError where the file cannot be written.
    """
    if path.name.endswith(PLAN_FILES):
        write_plan_file(plan, path, _graph_of(plan, model))
    elif annotate:
        model.save_annotated(plan, path)
    else:
        model.save(plan, path)


def _graph_of(plan: Plan, model: Model) -> Graph:
    """Return the graph of a model that a plan is for; raises FingerprintError where it is for none of its forms."""
    form = model.form_of(plan)
    if form is not None:
        return form.graph
    raise FingerprintError(f"the plan was made for another graph than {model.graph.name!r}; make a new plan for it")


def _open_name(name: str, dims: Mapping[str, int], trust: bool, output: Path | None) -> Model:
    lower = name.lower()
    kind = kind_of_file(name)
    if kind == "json" or (kind is None and lower.endswith((".json", ".json.gz"))):
        return _without_dims(open_graph_file(name), dims)
    if kind == "memory_snapshot" or (kind is None and lower.endswith(".pickle")):
        return _without_dims(open_snapshot(name), dims)
    framework = framework_of_file(name, kind)
    if framework is not None:
        _check_ending(output, framework.endings_for(name))
        return framework.load(trust=trust)(name, dims)
    module, colon, attribute = name.partition(":")
    if not colon or "/" in name or not all(part.isidentifier() for part in f"{module}.{attribute}".split(".")):
        raise UsageError(f"cannot tell what {name!r} is; give {_KINDS}")
    _check_ending(output, _WRITTEN)
    program = _call(module, attribute)
    if isinstance(program, str | Path):
        raise UsageError(f"{name} returns a name, {str(program)!r}; return (function or module, example inputs)")
    return open_model(program, dims, output=output)


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


def _without_dims(model: ModelKind, dims: Mapping[str, int]) -> ModelKind:
    if dims:
        raise UsageError("the program has sizes already, there is no dimension to bind; leave out --dim (dims)")
    return model
