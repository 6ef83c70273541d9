"""The process that traces and lowers programs for an absent device.

It answers pickled requests from stdin on stdout, and ends with its input.
"""

import logging
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

from lowtide.core.errors import LowtideError, UnsupportedError, one_line
from lowtide.engine.graph import Graph
from lowtide.frameworks.torch.absent_device.messages import (
    Answer,
    InChunks,
    Lower,
    LoweredPlan,
    Open,
    Opened,
    PricedKernels,
)
from lowtide.frameworks.training_steps import Read, ReadInChunks, Step


def main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of user programs goes to stderr
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    server = _Server()
    while True:
        try:
            request = pickle.load(requests)
        except (EOFError, KeyboardInterrupt):
            break
        try:
            answer = _answer(lambda asked=request: server.handle(asked))
        except KeyboardInterrupt:
            break
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of the compiler may still wait


def _answer(handle: Callable[[], Any]) -> Answer:
    try:
        return Answer(value=handle())
    except LowtideError as error:
        return Answer(error=type(error).__name__, message=str(error))
    except Exception as error:
        message = f"the program cannot be lowered: {type(error).__name__}: {one_line(error, 600)}"
        return Answer(error=UnsupportedError.__name__, message=message)


class _Server:
    def __init__(self) -> None:
        self._step: Any = None
        self._mode: Any = None
        self._read_last: tuple[Read, Any] | None = None

    def handle(
        self, request: Open | Lower | InChunks | Read | ReadInChunks
    ) -> Opened | PricedKernels | LoweredPlan | Step | Graph | None:
        if isinstance(request, Open):
            return self._open(request)
        if isinstance(request, Read):
            return self._read(request)
        if isinstance(request, ReadInChunks):
            return self._read_in_chunks(request)
        if isinstance(request, InChunks):
            return self._step.in_chunks(request.form, request.allowed_bytes)
        return self._step.lowered(request.plan, request.allowed_bytes, request.form)

    def _read(self, request: Read) -> Step | None:
        from lowtide.frameworks.torch.absent_device.absent import pretend
        from lowtide.frameworks.torch.internals.fake_tensors import new_fake_mode

        if self._mode is None:
            self._mode = new_fake_mode() if request.device is None else pretend(request.device)
        from lowtide.frameworks.torch.absent_device.recipes import read_step

        found = read_step(request, self._mode)
        if found is None:
            return None
        step, model = found
        self._read_last = (request, model)
        return step

    def _read_in_chunks(self, request: ReadInChunks) -> Graph | None:
        if self._read_last is None or self._read_last[0] != request.step:
            self._read(request.step)
        form = None if self._read_last is None else self._read_last[1].form(request.form, exact=False)
        return None if form is None else form.graph

    def _open(self, request: Open) -> Opened:
        from lowtide.frameworks.torch.absent_device.absent import pretend

        mode = pretend(request.device)
        from lowtide.frameworks.torch.absent_device.build import (
            last_call,
            named_program,
            sent_program,
            with_gradients_kept,
        )
        from lowtide.frameworks.torch.absent_device.lowering import LoweredStep, eager_seconds
        from lowtide.frameworks.torch.capture.capture import capture
        from lowtide.frameworks.torch.reading.read import Reading

        if request.name is not None:
            program = named_program(request.name, mode)
        else:
            program = sent_program(request.content, request.main, mode)
        last_call(program[0])
        reading = Reading(with_gradients_kept(capture(program)))
        if not reading.captured.with_backward:
            raise UnsupportedError(f"{reading.captured.name} has no backward pass; return a scalar loss first")
        persistent = sum(reading.graph.persistent_bytes().values())
        self._step = step = LoweredStep(program, mode, reading.captured.name, request.device, persistent)
        return Opened(
            kernels=step.kernels,
            unplanned=step.unplanned.graph,
            unplanned_peak_bytes=step.unplanned_peak,
            unplanned_seconds=step.unplanned.seconds_on(request.device),
            eager=reading.graph,
            eager_seconds=eager_seconds(reading, request.device),
        )


if __name__ == "__main__":
    main()
