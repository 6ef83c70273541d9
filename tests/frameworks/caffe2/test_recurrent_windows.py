"""Links and initial states of several rows agree with Caffe2.

Recorded by tests/oracles/record_caffe2_windows.py.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowtide
from lowtide.caffe2 import Argument, Caffe2Model, NetDef, memonger, run_once
from lowtide.core.errors import LowtideError
from lowtide.frameworks.caffe2.nets.load import read_net

DATA = Path(__file__).parents[2] / "data" / "caffe2_windows.json.gz"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))


def _array(plain: list[Any]) -> np.ndarray:
    kind, shape, content = plain
    return np.frombuffer(bytes.fromhex(content), kind).reshape(shape)


def _case(record: dict[str, Any]) -> tuple[NetDef, dict[str, np.ndarray]]:
    net = read_net(bytes.fromhex(record["net"]), "net")
    return net, {blob: _array(plain) for blob, plain in record["inputs"].items()}


def _setting(net: NetDef, name: str) -> Argument:
    return next(argument for argument in net.op[0].arg if argument.name == name)


def test_all_rows_are_those_of_caffe2() -> None:
    """A write to one link is visible in another link to the same row."""
    kinds: Counter[str] = Counter()
    for record in RECORDS:
        net, inputs = _case(record)
        found = run_once(net, inputs, net.external_output).results
        for blob, plain in record["results"].items():
            expected = _array(plain)
            assert found[blob].shape == expected.shape
            np.testing.assert_allclose(found[blob], expected, rtol=1e-4, atol=1e-6, err_msg=blob)
        kinds["as text"] += len(_setting(net, "step_net").s) > 0
        kinds[f"window {_setting(net, 'link_window').ints[2]}"] += 1
        begin = inputs["h_begin"].shape
        kinds[f"{len(begin)} dimensions" if len(begin) < 3 else f"{begin[0]} rows"] += 1
    assert {"as text", *(f"window {k}" for k in range(1, 5))} <= set(kinds)
    assert {"1 dimensions", "2 dimensions", "1 rows", "2 rows", "3 rows"} <= set(kinds)


def test_their_shapes_are_inferred_inside_and_outside() -> None:
    for record in RECORDS:
        net, inputs = _case(record)
        model = Caffe2Model(net, shapes=inputs, parameters=["w", "b"])
        sizes = model.blob_sizes()
        assert all(sizes[blob] == _array(plain).nbytes for blob, plain in record["results"].items())
        (inner,) = model.graph.subgraphs.values()
        by_name = dict(zip(inner.buffer_names, inner.sizes.tolist(), strict=True))
        window = _setting(net, "link_window").ints[2]
        row = inputs["x"][0].nbytes
        assert (by_name["last"], by_name["by_batch"], by_name["h_back"]) == (window * row, window * row, row)
        assert not inner.unmodeled


def test_such_a_net_is_planned_shared_and_measured() -> None:
    for record in RECORDS[:10]:
        net, inputs = _case(record)
        model = Caffe2Model(net, shapes=inputs)
        assert model.measure(lowtide.minimize(model.graph).plan).outputs_equal
        assert memonger.verify_graph_equality(net, memonger.optimize_interference(net, []).net)


@pytest.mark.parametrize(
    ("name", "values"), [("link_window", [1, 1]), ("link_window", [1, 0, 1, 1, 1]), ("link_offset", [0, 0, -1, 0, 1])]
)
def test_links_that_do_not_fit_are_one_line(name: str, values: list[int]) -> None:
    net, inputs = _case(RECORDS[0])
    _setting(net, name).ints = values
    with pytest.raises(LowtideError, match="link") as refused:
        run_once(net, inputs, net.external_output)
    assert "\n" not in str(refused.value)
