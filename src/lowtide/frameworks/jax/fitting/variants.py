"""Programs that compute the same, to plan one after the other: as it stands, with its scans in chunks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowtide.core.index_spaces import OpId
from lowtide.core.units import format_bytes
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan
from lowtide.frameworks.jax.emit.emit import run_plan
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.mesh import Flat, MeshProgram, mesh_program
from lowtide.frameworks.jax.flat.program import FlatProgram
from lowtide.frameworks.jax.flat.run import run_program
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import jaxpr_as_fun
from lowtide.frameworks.jax.reading.read import JaxTranslation, read_program
from lowtide.frameworks.jax.scans.bodies import with_planned_bodies
from lowtide.frameworks.jax.scans.chunks import in_chunks
from lowtide.frameworks.jax.scans.pairs import apart, scan_pairs
from lowtide.frameworks.jax.scans.saving import SavingProgram, saving_program


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to compute a function, read into a graph of its temporaries."""

    name: str
    translation: JaxTranslation
    mesh: MeshProgram | None
    """Where the program is that of one device, what runs it on all."""
    written: Flat | None = None
    """The function as its user wrote it, checkpoints and all; None for a program that lowtide wrote."""

    @property
    def peak_bytes(self) -> int:
        """Peak of the temporaries under the model, in program order."""
        graph = self.translation.graph
        return only_figure(simulate(graph, Plan.baseline(graph)).peak_bytes)

    def unplanned(self) -> Flat:
        """Return the variant as a function of flat arguments."""
        if self.written is not None:
            return self.written
        return self._whole(lambda *leaves: run_program(self.translation.program, leaves))

    def following(self, runs: Sequence[OpId], window: int | None = None) -> Flat:
        """Return the variant with its kernels run in a sequence, some of them again; `window` as in `run_plan`."""
        return self._whole(lambda *leaves: run_plan(self.translation, runs, leaves, window))

    def _whole(self, flat: Flat) -> Flat:
        return flat if self.mesh is None else self.mesh.around(flat)


def as_it_stands(traced: TracedFunction) -> Variant:
    """Return the first of a function's variants: what it computes, in the order it was traced in."""
    return next(variants(traced))


def variants(traced: TracedFunction) -> Iterator[Variant]:
    """Iterate the ways to compute a function: as it stands, its largest scan in chunks, all its scans in chunks.

    Last come its scans in chunks that save as little as they can: what a chunk saves then is not all it could.
    """
    program = flatten(traced.jaxpr, traced.name, traced.donated)
    mesh = mesh_program(program)
    first = _variant("", program if mesh is None else mesh.inner, mesh)
    yield replace(first, written=jaxpr_as_fun(traced.jaxpr))
    yield from _in_chunks(first, "")
    saving = saving_variant(first, 0)
    if saving is not None:
        yield from list(_in_chunks(saving[0], " that save least"))[-1:]


def _in_chunks(variant: Variant, which: str) -> Iterator[Variant]:
    program = variant.translation.program
    pairs = apart(scan_pairs(program))
    for count in dict.fromkeys(count for count in (1, len(pairs)) if 0 < count <= len(pairs)):
        name = f"scans in chunks{which}" if count > 1 else f"a scan in chunks{which}"
        try:
            chunked = in_chunks(program, pairs[:count])
        except NameError:  # a collective, which JAX traces only where its axis has a name
            return
        yield _variant(name, chunked, variant.mesh)


def saving_variant(variant: Variant, limit: int) -> tuple[Variant, SavingProgram] | None:
    """Return a variant whose scans save so many bytes for their backward scans; see `saving_program`."""
    saving = saving_program(variant.translation.program, limit)
    if saving is None:
        return None
    return _variant(f"scans saving {format_bytes(saving.saved_bytes)}", saving.program, variant.mesh), saving


def planned_bodies(variant: Variant, limit: int, window: int | None) -> Variant | None:
    """Return a variant whose loops run kernels of their bodies again, for a peak under the model; see `with_bodies`."""
    program = with_planned_bodies(variant.translation.program, limit, window)
    if program is None:
        return None
    held = "" if window is None else f", held by {window}"
    name = ", ".join(filter(None, (variant.name, f"bodies planned{held}")))
    return _variant(name, program, variant.mesh)


def _variant(name: str, program: FlatProgram, mesh: MeshProgram | None) -> Variant:
    return Variant(name=name, translation=read_program(program, "temporaries"), mesh=mesh)


def only_figure(figures: Mapping[str, int]) -> int:
    """Return the figure of the one memory space that programs of JAX have."""
    (figure,) = figures.values()
    return figure
