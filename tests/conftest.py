"""What all tests share: property tests draw the same examples on every run and are never failed by the clock."""

import gc
import logging
import os
import signal
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples, folder_of_the_run, share_of

os.environ.setdefault("LOWTIDE_CACHE", "off")  # tests plan; those of the cache name a folder
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # the same memory, compiled sooner
os.environ["COLUMNS"] = "80"  # output in pipes has no line breaks otherwise
settings.register_profile(
    "lowtide",
    examples(100),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("lowtide")
_SLOW_COLLECTION_S = 0.05
_collection = {"started": 0.0, "slow": True}
gc.disable()  # until the tests are collected: imports leave little garbage


def _time_collection(phase: str, info: dict[str, int]) -> None:
    if info["generation"] == 2:
        if phase == "start":
            _collection["started"] = time.perf_counter()
        elif time.perf_counter() - _collection["started"] > _SLOW_COLLECTION_S:
            _collection["slow"] = True


def pytest_collection_finish() -> None:
    """Collect garbage again, and more rarely than by default."""
    gc.callbacks.append(_time_collection)
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


def pytest_unconfigure() -> None:
    """Let the interpreter free all modules at its end."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Hide old objects from the garbage collector once that takes long, and PyTorch's structured trace from pytest.

    Every measurement of a peak collects garbage first. To visit the objects of all modules and caches would take most
    of its time. pytest listens to all loggers that do not propagate. Then PyTorch would format a trace of everything
    that it captures and compiles, which takes up to a tenth of the time.
    """
    logging.getLogger("torch.__trace").propagate = True
    if _collection["slow"]:
        gc.collect()
        gc.freeze()
        _collection["slow"] = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the share of the cases of tests with the mark `share_of_cases`, or the part of it that the mark names."""
    cases: dict[tuple[str, float], list[pytest.Item]] = {}
    for item in items:
        if mark := item.get_closest_marker("share_of_cases"):
            part = mark.args[0] if mark.args else 1.0
            cases.setdefault((item.nodeid.partition("[")[0], part), []).append(item)
    kept = {id(item) for (_, part), some in cases.items() for item in share_of(some, part)}
    left = [item for some in cases.values() for item in some if id(item) not in kept]
    config.hook.pytest_deselected(items=left)
    gone = set(map(id, left))
    items[:] = [item for item in items if id(item) not in gone]


@pytest.fixture
def cache_of_the_run(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep plans that took long, and the C++ parts of absent devices, for all tests of a run."""
    monkeypatch.setenv("LOWTIDE_CACHE", str(folder_of_the_run(tmp_path_factory) / "cache"))


@pytest.fixture
def ctrl_c_heeded() -> Iterator[None]:
    """Interrupts reach this process and those that it starts, even if the caller ignores them, as `nohup` does."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
