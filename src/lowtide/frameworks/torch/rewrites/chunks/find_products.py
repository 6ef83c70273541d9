"""The search for what can be done for some rows at a time: from a large product to where it is summed up."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.reading.effects import keeps_order, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.chunks.devices import ChunkDevices
from lowtide.frameworks.torch.rewrites.chunks.parts import part_of
from lowtide.frameworks.torch.rewrites.chunks.products import (
    NEARLY,
    PRODUCTS,
    SECOND_PASS,
    ProductRegion,
    Refusal,
    TwoPasses,
)
from lowtide.frameworks.torch.rewrites.chunks.roles import SUMS, RowPart, RowRole
from lowtide.frameworks.torch.rewrites.chunks.rows import ProductRows

aten = torch.ops.aten
_FEWEST_BYTES = 1 << 20
"""Smaller products need little, and are many."""
_MOST_REFUSED = 8
"""So many products are looked at without success: the largest may be a sum over the rows of the one that counts."""


def find_products(graph: Graph) -> tuple[list[ProductRegion], list[Refusal]]:
    """Return the regions around the largest products of a program, and the products that are left whole.

    A region holds all that is as large as its product and made of it, all between, and what others make of that: for
    each row alone, or summed over all rows. What the program returns, or its forward pass, stands whole in any case, so
    that the region begins behind it. O(nodes and edges) for each product.
    """
    found: list[ProductRegion] = []
    refused: list[Refusal] = []
    products = sorted(filter(_is_large, graph.nodes), key=lambda node: -_numbers(node))
    for product in products:
        in_vain = sum(refusal.passes is None for refusal in refused)
        if in_vain == _MOST_REFUSED or (found and _numbers(product) * NEARLY < _numbers(found[0].product)):
            break
        if any(product in region.parts for region in found):
            continue
        made = [_RegionSearch(graph, product, rows).region() for rows in _ways(product)]
        regions = [region for region in made if isinstance(region, ProductRegion)]
        if not regions:
            refused.append(min(filter(_is_refusal, made), key=lambda refusal: refusal.passes is None))
            continue
        passes = [regions[0], *_second_pass(graph, regions[0])]
        taken = {node for region in found for node in region.parts}
        found += [region for region in passes if not taken & region.parts.keys()]
    return found, [refusal for refusal in refused if not any(refusal.product in region.parts for region in found)]


def may_be_cut(graph: Graph, devices: ChunkDevices) -> bool:
    """Tell whether some large product of a program can be done for some rows at a time, at once or in two passes."""
    found, refused = find_products(graph)
    products = [*(each.product for each in found), *(each.product for each in refused if each.passes is not None)]
    return any(map(devices.has, products))


def _second_pass(graph: Graph, first: ProductRegion) -> Iterator[ProductRegion]:
    """Yield the region of a second pass that begins at the same tensor, which stands whole."""
    is_marked = any(node.meta.get(SECOND_PASS) == first.product.name for node in graph.nodes)
    if is_marked and first.product not in first.parts:
        second = _RegionSearch(graph, first.product, first.rows, second=True).region()
        if isinstance(second, ProductRegion):
            yield second


def _is_refusal(found: ProductRegion | Refusal) -> TypeGuard[Refusal]:
    return isinstance(found, Refusal)


def _is_large(node: Node) -> bool:
    """Tell whether a product is large, and larger than the rows that it is made of."""
    value = value_of(node)
    return (
        node.target in PRODUCTS
        and value.shape[0] > 1
        and value.numel() > _numbers(_rows_in(node))
        and value.numel() * value.element_size() >= _FEWEST_BYTES
    )


def _rows_in(product: Node) -> Node:
    """Return the factor that has a row for every row of a product."""
    row: Any = product.args[1 if product.target is aten.addmm.default else 0]
    return row


def _numbers(node: Node) -> int:
    return sum(leaf.numel() for leaf in pytree.tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor))


def _ways(product: Node) -> Iterator[ProductRows]:
    """Yield what may count as a row: one of the product's own, a matrix of a batch, or all rows of one sequence."""
    value = value_of(product)
    yield ProductRows(value.shape[0])
    for user in product.users:
        shape = value_of(user).shape if isinstance(value_of(user), torch.Tensor) else ()
        if len(shape) > 2 and 1 < shape[0] < value.shape[0]:
            yield ProductRows(shape[0])


