"""Column sums over chunks are bit-equal to the kernel's sum."""

import pytest
import torch
from torch.fx import Graph, GraphModule

from lowtide.frameworks.torch.rewrites.chunks.product_chunk import ColumnSum


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(2048, 257), (576, 4099), (1016, 50), (300, 128), (16, 700)], ids=str)
@pytest.mark.parametrize("rows", [32, 112, 256, 384])
def test_column_sums_have_the_bits_of_the_kernel(shape: tuple[int, int], rows: int, threads: int) -> None:
    torch.set_num_threads(threads)
    given = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    wanted = given.sum([0], True)
    graph = Graph()
    node = graph.placeholder("sum")
    node.meta["val"] = wanted
    adding = ColumnSum(graph, node)
    parts = given.split(rows)
    for place, part in enumerate(parts):
        adding.add(graph.placeholder(f"part_{place}"), len(part))
    graph.output(adding.total())
    assert torch.equal(GraphModule(torch.nn.Module(), graph)(None, *parts), wanted)
