"""Write the tables of rooms in docs/architecture.md from the import contracts; run it after changing either.

A table between `<!-- rooms of PACKAGE -->` and `<!-- end of PACKAGE -->` lists the layers of that package's contract in
`pyproject.toml`, from the bottom up, with the first paragraph of each room's docstring.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src"
_TABLE = re.compile(r"(<!-- rooms of (\S+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def layer_contracts() -> dict[str, list[list[str]]]:
    """Return the layers of each package from the bottom up. A layer is a list of full module names."""
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
    """Return the table of one package. Rooms of one layer never import each other and share a number."""
    rows = [
        f"| {floor} | `{name.removeprefix(package + '.')}` | {_first_paragraph(name)} |"
        for floor, layer in enumerate(layers, 1)
        for name in layer
    ]
    return "\n".join(["| floor | room | purpose |", "|--:|---|---|", *rows])


def _first_paragraph(module: str) -> str:
    base = SOURCE / module.replace(".", "/")
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def page(text: str) -> str:
    """Return the page with the table between each pair of marks rewritten; exits if a package has no contract."""
    contracts = layer_contracts()

    def rewritten(match: re.Match[str]) -> str:
        package = match[2]
        if package not in contracts:
            sys.exit(f"{PAGE.name} has a table of {package}, but pyproject.toml has no layers contract for it")
        return f"{match[1]}\n{table(package, contracts[package])}\n\n{match[3]}"

    return _TABLE.sub(rewritten, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
