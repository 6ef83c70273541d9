"""One record of settings: what it refuses, and that every face of lowtide takes its defaults and sentences from it."""

import inspect
from dataclasses import fields, replace

import pytest

from lowtide import frontier, minimize
from lowtide.cli.plan import command
from lowtide.core.errors import UsageError
from lowtide.core.techniques import TECHNIQUES, checked_techniques, refuse_ignored
from lowtide.engine.planning.settings import SENTENCES, PlanSettings

NAMES = [setting.name for setting in fields(PlanSettings)]
OF_A_GRAPH = {"techniques": "allow"}
"""Settings that `minimize` takes by another name."""


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_says_what_it_is_in_one_sentence(name: str) -> None:
    assert SENTENCES[name].endswith(".")
    assert ". " not in SENTENCES[name]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "host"])
def test_minimize_takes_every_setting_with_its_default(name: str) -> None:
    """A host is part of the graph that `minimize` is given."""
    parameters = inspect.signature(minimize).parameters
    assert parameters[OF_A_GRAPH.get(name, name)].default == getattr(PlanSettings, name)


def test_the_curve_has_the_same_defaults() -> None:
    parameters = inspect.signature(frontier).parameters
    for name in ("in_place", "costs", "effort"):
        assert parameters[name].default == getattr(PlanSettings, name)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "host"])
def test_the_command_line_has_an_option_for_every_setting_with_its_sentence_and_default(name: str) -> None:
    (option,) = (parameter for parameter in command.params if parameter.name == name)
    assert getattr(option, "help", None) == SENTENCES[name]
    default = getattr(PlanSettings, name)
    given = frozenset(str(option.default).split(",")) if name == "techniques" else option.default
    assert given == default


def test_the_command_line_describes_the_host_in_two_options() -> None:
    assert {"host_bandwidth", "host_capacity"} < {parameter.name for parameter in command.params}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"techniques": frozenset({"teleport"})}, "unknown technique 'teleport'; choose one of reorder, share"),
        ({"effort": "much"}, "unknown effort 'much'"),
        ({"scheduler": "nonsense"}, "unknown scheduler 'nonsense'"),
        ({"scheduler": "lpmf", "techniques": frozenset({"share"})}, "'lpmf' is asked for, but reorder is not allowed"),
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
