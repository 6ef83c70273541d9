"""Figures measured or reported by frameworks, runtimes and compilers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from lowtide.core.units import format_bytes, percent

OutputsVerdict = Literal["equal", "rounding", "within noise", "different"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Comparison of results and updated state under a plan with those of the unmodified program."""

    outputs_equal: bool
    """Whether they are bit-equal."""
    largest_difference: float | None = None
    """The largest as a share of its tensor's largest number; 1 if something else differs, None if bit-equal."""
    own_difference: float | None = None
    """The same between runs of the unmodified program; 0 if bit-equal, None if one run was enough."""
    outputs_near: bool = False
    """Whether a plan that may round only rounds: the difference is below `sqrt(eps)` of the dtype, or a multiple of the
    change from perturbing inputs by one unit in the last place."""

    @property
    def verdict(self) -> OutputsVerdict:
        """Bit-equal, equal up to allowed rounding, no further off than the program from itself, or different."""
        if self.outputs_equal:
            return "equal"
        if self.outputs_near:
            return "rounding"
        largest, own = self.largest_difference, self.own_difference
        return "within noise" if largest is not None and own and largest <= own else "different"

    def describe(self) -> str:
        """Return whether outputs are equal, and by how much they differ, in one line."""
        if self.outputs_equal:
            return "yes (bit-equal)"
        if self.largest_difference is None:
            return "no"
        differ = f"they differ by at most {self.largest_difference:.1e} of a tensor's largest number"
        own = f"; two runs without the plan differ by {self.own_difference:.1e}" if self.own_difference else ""
        match self.verdict:
            case "rounding":
                return f"up to rounding: {differ}"
            case "within noise":
                return f"as far as the program equals itself: {differ}{own}"
            case _:
                return f"no, {differ}{own}"

    def in_short(self) -> str:
        """Return the verdict in a few words."""
        return {
            "equal": "bit-equal",
            "rounding": "equal up to rounding",
            "within noise": f"no further off than two runs without the plan ({self.largest_difference or 0.0:.1e})",
            "different": "not equal" + (f" (by {self.largest_difference:.1e})" if self.largest_difference else ""),
        }[self.verdict]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Measurement(Agreement):
    """Measured peaks of a program with and without its plan, from the same state."""

    before_bytes: int
    """Peak of live tensor bytes of the unmodified program, without persistent tensors."""
    after_bytes: int
    """The same under the plan."""
    original_bytes: int | None = None
    """Peak of the user's own call, if it differs, as in eager PyTorch."""
    host_bytes: int | None = None
    """Peak of host memory for the plan's copies and state."""
    times: "StepTimes | None" = None
    """Times of both programs; None if they run op by op only to be measured."""
    predicted_bytes: int | None = None
    """Predicted peak under the plan, if known."""
    predicted_extra_time: float | None = None
    """Predicted time that the plan adds, as a share of the time before."""

    @classmethod
    def of(
        cls,
        agreement: Agreement,
        *,
        before_bytes: int,
        after_bytes: int,
        original_bytes: int | None = None,
        host_bytes: int | None = None,
        times: "StepTimes | None" = None,
        predicted_bytes: int | None = None,
    ) -> "Measurement":
        """Return a measurement with the outcome of a comparison."""
        return cls(
            **asdict(agreement),
            before_bytes=before_bytes,
            after_bytes=after_bytes,
            original_bytes=original_bytes,
            host_bytes=host_bytes,
            times=times,
            predicted_bytes=predicted_bytes,
        )

    def lines(self, predicted_extra_time: float | None = None) -> list[str]:
        """Return the figures, one per line."""
        eager = self.original_bytes
        lines = [] if eager is None else [f"measured eager   {format_bytes(eager)}   (your own call, no plan)"]
        lines.append(f"measured before  {format_bytes(self.before_bytes)}")
        lines.append(f"measured after   {format_bytes(self.after_bytes)}")
        if self.times is not None:
            lines.append(f"measured time    {self.times.describe(predicted_extra_time)}")
        if self.host_bytes is not None:
            lines.append(f"host memory      {format_bytes(self.host_bytes)}   (measured)")
        return [*lines, f"outputs equal    {self.describe()}"]

    def __repr__(self) -> str:
        lines = self.lines(self.predicted_extra_time)
        if self.predicted_bytes is not None:
            lines.insert(0, f"predicted peak   {format_bytes(self.predicted_bytes)}   (under the plan)")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Times of runs of a program with and without its plan, in turns."""

    before_seconds: float
    """Median time of the program as the user wrote it."""
    after_seconds: float
    """The same under the plan."""
    noise: float
    """Half the range of the user's run times, as a share of the median."""

    @property
    def extra_time(self) -> float:
        """Time that the plan adds, as a share of the time before."""
        return self.after_seconds / self.before_seconds - 1

    @classmethod
    def of(cls, before: Sequence[float], after: Sequence[float]) -> "StepTimes":
        """Return the times of several runs of each."""
        return cls(before_seconds=median(before), after_seconds=median(after), noise=noise_of(before))

    def describe(self, predicted: float | None) -> str:
        """Return both times, the prediction if given, and the noise."""
        before, after = (f"{seconds * 1e3:.1f} ms" for seconds in (self.before_seconds, self.after_seconds))
        expected = "" if predicted is None else f"predicted {percent(predicted, signed=True)}; "
        noise = f"steps without the plan differ by {percent(self.noise)} each way"
        return f"{before} before, {after} after: {percent(self.extra_time, signed=True)} ({expected}{noise})"


