r"""Write what lowtide must know of TensorFlow's ops: their arguments, types and effects, one line an op.

    python3.11 -m venv tensorflow
    tensorflow/bin/pip install tensorflow-cpu==2.21.0
    tensorflow/bin/python scripts/write_tensorflow_ops.py

A line holds, between tabs: the name; "s" where the op is stateful; the inputs; the outputs; the types that attributes
have where a node leaves them out. An argument is NAME:TYPE, where TYPE is the number of a data type or the attribute
that tells it, with COUNT* before it for as many as an attribute says and * for a list of types; & stands for a
reference. Names of inputs are left out, since nothing refers to them.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
PATH = Path(__file__).parents[1] / "src/lowtide/frameworks/tensorflow/operators.tsv"


def main() -> None:
    """Write the file."""
    op_def_pb2: Any = import_module("tensorflow.core.framework.op_def_pb2")
    pywrap_tf_session: Any = import_module("tensorflow.python.client.pywrap_tf_session")
    ops = op_def_pb2.OpList()
    ops.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    lines = sorted(_line(op) for op in ops.op if not op.name.startswith(("_Mkl", "_Fused", "_TPU", "TPU")))
    PATH.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _line(op: Any) -> str:
    inputs = " ".join(_type(argument) for argument in op.input_arg)
    outputs = " ".join(f"{argument.name}:{_type(argument)}" for argument in op.output_arg)
    used = {name for argument in op.output_arg for name in (argument.type_attr, argument.number_attr)}
    defaults = " ".join(
        f"{attr.name}={attr.default_value.type or attr.default_value.i}"
        for attr in op.attr
        if attr.name in used and attr.HasField("default_value")
    )
    return "\t".join((op.name, "s" if op.is_stateful else "", inputs, outputs, defaults)).rstrip("\t")


def _type(argument: Any) -> str:
    kind = argument.type_attr or str(argument.type)
    count = f"{argument.number_attr}*" if argument.number_attr else ""
    if argument.type_list_attr:
        count, kind = "*", argument.type_list_attr
    return f"{'&' if argument.is_ref else ''}{count}{kind}"


if __name__ == "__main__":
    main()
