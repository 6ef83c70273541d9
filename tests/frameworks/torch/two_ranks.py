"""Two real processes over gloo that run one script."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MOST_SECONDS = 900


def run_two_ranks(script: Path, folder: Path) -> list[dict[str, Any]]:
    """Run `script RANK STORE FOLDER` as two ranks; return the contents of FOLDER/RANK.json, which each writes.

    Both end when one fails or the time is over.
    """
    logs = [(folder / f"{rank}.log").open("w") for rank in range(2)]
    command = [sys.executable, str(script)]
    processes = [
        subprocess.Popen([*command, str(rank), str(folder / "store"), str(folder)], stdout=log, stderr=log)
        for rank, log in enumerate(logs)
    ]
    end = time.monotonic() + MOST_SECONDS
    while any(process.poll() is None for process in processes) and time.monotonic() < end:
        if any(process.poll() for process in processes):
            break
        time.sleep(0.1)
    for process, log in zip(processes, logs, strict=True):
        process.kill()
        process.wait()
        log.close()
    written = [folder / f"{rank}.json" for rank in range(2)]
    text = "\n".join((folder / f"{rank}.log").read_text(encoding="utf-8")[-2000:] for rank in range(2))
    assert all(path.exists() for path in written), text
    return [json.loads(path.read_text(encoding="utf-8")) for path in written]
