"""Names of nodes and of what they read."""

from collections.abc import Collection

RECOMPUTED, TRIGGER = "Recomputed/", "RecomputeTrigger/"
SWAPPED_OUT, SWAPPED_IN = "swap_out_", "swap_in_"


def node_of(text: str) -> str:
    """Return the node that an input names."""
    return text.removeprefix("^").partition(":")[0]


def with_node(text: str, name: str) -> str:
    """Return an input that reads another node in the same way: the same output, or as a control edge."""
    control = "^" if text.startswith("^") else ""
    _, colon, port = text.removeprefix("^").partition(":")
    return f"{control}{name}{colon}{port}"


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return a name that no node has."""
    name, number = wanted, 1
    while name in taken:
        name = f"{wanted}_{number}"
        number += 1
    return name
