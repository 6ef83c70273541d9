"""The one page of results: every benchmark replaces its own section."""

import re
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = "# Results\n\nEvery section is written by the command it names.\n"


def write_section(name: str, command: str, markdown: str) -> None:
    """Put a benchmark's section into RESULTS.md, in place of the one it wrote before; sections are sorted by name."""
    page = RESULTS.read_text() if RESULTS.exists() else TITLE
    found: dict[str, str] = dict(re.findall(r"<!-- begin (.+?) -->\n(.*?)<!-- end \1 -->\n", page, re.DOTALL))
    found[name] = f"## {name}\n\n    {command}\n\n{markdown.strip()}\n"
    sections = (f"\n<!-- begin {key} -->\n{found[key]}<!-- end {key} -->\n" for key in sorted(found))
    RESULTS.write_text(TITLE + "".join(sections))
