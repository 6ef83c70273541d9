"""Write the tables of docs/stability.md from `core.stability`; run it after a public name was added or moved."""

from pathlib import Path

from lowtide.core.stability import public_names

PAGE = Path(__file__).parents[1] / "docs" / "stability.md"
BEGIN, END = "<!-- public names -->\n", "<!-- end of public names -->"


def page(text: str) -> str:
    """Return the page with what stands between its marks written anew."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n\n" + END + rest.partition(END)[2]


def table() -> str:
    """Return one row a public name."""
    return "\n".join(
        ["| name | |", "|---|---|", *(f"| `{name}` | {stability} |" for name, stability in public_names())]
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
