"""Which framework reads what: one row a framework, none of them loaded."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from lowtide.core.errors import MissingExtraError, one_line
from lowtide.frameworks.model import Model

GRAPH_INTERFACE = (
    "get_all_operation_names",
    "get_operation_input_names",
    "get_operation_output_names",
    "get_tensor_size",
    "is_tensor_final",
)
"""The methods of Mesh-TensorFlow's GraphInterface that tell one, whoever wrote its class."""

LOADED_EXECUTABLE = ("hlo_modules", "get_compiled_memory_stats", "get_output_layouts")
"""The methods of an executable that XLA compiled, whichever package wraps it."""

OpenModel = Callable[[Any, Mapping[str, int]], Model]
"""A model class: called with what it reads and with sizes for dynamic dimensions by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """What lowtide must know of a framework before it loads it."""

    name: str
    """Also the name of its folder here and of its public module, `lowtide.NAME`."""
    model: str
    """Its model class, as "module:Class"."""
    extra: str | None
    """The extra of lowtide that installs it; None where lowtide itself is enough."""
    file_endings: tuple[str, ...]
    """How names of its program files end, in lower case."""
    writes: tuple[str, ...]
    """How names of files end that planned programs can be written to; a model's own `file_endings` are some of them."""
    packages: tuple[str, ...]
    """The top packages whose objects it reads, subclasses included; those of its own folder here come on top."""
    trusting_model: str | None = None
    """What opens files that may run code, as "module:function"; None where no file of the framework does."""
    reads_calls: bool = False
    """Whether it reads tuples (function or module, example inputs). Whose function or inputs they hold, decides; the
    first of these in the table reads those that tell nothing."""

    needs_more: tuple[str, ...] = ()
    """The methods of objects that only its public model reads, called by its name: they do not say all there is."""

    writes_only: tuple[str, ...] = ()
    """The classes of objects that alone can be written, by name; empty where all that are read can."""

    writes_only_with: str = ""
    """What these must have to be written."""

    methods: tuple[str, ...] = ()
    """What an object of no known package must have, all of it, to be read; empty where only packages tell."""

    def owns(self, source: Any) -> bool:
        """Tell whether an object has the framework's methods, or a class of one of its packages, or one derived."""
        if _has(source, self.methods):
            return True
        packages = (*self.packages, f"{__package__}.{self.name}")
        homes = [f"{base.__module__}." for base in type(source).__mro__]
        return any(home.startswith(f"{package}.") for home in homes for package in packages)

    def endings_for(self, source: Any) -> tuple[str, ...]:
        """Return how names of files may end that a program planned can be written to, before it is read."""
        kinds = [base.__name__ for base in type(source).__mro__]
        written = isinstance(source, str | Path) or not self.writes_only or set(kinds) & set(self.writes_only)
        return self.writes if written else ()

    def load(self, *, trust: bool = False) -> OpenModel:
        """Import the model class, or with `trust` what opens files that may run code.

        Raises MissingExtraError where the framework does not load.
        """
        module, _, attribute = ((self.trusting_model if trust else None) or self.model).partition(":")
        try:
            return cast("OpenModel", getattr(import_module(module), attribute))
        except MissingExtraError:
            raise
        except ImportError as error:
            if self.extra is None:
                raise
            raise MissingExtraError(self.extra, one_line(error)) from None


