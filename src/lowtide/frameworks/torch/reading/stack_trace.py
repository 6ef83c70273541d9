"""The lines of the user's program that led to an op, from the stack trace that tracing keeps with its node."""

import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch.fx import Node

_FRAME = re.compile(
    r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)(?:\n\s*(?!File ")(?P<code>.*))?$', re.MULTILINE
)
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
