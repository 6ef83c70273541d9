"""The search for product regions (`find_product_regions`), largest products first."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch.fx import Graph, Node

from lowtide.core.errors import one_line
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.effects import keeps_order, overwritten_storages, touched_storages
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.chunks.op_rules import chunked_op
from lowtide.frameworks.torch.rewrites.chunks.product_region import (
    LARGE_SHARE,
    SECOND_PASS,
    ProductRegion,
    Refusal,
    TwoPasses,
    elements_of,
    has_image_rows,
    is_large_product,
    row_layout,
    row_operand,
)
from lowtide.frameworks.torch.rewrites.chunks.rule import SUMS, ChunkedOp, ChunkedOps, ProductRows, RowRole

aten = torch.ops.aten
_MAX_REFUSALS = 8
"""Products tried in vain: the largest may be sums over another's rows."""


def find_product_regions(graph: Graph, *, any_order: bool = False) -> tuple[list[ProductRegion], list[Refusal]]:
    """Return the regions around the largest products of a program, and refusals of the others.

    A region has its product's large dependents, all nodes between, and their users. Large results of the program or its
    forward pass are outside. With `any_order`, image regions include weight gradients. O(nodes and edges) per product.
    """
    found: list[ProductRegion] = []
    refused: list[Refusal] = []
    for product in _largest_first(graph, any_order=any_order):
        in_vain = sum(refusal.two_passes is None for refusal in refused)
        is_small = found and elements_of(product) * LARGE_SHARE < elements_of(found[0].product)
        if in_vain == _MAX_REFUSALS or is_small:
            break
        if any(product in region.ops for region in found):
            continue
        made = [RegionSearch(graph, product, rows, any_order=any_order).region() for rows in _kinds_of_rows(product)]
        regions = [region for region in made if isinstance(region, ProductRegion)]
        if not regions:
            refusals = [refusal for refusal in made if isinstance(refusal, Refusal)]
            refused.append(min(refusals, key=lambda refusal: refusal.two_passes is None))
            continue
        passes = [regions[0], *_second_pass(graph, regions[0])]
        taken = {node for region in found for node in region.ops}
        found += [region for region in passes if not taken & region.ops.keys()]
    return found, [refusal for refusal in refused if not any(refusal.product in region.ops for region in found)]


def has_chunkable_product(graph: Graph) -> bool:
    found, refused = found_or_none(partial(find_product_regions, graph)) or ([], [])
    return bool(found) or any(each.two_passes is not None for each in refused)


def _largest_first(graph: Graph, *, any_order: bool) -> Sequence[Node]:
    """Return large products, largest first.

    With `any_order`, large convolutions come first, in program order: a region may be a whole network.
    """
    products = sorted(filter(is_large_product, graph.nodes), key=lambda node: -elements_of(node))
    largest = elements_of(products[0]) if products else 0

    def is_first(node: Node) -> bool:
        return any_order and has_image_rows(node) and elements_of(node) * LARGE_SHARE >= largest

    networks = [node for node in graph.nodes if node in products and is_first(node)]
    return [*networks, *(node for node in products if node not in networks)]


def _second_pass(graph: Graph, first: ProductRegion) -> Iterator[ProductRegion]:
    is_marked = any(node.meta.get(SECOND_PASS) == first.product.name for node in graph.nodes)
    if is_marked and first.product not in first.ops:
        second = RegionSearch(graph, first.product, first.rows, second=True).region()
        if isinstance(second, ProductRegion):
            yield second


def _kinds_of_rows(product: Node) -> Iterator[ProductRows]:
    """Yield the possible rows of a product: its first dimension, or that of a view."""
    value = value_of(product)
    yield ProductRows(value.shape[0])
    for user in product.users:
        shape = value_of(user).shape if isinstance(value_of(user), torch.Tensor) else ()
        if len(shape) > 2 and 1 < shape[0] < value.shape[0]:
            yield ProductRows(shape[0])


