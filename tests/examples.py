"""The number of examples of property tests: 30 % by default, all with LOWTIDE_SHARE_OF_EXAMPLES=1 (make test-all)."""

import os

from hypothesis import settings

SHARE = float(os.environ.get("LOWTIDE_SHARE_OF_EXAMPLES", "0.3"))


def examples(most: int) -> settings:
    """Return settings that draw `most` examples, or the share of them that the environment asks for."""
    return settings(max_examples=max(1, round(SHARE * most)))
