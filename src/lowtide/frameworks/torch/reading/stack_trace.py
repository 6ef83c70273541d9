"""The lines and modules of the user's program that led to an op, from what tracing keeps with its node."""

import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch.fx import Node

_FRAME = re.compile(
    r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)(?:\n\s*(?!File ")(?P<code>.*))?$', re.MULTILINE
)
_ROOT = re.compile(r"^L\['\w+'\]\.?")
"""How TorchDynamo begins the path of a module: with the variable that holds the outermost."""
_PYTORCH = str(Path(torch.__file__).parent)


class Frame(NamedTuple):
    """A line of a program that was running when an op was traced."""

    file: str
    line: int
    function: str
    code: str

    @property
    def in_pytorch(self) -> bool:
        """Whether the line is one of PyTorch's own."""
        return self.file.startswith(_PYTORCH)


def frames_of(node: Node) -> list[Frame]:
    """Return the frames of a node's stack trace, outermost first; none where it has no trace."""
    found = _FRAME.finditer(node.meta.get("stack_trace") or "")
    return [Frame(each["file"], int(each["line"]), each["function"], (each["code"] or "").strip()) for each in found]


def innermost_frame(node: Node) -> Frame | None:
    """Return the innermost frame outside PyTorch's own files; PyTorch's where there is no other, None without any."""
    frames = frames_of(node)
    own = [frame for frame in frames if not frame.in_pytorch] or frames
    return own[-1] if own else None


def source_of(node: Node) -> str | None:
    """Return where the user's program has an op, "blocks.3.mlp.act at model.py:41"; None where nothing is known.

    An op of a backward pass is where the forward op is that it differentiates.
    """
    frame = innermost_frame(node)
    modules: dict[str, tuple[str, object]] = (
        node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    )
    path = _ROOT.sub("", list(modules.values())[-1][0]) if modules else ""
    line = "" if frame is None else f"at {Path(frame.file).name}:{frame.line}"
    return " ".join(part for part in (path, line) if part) or None
