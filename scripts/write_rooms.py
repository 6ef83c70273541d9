"""Write the tables of rooms in docs/architecture.md from the import contracts; run it after changing either.

A row's room is a layer of a contract in `pyproject.toml`, from the bottom up; what it holds is the first paragraph of
its own docstring. So the page cannot say another order than the one that is checked, nor leave a room out.
"""

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src"


def layer_contracts() -> dict[str, list[list[str]]]:
    """Return, by package, its layers from the bottom up; each is a list of full module names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    found: dict[str, list[list[str]]] = {}
    for contract in settings["contracts"]:
        if contract["type"] == "layers":
            for package in contract["containers"]:
                found[package] = [_names(package, layer) for layer in reversed(contract["layers"])]
    return found


def _names(package: str, layer: str) -> list[str]:
    return [f"{package}.{room.strip()}" for room in layer.replace(":", "|").split("|")]


def table(package: str, layers: list[list[str]]) -> str:
    """Return the table of one package; rooms of one layer know nothing of one another and share a number."""
    rows = [
        f"| {floor} | `{name.removeprefix(package + '.')}` | {_first_paragraph(name)} |"
        for floor, layer in enumerate(layers, 1)
        for name in layer
    ]
    return "\n".join(["| floor | room | what it holds |", "|--:|---|---|", *rows])


def _first_paragraph(module: str) -> str:
    base = SOURCE / module.replace(".", "/")
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def page(text: str) -> str:
    """Return the page with every table between its marks written anew."""
    for package, layers in layer_contracts().items():
        begin, end = f"<!-- rooms of {package} -->\n", f"<!-- end of {package} -->"
        before, found, rest = text.partition(begin)
        if not found:
            sys.exit(f"{PAGE.name} has no place for the rooms of {package}; add the lines {begin.strip()} and {end}")
        text = before + begin + "\n" + table(package, layers) + "\n\n" + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
