"""Convolution and pooling windows: kernel, stride, padding and dilation out of an op's settings."""

from dataclasses import dataclass

from lowtide.frameworks.caffe2.nets.arguments import Arguments

_LEGACY_CEIL = 3


@dataclass(frozen=True, slots=True)
class Window:
    """A window over height and width."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    dilation: tuple[int, int]
    rounds_up: bool
    """Whether a last window may stand over the border, as pooling in the first Caffe had it."""

    def output(self, height: int, width: int) -> tuple[int, int] | None:
        """Return height and width of what comes out; None where the window does not fit."""
        sizes: list[int] = []
        for axis, size in enumerate((height, width)):
            reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            room = size + self.pads[axis] + self.pads[axis + 2] - reach
            if room < 0 or self.stride[axis] < 1 or self.kernel[axis] < 1:
                return None
            steps = -(-room // self.stride[axis]) if self.rounds_up else room // self.stride[axis]
            if self.rounds_up and steps * self.stride[axis] >= size + self.pads[axis]:
                steps -= 1
            sizes.append(steps + 1)
        return sizes[0], sizes[1]


def window_of(settings: Arguments, height: int, width: int) -> Window:
    """Return the window of an op over an image of this size."""
    if settings.integer("global_pooling"):
        return Window((height, width), (1, 1), (0, 0, 0, 0), (1, 1), rounds_up=False)
    pads = settings.integers("pads")
    if len(pads) != 4:
        pad = settings.integer("pad")
        pads = [settings.integer(f"pad_{side}", pad) for side in "tlbr"]
    return Window(
        _pair(settings, "kernel", 1),
        _pair(settings, "stride", 1),
        (pads[0], pads[1], pads[2], pads[3]),
        _pair(settings, "dilation", 1),
        rounds_up=settings.integer("legacy_pad") == _LEGACY_CEIL,
    )


def _pair(settings: Arguments, name: str, default: int) -> tuple[int, int]:
    several = settings.integers(f"{name}s")
    if len(several) == 2:
        return several[0], several[1]
    one = settings.integer(name, default)
    return settings.integer(f"{name}_h", one), settings.integer(f"{name}_w", one)
