"""Write docs/pictures/gpt2_report.png: the report of GPT-2's step in a browser, the mouse where most is held.

Run it after a change of what reports look like, and look at what it wrote. It needs a Chromium and takes minutes; with
the path of a report that is there already (`lowtide report ... -o REPORT.html`), seconds.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.browser import find_browser  # noqa: E402  a script's folder is no package

PICTURE = ROOT / "docs" / "pictures" / "gpt2_report.png"
ARGUMENTS = ("examples.gpt2_small:training_step", "--budget", "40%", "--allow", "reorder,share,recompute")
SIZE = "1200,1420"
POINT = """
addEventListener("load", () => setTimeout(() => {
  const { over, scales } = charts[0];
  const box = over.getBoundingClientRect();
  const here = pictures.spaces[space];
  const total = (at) => here.after.parts.slice(0, -2).reduce((sum, part) => sum + part[at], 0);
  const totals = here.after.parts[0].map((_, at) => total(at));
  const most = 0.98 * totals.reduce((best, value) => Math.max(best, value), 0);
  const high = totals.map((_, at) => at).filter((at) => totals[at] >= most);
  const run = high[high.length >> 1] * here.runs_per_column;
  const clientX = box.left + box.width * (run + 0.5 - scales.x.min) / (scales.x.max - scales.x.min);
  for (const type of ["mouseenter", "mousemove"])
    over.dispatchEvent(new MouseEvent(type, { clientX, clientY: box.top + box.height / 3 }));
}, 200));
"""


def photograph(report: Path, picture: Path, browser: str) -> None:
    """Take the picture of a report."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_bytes(report.read_bytes().replace(b"</body>", f"<script>{POINT}</script></body>".encode()))
        flags = ["--no-sandbox", "--disable-gpu", "--headless", "--hide-scrollbars", "--virtual-time-budget=4000"]
        command = [browser, *flags, f"--window-size={SIZE}", f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    """Make the report, unless there is one, and take its picture."""
    browser = find_browser()
    if browser is None:
        sys.exit("no Chromium is installed; install chromium-headless-shell")
    if len(sys.argv) > 1:
        photograph(Path(sys.argv[1]), PICTURE, browser)
        return
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "gpt2.html"
        subprocess.run([sys.executable, "-m", "lowtide", "report", *ARGUMENTS, "-o", report], check=True, cwd=ROOT)
        photograph(report, PICTURE, browser)


if __name__ == "__main__":
    main()
