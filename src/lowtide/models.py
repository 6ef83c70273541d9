"""From anything a user has to a model: which framework reads what, decided without loading any of them."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from lowtide.errors import FingerprintError, LowtideError, UnsupportedError, UsageError
from lowtide.files import check_writable
from lowtide.frameworks.graph_file import GraphModel, open_graph_file
from lowtide.frameworks.model import Measurement, Model, TakesHost
from lowtide.frameworks.model_with_host import ModelWithHost
from lowtide.graph import Graph
from lowtide.offload import Host
from lowtide.plan import Plan, read_plan_file, write_plan_file

_ONNX = "lowtide.frameworks.onnx.model:OnnxModel"
_TORCH = "lowtide.frameworks.torch.model:TorchModel"
_EXTRAS = {_ONNX: "onnx", _TORCH: "torch"}
_PLAN_FILES = (".plan.json", ".plan.json.gz")
_KINDS = "a .graph.json[.gz], .onnx or .pt2 file, or package.module:callable"


def open_model(source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None) -> Model:
    """Read a program once, to plan it, apply the plan and measure; with a host that its plans may copy to if given.

    `source` is a path (.graph.json[.gz], .onnx, .pt2), the name of a callable ("package.module:callable") that returns
    one of the following, or an object: a Graph, an onnx ModelProto, a torch ExportedProgram, FX GraphModule, captured
    program, or a tuple (function or module, example inputs). `dims` binds dynamic dimensions by name.
    Raises UsageError for a source of no known kind, InputError and its kinds for one that cannot be read.
    """
    model = _open(source, dict(dims or {}))
    if host is None:
        return model
    return model.beside(host) if isinstance(model, TakesHost) else ModelWithHost(model, host)


def _open(source: Any, bound: Mapping[str, int]) -> Model:
    if isinstance(source, Graph):
        return _without_dims(GraphModel(source), bound)
    if isinstance(source, str | Path):
        return _open_name(str(source), bound)
    package = type(source).__module__.partition(".")[0]
    if package == "onnx":
        return _framework(_ONNX)(source, bound)
    if isinstance(source, tuple | list) or package in ("torch", "lowtide") or _is_torch_module(source):
        return _framework(_TORCH)(source, bound)
    raise UsageError(f"cannot read a {type(source).__name__}; give {_KINDS}, or a framework's program object")


def read(source: Any, dims: Mapping[str, int] | None = None) -> Graph:
    """Read any program into a graph; takes what `open_model` takes and raises what it raises."""
    return open_model(source, dims).graph


def apply(plan: Plan, source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None) -> Any:
    """Return the framework's own kind of program that follows the plan: a callable, a ModelProto, a graph.

    `host` is the one that the plan was made with, for `host.beside(graph)`. Raises FingerprintError when the plan was
    made for another program or host, UnsupportedError for a plan this framework cannot carry out.
    """
    return open_model(source, dims, host).apply(plan)


def measure(plan: Plan, source: Any, dims: Mapping[str, int] | None = None, host: Host | None = None) -> Measurement:
    """Run a program as it stands and under the plan, and return the real peaks of live tensor bytes of both.

    Raises what `apply` raises.
    """
    return open_model(source, dims, host).measure(plan)


def check_output(path: Path, model: Model | None = None) -> None:
    """Raise UsageError for a place or name that cannot take a plan or, with a model, its applied program.

    Called before planning, so that nobody waits for a plan that has nowhere to go.
    """
    endings = (*_PLAN_FILES, *(model.file_endings if model else ()))
    if not path.name.endswith(endings):
        raise UsageError(f"cannot write {path.name!r} here; give a name that ends in {', '.join(endings)}")
    check_writable(path)


def read_plan(path: Path, model: Model) -> tuple[Graph, Plan]:
    """Read a plan file and verify it; also returns the graph it is for, the model's own or that in pieces.

    Raises FingerprintError where it is neither, and what `lowtide.plan.read_plan_file` raises.
    """
    try:
        return model.graph, read_plan_file(path, model.graph)
    except FingerprintError:
        if model.in_pieces is None:
            raise
    return model.in_pieces, read_plan_file(path, model.in_pieces)


def save_applied(model: Model, plan: Plan, path: Path) -> None:
    """Write the program that follows the plan, or the plan itself where the name ends in .plan.json[.gz].

    Raises UnsupportedError where the program's framework has no such file, UsageError where it cannot be written.
    """
    if path.name.endswith(_PLAN_FILES):
        write_plan_file(plan, path, _graph_of(plan, model))
    else:
        model.save(plan, path)


def _graph_of(plan: Plan, model: Model) -> Graph:
    pieces = model.in_pieces if plan.graph_fingerprint != model.graph.fingerprint else None
    return model.graph if pieces is None else pieces


def _open_name(name: str, dims: Mapping[str, int]) -> Model:
    lower = name.lower()
    if lower.endswith((".json", ".json.gz")):
        return _without_dims(open_graph_file(name), dims)
    if lower.endswith(".onnx"):
        return _framework(_ONNX)(name, dims)
    if lower.endswith(".pt2"):
        return _framework(_TORCH)(name, dims)
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
        raise UsageError(f"{what} failed: {type(error).__name__}: {_one_line(error)}") from error


def _without_dims(model: GraphModel, dims: Mapping[str, int]) -> GraphModel:
    if dims:
        raise UsageError("a graph has sizes already, there is no dimension to bind; leave out --dim (dims)")
    return model


def _framework(path: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        extra = _EXTRAS[path]
        raise UnsupportedError(
            f"this input needs lowtide[{extra}], which does not load ({_one_line(error)}); "
            f"install it with: pip install 'lowtide[{extra}]'"
        ) from None


def _is_torch_module(source: Any) -> bool:
    return any(base.__module__.startswith("torch.") for base in type(source).__mro__)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or "no message"
