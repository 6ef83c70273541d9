"""Source lines and modules of ops."""

import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch.fx import Node

_FRAME = re.compile(
    r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)(?:\n\s*(?!File ")(?P<code>.*))?$', re.MULTILINE
)
_ROOT = re.compile(r"^L\['\w+'\]\.?")
_PYTORCH = str(Path(torch.__file__).parent)


class Frame(NamedTuple):
    """A line that ran when an op was traced."""

    file: str
    line: int
    function: str
    code: str

    @property
    def in_pytorch(self) -> bool:
        return self.file.startswith(_PYTORCH)


def frames_of(node: Node) -> list[Frame]:
    """Return the frames, outermost first."""
    found = _FRAME.finditer(node.meta.get("stack_trace") or "")
    return [Frame(each["file"], int(each["line"]), each["function"], (each["code"] or "").strip()) for each in found]


def innermost_frame(node: Node) -> Frame | None:
    """Return the innermost frame, if possible outside PyTorch."""
    frames = frames_of(node)
    own = [frame for frame in frames if not frame.in_pytorch] or frames
    return own[-1] if own else None


def source_of(node: Node) -> str | None:
    """Return the source of an op or of its forward op, such as "blocks.3.act at model.py:41"."""
    frame = innermost_frame(node)
    meta = node.meta
    modules: dict[str, tuple[str, object]] = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    path = _ROOT.sub("", list(modules.values())[-1][0]) if modules else ""
    line = "" if frame is None else f"at {Path(frame.file).name}:{frame.line}"
    return " ".join(part for part in (path, line) if part) or None
