"""The code that rehearsals of a step have executed, so that only values that it names are guarded."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from lowtide.core.collection import without_collection
from lowtide.frameworks.torch.capture.state.names import is_followed_file


class NewCodeError(BaseException):
    """Raised before code runs that no rehearsal has executed. No `except Exception` of the user catches it."""


class ExecutedCode:
    """Code objects outside of libraries that ran in rehearsals."""

    def __init__(self) -> None:
        self._seen: dict[int, CodeType] = {}
        """All code by `id`, also that of libraries; references keep each `id` unique."""

    def __bool__(self) -> bool:
        """Return whether a rehearsal was recorded."""
        return bool(self._seen)

    def __contains__(self, code: CodeType) -> bool:
        """Return whether code ran."""
        return id(code) in self._seen

    @contextmanager
    def recorded(self, *, refuses_new: bool) -> Generator[None]:
        """Record the code that runs in this context, or raise NewCodeError before new code runs.

        The garbage collector is off, since it runs code that the step does not call.
        """
        seen, earlier, new = self._seen, sys.gettrace(), list[CodeType]()

        def trace(frame: FrameType, event: Any, argument: Any) -> Any:
            code = frame.f_code
            if id(code) not in seen:
                path = code.co_filename
                if refuses_new and path != "<string>" and is_followed_file(path):
                    new.append(code)
                    raise NewCodeError
                seen[id(code)] = code
            return None if earlier is None else earlier(frame, event, argument)

        with without_collection():
            sys.settrace(trace)
            try:
                yield
            finally:
                sys.settrace(earlier)
        if new:  # a finalizer ran it, where Python ignores errors
            raise NewCodeError
