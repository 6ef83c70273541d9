"""Write notes on a plan into node metadata, for viewers such as Netron."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan, StepKind
from lowtide.frameworks.onnx.loading import fields as of
from lowtide.frameworks.onnx.loading.rewrite import NodeOrder, Pieces, edited_model, encoded_metadata
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.wire import Content, encode_size, fields

Notes = Mapping[str, str]


def notes_of_model(plan: Plan) -> Notes:
    figures = {"peak": plan.peak_bytes, "lower_bound": plan.lower_bound_bytes, "arena": plan.arena_bytes}
    return {f"lowtide.{name}_bytes": str(sum(bytes_.values())) for name, bytes_ in figures.items() if bytes_}


def notes_of_nodes(translation: Translation, plan: Plan, order: NodeOrder) -> list[Notes]:
    """Return notes by node, in the planned file's order. O(steps + e)."""
    graph = translation.graph
    live = simulate(graph, plan).live.sum(axis=1)
    offsets = {(each.buffer, each.first_step): each.offset for each in plan.addresses}
    steps = np.flatnonzero(plan.kinds == StepKind.RUN).tolist()
    steps_of: dict[int, list[tuple[int, int]]] = {}
    for place, step in enumerate(steps):
        steps_of.setdefault(int(plan.targets[step]), []).append((place, step))
    pairs = {place: taken for place, _, taken in plan.taken_pairs()}
    op_of = {node: op for op, nodes in enumerate(translation.nodes_of_ops) for node in nodes}
    seen: Counter[int] = Counter()

    def note(node: int) -> Notes:
        if node not in op_of:
            return {}
        op = op_of[node]
        place, step = steps_of[op][seen[node]]
        seen[node] += 1
        found = {"lowtide.step": str(place), "lowtide.live_bytes": str(live[step + 1])}
        addresses = [
            f"{graph.buffer_names[buffer]} at {offsets[buffer, step]}, {graph.sizes[buffer]} bytes"
            for buffer in graph.writes[op].tolist()
            if (buffer, step) in offsets
        ]
        over = [f"{graph.buffer_names[new]} over {graph.buffer_names[old]}" for old, new in pairs.get(place, ())]
        found |= {"lowtide.addresses": "; ".join(addresses)} if addresses else {}
        found |= {"lowtide.in_place": "; ".join(over)} if over else {}
        return found | ({"lowtide.run_again": str(seen[node] - 1)} if seen[node] > 1 else {})

    return [note(node) for node in order.nodes]


def with_notes(content: Content, notes: Sequence[Notes]) -> Pieces:
    """Return a model's bytes with `notes` on its nodes."""
    left = iter(notes)

    def edit(view: memoryview, start: int, stop: int) -> Pieces:
        pieces: Pieces = []
        for number, _, begin, at, end in fields(view, start, stop):
            if number == of.NODE:
                entries = encoded_metadata(of.NODE_METADATA, next(left))
                pieces += [encode_size(number, end - at + len(entries)), view[at:end], entries]
            else:
                pieces.append(view[begin:end])
        return pieces

    return edited_model(content, edit)
