"""The releases of frameworks that lowtide is tested with, and what users read about others."""

import re
import warnings
from dataclasses import dataclass

from lowtide.core.errors import UnsupportedError, one_line


@dataclass(frozen=True, slots=True)
class Releases:
    """A framework's tested releases, as (major, minor)."""

    name: str
    oldest: tuple[int, int]
    newest: tuple[int, int]

    def include(self, installed: str) -> bool:
        return self.oldest <= _release(installed) <= self.newest

    def warn(self, installed: str) -> None:
        if not self.include(installed):
            found = installed.partition("+")[0]
            message = f"lowtide is tested with {self.name} {self._range}; {found} is installed"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def unsupported(self, installed: str, error: Exception) -> UnsupportedError:
        """Return the error for an installed version without a needed name."""
        found = installed.partition("+")[0]
        if _release(installed) < self.oldest:
            needed = f"{self.oldest[0]}.{self.oldest[1]}"
            return UnsupportedError(f"lowtide needs {self.name} {needed} or later; {found} is installed")
        reason = one_line(error)
        return UnsupportedError(f"lowtide needs {self.name} {self._range}; {found} is installed ({reason})")

    @property
    def _range(self) -> str:
        oldest, newest = (f"{major}.{minor}" for major, minor in (self.oldest, self.newest))
        return oldest if oldest == newest else f"{oldest} to {newest}"


def _release(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


PYTORCH = Releases("PyTorch", (2, 11), (2, 15))
JAX = Releases("JAX", (0, 10), (0, 12))
ONNX_RUNTIME = Releases("ONNX Runtime", (1, 23), (1, 32))
TENSORFLOW = Releases("TensorFlow", (2, 21), (2, 21))
