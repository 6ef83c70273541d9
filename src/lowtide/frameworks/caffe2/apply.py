"""Apply a plan to a net."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowtide.core.errors import FingerprintError, UnsupportedError
from lowtide.engine.plan import Free, Plan, Run, StepKind, verify
from lowtide.frameworks.caffe2.nets.named import SIMPLE_TYPES
from lowtide.frameworks.caffe2.nets.netdef import NetDef, OperatorDef
from lowtide.frameworks.caffe2.nets.renaming import rename_op
from lowtide.frameworks.caffe2.sharing.rename import ALIAS, FREE
from lowtide.frameworks.caffe2.translate import NetTranslation


def apply_plan(net: NetDef, translation: NetTranslation, plan: Plan) -> NetDef:
    """Return a copy of a net that follows a plan; errors are those of `Caffe2Model.apply`.

    The result is a simple net, because other types ignore the order of ops.
    """
    graph = translation.graph
    if plan.graph_fingerprint != graph.fingerprint:
        raise FingerprintError("the plan was made for another graph; plan this net with the same shapes")
    if (plan.kinds > StepKind.FREE).any():
        raise UnsupportedError("a NetDef cannot offload buffers; write a plan (.plan.json)")
    order = plan.order()
    if len(order) != graph.n_ops or len(np.unique(order)) != len(order):
        raise UnsupportedError("a NetDef cannot recompute ops; allow only reorder and share")
    verify(graph, plan, check_capacity=False)
    names = _storage_names(translation, plan)
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
    names = _unique_names(translation)
    copied = copy.deepcopy(net)
    ops = list(copied.op)
    del copied.op[:]
    copied.op.extend(
        _renamed(ops[op.position], translation, number, names) for number, op in enumerate(translation.ops)
    )
    return copied, names


def _storage_names(translation: NetTranslation, plan: Plan) -> list[str]:
    """Return a storage name per buffer: a blob's name, numbered if another live buffer has it."""
    blobs, fixed = translation.blobs, translation.fixed
    storage, spans = _storage_and_spans(translation, plan)
    members: dict[int, list[int]] = {}
    for buffer in sorted(range(len(blobs)), key=lambda buffer: spans[buffer][0]):
        members.setdefault(storage[buffer], []).append(buffer)
    spans_of_name: dict[str, list[tuple[int, int]]] = {}
    names_in_net = set(blobs)
    names = list(blobs)
    for buffers in sorted(members.values(), key=fixed.isdisjoint):
        name = wanted = next((blobs[buffer] for buffer in buffers if buffer in fixed), blobs[buffers[0]])
        first, last = spans[buffers[0]][0], max(spans[buffer][1] for buffer in buffers)
        number = 2
        while any(first <= end and begin <= last for begin, end in spans_of_name.get(name, [])):
            name = f"{wanted}__v{number}"
            while name in names_in_net:
                name += "_"
            number += 1
        spans_of_name.setdefault(name, []).append((first, last))
        for buffer in buffers:
            names[buffer] = name
    return names


def _storage_and_spans(translation: NetTranslation, plan: Plan) -> tuple[list[int], list[tuple[int, int]]]:
    n_buffers = translation.graph.n_buffers
    storage = list(range(n_buffers))
    first = [-1] * n_buffers
    last = [len(plan.kinds)] * n_buffers
    for moment, step in enumerate(plan.steps()):
        if isinstance(step, Run):
            for read, written in step.pairs:
                storage[written] = storage[read]
                last[read] = moment
            for buffer in translation.graph.writes[step.op]:
                first[buffer] = moment
        elif isinstance(step, Free) and step.buffer not in translation.fixed:
            last[step.buffer] = moment
    return storage, list(zip(first, last, strict=True))


def _unique_names(translation: NetTranslation) -> list[str]:
    blobs, fixed = translation.blobs, translation.fixed
    used = {blobs[buffer] for buffer in fixed}
    names = list(blobs)
    for buffer, blob in enumerate(blobs):
        number = 1
        while buffer not in fixed and names[buffer] in used:
            names[buffer] = f"{blob}#{number}"
            number += 1
        used.add(names[buffer])
    return names


def _renamed(op: Any, translation: NetTranslation, number: int, names: Sequence[str]) -> Any:
    buffers = translation.ops[number]
    inner = {blob: names[buffer] for blob, buffer in buffers.inner.items()}
    is_alias = op.type == ALIAS
    inputs = [_name(blob, buffer, translation, names) for blob, buffer in zip(op.input, buffers.inputs, strict=True)]
    outputs = [
        blob if is_alias else _name(blob, buffer, translation, names)
        for blob, buffer in zip(op.output, buffers.outputs, strict=True)
    ]
    controls = {blob: names[buffer] for blob, buffer in buffers.controls.items()}
    rename_op(op, inputs, outputs, inner, controls)
    return op


def _name(blob: str, buffer: int, translation: NetTranslation, names: Sequence[str]) -> str:
    return names[buffer] if translation.blobs[buffer] == blob else blob
