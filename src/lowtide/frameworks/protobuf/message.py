"""The base of all messages."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.wire import DEEPEST

_DEFAULTS: Mapping[str, Any] = {"string": "", "bytes": b"", "float": 0.0, "double": 0.0, "bool": False}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    number: int
    kind: str
    """A scalar type such as int64, the name of a message, or the lowercase name of an enumeration."""
    repeated: bool = False
    packed: bool = False

    @property
    def is_message(self) -> bool:
        return self.kind[0].isupper()


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a binary or text file that a message was read from."""

    content: bytes | str
    start: int
    stop: int


class Message:
    """A message with one attribute per field.

    A scalar is set once assigned, a message once one of its fields is set or a file contains it.
    """

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    fields_by_name: ClassVar[Mapping[str, Field]] = {}
    fields_by_number: ClassVar[Mapping[int, Field]] = {}
    KINDS: ClassVar[dict[str, type["Message"]]] = {}
    ENUMS: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    FORMAT: ClassVar[str] = "message"

    source: Source | None = None
    unknown_binary: tuple[bytes, ...] = ()
    """With tag and content."""
    unknown_text: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        cls.fields_by_name = {field.name: field for field in cls.FIELDS}
        cls.fields_by_number = {field.number: field for field in cls.FIELDS}
        if cls.FIELDS:
            cls.KINDS[cls.__name__] = cls

    @classmethod
    def declare(cls, **fields: str) -> None:
        """Add messages to the format by name, from declarations as `fields_of` reads them."""
        for name, declared in fields.items():
            type(name, (cls,), {"FIELDS": fields_of(declared)})

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            if name not in self.fields_by_name:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            setattr(self, name, list(value) if self.fields_by_name[name].repeated else value)

    def __getattr__(self, name: str) -> Any:
        """Return the value of an unset field: a new list or message, which is kept, else the default of its kind."""
        field = self.fields_by_name.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if not (field.repeated or field.is_message):
            return _DEFAULTS.get(field.kind, 0)
        value: Any = [] if field.repeated else self.KINDS[field.kind]()
        self.__dict__[name] = value
        return value

    def set_fields(self) -> Iterator[tuple[Field, Any]]:
        """Yield every set field with its value, by number."""
        held = self.__dict__
        for field in sorted(self.FIELDS, key=lambda field: field.number):
            if field.name not in held:
                continue
            value = held[field.name]
            if (field.repeated and not value) or (field.is_message and not field.repeated and value.is_unset()):
                continue
            yield field, value

    def is_unset(self) -> bool:
        unknown = self.unknown_binary or self.unknown_text
        return self.source is None and not unknown and next(self.set_fields(), None) is None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message) or type(other) is not type(self):
            return NotImplemented
        return self._content() == other._content()

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        for name, value in self.__dict__.items():
            if isinstance(value, list):
                items = cast("list[Any]", value)
                value = [item.__deepcopy__(memo) if isinstance(item, Message) else item for item in items]
            elif isinstance(value, Message):
                value = value.__deepcopy__(memo)
            made.__dict__[name] = value
        return made

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={value!r}" for field, value in self.set_fields())
        return f"{type(self).__name__}({values})"

    def _content(self) -> tuple[object, ...]:
        values = tuple((field.number, _exact(field, value)) for field, value in self.set_fields())
        return values, self.unknown_binary, self.unknown_text


def _exact(field: Field, value: Any) -> object:
    """Return a value that compares equal only if bit-equal."""
    if field.kind in ("float", "double"):
        return array("d", value if field.repeated else [value]).tobytes()
    return value


def fields_of(declared: str) -> tuple[Field, ...]:
    """Parse declarations of fields: name, number and kind, with `*` for repeated and `**` for packed."""
    words = declared.split()
    return tuple(
        Field(name, int(number), kind.rstrip("*"), kind.endswith("*"), kind.endswith("**"))
        for name, number, kind in zip(words[::3], words[1::3], words[2::3], strict=True)
    )


def deeper(depth: int, where: str) -> int:
    """Return the next depth; raises MalformedInputError beyond the deepest nesting."""
    if depth >= DEEPEST:
        raise MalformedInputError(f"{where}: messages are nested more than {DEEPEST} deep; check the file")
    return depth + 1
