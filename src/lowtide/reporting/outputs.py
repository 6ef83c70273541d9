"""Agreement of the outputs under a plan with those of the unmodified program, in words."""

from lowtide.engine.planning.measured import Agreement


def describe_outputs(found: Agreement) -> str:
    """Return whether outputs are equal, and by how much they differ, as one line."""
    if found.outputs_equal:
        return "yes (bit-equal)"
    if found.largest_difference is None:
        return "no"
    differ = f"they differ by at most {found.largest_difference:.1e} of a tensor's largest number"
    match found.verdict:
        case "rounding":
            return f"up to rounding: {differ}"
        case "within noise":
            return f"as far as the program equals itself: {differ}{_beside_own(found)}"
        case _:
            return f"no, {differ}{_beside_own(found)}"


def outputs_phrase(found: Agreement) -> str:
    """Return the verdict in a few words."""
    return {
        "equal": "bit-equal",
        "rounding": "equal up to rounding",
        "within noise": f"no further off than two runs without the plan ({found.largest_difference or 0.0:.1e})",
        "different": "not equal" + (f" (by {found.largest_difference:.1e})" if found.largest_difference else ""),
    }[found.verdict]


def _beside_own(found: Agreement) -> str:
    own = found.own_difference
    return f"; two runs without the plan differ by {own:.1e}" if own else ""
