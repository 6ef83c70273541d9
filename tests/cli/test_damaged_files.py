"""Every reader behind the command line: whatever a file holds, there is a result or one line, and no traceback."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from lowtide.engine.graph import Graph, read_graph_file
from tests.cli.conftest import Command, Finished

BUFFERS = b'id,lower,upper,size,alignment\na,0,3,4,1\n"b",1,5,8,2\nc,4,9,16,4\n'
READERS = {
    "graph": ("g.graph.json", 150),
    "plan": ("p.plan.json", 150),
    "costs": ("c.costs.json", 100),
    "proof": ("p.proof.json", 150),
    "CSV": ("b.csv", 100),
    "ONNX": ("m.onnx", 100),
    "export": ("e.json", 100),
    "HLO": ("m.hlo", 100),
    "pt2": ("m.pt2", 20),
}
"""What a reader reads, and how many damaged ones it gets here."""


class _Bench:
    """One valid file of every kind, and the command that reads it."""

    def __init__(self, lowtide: Command, folder: Path, request: pytest.FixtureRequest) -> None:
        self._lowtide = lowtide
        self.folder = folder
        graph_file: Path = request.getfixturevalue("graph_file")
        self.graph: Graph = read_graph_file(graph_file)
        self.kept = folder / "kept"
        self.kept.mkdir()
        for kind, (name, _) in READERS.items():
            match kind:
                case "graph":
                    (folder / name).write_bytes(graph_file.read_bytes())
                case "plan":
                    arguments = ["-o", folder / name, "--proof", folder / READERS["proof"][0]]
                    assert lowtide("plan", graph_file, *arguments).code == 0
                case "costs":
                    seconds = ",".join(f'"{op}":0.5' for op in self.graph.op_names)
                    (folder / name).write_text(f'{{"lowtide_costs":1,"device":"none","seconds":{{{seconds}}}}}')
                case "CSV":
                    (folder / name).write_bytes(BUFFERS)
                case "ONNX":
                    (folder / name).write_bytes(request.getfixturevalue("onnx_file").read_bytes())
                case "export":
                    (folder / name).write_bytes(request.getfixturevalue("inductor_export_file").read_bytes())
                case "HLO":
                    (folder / name).write_bytes(request.getfixturevalue("hlo_file").read_bytes())
                case "pt2":
                    (folder / name).write_bytes(request.getfixturevalue("exported_file").read_bytes())
                case _:
                    pass
        for name, _ in READERS.values():
            (self.kept / name).write_bytes((folder / name).read_bytes())

    def read(self, kind: str, path: Path) -> Finished:
        graph, plan = self.kept / READERS["graph"][0], self.kept / READERS["plan"][0]
        match kind:
            case "plan":
                return self._lowtide("verify", path, graph)
            case "costs":
                return self._lowtide("plan", graph, "--scheduler", "given", "--costs", path)
            case "proof":
                return self._lowtide("verify", plan, graph, "--proof", path)
            case "CSV":
                return self._lowtide("pack", path)
            case "ONNX":
                return self._lowtide("inspect", path, "--dim", "batch=4")
            case _:
                return self._lowtide("inspect", path)

    def assert_result_or_one_line(self, kind: str, path: Path) -> Finished:
        done = self.read(kind, path)
        assert "Traceback" not in done.stderr
        if done.code == 0:
            assert done.stdout
        else:
            assert (done.stdout, len(done.complaints)) == ("", 1), done.stderr
            assert done.complaints[0].startswith("lowtide: ")
            assert done.code in (1, 2, 3)
        return done


@pytest.fixture
def bench(lowtide: Command, tmp_path: Path, request: pytest.FixtureRequest) -> _Bench:
    return _Bench(lowtide, tmp_path, request)


def _damaged(content: bytes, random: Random) -> bytes:
    """Change, drop, add, double or cut off some bytes, words of the format among them."""
    changed = bytearray(content)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(changed) + 1)
        match random.randrange(6):
            case 0:
                changed[place : place + 1] = bytes([random.randrange(256)])
            case 1:
                del changed[place : place + random.randint(1, 20)]
            case 2:
                changed[place:place] = random.choice([b'"', b"[", b"}", b",", b"9" * 30, b"-", b"\xff", b"\0", b"\n"])
            case 3:
                changed[place:place] = changed[place : place + random.randint(1, 60)]
            case 4:
                changed = changed.replace(b"1", random.choice([b"-1", b"1" + b"0" * 25, b"0.5", b"null"]), 1)
            case _:
                changed = changed[: random.choice([place, len(changed)])]
    return bytes(changed)


@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_file_gives_a_result_or_one_line(bench: _Bench, kind: str) -> None:
    name, count = READERS[kind]
    whole = (bench.folder / name).read_bytes()
    assert bench.assert_result_or_one_line(kind, bench.folder / name).code == 0
    refused = 0
    for seed in range(count):
        (bench.folder / name).write_bytes(_damaged(whole, Random(f"{kind} {seed}")))
        refused += bench.assert_result_or_one_line(kind, bench.folder / name).code != 0
    assert refused > count // 4


ODD: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "no UTF-8": lambda whole: b"\xff\xfe" + whole,
    "no UTF-8 within": lambda whole: whole[:-3] + b"\xff" + whole[-2:],
    "half a surrogate": lambda whole: whole.replace(b'"', b'"\\ud800', 1),
    "nested": lambda whole: b'{"a":' * 10**5,
    "compressed and cut": lambda whole: gzip.compress(whole, mtime=0)[:-9],
    "compressed twice": lambda whole: gzip.compress(gzip.compress(whole, mtime=0), mtime=0),
    "a key twice": lambda whole: b'{"name":"a",' + whole.lstrip(b"{"),
    "a name of a megabyte": lambda whole: whole.replace(b'"', b'"' + b"x" * 10**6, 1),
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_odd_from_end_to_end_is_bad_input_told_in_one_short_line(bench: _Bench, kind: str) -> None:
    name, _ = READERS[kind]
    whole = (bench.folder / name).read_bytes()
    for how, spoil in ODD.items():
        (bench.folder / name).write_bytes(spoil(whole))
        done = bench.assert_result_or_one_line(kind, bench.folder / name)
        assert len(done.stderr) < 1500, how
        if kind in ("graph", "plan", "costs", "proof"):
            assert done.code == 3, (how, done)


@pytest.mark.parametrize("kind", ["graph", "plan", "costs", "proof"])
def test_a_key_that_stands_twice_is_refused_by_name(bench: _Bench, kind: str) -> None:
    name, _ = READERS[kind]
    whole = (bench.folder / name).read_bytes()
    first = whole[1 : whole.index(b",") + 1]
    (bench.folder / name).write_bytes(b"{" + first + whole[1:])
    done = bench.read(kind, bench.folder / name)
    assert done.code == 3
    assert f"key 'lowtide_{kind}' occurs twice" in done.complaints[0]


@pytest.mark.parametrize("kind", READERS)
def test_a_pipe_or_device_is_refused_at_once(bench: _Bench, kind: str) -> None:
    """Nobody writes to that pipe: a reader that waits for it would hang here."""
    name, _ = READERS[kind]
    for make in (os.mkfifo, lambda place: os.symlink("/dev/zero", place)):
        (bench.folder / name).unlink()
        make(bench.folder / name)
        done = bench.assert_result_or_one_line(kind, bench.folder / name)
        assert done.code == 3
        assert "not a regular file" in done.complaints[0]
