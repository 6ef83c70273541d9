"""The parts of a program that can be done for some rows at a time: from a large product to where it is summed up."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.reading.effects import keeps_order, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.chunks.parts import part_of
from lowtide.frameworks.torch.rewrites.chunks.roles import SUMS, RowPart, RowRole
from lowtide.frameworks.torch.rewrites.chunks.rows import ProductRows

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)
"""What makes large results of smaller operands."""
_FEWEST_BYTES = 1 << 20
"""Smaller products need little, and are many."""
_NEARLY = 2
"""What has at least so large a part of a product's numbers is as much of a burden as the product."""
SECOND_PASS = "second_pass_of"
"""The mark of nodes of a second pass over the rows of a product, by its name: they are no part of its region."""
_MOST_REFUSED = 8
"""So many products are looked at without success: the largest may be a sum over the rows of the one that counts."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductRegion:
    """A product and what is computed of it, as far as that is as large or sums it up."""

    rows: ProductRows
    parts: dict[Node, RowPart]
    """All nodes in program order, and how each is done for some rows."""
    kept: list[Node] = field(default_factory=list[Node])
    """The nodes that others read."""
    later: list[Node] = field(default_factory=list[Node])
    """Other nodes before the last of the region, which need some of its results."""

    @property
    def product(self) -> Node:
        """The product itself."""
        return next(node for node in self.parts if node.target in PRODUCTS)

    @property
    def nodes(self) -> list[Node]:
        """All nodes, in program order; the chunks stand where the last one stood."""
        return list(self.parts)

    def having(self, *roles: RowRole) -> list[Node]:
        """Return the nodes in which the rows lie in one of some ways, in program order."""
        return [node for node, part in self.parts.items() if part.role in roles]

    @property
    def shape(self) -> torch.Size:
        """As many rows as there are, and one."""
        return torch.Size((self.rows.count, 1))


@dataclass(frozen=True, slots=True, eq=False)
class TwoPasses:
    """Nodes that could be done for some rows at a time if what needs something of all rows came in a second pass."""

    second: tuple[Node, ...]
    """The nodes of the second pass."""
    again: tuple[Node, ...]
    """What is as large as the product before, and would be computed again for them; both in program order."""

    @property
    def readers(self) -> list[str]:
        """The names of the nodes that would read what is computed again."""
        again = set(self.again)
        return [node.name for node in self.second if not again.isdisjoint(node.all_input_nodes)]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A large product that is left whole, and why."""

    product: Node
    reason: str
    passes: TwoPasses | None = None
    """How it can be cut all the same, for the time that it takes."""


def find_products(graph: Graph) -> tuple[list[ProductRegion], list[Refusal]]:
    """Return the regions around the largest products of a program, and the products that are left whole.

    A region holds all that is as large as its product and made of it, all between, and what others make of that: for
    each row alone, or summed over all rows. O(nodes and edges) for each product.
    """
    found: list[ProductRegion] = []
    refused: list[Refusal] = []
    products = sorted(filter(_is_large, graph.nodes), key=lambda node: -_numbers(node))
    for product in products:
        in_vain = sum(refusal.passes is None for refusal in refused)
        if in_vain == _MOST_REFUSED or (found and _numbers(product) * _NEARLY < _numbers(found[0].product)):
            break
        if any(product in region.parts for region in found):
            continue
        made = [_RegionSearch(graph, product, rows).region() for rows in _ways(product)]
        regions = [region for region in made if isinstance(region, ProductRegion)]
        taken = {node for region in found for node in region.parts}
        if not regions:
            refused.append(min(filter(_is_refusal, made), key=lambda refusal: refusal.passes is None))
        elif not taken & regions[0].parts.keys():
            found.append(regions[0])
    return found, [refusal for refusal in refused if not any(refusal.product in region.parts for region in found)]


def may_be_cut(graph: Graph) -> bool:
    """Tell whether some large product of a program can be done for some rows at a time, at once or in two passes."""
    found, refused = find_products(graph)
    return bool(found) or any(refusal.passes is not None for refusal in refused)


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
    """The search for the region of one product."""

    def __init__(self, graph: Graph, product: Node, rows: ProductRows) -> None:
        self._nodes = list(graph.nodes)
        self._order = {node: place for place, node in enumerate(self._nodes)}
        self._product, self._rows = product, rows
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
        region = ProductRegion(self._rows, {node: self._roles[node] for node in ordered})
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
            return part_of(self._product, {}, self._rows)
        return part_of(self._product, {left: RowPart(RowRole.ROWS, rows=self._rows)}, self._rows)

    def _inside(self, part: RowPart) -> set[Node] | Refusal:
        roles = self._roles
        roles[self._product] = part
        passing = {self._product: part}
        for node in self._nodes[self._order[self._product] + 1 :]:
            if any(source in passing for source in node.all_input_nodes) and not self._begins_another(node):
                found = part_of(node, passing, self._rows)
                if found is not None:
                    roles[node] = found
                    if found.role not in SUMS:
                        passing[node] = found
        least = _numbers(self._product) // _NEARLY
        large = {node for node in passing if _numbers(node) >= least}
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

    def _begins_another(self, node: Node) -> bool:
        """Tell whether a node is of a second pass, or makes the scores of another attention.

        With a batch for rows, one attention leads to the next.
        """
        if node.meta.get(SECOND_PASS) == self._product.name:
            return True
        least = _numbers(self._product) // _NEARLY
        return (
            node.target is aten.bmm.default
            and _is_large(node)
            and all(_numbers(source) < least for source in node.all_input_nodes)
        )

    def _pull(self, inside: set[Node]) -> None:
        """Take in what is as large and is made for the region alone."""
        least = _numbers(self._product) // _NEARLY
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
            part = part_of(node, found, rows)
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
        least = _numbers(self._product) // _NEARLY
        again = tuple(node for node in region.nodes if node not in second and _numbers(node) >= least)
        refusal = self._refuse(next(iter(second)), "needs what is computed of all rows before")
        return replace(refusal, passes=TwoPasses(tuple(second), again))

    def _refuse(self, node: Node, reason: str) -> Refusal:
        return Refusal(self._product, f"'{node.name}' {reason}")


def outside(region: ProductRegion) -> list[Node]:
    """Return the nodes that a region reads and that others make, each once."""
    sources: Mapping[Node, None] = dict.fromkeys(source for node in region.parts for source in node.all_input_nodes)
    return [source for source in sources if source not in region.parts]
