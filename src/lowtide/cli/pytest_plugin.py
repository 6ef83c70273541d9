"""The pytest plugin: `@pytest.mark.lowtide(max_peak="6GiB")` on a test that returns a program."""

from inspect import signature
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "lowtide(max_peak, max_total, max_arena, against, max_growth, planned, device): check the memory limits of the "
        "program that the test returns, in any form that lowtide.read accepts",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    mark = pyfuncitem.get_closest_marker("lowtide")
    if mark is None:
        return None
    from lowtide.api.opening import open_model
    from lowtide.reporting.gate import check_runs, read_limits
    from lowtide.reporting.gate_formats import as_text

    names = ("max_peak", "max_total", "max_arena", "max_growth", "against", "planned", "device")
    unknown = sorted(mark.kwargs.keys() - set(names))
    if mark.args or unknown:
        pytest.fail(f"the mark lowtide takes {', '.join(names)} by name", pytrace=False)
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in signature(pyfuncitem.obj).parameters}
    program = pyfuncitem.obj(**arguments)
    if program is None:
        pytest.fail(
            "a test with the mark lowtide returns the program to check, in a form that lowtide.read accepts",
            pytrace=False,
        )
    against = mark.kwargs.get("against")
    programs = [program] if against is None else [program, against]
    runs = [open_model(each, device=mark.kwargs.get("device")).as_it_runs for each in programs]
    gate = check_runs(runs, read_limits(mark.kwargs), planned=mark.kwargs.get("planned", False))
    if not gate.ok:
        pytest.fail(as_text([gate]), pytrace=False)
    return True
