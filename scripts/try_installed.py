"""Try an installed lowtide as a user has it: the command, a plan, a packing. Needs nothing beside it.

`make wheel` runs it in an empty environment, and cibuildwheel after building each wheel.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import lowtide

GRAPH = {
    "lowtide_graph": 1,
    "name": "two branches",
    "buffers": [
        {"name": "x", "size_bytes": 100, "class": "input"},
        *({"name": f"large{k}", "size_bytes": 1000, "class": "intermediate"} for k in range(2)),
        *({"name": f"small{k}", "size_bytes": 10, "class": "output"} for k in range(2)),
    ],
    "ops": [
        *({"name": f"grow{k}", "kind": "grow", "reads": [0], "writes": [1 + k]} for k in range(2)),
        *({"name": f"shrink{k}", "kind": "shrink", "reads": [1 + k], "writes": [3 + k]} for k in range(2)),
    ],
}
"""Both branches grow first, which needs 2,110 bytes; one after the other they need 1,120."""


def run(*arguments: str) -> str:
    """Run the command and return what it prints; exits with what it says where it fails."""
    done = subprocess.run([sys.executable, "-m", "lowtide", *arguments], capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"{arguments[0]} says {done.stderr.strip()}")
    return done.stdout


def check(holds: bool, what: str) -> None:
    """Exit with one line where something does not hold."""
    if not holds:
        sys.exit(f"the installed lowtide is broken: {what}")


def main() -> None:
    """Try it in a folder of its own."""
    check(version("lowtide") in run("--version"), "it does not know its version")
    with tempfile.TemporaryDirectory() as folder:
        model, plan = str(Path(folder, "small.graph.json")), str(Path(folder, "small.plan.json.gz"))
        Path(model).write_text(json.dumps(GRAPH), encoding="utf-8")
        found = json.loads(run("plan", model, "-o", plan, "--json"))
        check(found["peak_bytes"] == {"device": 1120}, f"a plan of known peak has {found['peak_bytes']}")
        run("verify", plan, model)
        report = Path(folder, "report.html")
        run("report", model, "-o", str(report))
        check(report.stat().st_size > 10_000, "a report is empty")
    packed = lowtide.pack(lowtide.Buffers([0, 3, 0, 9, 0], [3, 9, 9, 21, 21], [4] * 5))
    check((packed.status, packed.arena_bytes) == ("optimal", 12), f"a known packing has {packed.arena_bytes} bytes")
    print(f"lowtide {version('lowtide')} on Python {sys.version.split()[0]} works")


if __name__ == "__main__":
    main()
