"""The graphs a benchmark runs on: the project's samples, or a folder named on the command line."""

import argparse
import sys
from pathlib import Path

SAMPLES = Path(__file__).with_name("graphs")


def chosen_graphs(description: str | None) -> tuple[Path, list[Path]]:
    """Return the folder asked for and its graph files, sorted; exits with one line when there are none."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, nargs="?", default=SAMPLES)
    folder: Path = parser.parse_args().folder
    paths = sorted(folder.glob("*.graph.json*"))
    if not paths:
        sys.exit(f"no graph files (*.graph.json, *.graph.json.gz) in {folder}")
    return folder, paths
