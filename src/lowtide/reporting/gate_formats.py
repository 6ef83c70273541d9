"""What `check` says, for people and for the machines that run it: GitHub, JUnit, SARIF."""

from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import quoteattr

import msgspec

from lowtide.reporting.gate import Finding, Gate
from lowtide.reporting.table import printable


def as_text(gates: Sequence[Gate]) -> str:
    """Return a line a limit."""
    return "\n".join(
        f"{'ok  ' if finding.ok else 'FAIL'} {printable(gate.name)}: {finding.sentence}"
        for gate in gates
        for finding in gate.findings
    )


def as_github(gates: Sequence[Gate]) -> str:
    """Return workflow commands of GitHub Actions: an error for each broken limit, a notice for each that is kept."""
    lines: list[str] = []
    for gate in gates:
        for finding in gate.findings:
            level = "notice" if finding.ok else "error"
            title = _command(f"lowtide {finding.rule}").replace(":", "%3A").replace(",", "%2C")
            lines.append(f"::{level} title={title}::{_command(f'{printable(gate.name)}: {finding.sentence}')}")
    return "\n".join(lines)


def as_junit(gates: Sequence[Gate]) -> str:
    """Return a JUnit report: a suite for each program, a case for each limit."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>"]
    for gate in gates:
        failures = sum(not finding.ok for finding in gate.findings)
        name = quoteattr(f"lowtide {printable(gate.name)}")
        lines.append(f'  <testsuite name={name} tests="{len(gate.findings)}" failures="{failures}">')
        for finding in gate.findings:
            case = f"<testcase classname={quoteattr(printable(gate.name))} name={quoteattr(finding.rule)}"
            if finding.ok:
                lines.append(f"    {case}/>")
            else:
                lines.append(f"    {case}><failure message={quoteattr(finding.sentence)}/></testcase>")
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"])


def as_sarif(gates: Sequence[Gate]) -> str:
    """Return a SARIF 2.1.0 log: a result for each broken limit, a rule for each kind of limit."""
    rules = sorted({finding.rule for gate in gates for finding in gate.findings})
    results = [_result(gate, finding) for gate in gates for finding in gate.findings if not finding.ok]
    driver = {"name": "lowtide", "rules": [{"id": rule, "shortDescription": {"text": _RULES[rule]}} for rule in rules]}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode()


FORMATS: Mapping[str, Callable[[Sequence[Gate]], str]] = {
    "text": as_text,
    "github": as_github,
    "junit": as_junit,
    "sarif": as_sarif,
}
"""Every format by its name."""

_RULES = {
    "max-peak": "The peak of live bytes, persistent buffers apart, stays within a limit.",
    "max-total": "The peak of live bytes with persistent buffers stays within a limit.",
    "max-arena": "The arena, with addresses, stays within a limit.",
    "max-growth": "The peak grows by no more than a share of that of an earlier program.",
}


def _result(gate: Gate, finding: Finding) -> dict[str, object]:
    where = {"logicalLocations": [{"name": printable(gate.name), "kind": "module"}]}
    message = {"text": f"{printable(gate.name)}: {finding.sentence}"}
    return {"ruleId": finding.rule, "level": "error", "message": message, "locations": [where]}


def _command(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
