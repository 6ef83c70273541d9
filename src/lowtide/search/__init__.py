"""The best order, with proof: cuts that bound the peak, moves that follow them, and exact search within a budget."""

from lowtide.search.certificate import CheckedClaim, check_certificate
from lowtide.search.check_proof import CheckedBound, check_proof
from lowtide.search.equal_orders import equal_orders
from lowtide.search.fit import Fit, find_fit
from lowtide.search.fit_order import FittedOrder, fit_order
from lowtide.search.flows import with_flows
from lowtide.search.moves import moved_ops
from lowtide.search.proof import Proof, RefutedBudget, SpaceProof, prove, read_proof_file, write_proof_file
from lowtide.search.searched import Searched
from lowtide.search.solve import Solution, solve

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
