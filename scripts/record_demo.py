"""Run the command of `make demo` and record it with its output in docs/pictures/demo.txt; minutes.

README.md shows the recorded output. `--readme` only writes README.md, from the last record.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
RECORD = ROOT / "docs" / "pictures" / "demo.txt"
_WIDTH = 118
_LEFT_OUT = ("lower bound", "arena", "persistent", "measured eager")
_BLOCK = re.compile(r"(?<=^```\n)GPT2LMHeadModel .*?(?=^```$)", re.DOTALL | re.MULTILINE)


def command() -> list[str]:
    """Return the command that `make demo` runs."""
    made = subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/.demo", "demo"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    (line,) = re.findall(r"^\S*/lowtide .*$", made.stdout.replace("\\\n", " "), re.MULTILINE)
    return shlex.split(line)


def run() -> str:
    """Run the demo and return its command and output, in 80 columns."""
    (ROOT / "out").mkdir(exist_ok=True)
    arguments = command()
    environment = {**os.environ, "COLUMNS": "80", "LOWTIDE_CACHE": "off"}
    done = subprocess.run(arguments, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return f"$ {shlex.join(arguments)}\n{done.stdout}"


def shown(record: str) -> str:
    """Return a recorded output as README.md shows it: each value in one line, long lines and some values cut."""
    output = re.sub(r"\n {3,}", " ", record.partition("\n")[2])
    lines = [_cut(line) for line in output.splitlines() if not line.strip().startswith(_LEFT_OUT)]
    return "\n".join([*lines, "  ...\n"])


def page(readme: str, record: str) -> str:
    """Return README.md with the recorded output."""
    written, count = _BLOCK.subn(lambda _: shown(record), readme)
    if count != 1:
        sys.exit(f"{PAGE.name} has {count} blocks that start with GPT2LMHeadModel; keep one")
    return written


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3].rpartition(" ")[0] + " ..."


if __name__ == "__main__":
    if sys.argv[1:] != ["--readme"]:
        RECORD.write_text(run(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), RECORD.read_text(encoding="utf-8")), encoding="utf-8")