class _RegionSearch:
    """The search for the region of one product, or for that of a second pass over its rows."""

    def __init__(self, graph: Graph, product: Node, rows: ProductRows, *, second: bool = False) -> None:
        self._nodes = list(graph.nodes)
        self._order = {node: place for place, node in enumerate(self._nodes)}
        self._product, self._rows, self._is_second = product, rows, second
        self._device: torch.device = value_of(product).device
        self._roles: dict[Node, RowPart] = {}

    def region(self) -> ProductRegion | Refusal:
        part = self._part_of_product()
        if part is None:
            return self._refuse(self._product, "is no plain product of rows")
        inside = self._inside(part)
        if isinstance(inside, Refusal):
            return inside
        self._pull(inside)
        ordered = sorted(inside, key=self._order.__getitem__)
        region = ProductRegion(self._product, self._rows, {node: self._roles[node] for node in ordered})
        for node in ordered:
            if any(user not in inside for user in node.users) and value_of(node) is not None:
                if not isinstance(value_of(node), torch.Tensor):
                    return self._refuse(node, "has results that are no rows")
                if not value_of(node).is_contiguous():
                    return self._refuse(node, "has a result that is not contiguous")
                region.kept.append(node)
        return self._placed(region)

    def _part_of_product(self) -> RowPart | None:
        left = _rows_in(self._product)
        if not value_of(self._product).is_contiguous():
            return None
        if self._rows.leading(value_of(left).shape) != 1:
            return None
        if self._product.target in (aten.bmm.default, aten.convolution.default):
            return part_of(self._product, {}, self._rows, self._device)
        return part_of(self._product, {left: RowPart(RowRole.ROWS, rows=self._rows)}, self._rows, self._device)

    def _inside(self, part: RowPart) -> set[Node] | Refusal:
        roles = self._roles
        roles[self._product] = part
        least = _numbers(self._product) // NEARLY
        passing = self._passed_on({self._product: part}, second=False)
        results = _made_for_results(passing, least)
        if self._is_second:
            passing = self._passed_on({node: passing[node] for node in results}, second=True)
        passing = {node: part for node, part in passing.items() if node not in results}
        large = {node for node in passing if _numbers(node) >= least}
        if not large or any(self._roles[node].role is not RowRole.ROWS for node in results):
            return self._refuse(self._product, "is a result of the program")
        inside = set[Node]()
        for node in reversed(list(passing)):
            if node in large or any(user in inside for user in node.users):
                inside.add(node)
        for node in sorted(large, key=self._order.__getitem__):
            for user in node.users:
                if user not in roles:
                    return self._refuse(user, "does not treat every row alone")
                inside.add(user)
        for node in [node for node in inside if not isinstance(value_of(node), torch.Tensor)]:
            inside |= node.users.keys()
        missing = min((node for node in inside if node not in roles), key=self._order.__getitem__, default=None)
        return inside if missing is None else self._refuse(missing, "does not treat every row alone")

    def _passed_on(self, passing: dict[Node, RowPart], *, second: bool) -> dict[Node, RowPart]:
        """Return some nodes and what is made of them by rows, in one of the two passes."""
        for node in self._nodes[self._order[self._product] + 1 :]:
            if node in passing or (node.meta.get(SECOND_PASS) == self._product.name) is not second:
                continue
            if any(source in passing for source in node.all_input_nodes) and not self._begins_another(node):
                found = part_of(node, passing, self._rows, self._device)
                if found is not None:
                    self._roles[node] = found
                    if found.role not in SUMS:
                        passing[node] = found
        return passing

    def _begins_another(self, node: Node) -> bool:
        """Tell whether a node makes the scores of another attention: with a batch for rows, one leads to the next."""
        least = _numbers(self._product) // NEARLY
        return (
            node.target is aten.bmm.default
            and _is_large(node)
            and all(_numbers(source) < least for source in node.all_input_nodes)
        )

    def _pull(self, inside: set[Node]) -> None:
        """Take in what is as large and is made for the region alone."""
        least = _numbers(self._product) // NEARLY
        waiting = sorted(inside, key=self._order.__getitem__)
        while waiting:
            node = waiting.pop()
            for source in self._roles[node].by_rows:
                if source in inside or _numbers(source) < least:
                    continue
                taken = self._taken_with(source, self._roles[node].taken, inside)
                self._roles |= taken
                inside.update(taken)
                waiting.extend(taken)

    def _taken_with(self, source: Node, rows: ProductRows, inside: set[Node]) -> dict[Node, RowPart]:
        """Return how to do a source for some rows, and what else is made of it for the region; empty if it cannot be.

        Such as the sum of every row of what is then scaled by it.
        """
        found: dict[Node, RowPart] = {}
        waiting = [source]
        while waiting:
            node = min(waiting, key=self._order.__getitem__)
            waiting.remove(node)
            part = part_of(node, found, rows, self._device)
            if (
                part is None
                or part.role is not RowRole.ROWS
                or not all(each in part.by_rows for each in found if each in node.all_input_nodes)
            ):
                return {}
            found[node] = part
            for user in node.users:
                if user in inside and node not in self._roles[user].by_rows:
                    return {}
                if user not in inside and user not in waiting:
                    waiting.append(user)
        return found

    def _placed(self, region: ProductRegion) -> ProductRegion | Refusal:
        """Find what must wait for the chunks, which stand where the last node stood, and whether it can.

        What must keep its place cannot, such as the end of a forward pass: what follows it is a second pass.
        """
        inside = region.parts
        touched, written, moved = set[int](), set[int](), dict[Node, None]()
        second: dict[Node, None] = {}
        stays = False
        nodes = region.nodes
        for node in self._nodes[self._order[nodes[0]] : self._order[nodes[-1]] + 1]:
            overwritten = storages_of(*nodes_in(mutated_arguments(node)))
            everything = storages_of(node, *node.all_input_nodes)
            sources = node.all_input_nodes
            if node in inside:
                if stays or any(source in moved or source in second for source in sources):
                    second[node] = None
                if written & everything:
                    return self._refuse(node, "reads what is overwritten before")
                touched |= everything
            elif any(source in inside or source in moved for source in sources):
                stays = stays or keeps_order(node)
                moved[node] = None
                touched |= everything
                written |= overwritten
            elif everything & written or overwritten & touched:
                return self._refuse(node, "overwrites what the rows are made of")
        if second:
            return self._in_two_passes(region, second)
        region.later.extend(moved)
        return region

    def _in_two_passes(self, region: ProductRegion, second: Mapping[Node, None]) -> Refusal:
        least = _numbers(self._product) // NEARLY
        again = tuple(node for node in region.nodes if node not in second and _numbers(node) >= least)
        refusal = self._refuse(next(iter(second)), "needs what is computed of all rows before")
        return replace(refusal, passes=TwoPasses(self._product, tuple(second), again))

    def _refuse(self, node: Node, reason: str) -> Refusal:
        return Refusal(self._product, f"'{node.name}' {reason}")


def _made_for_results(passing: dict[Node, RowPart], least: int) -> set[Node]:
    """Return what the program returns of so many numbers, or its forward pass, and what that is made of."""
    found = set[Node]()
    for node in reversed(passing):
        is_result = any(user.op == "output" or user.target == TURN_BACK for user in node.users)
        if any(user in found for user in node.users) or (is_result and _numbers(node) >= least):
            found.add(node)
    return found
