"""Load exported programs from .pt2 files without running code from the file.

PyTorch evaluates size expressions, imports modules, and copies names into source, as the archive's JSON demands. So an
untrusted file may contain only tensor bytes and JSON with arithmetic, registered operators and harmless names.
"""

import ast
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader

from lowtide.core.errors import MalformedInputError, UnsupportedError, one_line
from lowtide.core.files import open_regular
from lowtide.frameworks.torch.internals.exported_archive import is_operator, load_without_pickle


def load_exported(path: Path, *, trust: bool = False) -> ExportedProgram:
    """Load an exported program. Without `trust`, no code from the file runs.

    Only a trusted file is loaded with its pickled sample inputs. Raises InputError for an unreadable file,
    MalformedInputError for a file without an exported program, UnsupportedError if loading needs trust.
    """
    open_regular(path).close()
    if not zipfile.is_zipfile(path):
        raise MalformedInputError(f"{path} is not a complete .pt2 archive; write it with torch.export.save")
    try:
        return torch.export.load(path) if trust else _load_untrusted(path)
    except UnsupportedError:
        raise
    except Exception as error:  # a damaged archive may raise any exception
        reason = f"{type(error).__name__}: {one_line(error, 200)}"
        raise MalformedInputError(f"this PyTorch cannot load an exported program from {path} ({reason})") from None


def _load_untrusted(path: Path) -> ExportedProgram:
    code = _code_in(PT2ArchiveReader(str(path)))
    if code is not None:
        raise UnsupportedError(f"{path} {code}, which could run code; load a trusted file with --trust (trust=True)")
    return load_without_pickle(path)


_DATA = re.compile(
    r"models/[\w.-]+\.json|data/(weights|constants|sample_inputs)/[\w.-]+|extra/.*|\.data/\w+"
    r"|archive_format|archive_version|byteorder|\.format_version|\.storage_alignment|version"
)
_OBJECTS = ("custom_obj", "opaque_obj")
_PICKLED = re.compile(r"data/(weights|constants)/[\w.-]+\.pt")
_PROGRAMS, _CONFIGS = "models/", "_config.json"
_NAME = re.compile(r"[\w.@:+/ -]*")
_OPERATOR = re.compile(r"torch\.ops\.\w+\.\w+(\.\w+)?")
_FUNCTION = re.compile(
    r"_operator\.(getitem|eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|lshift|rshift)"
    r"|math\.trunc|torch\.sym_(not|int|float|ite|max|min|sqrt)"
)
_STRINGS = frozenset({"as_string", "as_strings"})
"""Text that PyTorch passes to operators unchanged."""
_REMARKS = frozenset({"stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node"})
_TREES = frozenset({"in_spec", "out_spec"})
_IMPORTS = frozenset({"__enum__", "default_factory_module"})
_ARITHMETIC = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name, ast.Load, ast.Constant, ast.Call),
    *(ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
_SIZE_FUNCTION = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Max|Min|Mod|Abs|Eq|Ne|Lt|Le|Gt|Ge|And|Or|Not|Piecewise|floor|ceiling"
    r"|FloorDiv|ModularIndexing|Where|PythonMod|CleanDiv|CeilToInt|FloorToInt|CeilDiv|LShift|RShift|PowByNatural"
    r"|FloatPow|FloatTrueDiv|IntTrueDiv|IsNonOverlappingAndDenseIndicator|TruncToFloat|TruncToInt|RoundToInt"
    r"|RoundDecimal|ToFloat|Identity|BitwiseFn_bitwise_(and|or)"
)


def _code_in(archive: PT2ArchiveReader) -> str | None:
    """Describe the first part of an archive that could run code, if any. O(bytes of its JSON).

    Raises ValueError or RecursionError for invalid JSON.
    """
    seen: set[str] = set()
    for member in archive.get_file_names():
        if member in seen:
            return f"holds {member!r} twice"
        seen.add(member)
        if not _DATA.fullmatch(member):
            return f"holds {member!r}, which is neither program nor data"
        if _PICKLED.fullmatch(member):
            return f"holds {member!r}, which is pickled"
        if member.startswith(_PROGRAMS) or member.endswith(_CONFIGS):
            for reason in _in_value("", json.loads(archive.read_bytes(member))):
                return f"holds {reason} in {member}"
    return None


def _in_value(key: str, value: Any) -> Iterator[str]:
    if _is_free_text(key, value):
        return
    if isinstance(value, dict):
        for inner_key, inner in cast("dict[str, Any]", value).items():
            if not _NAME.fullmatch(inner_key):
                yield f"the name {inner_key!r}"
            if inner_key == "use_pickle" and inner is not False:
                yield "a pickled tensor"
            yield from _in_value(inner_key, inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _in_value(key, inner)
    elif isinstance(value, str):
        yield from _in_text(key, value)


def _is_free_text(key: str, value: Any) -> bool:
    if key == "metadata" and isinstance(value, dict):
        remarks = cast("dict[str, Any]", value)
        return remarks.keys() <= _REMARKS and all(isinstance(text, str) for text in remarks.values())
    texts = cast("list[Any]", value) if isinstance(value, list) else [value]
    return key in _STRINGS and all(isinstance(text, str) for text in texts)


def _in_text(key: str, text: str) -> Iterator[str]:
    if key == "guards_code":
        yield f"the guard {text!r}"
    elif key == "expr_str":
        if not _is_arithmetic(text):
            yield f"the size {text!r}, which is not arithmetic"
    elif key in ("target", "as_operator"):
        if not _FUNCTION.fullmatch(text) and not (_OPERATOR.fullmatch(text) and is_operator(text)):
            yield f"a call of {text!r}, which is not a registered operator"
    elif key == "path_name" and text.startswith(_OBJECTS):
        yield f"the pickled object {text!r}"
    elif key in _TREES:
        yield from _in_tree(json.loads(text))
    elif not _NAME.fullmatch(text):
        yield f"the name {text!r}"


def _in_tree(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            if not _NAME.fullmatch(key) or key in _IMPORTS:
                yield f"the key {key!r}"
            yield from _in_tree(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _in_tree(inner)
    elif isinstance(value, str) and not _NAME.fullmatch(value):
        if value[:1] in ("[", "{", '"'):
            yield from _in_tree(json.loads(value))
        else:
            yield f"the name {value!r}"


def _is_arithmetic(text: str) -> bool:
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in nodes:
        if not isinstance(node, _ARITHMETIC):
            return False
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and _SIZE_FUNCTION.fullmatch(node.func.id)
        ):
            return False
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            return False
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not re.fullmatch(r"\w+", node.value):
            return False
    return True