class RegionSearch:
    """The search for the region of one product, or of its second pass."""

    def __init__(
        self, graph: Graph, product: Node, rows: ProductRows, *, second: bool = False, any_order: bool = False
    ) -> None:
        self._nodes = list(graph.nodes)
        self._order = {node: place for place, node in enumerate(self._nodes)}
        self._product, self._rows, self._is_second = product, rows, second
        self._has_images = has_image_rows(product)
        self._any_order = any_order and self._has_images
        self._device: torch.device = value_of(product).device
        self._large = elements_of(product) // LARGE_SHARE
        self._ops: dict[Node, ChunkedOp] = {}
        self._in_own_order = set[Node]()

    def region(self) -> ProductRegion | Refusal:
        op = self._op_of_product()
        if op is None:
            return self._refuse(self._product, "is not a plain product of rows")
        inside = self._inside(op)
        if isinstance(inside, Refusal):
            return inside
        self._add_sources(inside)
        ordered = sorted(inside, key=self._order.__getitem__)
        region = ProductRegion(self._product, self._rows, {node: self._ops[node] for node in ordered})
        for node in ordered:
            if any(user not in inside for user in node.users) and value_of(node) is not None:
                if not isinstance(value_of(node), torch.Tensor):
                    return self._refuse(node, "has results without rows")
                if self._ops[node].role is not RowRole.PARTIAL_SUM and not self._has_adjacent_rows(node):
                    return self._refuse(node, "has a result that is not contiguous")
                region.results.append(node)
        return self._placed(region)

    def _op_of_product(self) -> ChunkedOp | None:
        left = row_operand(self._product)
        if not self._has_adjacent_rows(self._product) or self._rows.leading_dims(value_of(left).shape) != 1:
            return None
        if self._product.target in (aten.bmm.default, aten.convolution.default):
            return self._chunked_op(self._product, {})
        return self._chunked_op(self._product, {left: ChunkedOp(RowRole.ROWS, rows=self._rows)})

    def _has_adjacent_rows(self, node: Node) -> bool:
        value = value_of(node)
        return value.is_contiguous() or (self._has_images and row_layout(value) is not None)

    def _inside(self, op: ChunkedOp) -> set[Node] | Refusal:
        ops = self._ops
        ops[self._product] = op
        reached = self._reached({self._product: op}, second=False)
        results = _needed_for_results(reached, self._large)
        if self._is_second:
            reached = self._reached({node: reached[node] for node in results}, second=True)
        reached = {node: op for node, op in reached.items() if node not in results}
        large = {node for node in reached if elements_of(node) >= self._large}
        if not large or any(ops[node].role is not RowRole.ROWS for node in results):
            return self._refuse(self._product, "is a result of the program")
        inside = set[Node]()
        for node in reversed(list(reached)):
            if node in large or any(user in inside for user in node.users):
                inside.add(node)
        for node in sorted(large, key=self._order.__getitem__):
            for user in node.users:
                if user not in ops:
                    return self._refuse_op(user)
                inside.add(user)
        for node in [node for node in inside if not isinstance(value_of(node), torch.Tensor)]:
            inside |= node.users.keys()
        missing = min((node for node in inside if node not in ops), key=self._order.__getitem__, default=None)
        return inside if missing is None else self._refuse_op(missing)

    def _reached(self, reached: dict[Node, ChunkedOp], *, second: bool) -> dict[Node, ChunkedOp]:
        """Add all nodes that depend on these by rows, in one of the two passes."""
        for node in self._nodes[self._order[self._product] + 1 :]:
            if node in reached or (node.meta.get(SECOND_PASS) == self._product.name) is not second:
                continue
            if any(source in reached for source in node.all_input_nodes) and not self._begins_attention(node):
                found = self._chunked_op(node, reached)
                if found is not None:
                    self._ops[node] = found
                    if found.role not in SUMS:
                        reached[node] = found
        return reached

    def _chunked_op(self, node: Node, ops: ChunkedOps) -> ChunkedOp | None:
        op = chunked_op(node, ops, self._rows, self._device, images=self._has_images)
        if op is None or self._any_order or not op.has_partial_sum:
            return op
        self._in_own_order.add(node)
        return None

    def _refuse_op(self, node: Node) -> Refusal:
        if node in self._in_own_order:
            return replace(self._refuse(node, "sums over rows in its own order"), has_own_order=True)
        return self._refuse(node, "does not treat rows independently")

    def _begins_attention(self, node: Node) -> bool:
        """Return whether a node computes the scores of another attention, which is its own region."""
        return (
            node.target is aten.bmm.default
            and not self._any_order
            and is_large_product(node)
            and all(elements_of(source) < self._large for source in node.all_input_nodes)
        )

    def _add_sources(self, inside: set[Node]) -> None:
        waiting = sorted(inside, key=self._order.__getitem__)
        while waiting:
            node = waiting.pop()
            for source in self._ops[node].by_rows:
                if source in inside or elements_of(source) < self._large:
                    continue
                added = self._source_ops(source, self._ops[node].operand_rows, inside)
                self._ops |= added
                inside.update(added)
                waiting.extend(added)

    def _source_ops(self, source: Node, rows: ProductRows, inside: set[Node]) -> dict[Node, ChunkedOp]:
        """Return how to compute an operand and its other users by chunks; empty if impossible."""
        found: dict[Node, ChunkedOp] = {}
        waiting = [source]
        while waiting:
            node = min(waiting, key=self._order.__getitem__)
            waiting.remove(node)
            op = chunked_op(node, found, rows, self._device, images=self._has_images)
            if (
                op is None
                or op.role is not RowRole.ROWS
                or not all(each in op.by_rows for each in found if each in node.all_input_nodes)
            ):
                return {}
            found[node] = op
            for user in node.users:
                if user in inside and node not in self._ops[user].by_rows:
                    return {}
                if user not in inside and user not in waiting:
                    waiting.append(user)
        return found

    def _placed(self, region: ProductRegion) -> ProductRegion | Refusal:
        """Find the nodes to delay until after the chunks.

        Nodes that keep their place are not delayed. Nodes after them are a second pass.
        """
        inside = region.ops
        touched, written, moved = set[int](), set[int](), dict[Node, None]()
        second: dict[Node, None] = {}
        stays = False
        nodes = list(inside)
        for node in self._nodes[self._order[nodes[0]] : self._order[nodes[-1]] + 1]:
            overwritten = overwritten_storages(node)
            everything = touched_storages(node)
            sources = node.all_input_nodes
            if node in inside:
                if stays or any(source in moved or source in second for source in sources):
                    second[node] = None
                if written & everything:
                    return self._refuse(node, "reads a tensor that is overwritten before")
                touched |= everything
            elif any(source in inside or source in moved for source in sources):
                stays = stays or keeps_order(node)
                moved[node] = None
                touched |= everything
                written |= overwritten
            elif everything & written or overwritten & touched:
                return self._refuse(node, "overwrites a tensor that the region reads")
        if second:
            return self._in_two_passes(region, second)
        region.delayed.extend(moved)
        return region

    def _in_two_passes(self, region: ProductRegion, second: Mapping[Node, None]) -> Refusal:
        least = 0 if self._any_order else self._large
        recomputed = tuple(node for node in region.ops if node not in second and elements_of(node) >= least)
        refusal = self._refuse(next(iter(second)), "needs results of all rows first")
        return replace(refusal, two_passes=TwoPasses(self._product, tuple(second), recomputed))

    def _refuse(self, node: Node, reason: str) -> Refusal:
        return Refusal(self._product, f"'{node.name}' {reason}")


def _needed_for_results(reached: dict[Node, ChunkedOp], large: int) -> set[Node]:
    found = set[Node]()
    for node in reversed(reached):
        is_result = any(user.op == "output" or user.target == TURN_BACK for user in node.users)
        if any(user in found for user in node.users) or (is_result and elements_of(node) >= large):
            found.add(node)
    return found


Found = TypeVar("Found")


def found_or_none(search: Callable[[], Found]) -> Found | None:
    """Return the result of a search for chunks. If it raises, warn and return None."""
    try:
        return search()
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        warnings.warn(
            f"lowtide: chunks are left out, because looking for them failed: {reason}; report it", stacklevel=3
        )
        return None
