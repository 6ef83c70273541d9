"""Rename blobs in a net and its step nets."""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.frameworks.caffe2.nets.arguments import GRADIENT, Arguments, is_text, new_message, step_nets, texts_of
from lowtide.frameworks.caffe2.nets.netdef import NetDef
from lowtide.frameworks.protobuf.text import write_text

_LISTS_OF_BLOBS = (
    *("link_internal", "link_external", "backward_link_internal", "backward_link_external"),
    *("alias_dst", "param_grads", "recompute_blobs_on_backward"),
)
_RENAMED = ".rename"


def rename_net(net: Any, renames: Mapping[str, str]) -> None:
    """Rename the blobs of all ops in place. Source: Caffe2 memonger, apply_assignments."""
    for op in net.op:
        rename_op(op, _all(op.input, renames), _all(op.output, renames), renames, renames)


def rename_op(
    op: Any, inputs: Sequence[str], outputs: Sequence[str], inner: Mapping[str, str], controls: Mapping[str, str]
) -> None:
    rename_steps(op, inner)
    for names, changed in (
        (op.input, inputs),
        (op.output, outputs),
        (op.control_input, _all(op.control_input, controls)),
    ):
        _replace(names, changed)


def rename_steps(op: Any, renames: Mapping[str, str]) -> None:
    """Rename blobs in a recurrent op's step nets, and record renames of its own blobs, in place.

    Source: Caffe2 memonger, apply_recurrent_blob_assignments, which omits step nets in text format, external outputs,
    links, aliases, and the gradient of a renamed sequence.
    """
    if not op.type.startswith("RecurrentNetwork"):
        return
    for argument, inner in step_nets(op):
        rename_net(inner, renames)
        for names in (inner.external_input, inner.external_output):
            _replace(names, _all(names, renames))
        if isinstance(inner, NetDef) and is_text(argument):
            argument.s = write_text(inner).encode()
    changed = {blob: new for blob, new in renames.items() if blob != new}
    if op.type != GRADIENT:
        for argument in op.arg:
            if argument.name in _LISTS_OF_BLOBS:
                for place, name in enumerate(texts_of(argument)):
                    if name in changed:
                        argument.strings[place] = changed[name].encode()
    _record(op, changed)


def _record(op: Any, changed: Mapping[str, str]) -> None:
    """Write arguments `<first name>.rename`, where the runtime looks for new names."""
    settings = Arguments(op)
    recorded = {
        argument.name.removesuffix(_RENAMED): argument for argument in op.arg if argument.name.endswith(_RENAMED)
    }
    current = {blob: settings.text(f"{blob}{_RENAMED}") for blob in recorded}
    record = {blob: changed.get(name, name) for blob, name in current.items()}
    blobs = [*op.input, *op.output]
    if op.type == GRADIENT:
        blobs += [name for argument in op.arg if argument.name in _LISTS_OF_BLOBS for name in texts_of(argument)]
    names = set(current.values())
    record |= {blob: changed[blob] for blob in blobs if blob in changed and blob not in names}
    first = len(settings.integers("outputs_with_grads"))
    if op.type == GRADIENT and first < len(op.input) and not changed.keys().isdisjoint((op.input[first], op.output[0])):
        sequence, gradient = (changed.get(blob, blob) for blob in (op.input[first], op.output[0]))
        record[f"{sequence}_grad"] = gradient  # the runtime uses the new name of the sequence
    for blob, new in record.items():
        if blob in recorded:
            recorded[blob].s = new.encode()
        else:
            op.arg.append(new_message(op.arg[0], name=f"{blob}{_RENAMED}", s=new.encode()))


def _replace(names: Any, changed: Sequence[str]) -> None:
    for place, name in enumerate(changed):
        if names[place] != name:
            names[place] = name


def _all(names: Any, renames: Mapping[str, str]) -> list[str]:
    return [renames.get(name, name) for name in names]
