"""The search for the region of one product: what is made of it by rows, up to where it is summed up."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.reading.effects import keeps_order, mutated_arguments
from lowtide.frameworks.torch.reading.lowering import nodes_in
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.chunks.parts import part_of
from lowtide.frameworks.torch.rewrites.chunks.products import (
    IN_ITS_OWN_ORDER,
    NEARLY,
    SECOND_PASS,
    ProductRegion,
    Refusal,
    TwoPasses,
    is_large,
    is_of_images,
    layout_of,
    numbers_of,
    rows_in,
)
from lowtide.frameworks.torch.rewrites.chunks.roles import SUMS, Roles, RowPart, RowRole
from lowtide.frameworks.torch.rewrites.chunks.rows import ProductRows

aten = torch.ops.aten


class RegionSearch:
    """The search for the region of one product, or for that of a second pass over its rows."""

    def __init__(
        self, graph: Graph, product: Node, rows: ProductRows, *, second: bool = False, adds: bool = False
    ) -> None:
        self._nodes = list(graph.nodes)
        self._order = {node: place for place, node in enumerate(self._nodes)}
        self._product, self._rows, self._is_second = product, rows, second
        self._of_images = is_of_images(product)
        self._adds = adds and self._of_images
        self._device: torch.device = value_of(product).device
        self._roles: dict[Node, RowPart] = {}
        self._in_own_order = set[Node]()
        """What could be added up in another order than it does it itself."""

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
                if self._roles[node].role is not RowRole.ADDED and not self._lies_in_rows(node):
                    return self._refuse(node, "has a result that is not contiguous")
                region.kept.append(node)
        return self._placed(region)

    def _part_of_product(self) -> RowPart | None:
        left = rows_in(self._product)
        if not self._lies_in_rows(self._product):
            return None
        if self._rows.leading(value_of(left).shape) != 1:
            return None
        if self._product.target in (aten.bmm.default, aten.convolution.default):
            return self._part_of(self._product, {})
        return self._part_of(self._product, {left: RowPart(RowRole.ROWS, rows=self._rows)})

    def _lies_in_rows(self, node: Node) -> bool:
        """Tell whether rows lie one after the other in memory, each in one stretch; channels may be innermost."""
        value = value_of(node)
        return value.is_contiguous() or (self._of_images and layout_of(value) is not None)

    def _inside(self, part: RowPart) -> set[Node] | Refusal:
        roles = self._roles
        roles[self._product] = part
        least = numbers_of(self._product) // NEARLY
        passing = self._passed_on({self._product: part}, second=False)
        results = _made_for_results(passing, least)
        if self._is_second:
            passing = self._passed_on({node: passing[node] for node in results}, second=True)
        passing = {node: part for node, part in passing.items() if node not in results}
        large = {node for node in passing if numbers_of(node) >= least}
        if not large or any(self._roles[node].role is not RowRole.ROWS for node in results):
            return self._refuse(self._product, "is a result of the program")
        inside = set[Node]()
        for node in reversed(list(passing)):
            if node in large or any(user in inside for user in node.users):
                inside.add(node)
        for node in sorted(large, key=self._order.__getitem__):
            for user in node.users:
                if user not in roles:
                    return self._refuse(user, self._what_it_does(user))
                inside.add(user)
        for node in [node for node in inside if not isinstance(value_of(node), torch.Tensor)]:
            inside |= node.users.keys()
        missing = min((node for node in inside if node not in roles), key=self._order.__getitem__, default=None)
        return inside if missing is None else self._refuse(missing, self._what_it_does(missing))

    def _passed_on(self, passing: dict[Node, RowPart], *, second: bool) -> dict[Node, RowPart]:
        """Return some nodes and what is made of them by rows, in one of the two passes."""
        for node in self._nodes[self._order[self._product] + 1 :]:
            if node in passing or (node.meta.get(SECOND_PASS) == self._product.name) is not second:
                continue
            if any(source in passing for source in node.all_input_nodes) and not self._begins_another(node):
                found = self._part_of(node, passing)
                if found is not None:
                    self._roles[node] = found
                    if found.role not in SUMS:
                        passing[node] = found
        return passing

    def _part_of(self, node: Node, roles: Roles) -> RowPart | None:
        part = part_of(node, roles, self._rows, self._device, images=self._of_images)
        if part is None or self._adds or not part.adds_up:
            return part
        self._in_own_order.add(node)
        return None

    def _what_it_does(self, node: Node) -> str:
        return IN_ITS_OWN_ORDER if node in self._in_own_order else "does not treat every row alone"

    def _begins_another(self, node: Node) -> bool:
        """Tell whether a node makes the scores of another attention: with a batch for rows, one leads to the next.

        A network has all of them.
        """
        least = numbers_of(self._product) // NEARLY
        return (
            node.target is aten.bmm.default
            and not self._adds
            and is_large(node)
            and all(numbers_of(source) < least for source in node.all_input_nodes)
        )

    def _pull(self, inside: set[Node]) -> None:
        """Take in what is as large and is made for the region alone."""
        least = numbers_of(self._product) // NEARLY
        waiting = sorted(inside, key=self._order.__getitem__)
        while waiting:
            node = waiting.pop()
            for source in self._roles[node].by_rows:
                if source in inside or numbers_of(source) < least:
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
            part = part_of(node, found, rows, self._device, images=self._of_images)
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
        """Say what would be computed again: of a network all of it, since its small results are many."""
        least = 0 if self._adds else numbers_of(self._product) // NEARLY
        again = tuple(node for node in region.nodes if node not in second and numbers_of(node) >= least)
        refusal = self._refuse(next(iter(second)), "needs what is computed of all rows before")
        return replace(refusal, passes=TwoPasses(self._product, tuple(second), again))

    def _refuse(self, node: Node, reason: str) -> Refusal:
        return Refusal(self._product, f"'{node.name}' {reason}")


def _made_for_results(passing: dict[Node, RowPart], least: int) -> set[Node]:
    """Return what the program returns of so many numbers, or its forward pass, and what that is made of."""
    found = set[Node]()
    for node in reversed(passing):
        is_result = any(user.op == "output" or user.target == TURN_BACK for user in node.users)
        if any(user in found for user in node.users) or (is_result and numbers_of(node) >= least):
            found.add(node)
    return found
