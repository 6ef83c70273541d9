"""The public names of the exception tree."""

from lowtide.core.errors import (
    FingerprintError,
    GraphError,
    InputError,
    LowtideError,
    MalformedInputError,
    MissingExtraError,
    PlanError,
    ProofError,
    RewriteError,
    UnsupportedError,
    UsageError,
    VerificationError,
    WriteError,
)

__all__ = [
    "FingerprintError",
    "GraphError",
    "InputError",
    "LowtideError",
    "MalformedInputError",
    "MissingExtraError",
    "PlanError",
    "ProofError",
    "RewriteError",
    "UnsupportedError",
    "UsageError",
    "VerificationError",
    "WriteError",
]
