"""Start and ask the process of `child`."""

import os
import pickle
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING, Any

from lowtide.core.errors import InputError, MalformedInputError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from lowtide.frameworks.torch.absent_device.messages import Answer

_CHILD = "lowtide.frameworks.torch.absent_device.child"
_VARIABLE = "LOWTIDE_ABSENT_DEVICE"
"""Set in the child, which starts no process."""
_ERRORS = {kind.__name__: kind for kind in (UsageError, InputError, MalformedInputError, UnsupportedError)}


class DeviceProcess:
    """A process that sees an absent device and ends with this object."""

    def __init__(self) -> None:
        """Start the process. Raises UsageError within such a process."""
        if _VARIABLE in os.environ:
            raise UsageError(
                "the script plans for a device while it is imported; put its calls under if __name__ == '__main__'"
            )
        folders = [folder or os.getcwd() for folder in sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), _VARIABLE: "1"}
        command = [sys.executable, "-m", _CHILD, *sys.argv[1:]]  # the main script, imported there, may read these
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=-1
        )
        self._end = weakref.finalize(self, _kill, self._child)

    def ask(self, request: object) -> Any:
        """Return the answer. Raises the process's error, or UnsupportedError if it ended."""
        requests, answers = self._child.stdin, self._child.stdout
        assert requests is not None and answers is not None  # noqa: PT018, S101
        try:
            pickle.dump(request, requests, pickle.HIGHEST_PROTOCOL)
            requests.flush()
            answer: Answer = pickle.load(answers)
        except (EOFError, BrokenPipeError):
            code = self._child.wait()
            raise UnsupportedError(f"the process that plans for an absent device ended with code {code}") from None
        except BaseException:
            self._end()
            raise
        if answer.error is None:
            return answer.value
        raise _ERRORS.get(answer.error, UnsupportedError)(answer.message)


def _kill(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
