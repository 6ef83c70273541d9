"""Measured figures as fields of a JSON object."""

from typing import TypedDict

from lowtide.engine.planning.measured import Measurement, OutputsVerdict, StepTimes


class MeasuredFields(TypedDict, total=False):
    """Measured figures of `lowtide optimize --measure`."""

    measured_before_bytes: int
    measured_after_bytes: int
    outputs_equal: bool
    outputs: OutputsVerdict
    largest_difference: float
    own_difference: float
    outputs_near: bool
    measured_original_bytes: int
    measured_host_bytes: int
    measured_times: StepTimes
    measured_extra_time: float


def measured_to_json(measured: Measurement | None) -> MeasuredFields:
    """Return the fields; empty if nothing was measured."""
    if measured is None:
        return {}
    fields: MeasuredFields = {
        "measured_before_bytes": measured.before_bytes,
        "measured_after_bytes": measured.after_bytes,
        "outputs_equal": measured.outputs_equal,
        "outputs": measured.verdict,
    }
    if measured.own_difference is not None:
        fields["own_difference"] = measured.own_difference
    if measured.largest_difference is not None:
        fields["largest_difference"] = measured.largest_difference
        fields["outputs_near"] = measured.outputs_near
    if measured.original_bytes is not None:
        fields["measured_original_bytes"] = measured.original_bytes
    if measured.host_bytes is not None:
        fields["measured_host_bytes"] = measured.host_bytes
    if measured.times is not None:
        fields["measured_times"] = measured.times
        fields["measured_extra_time"] = measured.times.extra_time
    return fields
