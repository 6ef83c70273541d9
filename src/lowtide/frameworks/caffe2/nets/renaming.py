"""Blobs under new names in a net, and in the step nets inside it."""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.frameworks.caffe2.nets.arguments import GRADIENT, Arguments, is_text, like, step_nets
from lowtide.frameworks.caffe2.proto.netdef import NetDef
from lowtide.frameworks.protobuf.text import write_text

_LISTS_OF_BLOBS = (
    *("link_internal", "link_external", "backward_link_internal", "backward_link_external"),
    *("alias_dst", "param_grads", "recompute_blobs_on_backward"),
)
"""Arguments of a recurrent op that name blobs, of its own or of its step nets."""


def rename_net(net: Any, renames: Mapping[str, str]) -> None:
    """Rename the blobs that the ops of a net touch; external inputs and outputs keep their names.

    Source: Caffe2 memonger, apply_assignments.
    """
    for op in net.op:
        rename_op(op, _all(op.input, renames), _all(op.output, renames), renames, renames)


def rename_op(
    op: Any, inputs: Sequence[str], outputs: Sequence[str], inner: Mapping[str, str], controls: Mapping[str, str]
) -> None:
    """Give the inputs and outputs of an op new names; in step nets of a recurrent op, and among control
    inputs, blobs are renamed by tables.

    A recurrent op records the new names of its inputs and outputs in arguments `<blob>.rename`, by which the runtime
    finds them. Only what changes is touched.
    """
    rename_steps(op, inner)
    for names, changed in (
        (op.input, inputs),
        (op.output, outputs),
        (op.control_input, _all(op.control_input, controls)),
    ):
        for place, name in enumerate(changed):
            if names[place] != name:
                names[place] = name


def rename_steps(op: Any, renames: Mapping[str, str]) -> None:
    """Rename blobs in the step nets of a recurrent op, external inputs too, and record what its own blobs become.

    Source: Caffe2 memonger, apply_recurrent_blob_assignments. Mended: step nets in text format, external outputs; what
    the runtime would look for in vain: links and aliases that name renamed blobs, the gradient of a renamed sequence.
    """
    if not op.type.startswith("RecurrentNetwork"):
        return
    for argument, inner in step_nets(op):
        rename_net(inner, renames)
        for names in (inner.external_input, inner.external_output):
            for place, name in enumerate(names):
                if renames.get(name, name) != name:
                    names[place] = renames[name]
        if isinstance(inner, NetDef) and is_text(argument):
            argument.s = write_text(inner).encode()
    changed = {blob: new for blob, new in renames.items() if blob != new}
    if op.type != GRADIENT:
        for argument in op.arg:
            if argument.name in _LISTS_OF_BLOBS:
                for place, name in enumerate(_texts(argument)):
                    if name in changed:
                        argument.strings[place] = changed[name].encode()
    _record(op, changed)


def _record(op: Any, changed: Mapping[str, str]) -> None:
    """Note new names in arguments, under the first name that each blob had: the gradient looks them up by those."""
    suffix = ".rename"
    noted = {argument.name.removesuffix(suffix): argument for argument in op.arg if argument.name.endswith(suffix)}
    current = {bytes(argument.s).decode("utf-8", "replace") for argument in noted.values()}
    record: dict[str, str] = {}
    for first, argument in noted.items():
        name = bytes(argument.s).decode("utf-8", "replace")
        record[first] = changed.get(name, name)
    blobs = [*op.input, *op.output]
    if op.type == GRADIENT:
        blobs += [name for argument in op.arg if argument.name in _LISTS_OF_BLOBS for name in _texts(argument)]
    record |= {blob: changed[blob] for blob in blobs if blob in changed and blob not in current}
    first = len(Arguments(op).integers("outputs_with_grads"))
    if op.type == GRADIENT and first < len(op.input) and not changed.keys().isdisjoint((op.input[first], op.output[0])):
        sequence, gradient = (changed.get(blob, blob) for blob in (op.input[first], op.output[0]))
        record[f"{sequence}_grad"] = gradient  # the runtime takes the name of the sequence, which is the new one
    for blob, new in record.items():
        if blob in noted:
            noted[blob].s = new.encode()
        else:
            op.arg.append(like(op.arg[0], name=f"{blob}{suffix}", s=new.encode()))


def _texts(argument: Any) -> list[str]:
    return [bytes(value).decode("utf-8", "replace") for value in argument.strings]


def _all(names: Any, renames: Mapping[str, str]) -> list[str]:
    return [renames.get(name, name) for name in names]
