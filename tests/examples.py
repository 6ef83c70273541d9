"""How many examples a property test draws: fewer where every step of the native core is checked by sanitizers."""

import os

from hypothesis import settings

SHARE = float(os.environ.get("LOWTIDE_SHARE_OF_EXAMPLES", "1"))


def examples(most: int) -> settings:
    """Return settings that draw `most` examples, or the share of them that the environment asks for."""
    return settings(max_examples=max(1, round(SHARE * most)))
