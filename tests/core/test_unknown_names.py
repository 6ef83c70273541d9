"""An unknown name leads to a suggestion of the closest known name."""

import re
from collections.abc import Iterable

import pytest
from click.testing import CliRunner

from lowtide import Buffers, minimize, pack
from lowtide.cli.command import cli
from lowtide.core.effort import EFFORT_NAMES
from lowtide.core.errors import UsageError
from lowtide.core.techniques import TECHNIQUES
from lowtide.engine.costs import PROFILES, read_costs
from lowtide.engine.graph import GraphBuilder
from lowtide.engine.packing.rules import RULES
from lowtide.engine.schedule import SCHEDULERS
from lowtide.frameworks.tensorflow.grappler.levels import LEVELS, optimize_memory


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheduler": "serach"}, "unknown scheduler 'serach'; did you mean 'search'\\? choose one of given, "),
        ({"effort": "balaced"}, "unknown effort 'balaced'; did you mean 'balanced'\\? choose one of fast, "),
        ({"costs": "eagre"}, "unknown cost profile 'eagre'; did you mean 'eager'\\? choose one of "),
        ({"allow": {"recompte"}}, "unknown technique 'recompte'; did you mean 'recompute'\\? choose one of reorder, "),
        ({"scheduler": "?"}, "unknown scheduler '\\?'; choose one of given, "),
    ],
)
def test_the_nearest_name_is_offered(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        minimize(GraphBuilder("empty").build(), **settings)  # type: ignore[arg-type]


def test_packing_methods_are_offered_too() -> None:
    with pytest.raises(UsageError, match="unknown packing method 'best-fit'; did you mean 'best-fit-by-"):
        pack(Buffers([0], [1], [1]), method="best-fit")


def test_levels_are_offered_too() -> None:
    with pytest.raises(UsageError, match="unknown level 'heuristic'; did you mean 'heuristics'\\?"):
        optimize_memory(GraphBuilder("empty").build(), "heuristic")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verb", "names"),
    [("plan", [*SCHEDULERS, *TECHNIQUES, *EFFORT_NAMES, *PROFILES]), ("pack", RULES), ("optimize", LEVELS)],
)
def test_the_help_of_a_verb_lists_every_name_that_an_option_takes(verb: str, names: Iterable[str]) -> None:
    words = set(re.findall(r"[\w-]+", CliRunner().invoke(cli, [verb, "--help"], terminal_width=1000).output))
    assert not set(names) - words


def test_the_help_lists_the_levels_of_onnx_runtime() -> None:
    pytest.importorskip("onnx")
    from lowtide.frameworks.onnx.running.levels import LEVELS as ONNX_LEVELS

    page = CliRunner().invoke(cli, ["optimize", "--help"], terminal_width=1000).output
    assert f"({', '.join(reversed(ONNX_LEVELS))};" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspekt", "model.onnx"], "unknown verb 'inspekt'; did you mean 'inspect'? choose one of inspect, compare, "),
        (["plan", "model.onnx", "--effort", "balaced"], "unknown effort 'balaced'; did you mean 'balanced'?"),
    ],
)
def test_the_command_line_offers_verbs_and_efforts(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert message in str(done.exception) + done.output


def test_a_costs_file_that_is_a_misspelled_profile_is_answered_so() -> None:
    message = r"unknown cost profile 'eagr'; did you mean 'eager'\? .*, or give a costs file"
    with pytest.raises(UsageError, match=message):
        read_costs("eagr", GraphBuilder("empty").build())
