"""Binary and text NetDefs: what protocol buffers themselves write and read, unchanged files byte for byte, and no
input that ends in anything but a net or one line."""

import random
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from lowtide.caffe2 import Argument, NetDef, OperatorDef, write_net
from lowtide.core.errors import InputError, MalformedInputError, UnsupportedError
from lowtide.frameworks.caffe2.nets.load import read_net
from lowtide.frameworks.caffe2.proto.netdef import NetMessage
from lowtide.frameworks.content import is_binary_net, is_text_net
from lowtide.frameworks.protobuf.binary import read_binary
from lowtide.frameworks.protobuf.text import read_text
from tests.examples import examples
from tests.frameworks.caffe2.benchmark_nets import load_nets
from tests.oracles.netdef_messages import message_class

TEXT = """# a net with everything
name: "n\\"et" type:'dag', num_workers: 4 ; op { # first
  input: "a" input: "b" output: "c"
  type: "FC" arg { name: "step_net" n { name: "x" op { type: "Relu" } } }
  arg { name: "v" floats: [1.5, -inf, 0x10] ints: -07 s: "a\\001\\xff" "tail" }
  device_option < device_type: 1 > unheard_of { deep: [1, {a: 2}] bar: "x" "y" } other: -3
  is_gradient_op: true
}
external_input: ["a", "b"] [some.extension] { x: 1 }
op: { type: "Relu" input: "c" output: "d" }   # last
"""
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_VALUES: dict[str, Any] = {
    "string": _TEXTS,
    "bytes": st.binary(max_size=8),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "bool": st.booleans(),
    "enum": st.sampled_from([0, 1, 5, 13]),
}


@st.composite
def messages(draw: Any, kind: str = "NetDef", depth: int = 0) -> Any:
    """A message of protocol buffers themselves, with any fields set."""
    made = message_class(kind)()
    for field in NetMessage.KINDS[kind].FIELDS:
        if (field.is_message and depth > 2) or not draw(st.booleans()):
            continue
        if field.is_message:
            values = [draw(messages(field.kind, depth + 1)) for _ in range(draw(st.integers(1, 2)))]
            if field.repeated:
                getattr(made, field.name).extend(values)
            else:
                getattr(made, field.name).CopyFrom(values[0])
        elif field.repeated:
            getattr(made, field.name).extend(draw(st.lists(_VALUES[field.kind], max_size=3)))
        else:
            setattr(made, field.name, draw(_VALUES[field.kind]))
    return made


@examples(60)
@given(messages())
def test_both_formats_are_those_of_protocol_buffers(theirs: Any) -> None:
    ours = read_binary(NetDef, theirs.SerializeToString(), "theirs")
    assert read_text(NetDef, text_format.MessageToString(theirs), "theirs") == ours
    copied = _unread(ours)
    assert message_class("NetDef").FromString(write_net(copied, "net.pb")) == theirs
    assert text_format.Parse(write_net(copied, "net.pbtxt"), message_class("NetDef")()) == theirs


def _unread(message: NetMessage) -> Any:
    """Return a message with the same fields that was read from no file."""
    made = type(message)()
    for field, value in message.set_fields():
        items = [_unread(item) if field.is_message else item for item in (value if field.repeated else [value])]
        setattr(made, field.name, items if field.repeated else items[0])
        if field.is_message and not field.repeated and not next(value.set_fields(), None):
            getattr(made, field.name).source = value.source
    return made


def test_an_unchanged_text_is_written_as_it_was_and_a_changed_one_keeps_the_rest() -> None:
    net = read_net(TEXT.encode(), "text")
    assert write_net(net, "net.pbtxt").decode() == TEXT
    net.op[1].output[0] = "e"
    changed = write_net(net, "net.pbtxt").decode()
    first = TEXT[TEXT.index("op {") + 3 : TEXT.index("\n}\n")]
    assert first in changed
    assert "[some.extension] { x: 1 }" in changed
    assert read_net(changed.encode(), "text") == net
    net.op[1].output[0] = "d"
    assert write_net(net, "net.pbtxt").decode() == TEXT


