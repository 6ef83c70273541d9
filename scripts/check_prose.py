"""Check that docstrings, comments, messages and pages stay in plain English; `make check` calls it.

Counts turns of phrase that make text hard to read, per 10,000 words. The patterns and limits are in `pyproject.toml`,
`[tool.lowtide.prose]`. Exits with 1 if a count is above its limit, and names the worst files.
"""

import ast
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FEWEST_WORDS = 4
"""Shorter strings are keys or names, not text."""
WORST_SHOWN = 5


def texts() -> Iterator[tuple[Path, str]]:
    """Yield each file with its text: pages without code, and the strings and comments of modules."""
    for path in sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]):
        if "_build" in path.parts or path.name == "results.md":
            continue
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            yield path, re.sub(r"```.*?```|<!--.*?-->", " ", source, flags=re.DOTALL)
            continue
        strings = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
        parts = [text for text in strings if isinstance(text, str) and len(text.split()) >= FEWEST_WORDS]
        with path.open("rb") as file:
            parts += [token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
        yield path, "\n".join(parts)


def main() -> int:
    """Print all counts, and return 1 if one is above its limit."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["lowtide"]["prose"]
    words, counts, files = 0, Counter[str](), Counter[Path]()
    for path, text in texts():
        words += len(re.findall(r"[A-Za-z']+", text))
        for name, rule in rules.items():
            found = len(re.findall(rule["pattern"], text, flags=re.IGNORECASE))
            counts[name] += found
            files[path] += found
    over = [name for name, rule in rules.items() if 1e4 * counts[name] / words > rule["limit"]]
    for name, rule in rules.items():
        print(f"{1e4 * counts[name] / words:6.1f} per 10,000 words (limit {rule['limit']})  {name}")
    if over:
        worst = ", ".join(str(path.relative_to(ROOT)) for path, _ in files.most_common(WORST_SHOWN))
        print(f"over the limit: {', '.join(over)}; the worst files are {worst}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
