"""Every verb prints one JSON object that says its kind and version, and fits the published schema of that kind."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lowtide.reporting.fields import JSON_VERSION, KINDS
from tests.cli.conftest import Command

CALLS: dict[str, Sequence[str]] = {
    "inspect": ["inspect", "{model}"],
    "compare": ["compare", "{model}"],
    "plan": ["plan", "{model}", "-o", "{folder}/a.plan.json", "--proof", "{folder}/a.proof.json"],
    "curve": ["plan", "{model}", "--curve"],
    "optimize": ["optimize", "{model}", "-o", "{folder}/a.graph.json"],
    "verify": ["verify", "{plan}", "{model}", "--proof", "{proof}"],
    "apply": ["apply", "{plan}", "{model}", "-o", "{folder}/b.graph.json"],
    "report": ["report", "{model}", "--curve"],
    "export": ["export", "{model}", "-o", "{folder}/a.svg"],
    "check": ["check", "{model}", "--max-peak", "1B"],
    "diff": ["diff", "{model}", "{model}"],
    "diff_plans": ["diff", "{plan}", "{plan}"],
    "fits": ["fits", "{model}", "--device", "1200B"],
    "pack": ["pack", "{buffers}"],
}
ELSEWHERE: set[str] = {"level", "costs", "fits_sizes"}
"""Kinds that need a framework; its tests print them."""


@pytest.mark.parametrize("kind", CALLS)
def test_a_verb_prints_an_object_of_its_kind(lowtide: Command, graph_file: Path, tmp_path: Path, kind: str) -> None:
    made = {"plan": tmp_path / "plan.plan.json", "proof": tmp_path / "plan.proof.json", "buffers": tmp_path / "b.csv"}
    lowtide("plan", graph_file, "-o", made["plan"], "--proof", made["proof"])
    made["buffers"].write_text("id,lower,upper,size\na,0,2,10\nb,1,3,20\n")
    places = {"model": graph_file, "folder": tmp_path, **made}
    printed = json.loads(lowtide(*(word.format(**places) for word in CALLS[kind]), "--json").stdout)
    assert list(printed)[:2] == ["kind", "version"]
    assert (printed["kind"], printed["version"]) == (kind, JSON_VERSION)


def test_every_kind_is_tried() -> None:
    assert set(KINDS) == CALLS.keys() | ELSEWHERE
