r"""Record what TensorFlow's own memory optimizer (Grappler) makes of whole graphs, as GraphDefs.

    tensorflow/bin/pip install tensorflow-cpu==2.21.0
    PYTHONPATH=. tensorflow/bin/python tests/oracles/record_grappler_graphs.py tests/data/grappler_graphs.json.gz

Unlike record_grappler.py it keeps the graph as it was given, nodes in their order: that order decides what triggers of
recomputation wait for. A record holds the graph (binary, base 64), the level, the scope, and the nodes afterwards.
"""

import base64
import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

from tests.oracles.record_grappler import HUGE, NETWORKS, add_random_nodes, cluster_of, hint, meta_of, network, optimize


def main(path: str) -> None:
    """Write all records."""
    records = [_record(f"random {seed}", _random(seed, level), level) for level in LEVELS for seed in range(300, 325)]
    records += [_record(name, network(name), "recomputation") for name in NETWORKS]
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    Path(path).write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


LEVELS = ("recomputation", "manual")


def _random(seed: int, level: str) -> Any:
    import tensorflow as tf

    rng = random.Random(seed)
    graph = tf.Graph()
    with graph.as_default(), tf.device("/device:GPU:0"):
        add_random_nodes(tf, rng, sums=False)
    if level == "manual":
        hint(graph, rng, "recompute")
    return graph


def _record(name: str, graph: Any, level: str) -> dict[str, Any]:
    meta = meta_of(graph)
    result = optimize(meta, level, "gradients/", cluster_of(HUGE, "GPU"))
    return {
        "name": name,
        "level": level,
        "graph": base64.b64encode(graph.as_graph_def(add_shapes=True).SerializeToString()).decode(),
        "result": [[node.name, node.op, list(node.input)] for node in sorted(result.node, key=lambda node: node.name)],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
