"""The best order, with proof: cuts that bound the peak, moves that follow them, and exact search within a budget."""

from lowtide.engine.search.certificate import CheckedClaim, check_certificate
from lowtide.engine.search.check_proof import CheckedBound, check_proof
from lowtide.engine.search.fit import Fit, find_fit
from lowtide.engine.search.fit_order import FittedOrder, fit_order
from lowtide.engine.search.moves import equal_orders, moved_ops
from lowtide.engine.search.proof import Proof, RefutedBudget, SpaceProof, prove, read_proof_file, write_proof_file
from lowtide.engine.search.searched import Searched, with_flows
from lowtide.engine.search.solve import Solution, solve

__all__ = [
    "CheckedBound",
    "CheckedClaim",
    "Fit",
    "FittedOrder",
    "Proof",
    "RefutedBudget",
    "Solution",
    "Searched",
    "SpaceProof",
    "check_certificate",
    "check_proof",
    "equal_orders",
    "find_fit",
    "fit_order",
    "moved_ops",
    "prove",
    "read_proof_file",
    "solve",
    "with_flows",
    "write_proof_file",
]
