"""Run the framework suites with the oldest, the pinned and the newest releases: python scripts/test_matrix.py [NAME...]

A name is a row of `scripts/matrix.toml`, alone or with a Python: "oldest", "newest-3.13". `--suites` runs these files
and folders of tests only. Environments are kept in `.venv-matrix`. Prints a table of versions and numbers of tests, and
exits with 1 if tests fail or none ran.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv-matrix"
TABLE = ROOT / "scripts" / "matrix.toml"
PACKAGES = ["torch", "jax", "onnxruntime", "highspy"]


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


def tested(python: Path, suites: list[str], workers: int) -> list[str]:
    """Run the suites in an environment, and return its row of the table."""
    report = python.parents[1] / "results.xml"
    report.unlink(missing_ok=True)
    run = [str(python), "-m", "pytest", "-n", str(workers), "--dist", "worksteal", "-p", "no:cacheprovider"]
    subprocess.run([*run, f"--junitxml={report}", *suites], cwd=ROOT, check=False)
    return [*versions(python), *counts(report)]


def versions(python: Path) -> list[str]:
    """Return the installed versions of the packages in the table."""
    code = f"from importlib.metadata import version\nfor name in {PACKAGES}: print(version(name))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.split()


def counts(report: Path) -> list[str]:
    """Return the numbers of passed, failed and skipped tests of a JUnit report; "-" if pytest wrote none."""
    if not report.is_file():
        return ["-", "-", "-"]
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    total, failures, errors, skipped = (int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped"))
    return [str(total - failures - errors - skipped), str(failures + errors), str(skipped)]


def main() -> int:
    """Run the suites in each environment, print the table, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="rows of the table, with or without a Python")
    parser.add_argument("--suites", nargs="+", default=tomllib.loads(TABLE.read_text(encoding="utf-8"))["suites"])
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows: dict[str, list[str]] = {}
    for name, path, constraints in environments(given.names):
        print(f"==> {name}", flush=True)
        try:
            rows[name] = tested(built(name, path, constraints), given.suites, given.workers)
        except subprocess.CalledProcessError:
            rows[name] = ["cannot be installed"]
    for name, row in {"": [*PACKAGES, "passed", "failed", "skipped"], **rows}.items():
        print(f"{name:14} " + " ".join(f"{cell:>14}" for cell in row))
    return int(not rows or any(row[-2:-1] != ["0"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
