"""Modules from text, protocol buffers, StableHLO and objects of jaxlib; the examples in `docs/xla.md`."""

import doctest
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import lowtide
from lowtide.core.errors import MalformedInputError, UsageError
from lowtide.frameworks.content import kind_of_file
from lowtide.frameworks.xla.jaxlib import hlo_classes
from tests.frameworks.xla.modules import FOLDER, name_of, text_of

PROTOS = sorted(FOLDER.glob("*.pb"))
STABLEHLO = sorted(FOLDER.glob("*.mlir"))
EVERY = sorted(FOLDER.iterdir())


@pytest.mark.parametrize("path", EVERY, ids=name_of)
def test_every_file_is_recognized_by_its_content(path: Path) -> None:
    assert kind_of_file(str(path)) == "xla"


@pytest.mark.parametrize("path", PROTOS, ids=name_of)
def test_an_hlo_proto_has_the_graph_of_its_text(path: Path) -> None:
    assert lowtide.read(path).fingerprint == lowtide.read(path.with_suffix(".hlo")).fingerprint


@pytest.mark.parametrize("path", STABLEHLO, ids=name_of)
def test_stablehlo_has_the_graph_of_the_compilers_input(path: Path) -> None:
    before = lowtide.read(FOLDER / f"{path.stem}.before.hlo")
    graph = lowtide.read(path)
    assert sorted(graph.op_kinds) == sorted(before.op_kinds)
    assert sorted(graph.sizes.tolist()) == sorted(before.sizes.tolist())


def test_a_bare_module_proto_and_text_of_any_name_are_read(tmp_path: Path) -> None:
    module = hlo_classes().hlo_module_from_text(text_of("swap.hlo"))
    (tmp_path / "module.bin").write_bytes(module.as_serialized_hlo_module_proto())
    (tmp_path / "dump.txt").write_text(text_of("swap.hlo"), encoding="utf-8")
    expected = lowtide.read(FOLDER / "swap.hlo").fingerprint
    assert lowtide.read(tmp_path / "module.bin").fingerprint == expected
    assert lowtide.read(tmp_path / "dump.txt").fingerprint == expected


def test_stablehlo_bytecode_is_read(tmp_path: Path) -> None:
    lowered = jax.jit(lambda x: jnp.sin(x) + x).lower(jax.ShapeDtypeStruct((8,), jnp.float32))
    exported = jax.export.export(jax.jit(lambda x: jnp.sin(x) + x))(jax.ShapeDtypeStruct((8,), jnp.float32))
    assert "stablehlo" in lowered.as_text()
    (tmp_path / "module.mlirbc").write_bytes(exported.mlir_module_serialized)
    assert sorted(lowtide.read(tmp_path / "module.mlirbc").op_kinds) == ["add", "sine"]


def test_objects_of_jaxlib_are_read() -> None:
    module = hlo_classes().hlo_module_from_text(text_of("swap.hlo"))
    computation = hlo_classes().XlaComputation(module.as_serialized_hlo_module_proto())
    expected = lowtide.read(FOLDER / "swap.hlo").fingerprint
    assert lowtide.read(module).fingerprint == lowtide.read(computation).fingerprint == expected


def test_large_constants_are_in_the_text_of_a_proto(tmp_path: Path) -> None:
    text = "HloModule m\nENTRY e {\n  c = f32[40] constant({" + ", ".join(map(str, range(40))) + "})\n"
    module = hlo_classes().hlo_module_from_text(f"{text}  ROOT n = f32[40] negate(c)\n}}\n")
    (tmp_path / "m.pb").write_bytes(module.as_serialized_hlo_module_proto())
    assert "38, 39" in lowtide.xla.load(tmp_path / "m.pb").text


@pytest.mark.parametrize("content", [b"module @m {", b"ML\xefR\x01\x02", b"HloModule \xff\xff"])
def test_malformed_content_raises_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.hlo").write_bytes(content)
    with pytest.raises(MalformedInputError) as refused:
        lowtide.read(tmp_path / "bad.hlo")
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "bad.hlo") in str(refused.value)


def test_dims_and_other_objects_raise() -> None:
    with pytest.raises(UsageError, match="--dim"):
        lowtide.read(FOLDER / "swap.hlo", dims={"batch": 4})
    with pytest.raises(UsageError, match="HloModule"):
        lowtide.xla.load(3)


def test_only_text_is_read_without_jaxlib() -> None:
    hide = "import sys; sys.modules.update(dict.fromkeys(('jax', 'jaxlib', 'jaxlib._hlo', 'jaxlib._jax')))"
    read = f"import lowtide; print(lowtide.read({str(FOLDER / 'swap.hlo')!r}).n_ops)"
    for name in ("swap.pb", "swap.mlir"):
        read += f"\ntry: lowtide.read({str(FOLDER / name)!r})\nexcept ImportError as error: print(error)"
    run = subprocess.run([sys.executable, "-c", f"{hide}\n{read}"], capture_output=True, text=True, check=True)
    first, *refused = run.stdout.splitlines()
    assert int(first) > 0
    assert [line.endswith("pip install 'lowtide[jax]'") for line in refused] == [True, True]


def test_the_examples_in_xla_md_are_right() -> None:
    page = Path(__file__).parents[3] / "docs" / "xla.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted >= 7
    assert found.failed == 0
