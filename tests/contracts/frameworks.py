"""What every framework's contract needs of it: one small program, the same everywhere, and a way to run it.

The program concatenates two inputs with themselves, sums both results and adds the sums: two wide branches that the
given order holds at once and the best order holds one after the other. A new framework adds one entry here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, write_graph_file

COPIES = 8
SUM_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of the program for inputs of so many 32-bit floats each."""

    elements: int = 256

    @property
    def input_bytes(self) -> int:
        """Bytes of one input."""
        return 4 * self.elements

    @property
    def wide_bytes(self) -> int:
        """Bytes of one input beside itself, so many times."""
        return COPIES * self.input_bytes

    @property
    def buffer_bytes(self) -> list[int]:
        """Bytes of all buffers, ascending: three sums, two inputs, two wide ones."""
        return [SUM_BYTES] * 3 + [self.input_bytes] * 2 + [self.wide_bytes] * 2

    @property
    def baseline_peak(self) -> int:
        """Peak of the program as it stands, at the first sum: both inputs, both wide buffers."""
        return 2 * self.input_bytes + 2 * self.wide_bytes + SUM_BYTES

    @property
    def best_peak(self) -> int:
        """Peak of the best order, at the second sum: both inputs, one wide buffer, the first sum."""
        return 2 * self.input_bytes + self.wide_bytes + 2 * SUM_BYTES


N_OPS = 5


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One framework, or graph files."""

    name: str
    """Its name in `lowtide.frameworks.table`, or "graph_file"."""
    make: Callable[[int], Any]
    """The program for inputs of so many floats, as the framework's own object."""
    write: Callable[[Any, Path], Path] | None
    """Write a program to a file in a folder, in the framework's own format, and return its path.

    None for a framework that has no format for programs."""
    run: Callable[[Any], bytes] | None
    """Run a program, original or applied, on the same inputs every time; return the bits of its result.

    None for what has no kernels: graph files, and programs that only tell what they would run."""
    needs: str | None = None
    """The package without which programs can be read and planned but not run."""
    times_single_ops: bool = False
    """Whether it can time every op alone."""
    tells_effects: bool = True
    """Whether it tells which ops may run again; only the results of those can visit a host."""
    copies_to_host: bool = False
    """Whether its programs carry out a plan's copies to a host."""


def _graph(elements: int) -> Graph:
    known = Known(elements=elements)
    builder = GraphBuilder("branches")
    inputs = [builder.add_buffer(name, known.input_bytes, Lifetime.INPUT) for name in ("x", "z")]
    wide = [builder.add_buffer(name, known.wide_bytes) for name in ("left", "right")]
    sums = [builder.add_buffer(name, SUM_BYTES) for name in ("a", "b")]
    result = builder.add_buffer("y", SUM_BYTES, Lifetime.OUTPUT)
    for read, written in (*zip(inputs, wide, strict=True), *zip(wide, sums, strict=True)):
        builder.add_op(f"op{written}", "op", reads=[read], writes=[written])
    builder.add_op("add", "add", reads=sums, writes=[result])
    return builder.build()


def _write_graph(graph: Graph, folder: Path) -> Path:
    write_graph_file(graph, folder / "program.graph.json")
    return folder / "program.graph.json"


