"""Choosing what to do in chunks, and in how many: the fewest with which something else needs the most memory."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch.fx import GraphModule, Node

from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.lowering import lower
from lowtide.frameworks.torch.rewrites.chunks.by_rows import ChunkSizes
from lowtide.frameworks.torch.rewrites.chunks.devices import ChunkDevices
from lowtide.frameworks.torch.rewrites.chunks.find_products import find_products
from lowtide.frameworks.torch.rewrites.chunks.needs import NeedsOfRegions, bytes_of
from lowtide.frameworks.torch.rewrites.chunks.pieces import looked_at, pieces_of
from lowtide.frameworks.torch.rewrites.chunks.products import IN_ITS_OWN_ORDER, ProductRegion, Refusal, is_of_images
from lowtide.frameworks.torch.rewrites.chunks.regions import Region, find_regions
from lowtide.frameworks.torch.rewrites.chunks.roles import SUMS, RowRole
from lowtide.frameworks.torch.rewrites.chunks.trial import Trials
from lowtide.frameworks.torch.rewrites.chunks.windows import Windows, sums_by_windows

_CHUNKS = (2, 4, 8, 16)
_CHUNKS_OF_ROWS = (*_CHUNKS, 32, 64)
_PART_FOR_ROWS, _PART_FOR_WINDOWS = 8, 4
"""Chunks of rows, and windows, are small enough where they need so small a part of what is held across the region,
beside what they read."""
_ELEMENTS = 64
"""Chunks have a multiple of so many elements, whole vector registers for every kernel."""
_BLOCKS = (64, 192, 256, 384)
"""Multiples of what BLAS libraries are known to sum at a time."""
_SUMMED_AT_ONCE = (None, 384, 256, 192)
"""How many rows windows sum at once: all, or what BLAS libraries are known to sum at a time in a large matrix."""
_LEAST_ROWS = (8, 16, 64)
"""Fewer rows may be multiplied by another kernel."""
_AT_ONCE, _OF_AN_UPDATE = 2, 3
"""How many tensors as large as a window, and as the part of a gradient, are needed at once."""
_WORTH_A_WORD = 4
"""Products that are left whole are named from so small a part of what the neediest op needs."""
_MOST_GROWTH, _ALWAYS = 0.5, 500
"""How many ops chunks may add, for each op of the program, and in any case: planning must not take notably longer."""
_MOST_OPS_OF_ROWS = 4_000
"""The same for products, whose regions may be whole networks: how many ops their chunks may have."""
_OTHER_BITS = "no chunks that could be tried give equal bits; where rounding is allowed, they need not"
_NEED_NOT = "; where rounding is allowed, it need not"
_OTHER_RESULTS = "no chunks that could be tried give the same results"
_OTHER_DEVICE = "which chunks give equal bits on a device {!r} is not known; where rounding is allowed, they need not"


def choose_chunks(
    module: GraphModule, inputs: Sequence[tuple[str, Lifetime]], devices: ChunkDevices, *, fused: bool = False
) -> dict[Region, int]:
    """Return the regions that are worth doing in chunks, each with the rows of a chunk.

    What counts is what an op needs for itself: its transient operands, results and scratch. If an op of a region needs
    more than every op outside of regions, the region is cut into 2, 4, 8 or 16 chunks: the fewest with which it needs
    no more than those. The neediest region comes first. Whether the peak falls is for planning to say. If kernels are
    `fused`, regions need little for themselves, and only those are chosen that read something in pieces.
    """
    regions = [region for region in find_regions(module.graph) if devices.has(region.nodes[0])]
    if not regions:
        return {}
    needs = NeedsOfRegions(lower(module, inputs), regions)
    rows_of: dict[Region, int] = {}
    room = max(_ALWAYS, int(needs.n_ops * _MOST_GROWTH))
    for region in sorted(regions, key=lambda region: -needs.of(region, 1)):
        chunks = next((n for n in (1, *_CHUNKS) if needs.of(region, n) <= needs.outside), _CHUNKS[-1])
        added = chunks * len(region.nodes)
        rows = _rows_of_a_piece(region)
        if rows is not None:
            rows_of[region] = rows
        if rows is not None or fused:
            continue
        rows = _rows_of_a_chunk(region, chunks)
        if rows >= region.shape[0] or needs.of(region, chunks) >= needs.of(region, 1) or added > room:
            continue
        room -= added
        rows_of[region] = rows
    return rows_of


def choose_rows(
    module: GraphModule, inputs: Sequence[tuple[str, Lifetime]], trials: Trials, allowed: int = 0
) -> tuple[dict[ProductRegion, ChunkSizes], list[Refusal]]:
    """Return the products that are worth doing in chunks with equal bits, each with the sizes of its chunks.

    The others that need more than every op outside of them come with the reason why they are left whole.

    As in `choose_chunks`, with up to 64 chunks where the rest of the program holds little meanwhile; and a trial must
    show that such chunks give the bits of the whole. Sums over rows that others then take row by row are made by
    windows of classes, if that can be; so are others where chunks that add to them would need more than the rest of the
    program does, beside what is held meanwhile. Windows can wait until less is held, so they may need more, but for
    what they read. Where the program is `allowed` to need so many bytes, chunks are larger, and fewer.
    """
    products, refused = find_products(module.graph, adds=trials.adds)
    if not products and not refused:
        return {}, []
    updates = find_regions(module.graph)
    dying = [region for region in products if _is_taken_by_rows(region, updates) and sums_by_windows(region)]
    networks = [region for region in products if trials.adds and is_of_images(region.product)]
    needs = NeedsOfRegions(lower(module, inputs), updates, products, dying, networks)
    chosen: dict[ProductRegion, ChunkSizes] = {}
    network = next((refusal for refusal in refused if _is_of_a_network(refusal, trials)), None)
    left = [
        _advised(refusal, trials) if trials.devices.has(refusal.product) else _unknown(refusal.product)
        for refusal in refused
        if bytes_of(refusal.product) * _WORTH_A_WORD > needs.outside or refusal is network
    ]
    for region in products:
        standing = needs.standing(region)
        if standing + needs.of(region, 1) <= needs.outside:
            continue
        if not trials.devices.has(region.product):
            left.append(_unknown(region.product))
            continue
        held = needs.held_across(region)
        others = held - standing
        room = max(needs.outside - held, others // _PART_FOR_ROWS, allowed - held)
        most = max(_CHUNKS_OF_ROWS[0], _MOST_OPS_OF_ROWS // len(region.parts))
        counts = [n for n in _CHUNKS_OF_ROWS if n <= most]
        chunks = next((n for n in counts if needs.of(region, n) <= room), counts[-1])
        for_windows = max(needs.outside - standing, others // _PART_FOR_WINDOWS, allowed - held)
        by_windows = list(_by_windows(region, chunks, for_windows, region in dying))
        by_rows = list(_by_rows(region, chunks))
        small = [] if region in dying else [sizes for sizes in by_rows if needs.by(region, sizes) <= room]
        sizes = trials.first_equal(region, dict.fromkeys([*small, *by_windows, *by_rows]))
        if sizes is None:
            left.append(Refusal(region.product, _OTHER_BITS if trials.exact else _OTHER_RESULTS))
        else:
            chosen[region] = sizes
    return chosen, left


def _is_of_a_network(refusal: Refusal, trials: Trials) -> bool:
    """Tell whether what is left whole may be a network, which keeps more than any of its ops needs."""
    return trials.adds and refusal.passes is not None and is_of_images(refusal.product)


def _advised(refusal: Refusal, trials: Trials) -> Refusal:
    is_for_order = trials.exact and refusal.reason.endswith(IN_ITS_OWN_ORDER)
    return replace(refusal, reason=f"{refusal.reason}{_NEED_NOT}") if is_for_order else refusal


def _unknown(product: Node) -> Refusal:
    return Refusal(product, _OTHER_DEVICE.format(value_of(product).device.type))


def _is_taken_by_rows(region: ProductRegion, updates: Sequence[Region]) -> bool:
    """Tell whether all products that sum up a region go into updates that are done by rows."""
    sources = dict.fromkeys(source for update in updates for node in update.nodes for source in node.all_input_nodes)
    taken = {looked_at(source)[-1] for source in sources}
    return all(node in taken for node in region.having(RowRole.SUM))


def _by_rows(region: ProductRegion, chunks: int) -> Iterator[ChunkSizes]:
    """Yield the sizes of chunks that add to the sums, smallest first; some libraries sum a short row in two halves."""
    shortest = -(-region.rows.count // chunks)
    share = value_of(region.product).shape[0] // region.rows.count
    steps = (unit // math.gcd(unit, share) for unit in _BLOCKS)
    lengths = {shortest, *(-(-shortest // step) * step for step in steps), -(-region.rows.count // 2)}
    if not region.having(*SUMS):
        lengths |= {shortest * longer for longer in _CHUNKS}
    yield from (ChunkSizes(length) for length in sorted(lengths) if length < region.rows.count)


def _by_windows(region: ProductRegion, chunks: int, room: int, dies: bool) -> Iterator[ChunkSizes]:
    if sums_by_windows(region) is None:
        return
    classes = _classes_of_a_window(region, room if dies else room - _bytes_of_sums(region))
    shortest = -(-region.rows.count // chunks)
    for rows in sorted({-(-shortest // unit) * unit for unit in (*_LEAST_ROWS, *_BLOCKS)}):
        if rows < region.rows.count:
            yield from (ChunkSizes(rows, Windows(classes, dies, at_once)) for at_once in _SUMMED_AT_ONCE)


def _bytes_of_sums(region: ProductRegion) -> int:
    return sum(map(bytes_of, region.having(*SUMS)))


def _classes_of_a_window(region: ProductRegion, room: int) -> int:
    """Return the classes of a window that needs no more than there is room for, or as few as may be."""
    value = value_of(region.product)
    width = sum(value_of(node).shape[1] for node in region.having(RowRole.SUM))
    needed = value.shape[1] * value.element_size() * (_AT_ONCE * value.shape[0] + _OF_AN_UPDATE * width)
    windows = next((n for n in _CHUNKS_OF_ROWS if needed // n <= room), _CHUNKS_OF_ROWS[-1])
    return -(-value.shape[1] // (windows * _ELEMENTS)) * _ELEMENTS


def _rows_of_a_chunk(region: Region, chunks: int) -> int:
    unit = _ELEMENTS // math.gcd(_ELEMENTS, math.prod(region.shape[1:]))
    return -(-region.shape[0] // (chunks * unit)) * unit


def _rows_of_a_piece(region: Region) -> int | None:
    """Return the rows of the pieces of which something is put together that a region reads, None without such."""
    sources = dict.fromkeys(source for node in region.nodes for source in node.all_input_nodes)
    found = [pieces_of(source)[0] for source in sources if pieces_of(source)]
    rows = [value_of(piece).shape[0] for piece in found if value_of(piece).shape[1:] == region.shape[1:]]
    return min(rows, default=None)
