"""A cache of plans on disk, so that a program is planned once.

Entries are named after the graph, the settings, the prices and lowtide's version. Plans are verified when read.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast, get_type_hints

import msgspec

from lowtide.core.errors import LowtideError
from lowtide.core.files import read_bytes, write_bytes
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.graph import Graph
from lowtide.engine.plan import read_plan_file, write_plan_file
from lowtide.engine.planning.draft import Draft
from lowtide.engine.planning.result import Result

VARIABLE = "LOWTIDE_CACHE"
"""The cache folder, or "off"."""
MOST_BYTES = 256 * 2**20
"""The plans that were used last are kept up to this size."""
_LEAST_SECONDS = 0.5
_NOT_KEPT = {"graph", "unmodified", "plan", "claims", "plain_proof", "solved", "seconds"}
_PLAN, _FACTS = ".plan.json.gz", ".result.json"


def cache_folder() -> Path | None:
    named = os.environ.get(VARIABLE, "")
    if named.lower() in ("off", "0"):
        return None
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lowtide"


def cache_files() -> list[Path]:
    """Return the cache's files, most recently used first."""
    folder = cache_folder()
    if folder is None or not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.name.endswith((_PLAN, _FACTS))]
    return sorted(found, key=_last_use, reverse=True)


def size_of(path: Path) -> int:
    """Return a file's size, 0 if another process deleted it."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def clear_cache() -> int:
    """Delete all cached plans; return the bytes freed."""
    return sum(map(_removed, cache_files()))


@dataclass(frozen=True, slots=True)
class CachedPlan:
    """The cache entry of a plan."""

    path: Path
    graph: Graph
    unmodified: Graph

    @classmethod
    def of(cls, draft: Draft) -> "CachedPlan | None":
        """Return a draft's entry, None if such plans are not kept.

        Plans with bounds from a search of all orders are not kept: a plan file lacks the proof.
        """
        settings = draft.settings
        folder = cache_folder() if settings.techniques & NEED_BUDGET and not draft.fits else None
        if folder is None:
            return None
        named = [
            (field.name, _shown(getattr(settings, field.name))) for field in fields(settings) if field.name != "costs"
        ]
        key = hashlib.sha256(repr((_code(), draft.graph.fingerprint, named, draft.prices.profile)).encode())
        key.update(draft.prices.seconds.tobytes())
        key.update(draft.unmodified.fingerprint.encode())
        return cls(folder / key.hexdigest()[:32], draft.graph, draft.unmodified)

    def read(self) -> Result | None:
        plan_path, facts_path = self._files()
        if not facts_path.is_file():
            return None
        try:
            facts = msgspec.json.decode(read_bytes(facts_path))
            kinds = _kinds()
            values = {name: msgspec.convert(facts[name], kinds[name]) for name in _kept()}
            plan = read_plan_file(plan_path, self.graph)
        except (LowtideError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
            self._remove()
            return None
        for path in (plan_path, facts_path):
            with suppress(OSError):
                os.utime(path)
        return Result(
            graph=self.graph,
            unmodified=self.unmodified,
            plan=plan,
            claims=plan.claims,
            plain_proof=None,
            solved=None,
            seconds=0.0,
            **values,
        )

    def write(self, result: Result) -> None:
        """Keep a result, unless it was found quickly or needs more than a plan file. Ignores a full disk."""
        is_whole = result.plain_proof is None and result.solved is None and result.status != "interrupted"
        if not is_whole or result.seconds < _LEAST_SECONDS:
            return
        plan_path, facts_path = self._files()
        facts = {name: getattr(result, name) for name in _kept()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_plan_file(result.plan, plan_path, self.graph)
            write_bytes(facts_path, msgspec.json.encode(facts))
        except (LowtideError, OSError):
            self._remove()
        for path in _beyond(MOST_BYTES):
            _removed(path)

    def _files(self) -> tuple[Path, Path]:
        return self.path.with_name(self.path.name + _PLAN), self.path.with_name(self.path.name + _FACTS)

    def _remove(self) -> None:
        for path in self._files():
            _removed(path)


def _beyond(most: int) -> Iterator[Path]:
    total = 0
    for path in cache_files():
        total += size_of(path)
        if total > most:
            yield path


def _removed(path: Path) -> int:
    size = size_of(path)
    with suppress(OSError):
        path.unlink()
        return size
    return 0


def _last_use(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _shown(value: object) -> object:
    return sorted(map(str, cast("frozenset[str]", value))) if isinstance(value, frozenset) else value


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(Result)


def _kept() -> list[str]:
    return [field.name for field in fields(Result) if field.name not in _NOT_KEPT]


@cache
def _code() -> str:
    """Return the version of lowtide and the state of its files: other code may make other plans."""
    try:
        number = version("lowtide")
    except PackageNotFoundError:
        number = ""
    stats = ((path, path.stat()) for path in sorted(Path(__file__).parents[1].glob("**/*.py")))
    files = [(path.name, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    return f"{number} {hashlib.sha256(repr(files).encode()).hexdigest()}"
