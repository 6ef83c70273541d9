"""HLO text: parsed, written byte for byte, reordered, or refused in one line."""

from pathlib import Path

import pytest

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.xla.jaxlib import hlo_classes
from lowtide.frameworks.xla.text.order import marked_scheduled, reordered, with_control_edges
from lowtide.frameworks.xla.text.shape import memory_space, own_bytes, parse_shape
from lowtide.xla import parse_module, remove_schedule
from tests.frameworks.xla.modules import TEXTS, name_of, text_of


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_a_module_keeps_every_byte(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    module = parse_module(text)
    assert module.text == str(module) == text
    assert module.is_scheduled == (not path.name.endswith(".before.hlo"))


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_removing_and_marking_a_schedule_restores_the_text(path: Path) -> None:
    module = parse_module(path.read_text(encoding="utf-8"))
    bare = parse_module(remove_schedule(module).text)
    assert not bare.is_scheduled
    assert marked_scheduled(bare, module.is_scheduled) == module


STRANGE = """// a comment, and no schedule
HloModule strange, entry_computation_layout={(f32[2]{0})->f32[2]{0}} // is_scheduled=true
/* between */
%add.1 (x: f32[],
        y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1), metadata={op_name="} ROOT %z = f32[] add(" source_line=3}
  // the sum
  ROOT %sum = f32[] add(f32[] %x, /*index=1*/f32[] %y),
    backend_config="{\\"a\\": [1, {\\"b\\": \\"),\\"}]}"
}, execution_thread="host"

ENTRY main {
  p = f32[2]{0} parameter(0)

  c = f32[2] constant({
    1, 2
  })
  ROOT r = f32[2]{0} add(p, c)   // the last one
}
// the end"""


def test_comments_line_breaks_and_strings_with_code_are_parsed() -> None:
    module = parse_module(STRANGE)
    assert module.text == STRANGE
    assert not module.is_scheduled
    total = module.by_name["add.1"].instructions[-1]
    assert (total.name, total.opcode, total.operands, total.is_root) == ("sum", "add", ("x", "y"), True)
    assert [instruction.operands for instruction in module.entry.instructions] == [(), (), ("p", "c")]


def test_elements_written_in_operands_are_instructions_of_their_own() -> None:
    """XLA prints get-tuple-element as `%pair#1` since JAX 0.12; its parser reads the module in the longer form."""
    module = parse_module(
        "HloModule m, is_scheduled=true\n\nENTRY %e (p: (f32[4], (s32[], f32[8]))) -> f32[8] {\n"
        "  %p = (f32[4]{0}, /*index=1*/(s32[], f32[8]{0})) parameter(0)\n"
        "  %n = f32[4]{0} negate(%p#0)\n"
        '  ROOT %f = f32[8]{0} concatenate(%n, /*index=1*/%p#0), dimensions={0}, metadata={op_name="%p#1"}\n'
        "  %g = f32[8]{0} negate(%p#1#1)\n}\n"
    )
    found = {each.name: each for each in module.entry.instructions}
    first, pair = "get-tuple-element.p.0", "get-tuple-element.p.1"
    assert list(found) == ["p", first, "n", "f", pair, f"get-tuple-element.{pair}.1", "g"]
    assert (found[first].opcode, found[first].operands, found[first].shape_text) == (
        "get-tuple-element",
        ("p",),
        "f32[4]{0}",
    )
    assert found["f"].operands == ("n", first)
    assert found["g"].operands == (f"get-tuple-element.{pair}.1",)
    assert parse_module(module.text).text == module.text
    assert hlo_classes().hlo_module_from_text(module.text).name == "m"


def test_a_header_may_have_several_lines() -> None:
    text = "  HloModule m, is_scheduled=true, input_output_alias={\n { {}: (0, {}, must-alias) }\n  }\n\nENTRY e {\n"
    module = parse_module(f"{text}  p = f32[2] parameter(0)\n  ROOT n = f32[2] negate(p)\n}}\n")
    assert module.is_scheduled
    assert "must-alias" in module.attributes["input_output_alias"]
    assert not remove_schedule(module).is_scheduled


def test_instructions_move_with_their_comments_and_attributes() -> None:
    module = parse_module(STRANGE)
    moved = reordered(module, {"main": [1, 0, 2]})
    again = parse_module(moved.text)
    assert [instruction.name for instruction in again.entry.instructions] == ["c", "p", "r"]
    assert sorted(moved.text) == sorted(STRANGE)


def test_the_last_instruction_stays_the_root() -> None:
    module = parse_module("HloModule m\nENTRY e {\n  a = f32[] parameter(0)\n  b = f32[] iota()\n}\n")
    moved = parse_module(reordered(module, {"e": [1, 0]}).text)
    assert moved.entry.instructions[moved.entry.root].name == "b"


def test_control_edges_are_added_to_existing_ones() -> None:
    text = text_of("swap.hlo")
    module = parse_module(text)
    (name,) = (
        computation.name for computation in module.computations if "control-predecessors={%copy.4}" in computation.text
    )
    edges = {name: {"copy.7": ["wrapped_add", "copy.4"]}}
    added = parse_module(with_control_edges(module, edges).text)
    copy = added.by_name[name].instructions[added.by_name[name].positions["copy.7"]]
    assert copy.control_predecessors == ("copy.4", "wrapped_add")


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[]", 4),
        ("pred[3]", 3),
        ("f32[2,3]{1,0}", 24),
        ("bf16[4,5]", 40),
        ("c64[2]", 16),
        ("s4[3]", 3),
        ("s4[3]{0:E(4)}", 2),
        ("f8e4m3fn[7]", 7),
        ("f4e2m1fn[5]{0:E(4)}", 3),
        ("f32[5,130]{1,0:T(8,128)}", 8 * 256 * 4),
        ("f32[5,130]{0,1:T(8,128)}", 136 * 128 * 4),
        ("bf16[5,130]{1,0:T(8,128)(2,1)}", 8 * 256 * 2),
        ("s4[8,128]{1,0:T(8,128)(4,1)E(4)}", 512),
        ("u8[100]{0:L(64)}", 128),
        ("f32[0,7]", 0),
        ("f32[<=10,4]", 160),
        ("token[]", 0),
        ("(f32[2], (s32[], s8[3]))", 16),
        ("()", 0),
        ("b(f32[8]{0})", 32),
    ],
)
def test_bytes_of_a_shape_are_those_of_its_layout(shape: str, size: int) -> None:
    assert own_bytes(parse_shape(shape)) == size


