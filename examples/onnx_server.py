"""A server of many ONNX models in the memory of the largest one: one pool, one lock, JSON over HTTP.

python examples/onnx_server.py planned/*.onnx
curl localhost:8000/MODEL -d '{"x": [[1.0, 2.0]]}'
curl localhost:8000/               # the arena, and the use of its addresses by each model
"""

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.onnx import Pool, Session

TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


class Models:
    """Sessions by file name, run one at a time in one arena."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.pool = Pool()
        self.sessions: dict[str, Session] = {path.stem: self.pool.open(path) for path in paths}
        self._one_at_a_time = threading.Lock()

    def run(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Run a model on lists of numbers and return lists of numbers."""
        session = self.sessions[name]
        types = {value.name: TYPES[value.type] for value in session.get_inputs()}
        feed = {key: np.asarray(content, types[key]) for key, content in given.items()}
        with self._one_at_a_time:
            results = session.run(None, feed)
        return {value.name: result.tolist() for value, result in zip(session.get_outputs(), results, strict=True)}

    def report(self) -> dict[str, Any]:
        """Return the size of the arena in bytes, and the counts of planned and other runs of each model."""
        uses = {name: session.use for name, session in self.sessions.items()}
        return {
            "arena_bytes": self.pool.arena_bytes,
            "models": {
                name: {"recorded": use.recorded, "served": use.served, "fallbacks": dict(use.fallbacks)}
                for name, use in uses.items()
            },
        }


def handler_of(models: Models) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers requests with these models."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, models.report())

        def do_POST(self) -> None:
            name = self.path.strip("/")
            if name not in models.sessions:
                return self._answer(404, {"error": f"no model {name!r}; there are {', '.join(models.sessions)}"})
            try:
                given = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                answer = models.run(name, given)
            except Exception as error:  # no request stops the server
                return self._answer(400, {"error": str(error)})
            return self._answer(200, answer)

        def _answer(self, code: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def serve(paths: Sequence[Path], port: int = 8000) -> ThreadingHTTPServer:
    """Return a server of these models. Start it with `serve_forever`."""
    return ThreadingHTTPServer(("127.0.0.1", port), handler_of(Models(paths)))


if __name__ == "__main__":
    serve([Path(argument) for argument in sys.argv[1:]]).serve_forever()
