"""Sphinx configuration of the site: `make docs`. Warnings are errors there."""

import inspect
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

import lowtide
from lowtide.cli.command import cli
from lowtide.core.stability import public_names
from lowtide.engine.schedule.table import SCHEDULERS, scheduler

ROOT = Path(__file__).parents[1]
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_REPOSITORY = _PROJECT["urls"]["Repository"]
_STABILITY = dict(public_names())
_PAGES = {
    "benchmarks/RESULTS.md": "reference/results.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "development/contributing.md",
    "SECURITY.md": "reference/security.md",
}
"""Files outside this folder that are pages of the site."""

_TYPES = "reference/api/types"

project = "lowtide"
author = "the lowtide authors"
version = release = lowtide.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "lowtide"
html_theme_options = {"source_repository": _REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False

nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"(collections|contextlib|jax|msgspec|numpy|onnx|os|pathlib|torch)\..*"),
    ("py:class", "ModelProto"),
]
"""Types that other projects document. The site is built without a network, so nothing links there."""

smartquotes = False
myst_heading_anchors = 3
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88


class VerbHelp(Directive):
    """The output of `lowtide VERB --help`, one section per verb."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        group = click.Context(cli, info_name="lowtide")
        return [_help_section(group, verb) for verb in cli.list_commands(group)]


class SchedulerTable(Directive):
    """The table of schedulers, a row each."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        lines = [".. list-table::", "   :header-rows: 1", "", "   * - name", "     - the order", "     - from"]
        for name in SCHEDULERS:
            text = inspect.cleandoc(type(scheduler(name)).__doc__ or "")
            source = re.search(r"Source: (.+?)[.;]\s", text, re.DOTALL)
            origin = "" if source is None else " ".join(source[1].split())
            lines += [f"   * - ``{name}``", f"     - {text.splitlines()[0]}", f"     - {origin}"]
        return _parsed(self, lines)


class SchedulerClasses(Directive):
    """The docstrings of all schedulers in the table."""

    def run(self) -> list[nodes.Node]:
        """Return the classes."""
        lines: list[str] = []
        for row in SCHEDULERS.values():
            lines += [f".. autoclass:: {row.target.replace(':', '.')}", "   :no-members:", ""]
        return _parsed(self, lines)


def _parsed(directive: Directive, lines: list[str]) -> list[nodes.Node]:
    parent = nodes.container()
    directive.state.nested_parse(StringList(lines, "the table of schedulers"), 0, parent)
    return parent.children


def _help_section(group: click.Context, verb: str) -> nodes.section:
    command: Any = cli.get_command(group, verb)
    text = command.get_help(click.Context(command, info_name=verb, parent=group, max_content_width=100))
    section = nodes.section(ids=[f"verb-{verb}"], names=[verb])
    section += [nodes.title(text=f"lowtide {verb}"), nodes.literal_block(text, text, language="text")]
    return section


def _lead_out(app: Sphinx, docname: str, source: list[str]) -> None:
    """Redirect links to files outside this folder to their pages, or to the repository."""
    folder = (Path(app.srcdir) / docname).parent

    def target(match: re.Match[str]) -> str:
        path = (folder / match[1]).resolve()
        if path.is_relative_to(app.srcdir) or not path.is_relative_to(ROOT):
            return match[0]
        name = path.relative_to(ROOT).as_posix()
        page = _PAGES.get(name)
        found = f"{_REPOSITORY}/blob/main/{name}" if page is None else os.path.relpath(Path(app.srcdir) / page, folder)
        return f"]({found}{match[2] or ''})"

    source[0] = re.sub(r"\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)", target, source[0])


def _mark_stability(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Mark every public name as stable or provisional."""
    if name in _STABILITY:
        lines[:0] = [f"*{_STABILITY[name].capitalize()}.*", ""]


def _hide_constructor(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    """Hide constructors that only lowtide calls: those on the page of types, and those with private arguments."""
    if what == "class" and (app.env.docname == _TYPES or re.search(r"lowtide[\w.]*\._", signature or "")):
        return "", None
    return None


def setup(app: Sphinx) -> None:
    """Register directives and handlers; Sphinx calls it."""
    app.add_directive("lowtide-verbs", VerbHelp)
    app.add_directive("lowtide-schedulers", SchedulerTable)
    app.add_directive("lowtide-orders", SchedulerClasses)
    app.connect("source-read", _lead_out)
    app.connect("autodoc-process-docstring", _mark_stability)
    app.connect("autodoc-process-signature", _hide_constructor)
