"""The workflow that builds wheels for every system publishes nothing but what a tag asks for."""

import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]


def _jobs() -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8"))["jobs"]


def test_only_a_tag_publishes_and_only_what_was_all_built() -> None:
    jobs = _jobs()
    publishing = {name for name, job in jobs.items() if "publish" in str(job["steps"])}
    assert publishing == {"publish"}
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert set(jobs["publish"]["needs"]) == jobs.keys() - publishing


def test_every_system_of_the_classifiers_builds_its_wheel_as_pyproject_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    systems = {"Linux": "ubuntu", "MacOS": "macos", "Windows": "windows"}
    named = {word for line in project["project"]["classifiers"] for word in systems if word in line}
    machines = _jobs()["wheels"]["strategy"]["matrix"]["system"]
    assert all(any(each.startswith(systems[name]) for each in machines) for name in named)
    assert named == systems.keys()
    tried = project["tool"]["cibuildwheel"]["test-command"].rpartition("{project}/")[2]
    assert (ROOT / tried).is_file()
