"""Write the table of docs/stability.md from `core.stability`; run it after a public name was added or moved."""

from pathlib import Path

from lowtide.core.stability import Stability, public_names

PAGE = Path(__file__).parents[1] / "docs" / "stability.md"
BEGIN, END = "<!-- public names -->\n", "<!-- end of public names -->"


def page(text: str) -> str:
    """Return the page with the table between its marks rewritten."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n\n" + END + rest.partition(END)[2]


def table() -> str:
    """Return one row per public module."""
    names: dict[str, dict[Stability, list[str]]] = {}
    for full_name, stability in public_names():
        module, _, name = full_name.rpartition(".")
        names.setdefault(module, {"stable": [], "provisional": []})[stability].append(f"`{name}`")
    rows = [
        f"| `{module}` | {', '.join(found['stable'])} | {', '.join(found['provisional'])} |"
        for module, found in names.items()
    ]
    return "\n".join(["| module | stable | provisional |", "|---|---|---|", *rows])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