def _onnx(elements: int) -> Any:
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Concat", ["x"] * COPIES, ["left"], axis=0),
        helper.make_node("Concat", ["z"] * COPIES, ["right"], axis=0),
        helper.make_node("ReduceSum", ["left"], ["a"]),
        helper.make_node("ReduceSum", ["right"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    x, z, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
        for name, size in (("x", elements), ("z", elements), ("y", 1))
    )
    graph = helper.make_graph(nodes, "branches", [x, z], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _write_onnx(program: Any, folder: Path) -> Path:
    (folder / "program.onnx").write_bytes(program.SerializeToString())
    return folder / "program.onnx"


def _run_onnx(program: Any) -> bytes:
    import onnxruntime

    session: Any = onnxruntime.InferenceSession(program.SerializeToString(), providers=["CPUExecutionProvider"])
    size = program.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    return session.run(None, {"x": _floats(size, 7), "z": _floats(size, 9)})[0].tobytes()


def _torch(elements: int) -> Any:
    import torch

    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            left, right = torch.cat([x] * COPIES), torch.cat([z] * COPIES)
            return left.sum(0, keepdim=True) + right.sum(0, keepdim=True)

    return Branches(), (torch.from_numpy(_floats(elements, 7)), torch.from_numpy(_floats(elements, 9)))


def _write_torch(program: Any, folder: Path) -> Path:
    import torch

    torch.export.save(torch.export.export(*program), folder / "program.pt2")
    return folder / "program.pt2"


def _run_torch(program: Any) -> bytes:
    function, inputs = program if isinstance(program, tuple) else (program, _torch(Known().elements)[1])
    return function(*inputs).numpy().tobytes()


def _floats(size: int, divisor: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32) / divisor


def _caffe2(elements: int) -> Any:
    from lowtide.caffe2 import Argument, NetDef, OperatorDef
    from lowtide.frameworks.caffe2.nets.netdef import TensorProto

    def tile(source: str, result: str) -> OperatorDef:
        return OperatorDef(type="Tile", input=[source], output=[result], arg=[Argument(name="tiles", i=COPIES)])

    ops = [
        tile("x", "left"),
        tile("z", "right"),
        OperatorDef(type="SumElements", input=["left"], output=["a"]),
        OperatorDef(type="SumElements", input=["right"], output=["b"]),
        OperatorDef(type="Add", input=["a", "b"], output=["y"]),
    ]
    shapes = [TensorProto(name=name, dims=[elements], data_type=1) for name in ("x", "z")]
    return NetDef(
        name="branches",
        op=ops,
        arg=[Argument(name="shape_info", tensors=shapes)],
        external_input=["x", "z"],
        external_output=["y"],
    )


def _write_caffe2(program: Any, folder: Path) -> Path:
    from lowtide.caffe2 import write_net

    (folder / "program.pb").write_bytes(write_net(program, "program.pb"))
    return folder / "program.pb"


def _run_caffe2(program: Any) -> bytes:
    from lowtide.caffe2 import run_once

    size = program.arg[0].tensors[0].dims[0]
    inputs = {"x": _floats(size, 7), "z": _floats(size, 9)}
    return run_once(program, inputs, ["y"]).results["y"].tobytes()


def _jax(elements: int) -> Any:
    """The program with a convolution of ones as what repeats an input: XLA stores what a convolution computes."""
    import jax

    def repeated(x: Any) -> Any:
        return jax.lax.conv(x.reshape(1, 1, elements), jax.numpy.ones((COPIES, 1, 1)), (1,), "VALID")

    def branches(x: Any, z: Any) -> Any:
        left, right = repeated(x), repeated(z)
        return jax.lax.add(left.sum(), right.sum())

    return jax.jit(branches), (_floats(elements, 7), _floats(elements, 9))


def _run_jax(program: Any) -> bytes:
    function, inputs = program if isinstance(program, tuple) else (program, _jax(Known().elements)[1])
    return np.asarray(function(*inputs)).tobytes()


BRANCHES = {
    "left": (["x"], ["left"]),
    "right": (["z"], ["right"]),
    "a": (["left"], ["a"]),
    "b": (["right"], ["b"]),
    "y": (["a", "b"], ["y"]),
}
"""Ops with what they read and write, by name."""


class _Interface:
    """The program with the methods of Mesh-TensorFlow's GraphInterface; nothing writes its inputs."""

    def __init__(self, known: Known) -> None:
        self._sizes = dict.fromkeys(("x", "z"), known.input_bytes) | dict.fromkeys(("left", "right"), known.wide_bytes)

    def get_all_operation_names(self) -> list[str]:
        return list(BRANCHES)

    def get_operation_input_names(self, operation_name: str) -> list[str]:
        return BRANCHES[operation_name][0]

    def get_operation_output_names(self, operation_name: str) -> list[str]:
        return BRANCHES[operation_name][1]

    def get_tensor_size(self, tensor_name: str) -> int:
        return self._sizes.get(tensor_name, SUM_BYTES)

    def is_tensor_final(self, tensor_name: str) -> bool:
        return tensor_name == "y"


def _inductor_export(elements: int) -> Any:
    """The program as Inductor exports it; its inputs are results as well, so that they stay."""
    from lowtide.inductor_export import load_export

    interface = _Interface(Known(elements=elements))

    def buffer(name: str, deps: list[str], *, is_input: bool = False) -> dict[str, Any]:
        size = interface.get_tensor_size(name)
        return {
            "name": name,
            **dict.fromkeys(("size_alloc", "size_free", "size"), size),
            "is_input": is_input,
            "is_output": is_input or name == "y",
            "deps": deps,
            "unmet_deps": [dep for dep in deps if dep not in ("x", "z")],
        }

    nodes = [{"name": f"op_{name}", "buffer_names": [name]} for name in BRANCHES]
    inputs = [buffer(name, [], is_input=True) for name in ("x", "z")]
    return load_export({"nodes": nodes, "buffers": inputs + [buffer(name, BRANCHES[name][0]) for name in BRANCHES]})


def _write_export(program: Any, folder: Path) -> Path:
    program.save(folder / "inductor.txt")
    return folder / "inductor.txt"


def _xla(elements: int) -> Any:
    from lowtide.xla import parse_module

    wide = COPIES * elements
    copies = ", ".join(["{0}"] * COPIES)
    ones = f"f32[{wide}]{{0}} constant({{...}})"
    dot = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    return parse_module(f"""HloModule branches, is_scheduled=true

ENTRY %main (x: f32[{elements}], z: f32[{elements}]) -> f32[] {{
  %x = f32[{elements}]{{0}} parameter(0)
  %z = f32[{elements}]{{0}} parameter(1)
  %ones = {ones}
  %left = f32[{wide}]{{0}} concatenate({copies.format("%x")}), dimensions={{0}}
  %right = f32[{wide}]{{0}} concatenate({copies.format("%z")}), dimensions={{0}}
  %a = f32[] dot(%left, %ones), {dot}
  %b = f32[] dot(%right, %ones), {dot}
  ROOT %y = f32[] add(%a, %b)
}}
""")


def _write_hlo(program: Any, folder: Path) -> Path:
    (folder / "program.hlo").write_text(program.text, encoding="utf-8")
    return folder / "program.hlo"


def _tensorflow(elements: int) -> Any:
    from lowtide.frameworks.tensorflow.graphs.attributes import of_integer, of_shape, of_shapes, of_text, of_type
    from lowtide.tensorflow import GraphDef, NodeDef

    def node(name: str, op: str, inputs: list[str], shape: list[int], **attributes: bytes) -> NodeDef:
        return NodeDef.make(name, op, inputs, attributes | {"T": of_type(1), "_output_shapes": of_shapes([shape])})

    def placeholder(name: str) -> NodeDef:
        return NodeDef.make(name, "Placeholder", (), {"dtype": of_type(1), "shape": of_shape([elements])})

    sums = {"N": of_integer(1), "equation": of_text("ij->")}
    nodes = [
        placeholder("x"),
        placeholder("z"),
        node("left", "Pack", ["x"] * COPIES, [COPIES, elements], N=of_integer(COPIES)),
        node("right", "Pack", ["z"] * COPIES, [COPIES, elements], N=of_integer(COPIES)),
        node("a", "Einsum", ["left"], [], **sums),
        node("b", "Einsum", ["right"], [], **sums),
        node("y", "AddV2", ["a", "b"], []),
    ]
    return GraphDef(nodes)


def _write_tensorflow(program: Any, folder: Path) -> Path:
    (folder / "program.pb").write_bytes(program.SerializeToString())
    return folder / "program.pb"


def _run_tensorflow(program: Any) -> bytes:
    from lowtide.tensorflow import run_graph

    feeds = {f"{name}:0": _floats(Known().elements, divisor) for name, divisor in (("x", 7), ("z", 9))}
    return run_graph(program, feeds, ["y:0"]).values[0].tobytes()


ENTRIES = [
    Entry(name="graph_file", make=_graph, write=_write_graph, run=None),
    Entry(name="onnx", make=_onnx, write=_write_onnx, run=_run_onnx),
    Entry(name="torch", make=_torch, write=_write_torch, run=_run_torch, times_single_ops=True, copies_to_host=True),
    Entry(name="caffe2", make=_caffe2, write=_write_caffe2, run=_run_caffe2),
    Entry(name="xla", make=_xla, write=_write_hlo, run=None),
    Entry(
        name="tensorflow",
        make=_tensorflow,
        write=_write_tensorflow,
        run=_run_tensorflow,
        needs="tensorflow",
        copies_to_host=True,
    ),
    Entry(
        name="mesh_tensorflow",
        make=lambda elements: _Interface(Known(elements=elements)),
        write=None,
        run=None,
        tells_effects=False,
    ),
    Entry(name="jax", make=_jax, write=None, run=_run_jax),
    Entry(name="inductor_export", make=_inductor_export, write=_write_export, run=None, tells_effects=False),
]
