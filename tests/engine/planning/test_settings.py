"""One record of settings: what it refuses, and that every face of lowtide takes its defaults and sentences from it."""

import inspect
from dataclasses import fields, replace
from typing import get_type_hints

import pytest

from lowtide import fits, frontier, minimize, optimize, report
from lowtide.api import verbs
from lowtide.api.options import settings_of
from lowtide.api.verbs import PlanOptions
from lowtide.cli.plan import command
from lowtide.core.errors import UsageError
from lowtide.core.techniques import TECHNIQUES, checked_techniques, refuse_ignored
from lowtide.engine.planning.settings import SENTENCES, PlanSettings, allowed_techniques, default_techniques

NAMES = [setting.name for setting in fields(PlanSettings)]
OF_A_GRAPH = {"techniques": "allow"}
"""Settings that `minimize` takes by another name."""


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_says_what_it_is_in_one_sentence(name: str) -> None:
    assert SENTENCES[name].endswith(".")
    assert ". " not in SENTENCES[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "host"])
def test_minimize_takes_every_setting_with_its_default(name: str) -> None:
    """Options that a call leaves out keep the defaults of the record."""
    assert OF_A_GRAPH.get(name, name) in get_type_hints(PlanOptions)
    assert getattr(settings_of({}), name) == getattr(PlanSettings, name)


def test_all_verbs_that_plan_take_the_same_options() -> None:
    """Only `fits` has its own `device`, whose memory is the budget, and chooses order, addresses and bounds itself."""
    for verb in (minimize, optimize, frontier, report):
        options = inspect.signature(verb).parameters["options"].annotation
        assert "PlanOptions" in str(options)
    assert "FitOptions" in str(inspect.signature(fits).parameters["options"].annotation)
    chosen = {"budget", "transient", "scheduler", "addresses", "prove"}
    assert get_type_hints(verbs.PlanOptions).keys() == get_type_hints(verbs.FitOptions).keys() | {"device"} | chosen


@pytest.mark.parametrize("name", [name for name in NAMES if name != "host"])
def test_the_command_line_has_an_option_for_every_setting_with_its_sentence_and_default(name: str) -> None:
    (option,) = (parameter for parameter in command.params if parameter.name == name)
    assert getattr(option, "help", None) == SENTENCES[name]
    default = getattr(PlanSettings, name)
    assert option.default == (None if name == "techniques" else default)


def test_the_command_line_describes_the_host_in_two_options() -> None:
    assert {"host_bandwidth", "host_capacity"} < {parameter.name for parameter in command.params}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"techniques": frozenset({"teleport"})}, "unknown technique 'teleport'; choose one of reorder, share"),
        ({"effort": "much"}, "unknown effort 'much'"),
        ({"scheduler": "nonsense"}, "unknown scheduler 'nonsense'"),
        ({"scheduler": "lpmf", "techniques": frozenset({"share"})}, "'lpmf' needs reorder, which is not allowed"),
    ],
)
def test_settings_that_make_no_sense_cannot_be_made(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(PlanSettings(), **changed)  # pyright: ignore[reportArgumentType]


def test_one_name_alone_is_a_technique_too() -> None:
    assert checked_techniques("offload") == {"offload"}
    assert checked_techniques(TECHNIQUES) == frozenset(TECHNIQUES)


def test_what_would_be_ignored_is_refused_with_the_reason_and_what_to_do() -> None:
    refuse_ignored({"reorder"}, {"offload"}, "nothing is copied", "use another compiler")
    with pytest.raises(UsageError) as caught:
        refuse_ignored({"reorder", "offload"}, {"offload"}, "nothing is copied", "use another compiler")
    assert str(caught.value) == (
        "technique 'offload' would be ignored: nothing is copied; use another compiler, or leave it out"
    )


def test_which_order_to_look_for_follows_from_the_settings() -> None:
    assert PlanSettings().order_name == "search"
    assert PlanSettings(scheduler="lpmf").order_name == "lpmf"
    assert replace(PlanSettings(), techniques=frozenset({"share"})).order_name == "given"
    assert not PlanSettings(scheduler="given").chooses_order


def test_a_budget_allows_recomputation_by_default_everywhere() -> None:
    assert default_techniques(None) == PlanSettings.techniques
    assert default_techniques("60%") == PlanSettings.techniques | {"recompute"}
    assert settings_of({"budget": "60%"}).techniques == default_techniques("60%")
    assert allowed_techniques(None, "60%") == default_techniques("60%")
