"""The search for what can be done for some rows at a time: the largest products first, each with its region."""

from collections.abc import Iterator, Sequence
from typing import TypeGuard

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.rewrites.chunks.devices import ChunkDevices
from lowtide.frameworks.torch.rewrites.chunks.products import (
    NEARLY,
    SECOND_PASS,
    ProductRegion,
    Refusal,
    is_large,
    is_of_images,
    numbers_of,
)
from lowtide.frameworks.torch.rewrites.chunks.region_search import RegionSearch
from lowtide.frameworks.torch.rewrites.chunks.rows import ProductRows

_MOST_REFUSED = 8
"""So many products are looked at without success: the largest may be a sum over the rows of the one that counts."""


def find_products(graph: Graph, *, adds: bool = False) -> tuple[list[ProductRegion], list[Refusal]]:
    """Return the regions around the largest products of a program, and the products that are left whole.

    A region holds all that is as large as its product and made of it, all between, and what others make of that: for
    each row alone, or summed over all rows. What the program returns, or its forward pass, stands whole in any case, so
    that the region begins behind it. Where what is made of images `adds` up in any order, gradients of the weights of
    convolutions and norms are such sums, too. O(nodes and edges) for each product.
    """
    found: list[ProductRegion] = []
    refused: list[Refusal] = []
    for product in _largest_first(graph, adds=adds):
        in_vain = sum(refusal.passes is None for refusal in refused)
        if in_vain == _MOST_REFUSED or (found and numbers_of(product) * NEARLY < numbers_of(found[0].product)):
            break
        if any(product in region.parts for region in found):
            continue
        made = [RegionSearch(graph, product, rows, adds=adds).region() for rows in _ways(product)]
        regions = [region for region in made if isinstance(region, ProductRegion)]
        if not regions:
            refused.append(min(filter(_is_refusal, made), key=lambda refusal: refusal.passes is None))
            continue
        passes = [regions[0], *_second_pass(graph, regions[0])]
        taken = {node for region in found for node in region.parts}
        found += [region for region in passes if not taken & region.parts.keys()]
    return found, [refusal for refusal in refused if not any(refusal.product in region.parts for region in found)]


def _largest_first(graph: Graph, *, adds: bool) -> Sequence[Node]:
    """Return the large products; of convolutions about as large the first, where its region may be a whole network."""
    products = sorted(filter(is_large, graph.nodes), key=lambda node: -numbers_of(node))
    largest = numbers_of(products[0]) if products else 0

    def is_first(node: Node) -> bool:
        return adds and is_of_images(node) and numbers_of(node) * NEARLY >= largest

    networks = [node for node in graph.nodes if node in products and is_first(node)]
    return [*networks, *(node for node in products if node not in networks)]


def may_be_cut(graph: Graph, devices: ChunkDevices) -> bool:
    """Tell whether some large product of a program can be done for some rows at a time, at once or in two passes."""
    found, refused = find_products(graph)
    products = [*(each.product for each in found), *(each.product for each in refused if each.passes is not None)]
    return any(map(devices.has, products))


def _second_pass(graph: Graph, first: ProductRegion) -> Iterator[ProductRegion]:
    """Yield the region of a second pass that begins at the same tensor, which stands whole."""
    is_marked = any(node.meta.get(SECOND_PASS) == first.product.name for node in graph.nodes)
    if is_marked and first.product not in first.parts:
        second = RegionSearch(graph, first.product, first.rows, second=True).region()
        if isinstance(second, ProductRegion):
            yield second


def _is_refusal(found: ProductRegion | Refusal) -> TypeGuard[Refusal]:
    return isinstance(found, Refusal)


def _ways(product: Node) -> Iterator[ProductRows]:
    """Yield what may count as a row: one of the product's own, a matrix of a batch, or all rows of one sequence."""
    value = value_of(product)
    yield ProductRows(value.shape[0])
    for user in product.users:
        shape = value_of(user).shape if isinstance(value_of(user), torch.Tensor) else ()
        if len(shape) > 2 and 1 < shape[0] < value.shape[0]:
            yield ProductRows(shape[0])
