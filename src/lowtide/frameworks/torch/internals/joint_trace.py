"""One trace and one partition for all compilations of a captured graph."""
# pyright: reportPrivateImportUsage=false, reportPrivateUsage=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import Any

from torch._functorch import aot_autograd
from torch.fx import GraphModule

from lowtide.frameworks.torch.internals.nodes import copied_graph

_in_use: list["JointTrace"] = []


class JointTrace:
    """One captured graph, traced by AOTAutograd and rewritten by Inductor's joint passes, and programs made of it.

    Later compilations get copies, because compilers change their input. Programs with tensor subclasses, effects in
    order (tokens) or inner graphs are traced each time.
    """

    def __init__(self) -> None:
        self._made: Any = None
        self._arguments: tuple[list[Any], list[Any]] = ([], [])
        self._metadata: Any = None
        self._joint: GraphModule | None = None
        self._programs: dict[Hashable, Sequence[GraphModule]] = {}

    def __deepcopy__(self, memo: object) -> "JointTrace":
        return self

    @contextmanager
    def shared(self) -> Generator[None]:
        """Share the trace with the compilation in this context, without inner graphs."""
        from torch._inductor import compile_fx  # takes seconds to load

        capture, rewrite = aot_autograd.aot_stage1_graph_capture, compile_fx._recursive_joint_graph_passes
        is_traced = is_rewritten = False

        def captured(state: Any, function: Callable[..., Any]) -> Any:
            nonlocal is_traced
            if is_traced:
                return capture(state, function)
            is_traced = True
            if self._made is not None:
                return self._repeat(state)
            made = capture(state, function)
            self._keep(state, made)
            return made

        def rewritten(module: GraphModule, *others: Any, **more: Any) -> Any:
            nonlocal is_rewritten
            if is_rewritten or self._made is None:
                return rewrite(module, *others, **more)
            is_rewritten = True
            if self._joint is not None:
                return copied_graph(self._joint)
            made: Any = rewrite(module, *others, **more)
            if isinstance(made, GraphModule) and not _calls_graphs(made):  # no module if changed in place
                self._joint = copied_graph(made)
            return made

        _in_use.append(self)
        aot_autograd.aot_stage1_graph_capture = captured
        compile_fx._recursive_joint_graph_passes = rewritten
        try:
            yield
        finally:
            aot_autograd.aot_stage1_graph_capture = capture
            compile_fx._recursive_joint_graph_passes = rewrite
            _in_use.pop()

    def _keep(self, state: Any, made: Any) -> None:
        has_more = made.maybe_subclass_meta is not None or state.fw_metadata.tokens
        if not has_more and not _calls_graphs(made.graph_module):
            self._made = replace(made, graph_module=copied_graph(made.graph_module))
            self._arguments = list(state.flat_args), list(state.flat_args_descs)
            self._metadata = _copied_metadata(state.fw_metadata)

    def _repeat(self, state: Any) -> Any:
        """Give a new compilation the state that tracing gave the first."""
        arguments, descriptions = self._arguments
        state.flat_args, state.flat_args_descs = list(arguments), list(descriptions)
        state.fw_metadata = _copied_metadata(self._metadata)
        given = self._made.updated_flat_args
        return replace(
            self._made,
            graph_module=copied_graph(self._made.graph_module),
            updated_flat_args=tuple(map(list, given)) if isinstance(given, tuple) else list(given),
        )

    def copies(self, key: Hashable, make: Callable[[], Sequence[GraphModule]]) -> Sequence[GraphModule]:
        if self._made is None:
            return make()
        if key not in self._programs:
            self._programs[key] = make()
        return list(map(copied_graph, self._programs[key]))


def made_once(key: Hashable, make: Callable[[], Sequence[GraphModule]]) -> Sequence[GraphModule]:
    """Return copies of programs that are made once per shared trace, if there is one.

    The key names everything that they depend on besides the joint graph.
    """
    return _in_use[-1].copies(key, make) if _in_use else make()


def _copied_metadata(metadata: Any) -> Any:
    copied = copy(metadata)
    for name, value in list(vars(copied).items()):
        if isinstance(value, (dict, list, set)):
            setattr(copied, name, copy(value))
    return copied


def _calls_graphs(module: GraphModule) -> bool:
    """Return whether a graph has inner graphs, which a copy would share."""
    names = [str(node.target) for node in module.graph.find_nodes(op="get_attr")]
    return any(isinstance(attrgetter(name)(module), GraphModule) for name in names)
