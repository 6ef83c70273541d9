"""The one page of results: every benchmark replaces its own section, and nobody else writes it.

Each section ends with a digest of what its script wrote, so that a change by hand is seen.
`python benchmarks/results.py` names every section that is not as its script wrote it.
"""

import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = "# Results\n\nEvery section is written by the command it names.\n"
_SECTION = re.compile(
    r"<!-- begin (?P<name>.+?) -->\n(?P<text>.*?)<!-- end (?P=name)(?: sha256:(?P<digest>\w+))? -->\n", re.DOTALL
)


@dataclass(frozen=True)
class Section:
    """A section as it stands on the page, and the digest its script left; None where a script left none."""

    name: str
    text: str
    digest: str | None

    @property
    def command(self) -> str:
        """The command that the section says has written it."""
        return next((line.strip() for line in self.text.splitlines() if line.startswith("    ")), "")

    def __str__(self) -> str:
        digest = f" sha256:{self.digest}" if self.digest else ""
        return f"<!-- begin {self.name} -->\n{self.text}<!-- end {self.name}{digest} -->\n"


def table_head(names: Sequence[str], n_texts: int = 1) -> list[str]:
    """Return the first two lines of a table; the first `n_texts` columns are texts, the others are figures."""
    return [f"| {' | '.join(names)} |", f"|{'---|' * n_texts}{'--:|' * (len(names) - n_texts)}"]


def write_section(name: str, command: str, markdown: str) -> None:
    """Put a benchmark's section into RESULTS.md, in place of the one it wrote before; sections are sorted by name."""
    text = f"## {name}\n\n    {command}\n\n{markdown.strip()}\n"
    found = sections_of(RESULTS.read_text() if RESULTS.exists() else TITLE)
    RESULTS.write_text(page_of(found | {name: Section(name, text, digest_of(text))}))


def digest_of(text: str) -> str:
    """Return what tells a section's text from any other."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sections_of(page: str) -> dict[str, Section]:
    """Return the sections of a page by name."""
    return {match["name"]: Section(match["name"], match["text"], match["digest"]) for match in _SECTION.finditer(page)}


def page_of(sections: dict[str, Section]) -> str:
    """Return the page of these sections, sorted by name."""
    return TITLE + "".join(f"\n{section}" for _, section in sorted(sections.items()))


def complaints(page: str) -> list[str]:
    """Return a line for every section that is not as its script wrote it, and for text that belongs to none."""
    found = sections_of(page)
    said: list[str] = []
    for section in found.values():
        if section.digest != digest_of(section.text):
            said.append(f"{section.name}: not as its script wrote it; run {section.command}")
        if not _writes(section.command, section.name):
            said.append(f"{section.name}: its command, {section.command!r}, names no script that writes this section")
    if page != page_of(found):
        said.append("text outside the sections, or sections out of order; every section is written by its command")
    return said


def _writes(command: str, section: str) -> bool:
    script = ROOT / next(iter(command.split()[1:]), "")
    return script.is_file() and section in script.read_text()


if __name__ == "__main__":
    wrong = complaints(RESULTS.read_text())
    sys.exit("\n".join(wrong) or None)
