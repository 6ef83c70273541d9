"""The example of a server answers with the models' results, from one arena."""

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from lowtide.frameworks.onnx import model as model_module
from lowtide.frameworks.onnx.running.inputs import random_inputs
from tests.scripts import load_example


def _ask(address: str, content: Any = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(urllib.request.Request(address, body), timeout=30) as answer:
        return json.loads(answer.read())


def test_the_server_answers_with_the_results_of_its_models(
    cases: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two models, three requests each: the stock runtime's results, and runs at planned addresses."""
    monkeypatch.setattr(model_module, "_LEAST_PLACED_BYTES", 0)
    for name in ("conv_net", "views"):
        onnx.save(cases[name].make(), tmp_path / f"{name}.onnx")
    server = load_example("onnx_server").serve(sorted(tmp_path.glob("*.onnx")), port=0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        for name in ("conv_net", "views"):
            model = cases[name].make()
            inputs = random_inputs(model, {})
            stock = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            expected = stock.run(None, inputs)
            for _ in range(3):
                answer = _ask(f"{address}/{name}", {key: array.tolist() for key, array in inputs.items()})
                for result, reference in zip(answer.values(), expected, strict=True):
                    assert np.allclose(result, reference)
        report = _ask(address)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert report["arena_bytes"] > 0
    assert all(use == {"recorded": 1, "served": 2, "fallbacks": {}} for use in report["models"].values())
