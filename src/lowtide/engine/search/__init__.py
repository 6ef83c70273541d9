"""Find the order with the least peak, and prove a lower bound by minimum cuts and exact search.

A `Proof` records why the bound holds. `check_proof` and `check_cost` recheck it with the modules `check_*` and
`plain_*` only, in plain Python from the definition of live bytes. A new way to raise a bound needs its own step there.
"""

from lowtide.engine.search.certificate import Certificate, CheckedClaim, check_certificate
from lowtide.engine.search.check_proof import CheckedBound, check_proof
from lowtide.engine.search.fit import Fit, find_fit
from lowtide.engine.search.fit_order import FittedOrder, fit_order
from lowtide.engine.search.moves import equal_orders, moved_ops
from lowtide.engine.search.proof import Proof, RefutedBudget, prove, read_proof_file, write_proof_file
from lowtide.engine.search.searched import Searched, with_flows
from lowtide.engine.search.solve import Solution, solve

__all__ = [
    "Certificate",
    "CheckedBound",
    "CheckedClaim",
    "Fit",
    "FittedOrder",
    "Proof",
    "RefutedBudget",
    "Solution",
    "Searched",
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