def noise_of(seconds: Sequence[float]) -> float:
    return (max(seconds) - min(seconds)) / 2 / median(seconds)


@dataclass(frozen=True, slots=True)
class Difference:
    """A reason why two figures differ."""

    reason: str
    extra_bytes: int
    """Bytes that only the framework counts; negative if only the model does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Bytes that a framework reserved, compared with the model's peak for the same order."""

    by: str
    """The source: "XLA's buffer assignment"."""
    reserved_bytes: int
    temporary_bytes: int
    """The part of `reserved_bytes` that the framework calls temporary."""
    peak_bytes: int
    """The model's peak in program order, with in-place pairs."""
    differences: tuple[Difference, ...]
    """They sum to `reserved_bytes - peak_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRun:
    """Memory and time of a program in a process of its own."""

    by: str
    """The runtime and its settings."""
    growth_bytes: int | None
    """The most that runs added to resident memory, without weights, inputs and code."""
    resident_bytes: int | None = None
    """The most that the process had resident."""
    predicted_bytes: int | None = None
    """The prediction for `growth_bytes`."""
    otherwise_predicted_bytes: int | None = None
    """The same for other addresses that the system may choose."""
    seconds: float
    """Median time of a run."""
    arena_bytes: int | None = None
    """Bytes reserved for the values of a run, if known."""
    fallbacks: int = 0
    """Runs without their values at planned addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePeaks:
    """Peaks of a program in the order that its runtime chooses."""

    by: str
    """The order: "ONNX Runtime's default order"."""
    before_bytes: int
    """Peak of live tensor bytes of the unmodified program."""
    after_bytes: int
    """The same for the planned program."""
    before_resident_bytes: int
    """Bytes that unmodified runs would add to resident memory, allocator included."""
    after_resident_bytes: int
    """The same for the planned program."""
    unmodeled: tuple[str, ...]
    """Parts that these figures leave out, one phrase each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A program after one level of the framework's own memory optimizer."""

    before_bytes: Mapping[str, int]
    """The framework's estimate of the peak, by device."""
    after_bytes: Mapping[str, int]
    done: Mapping[str, Sequence[str]]
    """Names of the rewritten parts by kind of rewrite, such as "recomputed"."""
    write: Callable[[Path], None]
    """Write the program to a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMemory:
    """Memory of a program compiled into one function, predicted and as the compiler reports it."""

    name: str
    """The program: unmodified or planned."""
    predicted_bytes: int
    """Peak of the model, arguments and results included."""
    total_bytes: int
    """The compiler's figure for arguments, results and temporaries."""
    temp_bytes: int
    """`temp_size_in_bytes` of XLA."""
    argument_bytes: int
    assigned_bytes: int | None
    """Bytes of the compiler's buffer assignment."""
    resident_bytes: int | None
    """Bytes that a call added to its process's resident memory, without arguments."""