FRAMEWORKS = (
    Framework(
        name="onnx",
        model="lowtide.frameworks.onnx.model:OnnxModel",
        extra="onnx",
        file_endings=(".onnx",),
        writes=(".onnx",),
        packages=("onnx",),
    ),
    Framework(
        name="torch",
        model="lowtide.frameworks.torch.model:TorchModel",
        trusting_model="lowtide.frameworks.torch.model:open_trusted",
        extra="torch",
        file_endings=(".pt2",),
        writes=(".pt2",),
        writes_only=("ExportedProgram",),
        writes_only_with="with fixed sizes ",
        packages=("torch",),
        reads_calls=True,
    ),
    Framework(
        name="caffe2",
        model="lowtide.frameworks.caffe2.model:Caffe2Model",
        extra=None,
        file_endings=(".pb", ".pbtxt", ".prototxt"),
        writes=(".pb", ".pbtxt", ".prototxt"),
        packages=("caffe2",),
    ),
    Framework(
        name="xla",
        model="lowtide.frameworks.xla.model:XlaModel",
        extra=None,
        file_endings=(".hlo", ".mlir", ".stablehlo"),
        writes=(".hlo", ".txt"),
        packages=("jaxlib._hlo", "jax._src.stages"),
        methods=LOADED_EXECUTABLE,
    ),
    Framework(
        name="tensorflow",
        model="lowtide.frameworks.tensorflow.model:TensorflowModel",
        extra=None,
        file_endings=(".pb", ".pbtxt"),
        writes=(".pb", ".pbtxt", ".prototxt"),
        packages=("tensorflow",),
    ),
    Framework(
        name="mesh_tensorflow",
        model="lowtide.frameworks.mesh_tensorflow.model:MeshTensorflowModel",
        extra=None,
        file_endings=(),
        writes=(),
        packages=("mesh_tensorflow",),
        needs_more=("get_operations", "as_graph_def"),
        methods=GRAPH_INTERFACE,
    ),
    Framework(
        name="jax",
        model="lowtide.frameworks.jax.model:JaxModel",
        extra="jax",
        file_endings=(),
        writes=(),
        packages=("jax", "jaxlib"),
        reads_calls=True,
    ),
    Framework(
        name="inductor_export",
        model="lowtide.frameworks.inductor_export.model:InductorExportModel",
        extra=None,
        file_endings=(),
        writes=(".json", ".json.gz"),
        packages=(),
    ),
)


def framework_of(source: Any) -> Framework | None:
    """Return the framework that reads an object, None where there is none."""
    if not isinstance(source, tuple | list):
        return next((framework for framework in FRAMEWORKS if framework.owns(source)), None)
    callers = [framework for framework in FRAMEWORKS if framework.reads_calls]
    owners = (caller for part in _parts(source) for caller in callers if caller.owns(part))
    return next(owners, callers[0])


def _parts(source: Any) -> Iterator[Any]:
    """Iterate what nested tuples, lists and values of dicts hold, in order."""
    waiting = [source]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple | list):
            waiting.extend(reversed(cast("list[Any]", part)))
        elif isinstance(part, dict):
            waiting.extend(reversed(list(cast("dict[Any, Any]", part).values())))
        else:
            yield part


def way_to_read(source: Any) -> str | None:
    """Return how to read an object that is refused since it does not say all there is, None for any other."""
    framework = next((framework for framework in FRAMEWORKS if _has(source, framework.needs_more)), None)
    if framework is None:
        return None
    return f"lowtide.{framework.name}.{framework.model.partition(':')[2]}"


def _has(source: Any, methods: Iterable[str]) -> bool:
    """Whether an object has all of some methods, and these are any at all."""
    found = [callable(getattr(source, method, None)) for method in methods]
    return bool(found) and all(found)


def framework_of_file(name: str, kind: str | None) -> Framework | None:
    """Return the framework that reads a file, by the kind that its content tells or else by its name, else None."""
    known = next((framework for framework in FRAMEWORKS if framework.name == kind), None)
    return known or next((framework for framework in FRAMEWORKS if name.lower().endswith(framework.file_endings)), None)


def require(name: str) -> None:
    """Raise MissingExtraError unless the packages of a framework are installed; its folder calls this first."""
    framework = next(framework for framework in FRAMEWORKS if framework.name == name)
    for package in framework.packages:
        if framework.extra is not None and find_spec(package) is None:
            raise MissingExtraError(framework.extra, f"there is no package {package}")