def test_a_layout_names_its_memory_space() -> None:
    assert memory_space(parse_shape("f32[8]{0:S(5)}")) == 5
    assert memory_space(parse_shape("f32[8,128]{1,0:T(8,128)S(1)}")) == 1
    assert memory_space(parse_shape("f32[8]{0}")) == 0


BROKEN = {
    "no header": "ENTRY e {\n  ROOT a = f32[] parameter(0)\n}\n",
    "no computation": "HloModule m\n",
    "two entries": "HloModule m\nENTRY e {\n  a = f32[] parameter(0)\n}\nENTRY f {\n  a = f32[] parameter(0)\n}\n",
    "no entry": "HloModule m\ne {\n  a = f32[] parameter(0)\n}\nf {\n  a = f32[] parameter(0)\n}\n",
    "not closed": "HloModule m\nENTRY e {\n  a = f32[] parameter(0)\n",
    "empty": "HloModule m\nENTRY e {\n}\n",
    "operand after its user": "HloModule m\nENTRY e {\n  a = f32[] negate(b)\n  b = f32[] parameter(0)\n}\n",
    "unknown operand": "HloModule m\nENTRY e {\n  a = f32[] negate(b)\n}\n",
    "unknown computation": "HloModule m\nENTRY e {\n  a = f32[] call(), to_apply=nobody\n}\n",
    "a name twice": "HloModule m\nENTRY e {\n  a = f32[] parameter(0)\n  a = f32[] negate(a)\n}\n",
    "no element": "HloModule m\nENTRY e {\n  a = (f32[]) parameter(0)\n  b = f32[] negate(a#1)\n}\n",
    "element of no tuple": "HloModule m\nENTRY e {\n  a = f32[] parameter(0)\n  b = f32[] negate(a#0)\n}\n",
    "two roots": "HloModule m\nENTRY e {\n  ROOT a = f32[] parameter(0)\n  ROOT b = f32[] negate(a)\n}\n",
    "open bracket": "HloModule m\nENTRY e {\n  a = f32[] parameter(0\n}\n",
    "no shape": "HloModule m\nENTRY e {\n  a = parameter(0)\n}\n",
    "deep shape": "HloModule m\nENTRY e {\n  a = " + "(" * 500 + ")" * 500 + " tuple()\n}\n",
    "huge dimension": f"HloModule m\nENTRY e {{\n  a = f32[{'9' * 5000}] parameter(0)\n}}\n",
}


@pytest.mark.parametrize("problem", BROKEN)
def test_malformed_text_raises_one_line_with_its_name(problem: str) -> None:
    with pytest.raises(MalformedInputError) as refused:
        parse_module(BROKEN[problem], "broken.hlo")
    assert str(refused.value).startswith("broken.hlo")
    assert "\n" not in str(refused.value)
