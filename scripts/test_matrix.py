"""Run the framework suites with the oldest, the pinned and the newest releases: python scripts/test_matrix.py [NAME...]

A name is a row of `scripts/matrix.toml`, alone or with a Python: "oldest", "newest-3.13". Environments are kept in
`.venv-matrix`. Prints one line per environment, and exits with 1 if tests fail.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv-matrix"
TABLE = ROOT / "scripts" / "matrix.toml"


def interpreter(version: str) -> str | None:
    """Return the path of a Python such as "3.13", or None if none is installed."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = shutil.which(f"python{version}")
    found = [*([named] if named else []), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
    return next((path for path in found if _version_of(path) == version), None)


def _version_of(path: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([path, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def environments(wanted: list[str]) -> Iterator[tuple[str, str, list[str] | str]]:
    """Yield name, interpreter and constraints of each environment that can be made here."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    for version in table["pythons"]:
        path = interpreter(version)
        for row, constraints in table["constraints"].items():
            name = f"{row}-{version}"
            if wanted and not {row, name} & set(wanted):
                continue
            if path is None:
                print(f"{name}: no Python {version} here")
            else:
                yield name, path, constraints


def built(name: str, path: str, constraints: list[str] | str) -> Path:
    """Return the Python of an environment, which is made if its constraints are new."""
    folder = ENVIRONMENTS / name
    given = (ROOT / constraints).read_text("utf-8") if isinstance(constraints, str) else "\n".join(constraints)
    record, used = folder / ".made", folder / "constraints.txt"
    wanted = given + (ROOT / "pyproject.toml").read_text("utf-8")
    if not record.is_file() or record.read_text("utf-8") != wanted:
        subprocess.run([path, "-m", "venv", "--clear", str(folder)], check=True)
        used.write_text(given, "utf-8")
        install = ["sh", "scripts/pip_install.sh", str(folder), "-c", str(used), "-e", ".[test]"]
        subprocess.run(install, check=True, cwd=ROOT)
        record.write_text(wanted, "utf-8")
    return folder / "bin" / "python"


def main(wanted: list[str]) -> int:
    """Run the suites in each environment, and return the exit code."""
    suites = tomllib.loads(TABLE.read_text(encoding="utf-8"))["suites"]
    results: dict[str, str] = {}
    for name, path, constraints in environments(wanted):
        print(f"==> {name}", flush=True)
        try:
            python = built(name, path, constraints)
        except subprocess.CalledProcessError:
            results[name] = "cannot be installed"
            continue
        run = [str(python), "-m", "pytest", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider", *suites]
        results[name] = "passes" if subprocess.run(run, cwd=ROOT, check=False).returncode == 0 else "FAILS"
    for name, result in results.items():
        print(f"{name:14} {result}")
    return int(any(result != "passes" for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
