"""Programs that compute the same, to plan one after the other: as it stands, with its scans in chunks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowtide.analysis import simulate
from lowtide.frameworks.jax.emit.emit import run_plan
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.mesh import Flat, MeshProgram, mesh_program
from lowtide.frameworks.jax.flat.program import FlatProgram
from lowtide.frameworks.jax.flat.run import run_program
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import jaxpr_as_fun
from lowtide.frameworks.jax.reading.read import JaxTranslation, read_program
from lowtide.frameworks.jax.scans.chunks import in_chunks
from lowtide.frameworks.jax.scans.pairs import ScanPair, scan_pairs
from lowtide.index_spaces import OpId
from lowtide.plan import Plan


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
    """Iterate the ways to compute a function: as it stands, its largest scan in chunks, all its scans in chunks."""
    program = flatten(traced.jaxpr, traced.name, traced.donated)
    mesh = mesh_program(program)
    inner = program if mesh is None else mesh.inner
    yield replace(_variant("", inner, mesh), written=jaxpr_as_fun(traced.jaxpr))
    pairs = _apart(scan_pairs(inner))
    for count in dict.fromkeys(count for count in (1, len(pairs)) if 0 < count <= len(pairs)):
        name = "scans in chunks" if count > 1 else "a scan in chunks"
        try:
            chunked = in_chunks(inner, pairs[:count])
        except NameError:  # a collective, which JAX traces only where its axis has a name
            return
        yield _variant(name, chunked, mesh)


def _variant(name: str, program: FlatProgram, mesh: MeshProgram | None) -> Variant:
    return Variant(name=name, translation=read_program(program, "temporaries"), mesh=mesh)


def _apart(pairs: Sequence[ScanPair]) -> list[ScanPair]:
    """Return the pairs, best first, without those that share a scan with a better one."""
    taken: set[int] = set()
    kept: list[ScanPair] = []
    for pair in pairs:
        if taken.isdisjoint((pair.forward, pair.backward)):
            taken.update((pair.forward, pair.backward))
            kept.append(pair)
    return kept


def only_figure(figures: Mapping[str, int]) -> int:
    """Return the figure of the one memory space that programs of JAX have."""
    (figure,) = figures.values()
    return figure
