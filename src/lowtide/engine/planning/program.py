"""The interface between planning and a program."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from lowtide.engine.graph import Graph
from lowtide.engine.offload.updates import UpdatePlace
from lowtide.engine.plan import Plan

FormName = Literal["unmodified", "in chunks", "in finer chunks", "in finest chunks"]
"""Forms of a program, in planning order."""
ALL = 8
"""All state that can be on the host, in eighths; twice as many include all parameters."""
UPDATE_PLACES: tuple[UpdatePlace, ...] = get_args(UpdatePlace)
CHUNKED: tuple[FormName, ...] = ("in chunks", "in finer chunks", "in finest chunks")


@dataclass(frozen=True, eq=False)
class Form:
    """One version of a program: another graph that computes the same results."""

    name: FormName
    graph: Graph
    is_exact: bool = True
    """Whether results are bit-equal to the unmodified program's."""


class Program(ABC):
    """A program to plan. Frameworks override `make_form` to offer forms."""

    @property
    @abstractmethod
    def graph(self) -> Graph:
        """The graph of the unmodified program."""

    @property
    def chunking_slows(self) -> bool:
        """Whether chunks may slow the program down, so that they need a budget."""
        return False

    @property
    def has_rounded_forms(self) -> bool:
        return False

    def make_form(self, name: FormName, *, exact: bool) -> Form | None:
        """Return a form in chunks, or None if it cannot lower the peak. Called at most once per form."""
        return None

    def with_state_on_host(self, share: int, place: UpdatePlace = "device") -> "Program | None":
        """Return the program with `share` eighths of its state on its host, None if that cannot be there.

        Shares above `ALL` also move that many eighths of the parameters. Parameters are on the device only while they
        are used, state only during its update, unless that runs on the host. With a `place` other than "device",
        results are equal up to rounding; None if no update can run on the host.
        """
        return None

    def left_whole(self, *, exact: bool = True) -> tuple[str, ...]:
        """Return one sentence for each large result that chunking skipped, with the reason."""
        return ()

    @cached_property
    def most_on_host(self) -> int:
        """The largest share on the host, in eighths; 0 if nothing can be there."""
        return next((share for share in (2 * ALL, ALL) if self.with_state_on_host(share) is not None), 0)

    def form(self, name: FormName, *, exact: bool = True) -> Form | None:
        if name == "unmodified":
            return self._unmodified
        if not exact and not self.has_rounded_forms:
            return None
        key = (name, exact)
        if key not in self._forms:
            self._forms[key] = self.make_form(name, exact=exact)
        return self._forms[key]

    def forms(self, *, finer: bool = True, rounded: bool = True) -> Iterator[Form]:
        """Yield the unmodified form, then those in chunks, exact ones first, each made on demand."""
        yield self._unmodified
        for exact in (True, False) if rounded else (True,):
            for name in CHUNKED if finer else CHUNKED[:1]:
                if (form := self.form(name, exact=exact)) is not None:
                    yield form

    def form_of(self, plan: Plan) -> Form | None:
        known = next((form for form in self.made_forms() if form.graph.fingerprint == plan.graph_fingerprint), None)
        others = self.forms_with_state()
        return known or next((form for form in others if form.graph.fingerprint == plan.graph_fingerprint), None)

    def made_forms(self) -> list[Form]:
        return [self._unmodified, *(form for form in self._forms.values() if form is not None)]

    def forms_with_state(self) -> Iterator[Form]:
        """Yield all forms, unmodified ones first, since chunks take time to find."""
        programs: list[Program] = [self]
        yield self._unmodified
        for place in UPDATE_PLACES:
            for share in range(2 * ALL, 0, -1):
                moved = self.with_state_on_host(share, place)
                if moved is not None:
                    programs.append(moved)
                    yield moved._unmodified
        for program in programs:
            yield from program.forms()

    @property
    def in_chunks(self) -> Graph | None:
        return None if (form := self.form("in chunks")) is None else form.graph

    @property
    def in_finer_chunks(self) -> Graph | None:
        return None if (form := self.form("in finer chunks")) is None else form.graph

    @cached_property
    def _unmodified(self) -> Form:
        return self.make_unmodified()

    def make_unmodified(self) -> Form:
        return Form("unmodified", self.graph)

    @cached_property
    def _forms(self) -> dict[tuple[FormName, bool], Form | None]:
        return {}
