"""The recorded modules (see record_modules.py), and functions that read modules."""

from pathlib import Path

from lowtide.frameworks.xla.reading.module import ReadModule, read_module
from lowtide.xla import parse_module

FOLDER = Path(__file__).parent / "modules"
TEXTS = sorted(FOLDER.glob("*.hlo"))
SCHEDULED = [path for path in TEXTS if not path.name.endswith(".before.hlo")]


def name_of(path: Path) -> str:
    """Return the name of a recorded module, for test ids."""
    return path.name


def text_of(name: str) -> str:
    """Return the text of a recorded module."""
    return (FOLDER / name).read_text(encoding="utf-8")


def read_text(text: str) -> ReadModule:
    """Read a module from text; its header may be left out."""
    return read_module(parse_module(text if text.lstrip().startswith("HloModule") else f"HloModule test\n{text}"))
