"""What the site and the README say is true: links, pictures, tables, names."""

import re
import subprocess
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest

import lowtide
from lowtide.core.errors import UsageError
from lowtide.core.stability import public_names, stability_of
from tests.scripts import load_script
from tests.test_public_names import FRAMEWORK_NAMES, PUBLIC

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]


def test_every_public_name_says_how_firm_it_is() -> None:
    public = {f"lowtide.{name}" for name in PUBLIC}
    public |= {f"lowtide.{module}.{name}" for module, names in FRAMEWORK_NAMES.items() for name in names}
    assert {name for name, _ in public_names()} == public


def test_a_name_that_is_not_public_has_no_promise() -> None:
    with pytest.raises(UsageError, match=r"unknown public name 'lowtide\.minimise'; did you mean 'lowtide\.minimize'"):
        stability_of("lowtide.minimise")


@pytest.mark.parametrize("script", ["write_stability", "write_comparison"])
def test_a_written_table_is_what_its_script_writes(script: str) -> None:
    """When this fails, run scripts/SCRIPT.py."""
    module = load_script(script)
    written = module.PAGE.read_text(encoding="utf-8")
    more = [module.RESULTS.read_text(encoding="utf-8")] if script == "write_comparison" else []
    assert module.page(written, *more) == written


def test_the_pictures_are_what_lowtide_draws() -> None:
    """When this fails, run scripts/draw_pictures.py and look at them."""
    for name, content in load_script("draw_pictures").pictures():
        assert (DOCS / "pictures" / name).read_bytes() == content


def test_the_reference_has_every_name_of_the_package() -> None:
    page = (DOCS / "reference" / "api" / "lowtide.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\.\. auto\w+:: lowtide\.(\w+)$", page, re.MULTILINE)) == set(PUBLIC)
    for module in FRAMEWORK_NAMES:
        page = (DOCS / "reference" / "api" / f"{module}.md").read_text(encoding="utf-8")
        assert f".. automodule:: lowtide.{module}\n" in page


def test_the_pages_of_schedulers_are_made_from_the_table() -> None:
    conf = (DOCS / "conf.py").read_text(encoding="utf-8")
    for page, directive in (("schedulers.md", "lowtide-schedulers"), ("algorithms/orders.md", "lowtide-orders")):
        assert f".. {directive}::" in (DOCS / page).read_text(encoding="utf-8")
        assert f'"{directive}"' in conf


def test_every_page_is_in_the_navigation() -> None:
    """What Sphinx would warn of, for runs without it."""
    listed: set[Path] = set()
    for page in (DOCS / "index.md", DOCS / "reference" / "api" / "index.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            names = (line for line in tree.splitlines() if line and not line.startswith(":"))
            listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    assert listed == {page for page in DOCS.rglob("*.md") if page != DOCS / "index.md" and "_build" not in page.parts}


@pytest.mark.parametrize(
    "page", [*sorted(DOCS.rglob("*.md")), *ROOT.glob("*.md")], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path = target.partition("#")[0]
        for base in (
            f"{REPOSITORY}/blob/main/",
            f"{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/",
        ):
            if path.startswith(base):
                assert (ROOT / path.removeprefix(base)).is_file(), target
        if path and ":" not in path:
            assert (page.parent / path).is_file(), target


def test_the_readme_is_short_and_its_links_work_in_any_clone() -> None:
    assert len(README.splitlines()) <= 80
    assert not [target for target in re.findall(r"\]\(([^)\s]+)\)", README) if ":" in target]


def test_the_description_of_the_package_has_the_links_of_the_readme_to_the_repository() -> None:
    """A package index shows it away from the repository, where only absolute links work."""
    absolute, relative = (
        re.findall(r"\]\(([^)\s]+)\)", text) for text in (str(metadata("lowtide").get_payload()), README)
    )
    assert len(absolute) == len(relative) > 0
    for target, path in zip(absolute, relative, strict=True):
        raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com")
        assert target == (f"{raw}/main/{path}" if path.endswith(".png") else f"{REPOSITORY}/blob/main/{path}")


def test_the_commands_of_the_readme_are_targets() -> None:
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)
    assert "make demo" in README
    assert "make test" in README


def test_the_package_says_where_it_lives() -> None:
    assert PROJECT["version"] == lowtide.__version__
    assert {"Homepage", "Documentation", "Repository", "Issues", "Changelog"} <= PROJECT["urls"].keys()


def test_the_security_page_names_every_kind_of_input() -> None:
    """Whatever the table of trust says of code stands in SECURITY.md, too."""
    security = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for word in ("`.onnx`", "`.pt2`", "`--trust`", "`package.module:callable`", "NetDefs", "HLO", "snapshots", "costs"):
        assert word in security
