"""Open any program as a model; the framework is chosen before any is loaded."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from lowtide.api.training_sources import is_config, refuse_file, refuse_state_dict
from lowtide.core.errors import FingerprintError, UsageError, named_type
from lowtide.core.files import check_writable
from lowtide.core.named_callable import call_named, is_callable_name, without_function
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, write_plan_file
from lowtide.frameworks.content import kind_of_file
from lowtide.frameworks.graph_file import GraphModel, open_graph_file
from lowtide.frameworks.memory_snapshot import open_snapshot
from lowtide.frameworks.model import Model, is_model
from lowtide.frameworks.table import FRAMEWORKS, Framework, framework_of, framework_of_file, require, way_to_read

ModelKind = TypeVar("ModelKind", bound=Model)
PLAN_FILES = (".plan.json", ".plan.json.gz")
_READ = dict.fromkeys(ending for each in FRAMEWORKS for ending in each.file_endings)
_INSTEAD = "give train.py:function that returns (model, batch)"
_WRITTEN = dict.fromkeys((".graph.json", ".graph.json.gz", *(ending for each in FRAMEWORKS for ending in each.writes)))
_KINDS = f"a {', '.join(('.graph.json[.gz]', *_READ))} or .pickle file, or package.module:callable or file.py:callable"


def open_model(
    source: Any,
    dims: Mapping[str, int] | None = None,
    host: Host | None = None,
    *,
    trust: bool = False,
    output: Path | None = None,
    device: str | None = None,
) -> Model:
    """Read a program as a model that can be planned, applied and measured.

    `source` is one of:

    - a path: .graph.json[.gz], .onnx, .pt2, .pb, .pbtxt, .hlo, an Inductor export, a PyTorch memory snapshot, a folder
      with a SavedModel. The content decides where it is unambiguous, otherwise the name
    - the name of a callable, "package.module:callable" or "file.py:callable", that returns one of the following
    - an object: Graph, onnx ModelProto, Caffe2 NetDef, TensorFlow GraphDef, MetaGraphDef, tf.Graph or
      ConcreteFunction, Mesh-TensorFlow GraphInterface, XLA HLO module, JAX ClosedJaxpr, torch ExportedProgram, FX
      GraphModule, captured program, or a tuple (function or module, example inputs)
    - an open model

    `device` lowers a PyTorch training step, given as the name of a callable or (function, module or `TrainingStep`,
    example inputs), to the kernels of an absent CUDA device (docs/absent_devices.md).

    `dims` maps dynamic dimensions to sizes. With `host`, plans may offload buffers. A file runs code only with `trust`;
    a .pt2 that needs it is refused otherwise. Naming a callable runs its module (docs/trust.md). `output` is the path
    of the planned program or plan.

    Raises UsageError, before reading, for an unknown kind of source or an output that cannot hold its program, and
    InputError or a subclass if the source cannot be read.
    """
    given = cast("object", dims)
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"dims is {named_type(given)}; give a program and its inputs as one tuple")
    if output is not None:
        check_writable(output)
    if device is None:
        model = _open(source, dict(dims or {}), trust, output)
    else:
        model = _on_device(source, device, dict(dims or {}), host)
    if host is not None:
        model = model.with_host(host)
    if output is not None:
        check_output(output, model)
    return model


def _on_device(source: Any, device: str, bound: Mapping[str, int], host: Host | None) -> Model:
    require("torch")
    from lowtide.frameworks.torch.absent_device.model import DeviceModel

    if host is not None:
        raise UsageError("plans for an absent device do not copy to a host; leave the host out")
    model = source if isinstance(source, DeviceModel) else DeviceModel(source, device)
    if model.on_device.device != device:
        raise UsageError(f"the program was lowered for {model.on_device.device}; open it again for {device}")
    return _without_dims(model, bound)


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
        raise UsageError(f"{named_type(source)} does not name the tensors to keep; give {way}(graph, final=...)")
    refuse_state_dict(source)
    raise UsageError(f"cannot read {named_type(source)}; give {_KINDS}, or a framework's program object")


def check_output(path: Path, model: Model | None = None) -> None:
    """Raise UsageError unless a plan or the model's program can be written here; call it before planning."""
    written = [each for each in FRAMEWORKS if path.name.endswith(each.file_endings)] if model else []
    _check_ending(path, model.file_endings if model else (), _only_written(written[0]) if written else "")
    check_writable(path)


def _check_ending(path: Path | None, of_programs: Iterable[str], note: str = "") -> None:
    endings = (*PLAN_FILES, *of_programs)
    if path is not None and not path.name.endswith(endings):
        raise UsageError(f"cannot write to {path.name!r}{note}; give a name that ends in {', '.join(endings)}")


def _only_written(framework: Framework) -> str:
    only, note = framework.writes_only, framework.writes_only_with
    return f": only an {' or '.join(only)} {note}can be saved as {', '.join(framework.writes)}" if only else ""


def check_annotated(model: Model, path: Path | None) -> None:
    """Raise UsageError unless the program at this path can hold a plan's annotations."""
    if path is None or path.name.endswith(PLAN_FILES) or not model.takes_notes:
        raise UsageError("--annotate needs node metadata; give an .onnx MODEL and OUTPUT")


def save_applied(model: Model, plan: Plan, path: Path, *, annotate: bool = False) -> None:
    """Write the planned program or, for the ending .plan.json[.gz], the plan.

    With `annotate`, node metadata describes the plan. Raises UnsupportedError if the framework has no program files,
    UsageError if the file cannot be written.
    """
    if path.name.endswith(PLAN_FILES):
        form = model.form_of(plan)
        if form is None:
            raise FingerprintError(f"the plan is for another graph than {model.graph.name!r}; make a new plan")
        write_plan_file(plan, path, form.graph)
    elif annotate:
        model.save_annotated(plan, path)
    else:
        model.save(plan, path)


def _open_name(name: str, dims: Mapping[str, int], trust: bool, output: Path | None) -> Model:
    lower = name.lower()
    kind = kind_of_file(name)
    if kind == "json" or (kind is None and lower.endswith((".json", ".json.gz"))):
        if is_config(Path(name)):
            raise UsageError(f"{name!r} has sizes of a model and no program; use lowtide fits, or {_INSTEAD}")
        return _without_dims(open_graph_file(name), dims)
    if kind == "memory_snapshot" or (kind is None and lower.endswith(".pickle")):
        return _without_dims(open_snapshot(name), dims)
    framework = framework_of_file(name, kind)
    if framework is not None:
        _check_ending(output, framework.endings_for(name))
        return framework.load(trust=trust)(name, dims)
    if lower.endswith(".py"):
        raise UsageError(without_function(name))
    if not is_callable_name(name):
        refuse_file(name, f"lowtide.plan(model, batch) in it, or {_INSTEAD}", _INSTEAD)
        raise UsageError(f"cannot read {name!r}: unknown kind; give {_KINDS}")
    _check_ending(output, _WRITTEN)
    program = call_named(name)
    if program is None:
        raise UsageError(f"{name} returns nothing; return (function or module, example inputs)")
    if isinstance(program, str | Path):
        raise UsageError(f"{name} returns a string, {str(program)!r}; return (function or module, example inputs)")
    return open_model(program, dims, output=output)


def _without_dims(model: ModelKind, dims: Mapping[str, int]) -> ModelKind:
    if dims:
        raise UsageError("the program has no dynamic dimensions; leave out --dim (dims)")
    return model
