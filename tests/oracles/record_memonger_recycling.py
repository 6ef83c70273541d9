r"""Record which nets memonger's C++ part makes: in one pass, for dag nets, and of gradients with sizes and without.

It takes the nets of tests/data/caffe2_runs.json.gz; see record_caffe2_runs.py for the environment. Networkx besides:

    caffe2/bin/pip install networkx
    caffe2/bin/python tests/oracles/record_memonger_recycling.py tests/data

A record holds, by net and by way, the net that memonger made, or null where it fails.
"""

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any


class Wrapped:
    """A NetDef as memonger takes it."""

    def __init__(self, net: Any) -> None:
        self._net = net

    def Proto(self) -> Any:  # noqa: N802
        """Return the NetDef."""
        return self._net


def main(folder: Path) -> None:
    """Write the records."""
    net_def: Any = importlib.import_module("caffe2.proto.caffe2_pb2").NetDef
    memonger: Any = importlib.import_module("caffe2.python.memonger")
    records: dict[str, dict[str, str | None]] = {}
    for run in json.loads(gzip.decompress((folder / "caffe2_runs.json.gz").read_bytes())):
        net: Any = net_def.FromString(bytes.fromhex(run["net"]))
        losses = [blob for blob in net.external_output if blob.startswith("loss")]
        kept = set(net.external_output) - set(losses)
        shapes = {**run["shapes"], **{blob: shape for blob, (_, shape, _) in run["inputs"].items()}}
        ways: dict[str, tuple[Any, ...]] = {
            "fast": (memonger.optimize_inference_fast, net, [*net.external_input, *net.external_output])
        }
        if losses:
            gradients = memonger.share_grad_blobs, Wrapped(net), losses, kept, "", None
            for activations in (False, True):
                for sized in (False, True):
                    way = f"gradients{' activations' * activations}{' sizes' * sized}"
                    ways[way] = (*gradients, activations, shapes if sized else {})
        else:
            ways["dag"] = (memonger.optimize_inference_for_dag, Wrapped(net), net.external_input[:1])
        records[run["name"]] = {}
        for way, (work, *arguments) in ways.items():
            try:
                records[run["name"]][way] = work(*arguments).SerializeToString().hex()
            except AssertionError:  # it found its own net to be wrong
                records[run["name"]][way] = None
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(found)}" for name, found in records.items())
    (folder / "memonger_recycling.json.gz").write_bytes(gzip.compress(f"{{\n{lines}\n}}\n".encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
