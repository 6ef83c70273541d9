"""The table of frameworks: endings, packages and model classes, without loading any framework."""

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
"""Methods that identify a Mesh-TensorFlow GraphInterface."""

LOADED_EXECUTABLE = ("hlo_modules", "get_compiled_memory_stats", "get_output_layouts")
"""Methods that identify an XLA executable."""

OpenModel = Callable[[Any, Mapping[str, int]], Model]
"""Opens a model, with sizes of dynamic dimensions by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    name: str
    """Also the name of its folder and its public module, `lowtide.NAME`."""
    model: str
    """As "module:Class"."""
    extra: str | None = None
    file_endings: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Endings of planned programs; a model's `file_endings` are a subset."""
    packages: tuple[str, ...] = ()
    """Packages and classes of objects that it reads, besides its own folder."""
    trusting_model: str | None = None
    """Function that opens files that may run code, as "module:function"; None if no file may."""
    reads_calls: bool = False
    """Whether it reads tuples (function or module, example inputs). The first such framework is the default."""

    needs_more: tuple[str, ...] = ()
    """Methods of objects that only the public model class reads, with more arguments."""

    writes_only: tuple[str, ...] = ()
    """Classes that can be saved; empty for all."""

    writes_only_with: str = ""

    methods: tuple[str, ...] = ()
    """Methods that identify objects of unknown packages."""

    def owns(self, source: Any) -> bool:
        if _has(source, self.methods):
            return True
        packages = (*self.packages, f"{__package__}.{self.name}")
        homes = [f"{base.__module__}.{base.__qualname__}." for base in type(source).__mro__]
        return any(home.startswith(f"{package}.") for home in homes for package in packages)

    def endings_for(self, source: Any) -> tuple[str, ...]:
        kinds = [base.__name__ for base in type(source).__mro__]
        written = isinstance(source, str | Path) or not self.writes_only or set(kinds) & set(self.writes_only)
        return self.writes if written else ()

    def load(self, *, trust: bool = False) -> OpenModel:
        """Import the model class or, with `trust`, the function for files that may run code.

        Raises MissingExtraError.
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
        file_endings=(".pb", ".pbtxt", ".prototxt"),
        writes=(".pb", ".pbtxt", ".prototxt"),
        packages=("caffe2",),
    ),
    Framework(
        name="xla",
        model="lowtide.frameworks.xla.model:XlaModel",
        file_endings=(".hlo", ".mlir", ".stablehlo"),
        writes=(".hlo", ".txt"),
        packages=("jaxlib._hlo", "jaxlib._jax.HloModule", "jaxlib._jax.XlaComputation", "jax._src.stages"),
        methods=LOADED_EXECUTABLE,
    ),
    Framework(
        name="tensorflow",
        model="lowtide.frameworks.tensorflow.model:TensorflowModel",
        file_endings=(".pb", ".pbtxt"),
        writes=(".pb", ".pbtxt", ".prototxt"),
        packages=("tensorflow",),
    ),
    Framework(
        name="mesh_tensorflow",
        model="lowtide.frameworks.mesh_tensorflow.model:MeshTensorflowModel",
        packages=("mesh_tensorflow",),
        needs_more=("get_operations", "as_graph_def"),
        methods=GRAPH_INTERFACE,
    ),
    Framework(
        name="jax",
        model="lowtide.frameworks.jax.model:JaxModel",
        extra="jax",
        packages=("jax", "jaxlib"),
        reads_calls=True,
    ),
    Framework(
        name="inductor_export",
        model="lowtide.frameworks.inductor_export.model:InductorExportModel",
        writes=(".json", ".json.gz"),
    ),
)


def framework_of(source: Any) -> Framework | None:
    if not isinstance(source, tuple | list):
        return next((framework for framework in FRAMEWORKS if framework.owns(source)), None)
    callers = [framework for framework in FRAMEWORKS if framework.reads_calls]
    owners = (caller for part in _parts(source) for caller in callers if caller.owns(part))
    return next(owners, callers[0])


def _parts(source: Any) -> Iterator[Any]:
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
    """Return the model class for an object that lacks information, else None."""
    framework = next((framework for framework in FRAMEWORKS if _has(source, framework.needs_more)), None)
    if framework is None:
        return None
    return f"lowtide.{framework.name}.{framework.model.partition(':')[2]}"


def _has(source: Any, methods: Iterable[str]) -> bool:
    found = [callable(getattr(source, method, None)) for method in methods]
    return bool(found) and all(found)


def framework_of_file(name: str, kind: str | None) -> Framework | None:
    """Return the framework that reads a file, by kind of content, else by name."""
    known = next((framework for framework in FRAMEWORKS if framework.name == kind), None)
    return known or next((framework for framework in FRAMEWORKS if name.lower().endswith(framework.file_endings)), None)


def require(name: str) -> None:
    """Raise MissingExtraError unless a framework is installed."""
    framework = next(framework for framework in FRAMEWORKS if framework.name == name)
    for package in framework.packages:
        if framework.extra is not None and find_spec(package) is None:
            raise MissingExtraError(framework.extra, f"package {package} not found")
