"""A set of ranks that knows its neighbors, for sweeps over many intervals."""


class SortedRanks:
    """A set of whole numbers below a limit n; adding, removing and asking for neighbors touch O(sqrt n) bits each.

    Numbers are bits of words of about sqrt n bits, and one more word says which words are not empty.
    """

    def __init__(self, limit: int) -> None:
        self._width = 1 << ((max(limit, 1).bit_length() + 1) // 2)
        self._words = [0] * (limit // self._width + 1)
        self._used = 0

    def add(self, rank: int) -> None:
        """Put a rank in."""
        word, bit = divmod(rank, self._width)
        self._words[word] |= 1 << bit
        self._used |= 1 << word

    def remove(self, rank: int) -> None:
        """Take a rank out that is in."""
        word, bit = divmod(rank, self._width)
        self._words[word] ^= 1 << bit
        if not self._words[word]:
            self._used ^= 1 << word

    def below(self, rank: int) -> int | None:
        """Return the largest rank in the set that is below a given one, None where there is none."""
        word, bit = divmod(rank, self._width)
        lower = self._words[word] & ((1 << bit) - 1)
        if not lower:
            words = self._used & ((1 << word) - 1)
            if not words:
                return None
            word = words.bit_length() - 1
            lower = self._words[word]
        return word * self._width + lower.bit_length() - 1

    def above(self, rank: int) -> int | None:
        """Return the least rank in the set that is above a given one, None where there is none."""
        word, bit = divmod(rank, self._width)
        higher = self._words[word] >> (bit + 1) << (bit + 1)
        if not higher:
            words = self._used >> (word + 1) << (word + 1)
            if not words:
                return None
            word = (words & -words).bit_length() - 1
            higher = self._words[word]
        return word * self._width + (higher & -higher).bit_length() - 1
