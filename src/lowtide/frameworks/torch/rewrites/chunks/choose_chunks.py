"""The choice of regions and chunk sizes: the fewest chunks with which other ops need most memory."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch.fx import GraphModule, Node

from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.lowering import lower
from lowtide.frameworks.torch.rewrites.chunks.chunk_products import ChunkSizes
from lowtide.frameworks.torch.rewrites.chunks.needs import RegionNeeds
from lowtide.frameworks.torch.rewrites.chunks.product_region import (
    ChunkDevices,
    ProductRegion,
    Refusal,
    bytes_of,
    has_image_rows,
)
from lowtide.frameworks.torch.rewrites.chunks.region_search import find_product_regions
from lowtide.frameworks.torch.rewrites.chunks.rule import SUMS, RowRole
from lowtide.frameworks.torch.rewrites.chunks.trial import Trials
from lowtide.frameworks.torch.rewrites.chunks.updates import (
    UpdateRegion,
    concatenated_chunks,
    find_update_regions,
    view_chain,
)
from lowtide.frameworks.torch.rewrites.chunks.windows import Windows, sums_by_windows

_UPDATE_CHUNKS = (2, 4, 8, 16)
_PRODUCT_CHUNKS = (*_UPDATE_CHUNKS, 32, 64)
_CHUNK_SHARE, _WINDOW_SHARE = 8, 4
"""Chunks may need 1/8, windows 1/4 of the bytes alive across the region."""
_VECTOR_ELEMENTS = 64
_BLOCKS = (64, 192, 256, 384)
_ROWS_AT_ONCE = (None, 384, 256, 192)
_MIN_ROWS = (8, 16, 64)
"""A BLAS may multiply fewer rows with another kernel."""
_WINDOW_TENSORS, _UPDATE_TENSORS = 2, 3
_REPORTED_SHARE = 4
_ADDED_OPS_SHARE, _ADDED_OPS = 0.5, 500
"""Ops that updates may add, per op of the program and in any case."""
_PRODUCT_OPS = 4_000
_ALLOW = "allow 'rounding' to use chunks"
_OTHER_BITS = f"no chunk size gives equal bits; {_ALLOW}"
_OTHER_RESULTS = "no chunk size gives equal results"
_UNKNOWN_DEVICE = f"no chunk size is known to give equal bits on device {{!r}}; {_ALLOW}"


def choose_update_chunks(
    module: GraphModule, inputs: Sequence[tuple[str, Lifetime]], devices: ChunkDevices, *, fused: bool = False
) -> dict[UpdateRegion, int]:
    """Return the update regions to compute in chunks, with the rows of a chunk.

    A region that needs more than every op outside gets the fewest of 2, 4, 8 or 16 chunks that avoid this. If kernels
    are `fused`, only regions that read windows of a sum are chosen.
    """
    regions = [region for region in find_update_regions(module.graph) if devices.has(region.nodes[0])]
    if not regions:
        return {}
    needs = RegionNeeds(lower(module, inputs), regions)
    rows_of: dict[UpdateRegion, int] = {}
    room = max(_ADDED_OPS, int(needs.n_ops * _ADDED_OPS_SHARE))
    for region in sorted(regions, key=lambda region: -needs.op_bytes(region, 1)):
        counts = (1, *_UPDATE_CHUNKS)
        rows = _concatenated_rows(region)
        if rows is not None:
            rows_of[region] = rows
        if rows is not None or fused:
            continue
        chunks = next((n for n in counts if needs.op_bytes(region, n) <= needs.max_outside), counts[-1])
        rows, added = _rows_of_chunk(region, chunks), chunks * len(region.nodes)
        helps = rows < region.shape[0] and needs.op_bytes(region, chunks) < needs.op_bytes(region, 1)
        if helps and added <= room:
            room -= added
            rows_of[region] = rows
    return rows_of


def choose_product_chunks(
    module: GraphModule, inputs: Sequence[tuple[str, Lifetime]], trials: Trials, budget_bytes: int = 0
) -> tuple[dict[ProductRegion, ChunkSizes], list[Refusal]]:
    """Return the product regions to compute in chunks, with sizes, and refusals of other large products.

    Chosen as in `choose_update_chunks`, with up to 64 chunks, and sizes with equal results in a trial. Windows compute
    sums that updates read by rows, and sums whose chunks would need too much memory. With `budget_bytes`, chunks are
    larger.
    """
    regions, refused = find_product_regions(module.graph, any_order=trials.any_order)
    if not regions and not refused:
        return {}, []
    updates = find_update_regions(module.graph)
    separate = [region for region in regions if _is_read_by_rows(region, updates) and sums_by_windows(region)]
    networks = [region for region in regions if trials.any_order and has_image_rows(region.product)]
    needs = RegionNeeds(lower(module, inputs), updates, regions, separate, networks)
    chosen: dict[ProductRegion, ChunkSizes] = {}
    network = next((refusal for refusal in refused if _may_be_network(refusal, trials)), None)
    left = [
        _with_advice(refusal, trials) if trials.devices.has(refusal.product) else _unknown_device(refusal.product)
        for refusal in refused
        if _bytes_in(refusal) * _REPORTED_SHARE > needs.max_outside or refusal is network
    ]
    for region in regions:
        operands = needs.operand_bytes(region)
        if operands + needs.op_bytes(region, 1) <= needs.max_outside:
            continue
        if not trials.devices.has(region.product):
            left.append(_unknown_device(region.product))
            continue
        alive = needs.alive_across(region)
        others = alive - operands
        room = max(needs.max_outside - alive, others // _CHUNK_SHARE, budget_bytes - alive)
        most = max(_PRODUCT_CHUNKS[0], _PRODUCT_OPS // len(region.ops))
        counts = [n for n in _PRODUCT_CHUNKS if n <= most]
        chunks = next((n for n in counts if needs.op_bytes(region, n) <= room), counts[-1])
        window_room = max(needs.max_outside - operands, others // _WINDOW_SHARE, budget_bytes - alive)
        by_windows = list(_sizes_with_windows(region, chunks, window_room, region in separate))
        by_rows = list(_sizes_without_windows(region, chunks))
        small = [each for each in by_rows if needs.op_bytes(region, region.rows.count // each.rows) <= room]
        first = [] if region in separate else small
        sizes = trials.first_equal(region, dict.fromkeys([*first, *by_windows, *by_rows]))
        if sizes is None:
            left.append(Refusal(region.product, _OTHER_BITS if trials.exact else _OTHER_RESULTS))
        else:
            chosen[region] = sizes
    return chosen, left


def _bytes_in(refusal: Refusal) -> int:
    recomputed = () if refusal.two_passes is None else refusal.two_passes.recomputed
    return max(map(bytes_of, (refusal.product, *recomputed)))


def _may_be_network(refusal: Refusal, trials: Trials) -> bool:
    return trials.any_order and refusal.two_passes is not None and has_image_rows(refusal.product)


def _with_advice(refusal: Refusal, trials: Trials) -> Refusal:
    has_partial_sum = trials.exact and refusal.has_own_order
    return replace(refusal, reason=f"{refusal.reason}; {_ALLOW}") if has_partial_sum else refusal


def _unknown_device(product: Node) -> Refusal:
    return Refusal(product, _UNKNOWN_DEVICE.format(value_of(product).device.type))


def _is_read_by_rows(region: ProductRegion, updates: Sequence[UpdateRegion]) -> bool:
    sources = dict.fromkeys(source for update in updates for node in update.nodes for source in node.all_input_nodes)
    read = {view_chain(source)[-1] for source in sources}
    return all(node in read for node in region.with_role(RowRole.SUM))


def _sizes_without_windows(region: ProductRegion, chunks: int) -> Iterator[ChunkSizes]:
    """Yield chunk sizes, smallest first. Some libraries sum a short row in two halves."""
    shortest = -(-region.rows.count // chunks)
    share = value_of(region.product).shape[0] // region.rows.count
    steps = (unit // math.gcd(unit, share) for unit in _BLOCKS)
    lengths = {shortest, *(-(-shortest // step) * step for step in steps), -(-region.rows.count // 2)}
    if not region.with_role(*SUMS):
        lengths |= {shortest * longer for longer in _UPDATE_CHUNKS}
    yield from (ChunkSizes(length) for length in sorted(lengths) if length < region.rows.count)


def _sizes_with_windows(region: ProductRegion, chunks: int, room: int, separate: bool) -> Iterator[ChunkSizes]:
    if sums_by_windows(region) is None:
        return
    sum_bytes = sum(map(bytes_of, region.with_role(*SUMS)))
    classes = _classes_of_window(region, room if separate else room - sum_bytes)
    shortest = -(-region.rows.count // chunks)
    for rows in sorted({-(-shortest // unit) * unit for unit in (*_MIN_ROWS, *_BLOCKS)}):
        if rows < region.rows.count:
            yield from (ChunkSizes(rows, Windows(classes, separate, at_once)) for at_once in _ROWS_AT_ONCE)


def _classes_of_window(region: ProductRegion, room: int) -> int:
    value = value_of(region.product)
    width = sum(value_of(node).shape[1] for node in region.with_role(RowRole.SUM))
    column_bytes = value.element_size() * (_WINDOW_TENSORS * value.shape[0] + _UPDATE_TENSORS * width)
    needed = value.shape[1] * column_bytes
    windows = next((n for n in _PRODUCT_CHUNKS if needed // n <= room), _PRODUCT_CHUNKS[-1])
    return -(-value.shape[1] // (windows * _VECTOR_ELEMENTS)) * _VECTOR_ELEMENTS


def _rows_of_chunk(region: UpdateRegion, chunks: int) -> int:
    unit = _VECTOR_ELEMENTS // math.gcd(_VECTOR_ELEMENTS, math.prod(region.shape[1:]))
    return -(-region.shape[0] // (chunks * unit)) * unit


def _concatenated_rows(region: UpdateRegion) -> int | None:
    sources = dict.fromkeys(source for node in region.nodes for source in node.all_input_nodes)
    found = [concatenated_chunks(source)[0] for source in sources if concatenated_chunks(source)]
    rows = [value_of(chunk).shape[0] for chunk in found if value_of(chunk).shape[1:] == region.shape[1:]]
    return min(rows, default=None)
