"""What users call the inputs of a graph: parameters and buffers by their module's path, others as the program has them.

AOTAutograd numbers its inputs ("primals_3") and describes them by their places among those of the captured graph, which
TorchDynamo says the sources of ("L['self']._modules['blocks']._modules['3']._parameters['weight']").
"""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    ParamAOTInput,
    PlainAOTInput,
    SubclassGetAttrAOTInput,
    SyntheticBaseAOTInput,
    ViewBaseAOTInput,
)
from torch.fx import GraphModule, Node

_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")
_MODULE = re.compile(r"^[LG]\['\w+'\](?:\.__self__)?\.")
"""How the path of a module begins: with the variable that holds the outermost, or its method."""
_VARIABLE = re.compile(r"^[LG]\['(\w+)'\]")
_compiled: list[dict[int | str, str]] = []
"""Names of the inputs of graphs that are being compiled, the innermost last: by place, or by name in its module."""


@contextmanager
def naming_inputs(captured: GraphModule) -> Generator[None]:
    """Let `input_name` know the inputs of a graph of TorchDynamo's that is compiled within."""
    names: dict[int | str, str] = {}
    for place, node in enumerate(captured.graph.find_nodes(op="placeholder")):
        source = getattr(node, "_dynamo_source", None)
        if source is not None:
            names[place] = _as_written(source.name)
    for name, source in vars(captured).get("_param_name_to_source", {}).items():
        names[name] = _as_written(source.name)
    _compiled.append(names)
    try:
        yield
    finally:
        _compiled.pop()


def input_name(node: Node) -> str:
    """Return what the user calls an input of a graph of AOTAutograd's; the node's name where nobody said."""
    return _described(node.meta.get("desc")) or node.name


def _described(described: Any) -> str | None:
    if isinstance(described, PlainAOTInput):
        return _compiled[-1].get(described.idx) if _compiled else None
    if isinstance(described, ParamAOTInput | BufferAOTInput):
        return _compiled[-1].get(described.target, described.target) if _compiled else described.target
    if isinstance(described, ViewBaseAOTInput | SyntheticBaseAOTInput):
        return _with("base of {}", _described(described.base_of))
    if isinstance(described, SubclassGetAttrAOTInput):
        return _with(f"{{}}.{described.attr}", _described(described.base))
    return None


def _with(form: str, name: str | None) -> str | None:
    return None if name is None else form.format(name)


def _as_written(source: str) -> str:
    """Return "blocks.3.weight" for what a module holds, "batch['ids']" for anything else that is given."""
    path = _MEMBER.sub(r".\1", source)
    return _VARIABLE.sub(r"\1", source) if path == source else _MODULE.sub("", path)
