"""Small random instances of packing, the same for the same seed."""

from random import Random

from lowtide.engine.packing import FREE, Buffers


def plain_buffers(seed: int, most: int = 9) -> Buffers:
    """Return up to `most` buffers with alignment, gaps and fixed offsets mixed in; fixed ones never clash."""
    random = Random(seed)
    n = random.randint(1, most)
    steps = random.randint(1, 2 * n)
    first = [random.randrange(steps) for _ in range(n)]
    last = [step + random.randint(1, max(1, steps // 2)) for step in first]
    sizes = [random.randint(1, random.choice([4, 20])) for _ in range(n)]
    powers = random.choice([[1], [1, 2, 4], [1, 3, 4], [8]])
    alignment = [random.choice(powers) for _ in range(n)]
    gaps = [
        [k, begin, begin + random.randint(1, 3)]
        for k in range(n)
        for begin in [random.randint(first[k], last[k])]
        if random.random() < 0.25
    ]
    fixed = [FREE] * n
    if random.random() < 0.5:
        # above one another, so that they cannot clash
        top = 0
        for k in random.sample(range(n), random.randint(1, min(3, n))):
            fixed[k] = -(-(top + random.randint(0, 10)) // alignment[k]) * alignment[k]
            top = fixed[k] + sizes[k]
    return Buffers(first, last, sizes, alignment=alignment, gaps=gaps, fixed=fixed)


def tied_buffers(seed: int, most: int = 7) -> Buffers:
    """Return up to `most` buffers with groups that share an offset or follow one another, and pairs of both kinds."""
    random = Random(seed)
    plain = plain_buffers(seed, most)
    n = len(plain)
    shuffled = random.sample(range(n), n)
    aliases = [shuffled[:2]] if n > 2 and random.random() < 0.5 else []
    contiguous = [shuffled[-random.randint(2, 3) :]] if n > 4 and random.random() < 0.5 else []
    pairs = [random.sample(range(n), 2) for _ in range(4)] if n > 1 else []
    cut = random.randint(0, len(pairs))
    return Buffers(
        plain.first,
        plain.last,
        plain.sizes,
        alignment=plain.alignment,
        gaps=plain.gaps,
        aliases=aliases,
        contiguous=contiguous,
        may_overlap=pairs[:cut],
        apart=[pair for pair in pairs[cut:] if not any(set(pair) <= set(group) for group in aliases)],
    )
