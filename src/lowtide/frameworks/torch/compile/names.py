"""Names of compiled programs by which users know them again: their function and line, and a count where it recurs."""

import re
from collections import Counter
from pathlib import Path

from torch.fx import Graph, Node

from lowtide.frameworks.torch.reading.stack_trace import frames_of

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_\d+")
_given: Counter[str] = Counter()


def new_name(graph: Graph) -> str:
    """Return a name that no program has yet, such as `forward (model.py:14)`, then `forward (model.py:14) #2`.

    It is the user's outermost function that led to the first op with a source line; after a graph break, the function
    that goes on. Where no op has one, it is the class of the first module. It depends only on the graph and on the
    names given before, so all ranks find the same.
    """
    name = next((found for node in graph.nodes if (found := _beginning(node))), None) or _first_module(graph) or "graph"
    _given[name] += 1
    return name if _given[name] == 1 else f"{name} #{_given[name]}"


def forget_names() -> None:
    """Count from the start again."""
    _given.clear()


def given_names() -> Counter[str]:
    """Return which names were given how often."""
    return Counter(_given)


def put_back_names(names: Counter[str]) -> None:
    """Go on from names that were given by then."""
    _given.clear()
    _given.update(names)


def _beginning(node: Node) -> str | None:
    frame = next((frame for frame in frames_of(node) if not frame.in_pytorch), None)
    if frame is None:
        return None
    resumed = _RESUMED.fullmatch(frame.function)
    function = frame.function if resumed is None else resumed["function"]
    return f"{function} ({Path(frame.file).name}:{frame.line})"


def _first_module(graph: Graph) -> str | None:
    for node in graph.nodes:
        modules: dict[str, tuple[str, type | str]] = node.meta.get("nn_module_stack") or {}
        for _, kind in modules.values():
            return kind if isinstance(kind, str) else kind.__name__
    return None