def test_unknown_fields_are_kept_byte_for_byte() -> None:
    op = b"\x0a\x01a\x22\x04Relu" + b"\xfa\x7f\x03abc" + b"\x9b\x06\x08\x01\x9c\x06" + b"\xf5\x3f\x01\x02\x03\x04"
    content = b"\x12" + bytes([len(op)]) + op + b"\xf8\x7f\x81\x00" + b"\x0a\x01n"
    net = read_net(content, "binary")
    assert net.op[0].type == "Relu"
    assert write_net(net, "net.pb") == content
    net.name = "m"
    changed = write_net(net, "net.pb")
    assert op in changed
    assert changed.endswith(b"\xf8\x7f\x81\x00")
    with pytest.raises(UnsupportedError, match=r"2047 is unknown; write the message as binary \(\.pb\)"):
        write_net(net, "net.pbtxt")
    with pytest.raises(UnsupportedError, match=r"unheard_of.*|some.*pbtxt"):
        write_net(read_net(TEXT.encode(), "text"), "net.pb")


def test_formats_are_told_apart_by_content() -> None:
    net = NetDef(name="n", op=[OperatorDef(type="Relu", input=["a"], output=["b"])])
    for name, is_text in (("a.pb", False), ("a.pbtxt", True), ("a.prototxt", True)):
        content = write_net(net, name)
        assert (is_text_net(content), is_binary_net(content)) == (is_text, not is_text)
        assert read_net(content, name) == net


def _fuzzed(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        place = rng.randrange(len(changed) + 1)
        kind = rng.random()
        if kind < 0.4 and place < len(changed):
            changed[place] = rng.randrange(256)
        elif kind < 0.6:
            del changed[place : place + rng.choice((1, 1, 4, 50))]
        elif kind < 0.8:
            changed[place:place] = rng.choice(
                (b"{", b"}", b'"', b"\xff" * 9, b"\x0b", b"op {", bytes(rng.randrange(9)))
            )
        else:
            changed[place:place] = changed[rng.randrange(len(changed) + 1) :][:40]
    return bytes(changed)


@pytest.mark.parametrize("name", ["net.pb", "net.pbtxt"])
def test_damaged_files_give_a_net_or_one_line(name: str) -> None:
    nets = [load_nets().conv_chain(2, training=True).net, load_nets().unrolled_lstm(1, training=False).net]
    contents = [write_net(net, name) for net in nets] + ([TEXT.encode()] if name == "net.pbtxt" else [])
    rng, read, refused = random.Random(0), 0, set[str]()
    for _ in range(1500):
        content = _fuzzed(rng.choice(contents), rng)
        try:
            net = read_net(content, name)
        except InputError as error:
            refused.add(str(error))
        else:
            read += 1
            assert write_net(net, "net.pbtxt" if is_text_net(content) else "net.pb") == content
    assert not any("\n" in line for line in refused)
    assert 20 <= read <= 1400


@pytest.mark.parametrize(
    "content",
    [
        b"\x12" * 3,
        b"\x12\x05" * 200 + b"\x00",
        b"op {" * 5000,
        b"name: [" * 3000,
        b"op { arg { n {" * 400,
        b'name: "\\777"',
        b'name: "\\ud800"',
        b"num_workers: " + b"9" * 5000,
        b"num_workers: 99999999999",
        b'name: "a',
        b"op { type: 3 }",
        b"a [",
        b"a: {b: [{c: <d: >}]}",
        b"\x0b" * 5000,
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a\x01\xff",
        b"name: 'a' op {} junk",
        b"op { is_gradient_op: 2 }",
        b"arg { f: 1x }",
    ],
)
def test_broken_content_is_one_line_with_a_place(content: bytes) -> None:
    with pytest.raises(MalformedInputError) as refused:
        read_net(content, "a.pb")
    assert str(refused.value).startswith("a.pb")
    assert "\n" not in str(refused.value)


def test_messages_behave_as_those_of_protocol_buffers() -> None:
    net = NetDef()
    assert net.op == []
    assert net.device_option.device_type == 0
    assert net.is_unset()
    net.device_option.device_type = 1
    assert not net.is_unset()
    assert OperatorDef(arg=[Argument(i=0)]) != OperatorDef(arg=[Argument()])
    assert Argument(f=-0.0) != Argument(f=0.0)
    with pytest.raises(TypeError, match="no field 'ops'"):
        NetDef(ops=[])
    with pytest.raises(AttributeError):
        net.ops  # noqa: B018
