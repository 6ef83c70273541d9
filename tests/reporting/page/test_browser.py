"""The page in a real browser: it draws without complaint, and keys and buttons do what they say."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.browser import find_browser
from lowtide import compare, minimize
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.write import page
from tests.reporting.page.test_page import layers

BROWSER = find_browser()
pytestmark = [pytest.mark.browser, pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")]

VISIT = """
const seen = { errors: [] };
addEventListener("error", (event) => seen.errors.push(event.message));
const press = (id, key, shiftKey = false) => document.getElementById(id).dispatchEvent(
  new KeyboardEvent("keydown", { key, shiftKey, cancelable: true }));
const range = () => [charts[0].scales.x.min, charts[0].scales.x.max, charts[1].scales.x.min, charts[1].scales.x.max];
seen.whole = range();
press("memory", "+");
setTimeout(() => {
  seen.zoomed = range();
  press("memory", "ArrowRight");
  seen.readout = document.getElementById("memory-readout").textContent;
  press("addresses", "0");
  setTimeout(() => {
    seen.again = range();
    const sorter = () => document.querySelector('#holders th[data-key="label"] button');
    const first = () => document.querySelector("#holders tbody td").textContent;
    seen.first = first();
    sorter().click();
    seen.ascending = first();
    sorter().click();
    seen.descending = first();
    document.getElementById("show-before").click();
    seen.pressed = document.getElementById("show-before").getAttribute("aria-pressed");
    const theme = () => document.documentElement.dataset.theme;
    const was = theme();
    document.getElementById("theme").click();
    seen.themes = [was, theme()].sort();
    setTimeout(look, 50);
  }, 50);
}, 50);
function look() {
  const painted = document.querySelector("#addresses canvas");
  const pixels = painted.getContext("2d").getImageData(0, 0, painted.width, painted.height).data;
  const colors = new Set();
  for (let k = 0; k < pixels.length; k += 4) colors.add(pixels.slice(k, k + 3).join());
  seen.colors = colors.size;
  document.body.append("SEEN" + JSON.stringify(seen) + "END");
}
"""


HOVER = """
const seen = { errors: [] };
addEventListener("error", (event) => seen.errors.push(event.message));
const chart = (id) => charts.find((each) => document.getElementById(id).contains(each.root));
const hover = (id, x, y) => {
  const { over, scales } = chart(id);
  const box = over.getBoundingClientRect();
  const at = { clientX: box.left + box.width * (x - scales.x.min) / (scales.x.max - scales.x.min),
    clientY: box.bottom - box.height * (y - scales.y.min) / (scales.y.max - scales.y.min) };
  for (const type of ["mouseenter", "mousemove"]) over.dispatchEvent(new MouseEvent(type, at));
  return document.getElementById(`${id}-readout`).textContent;
};
setTimeout(() => {
  const rows = pictures.spaces[space].rectangles;
  const one = rows.op.findIndex((op) => Object.hasOwn(pictures.sources, op));
  const run = (rows.first[one] + rows.last[one]) / 2;
  seen.memory = hover("memory", 3.5, 0);
  seen.address = hover("addresses", run, (rows.offset[one] + rows.size[one] / 2) / UNIT);
  seen.name = rows.name[one];
  for (const each of charts) each.over.dispatchEvent(new MouseEvent("mouseleave"));
  seen.left = document.getElementById("addresses-readout").textContent;
  document.body.append("SEEN" + JSON.stringify(seen) + "END");
}, 50);
"""


def visit(content: bytes, folder: Path, script: str) -> dict[str, object]:
    """Open a page in the browser, run a script in it and return what it saw."""
    path = folder / "report.html"
    path.write_bytes(content.replace(b"</body>", f"<script>{script}</script></body>".encode()))
    assert BROWSER is not None
    flags = [
        "--no-sandbox",
        "--disable-gpu",
        "--headless",
        "--virtual-time-budget=4000",
        "--enable-logging=stderr",
        "--dump-dom",
    ]
    done = subprocess.run([BROWSER, *flags, path.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in done.stderr
    found = re.search(r"SEEN(\{.*\})END", done.stdout)
    assert found is not None
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def test_the_page_draws_and_heeds_keys_and_buttons(tmp_path: Path) -> None:
    graph = layers(30)
    seen = visit(page(Facts.of(graph, minimize(graph).plan)), tmp_path, VISIT)
    assert seen["errors"] == []
    assert seen["whole"] == seen["again"] == [0, 31, 0, 31]
    assert seen["zoomed"] == [7.75, 23.25, 7.75, 23.25]
    assert re.match(
        r"run \d+, relu_(\d+) \(blocks\.\1\.act at model\.py:7\): [\d.]+ MiB live; inputs 1.0 MiB", str(seen["readout"])
    )
    assert str(seen["first"]).startswith("relu x 30")
    assert str(seen["ascending"]).startswith("loss")
    assert str(seen["descending"]).startswith("x")
    assert seen["pressed"] == "true"
    assert seen["themes"] == ["dark", "light"]
    assert isinstance(seen["colors"], int)
    assert seen["colors"] > 3


def test_what_the_mouse_points_at_is_named_with_its_module_and_its_line(tmp_path: Path) -> None:
    graph = layers(30)
    seen = visit(page(Facts.of(graph, minimize(graph).plan)), tmp_path, HOVER)
    assert seen["errors"] == []
    assert re.match(r"run 3, relu_(\d+) \(blocks\.\1\.act at model\.py:7\): [\d.]+ MiB live; ", str(seen["memory"]))
    named, _, where = str(seen["address"]).partition(": ")
    assert re.fullmatch(rf"{seen['name']}, made by relu_(\d+) \(blocks\.\1\.act at model\.py:7\)", named)
    assert re.match(r"1\.0 MiB at [\d,]+, runs \d+ to \d+, ", where)
    assert str(seen["left"]).startswith("Point at a rectangle")


NOTEBOOK = """
const seen = { sizes: [...document.querySelectorAll("svg")].map((each) => each.getBoundingClientRect().height > 50) };
seen.filled = [...document.querySelectorAll("svg path")].every((each) => each.getBBox().width > 100);
document.body.append("SEEN" + JSON.stringify(seen) + "END");
"""


def test_a_browser_draws_the_pictures_of_a_notebook(tmp_path: Path) -> None:
    """The page has no style and no script of its own, like the output of a cell."""
    graph = layers(30)
    shown = (minimize(graph, budget="90%"), graph, compare(graph, progress=False))
    cells = "".join(each._repr_html_() for each in shown)
    seen = visit(f"<!doctype html><body>{cells}</body>".encode(), tmp_path, NOTEBOOK)
    assert seen == {"sizes": [True, True, True], "filled": True}


def test_a_report_opens_with_one_sentence_and_one_picture() -> None:
    """They are in the file itself, so that they are there without scripts."""
    graph = layers(30)
    facts = Facts.of(graph, minimize(graph).plan)
    opening = page(facts).decode().partition('<section class="figures"')[0]
    assert f"<p>{facts.picture().sentence}" in opening
    assert opening.count("<svg") == 1
