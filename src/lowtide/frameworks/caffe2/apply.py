"""Plans back into nets: ops in another order, blobs under names that share what the plan shares, and freed."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowtide.core.errors import FingerprintError, UnsupportedError
from lowtide.engine.plan import Free, Plan, Run, StepKind, verify
from lowtide.frameworks.caffe2.naming import single_names, storage_names
from lowtide.frameworks.caffe2.nets.named import SIMPLE_TYPES
from lowtide.frameworks.caffe2.nets.renaming import rename_op
from lowtide.frameworks.caffe2.proto.netdef import NetDef, OperatorDef
from lowtide.frameworks.caffe2.reading.effects import FREE
from lowtide.frameworks.caffe2.reading.translation import NetTranslation


def apply_plan(net: NetDef, translation: NetTranslation, plan: Plan) -> NetDef:
    """Return a copy of a net that does what a plan says, step by step; the net stays as it is.

    Ops stand in the plan's order, a blob that takes over another one's storage has its name, and an op `Free` ends
    every blob where the plan frees it. Blobs keep their names where they can. A net that ran several ops at once
    becomes a simple one, since only that keeps an order. Raises FingerprintError for a plan of another net,
    UnsupportedError for one that runs ops twice or copies, VerificationError for one that breaks the program.
    """
    graph = translation.graph
    if plan.graph_fingerprint != graph.fingerprint:
        raise FingerprintError("the plan was made for another graph; plan this net with the same shapes")
    if (plan.kinds > StepKind.FREE).any():
        raise UnsupportedError(
            "the plan copies buffers to a host, which a NetDef cannot say; write a plan (.plan.json)"
        )
    order = plan.order()
    if len(order) != graph.n_ops or len(np.unique(order)) != len(order):
        raise UnsupportedError("the plan runs some ops twice, which a NetDef cannot say; allow only reorder and share")
    verify(graph, plan, check_capacity=False)
    names = storage_names(translation, plan)
    applied = copy.deepcopy(net)
    ops = list(applied.op)
    del applied.op[:]
    for step in plan.steps():
        if isinstance(step, Run):
            applied.op.append(_renamed(ops[translation.ops[step.op].position], translation, step.op, names))
        elif isinstance(step, Free) and step.buffer not in translation.fixed:
            name = names[step.buffer]
            applied.op.append(OperatorDef(type=FREE, input=[name], output=[name]))
    if applied.type not in SIMPLE_TYPES:
        applied.type = "simple"
    return applied


def in_single_assignment(net: NetDef, translation: NetTranslation) -> tuple[NetDef, list[str]]:
    """Return a copy of a net with a name of its own for every buffer, and those names; ops that free are left out.

    What an op overwrites in place keeps its name, and so does what the caller looks for.
    """
    names = single_names(translation)
    copied = copy.deepcopy(net)
    ops = list(copied.op)
    del copied.op[:]
    copied.op.extend(
        _renamed(ops[op.position], translation, number, names) for number, op in enumerate(translation.ops)
    )
    return copied, names


def _renamed(op: Any, translation: NetTranslation, number: int, names: Sequence[str]) -> Any:
    buffers = translation.ops[number]
    inner = {blob: names[buffer] for blob, buffer in buffers.inner.items()}
    is_alias = op.type == "Alias"
    inputs = [_name(blob, buffer, translation, names) for blob, buffer in zip(op.input, buffers.inputs, strict=True)]
    outputs = [
        blob if is_alias else _name(blob, buffer, translation, names)
        for blob, buffer in zip(op.output, buffers.outputs, strict=True)
    ]
    controls = {blob: names[buffer] for blob, buffer in buffers.controls.items()}
    rename_op(op, inputs, outputs, inner, controls)
    return op


def _name(blob: str, buffer: int, translation: NetTranslation, names: Sequence[str]) -> str:
    """Return the new name of a blob; an alias, whose name is not its buffer's, keeps its own."""
    return names[buffer] if translation.blobs[buffer] == blob else blob
