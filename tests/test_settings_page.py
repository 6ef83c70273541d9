"""The page of settings says what the code takes."""

from tests.scripts import load_script


def test_the_page_of_settings_is_what_the_script_writes() -> None:
    script = load_script("write_settings")
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run scripts/write_settings.py"


def test_every_face_takes_a_budget_and_techniques() -> None:
    for parameters in load_script("write_settings").FACES.values():
        assert "budget" in parameters
        assert {"allow", "techniques"} & set(parameters)
