"""Every bad file gives one clear line of the error tree: never another exception, a hang or a half-read result."""

import gzip
from pathlib import Path

import pytest

import lowtide.core.files
from lowtide.core.errors import FingerprintError, GraphError, InputError, LowtideError, MalformedInputError, PlanError
from lowtide.engine.graph import read_graph_file
from lowtide.engine.plan import read_plan_file
from tests.golden.every_feature import every_feature_graph

HERE = Path(__file__).parent
GRAPHS = sorted((HERE / "graphs").iterdir())
PLANS = sorted((HERE / "plans").iterdir())


def _check_message(error: LowtideError, path: Path) -> None:
    message = str(error)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    assert len(message) < len(str(path)) + 400


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.name)
def test_a_bad_graph_file_gives_one_line_and_exit_code_3(path: Path) -> None:
    with pytest.raises((MalformedInputError, GraphError)) as caught:
        read_graph_file(path)
    assert caught.value.exit_code == 3
    _check_message(caught.value, path)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.name)
def test_a_bad_plan_file_gives_one_line(path: Path) -> None:
    with pytest.raises((MalformedInputError, PlanError)) as caught:
        read_plan_file(path, every_feature_graph())
    _check_message(caught.value, path)


def test_a_plan_for_another_graph_exits_with_3() -> None:
    with pytest.raises(FingerprintError) as caught:
        read_plan_file(HERE / "plans" / "another_graph.plan.json", every_feature_graph())
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("nested", [b"[", b'{"a":', b'{"graphs":{"a":', b'{"lowtide_graph":1,"ops":['])
@pytest.mark.parametrize("reader", ["graph", "plan"])
def test_ten_million_open_brackets_are_refused(tmp_path: Path, nested: bytes, reader: str) -> None:
    path = tmp_path / "deep.json"
    path.write_bytes(nested * (10_000_000 // len(nested)))
    with pytest.raises(MalformedInputError):
        read_graph_file(path) if reader == "graph" else read_plan_file(path, every_feature_graph())


def test_a_file_that_decompresses_to_more_than_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is lowered here, so that the test needs no gigabyte; the file is a thousand times smaller than it."""
    monkeypatch.setattr(lowtide.core.files, "MOST_BYTES", 2**22)
    path = tmp_path / "bomb.graph.json.gz"
    path.write_bytes(gzip.compress(b" " * 2**23, mtime=0))
    assert path.stat().st_size < 2**14
    with pytest.raises(InputError, match="more than 4194304 bytes decompressed"):
        read_graph_file(path)


def test_a_compressed_file_within_a_compressed_file_is_not_unpacked_twice(tmp_path: Path) -> None:
    path = tmp_path / "twice.graph.json.gz"
    path.write_bytes(gzip.compress(gzip.compress(b"{}")))
    with pytest.raises(MalformedInputError):
        read_graph_file(path)
