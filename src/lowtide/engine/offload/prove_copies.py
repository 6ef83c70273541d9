"""Record the proof of a bound on the extra cost of plans with or without copies to the host."""

from collections.abc import Mapping

import numpy as np

from lowtide.engine.graph import Graph
from lowtide.engine.offload.host_space import find_link
from lowtide.engine.offload.joint_model import JointModel, JointModelBuilder
from lowtide.engine.recompute.place_model import BuiltModel
from lowtide.engine.recompute.program import OrderedProgram
from lowtide.engine.recompute.prove_cost import ProvableCost, column_names
from lowtide.engine.search.proof_of_cost import CostProof, Name


def prove_cost(cost: ProvableCost, graph: Graph) -> CostProof | None:
    """Return the proof of a bound, see `ProvableCost.prove`."""
    return cost.prove(graph, _build if cost.seconds else None)


def _build(cost: ProvableCost, program: OrderedProgram) -> tuple[BuiltModel, Mapping[int, Name]]:
    link = find_link(program.problem.graph, 0)
    if link is None:
        raise ValueError("a bound with copies needs a host")
    builder = JointModelBuilder(
        JointModel(program, link, np.asarray(cost.seconds)), cost.places, cost.budget_bytes, 1.0
    )
    built = builder.build()
    names = column_names(built)
    for k, columns in enumerate(builder.prefetches):
        names.update((column, ("back", k, buffer)) for buffer, column in columns.items())
    return built, names
