"""Output formats of `check`."""

from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import quoteattr

import msgspec

from lowtide.reporting.gate import Finding, Gate
from lowtide.reporting.table import printable


def as_text(gates: Sequence[Gate]) -> str:
    return "\n".join(
        f"{'ok  ' if finding.ok else 'FAIL'} {printable(gate.name)}: {finding.sentence}"
        for gate in gates
        for finding in gate.findings
    )


def as_github(gates: Sequence[Gate]) -> str:
    """Return an error of GitHub Actions per exceeded limit, a notice per other limit."""
    lines: list[str] = []
    for gate in gates:
        for finding in gate.findings:
            level = "notice" if finding.ok else "error"
            title = _command(f"lowtide {finding.rule}").replace(":", "%3A").replace(",", "%2C")
            lines.append(f"::{level} title={title}::{_command(f'{printable(gate.name)}: {finding.sentence}')}")
    return "\n".join(lines)


def as_junit(gates: Sequence[Gate]) -> str:
    """Return a JUnit report: one suite per program, one case per limit."""
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
    """Return a SARIF 2.1.0 log: one result per exceeded limit, one rule per kind of limit."""
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

_RULES = {
    "max-peak": "Peak memory without persistent buffers stays within a limit.",
    "max-total": "Peak memory with persistent buffers stays within a limit.",
    "max-arena": "The arena (memory with addresses) stays within a limit.",
    "max-growth": "Peak memory grows by at most a given share over an earlier program.",
}


def _result(gate: Gate, finding: Finding) -> dict[str, object]:
    where = {"logicalLocations": [{"name": printable(gate.name), "kind": "module"}]}
    message = {"text": f"{printable(gate.name)}: {finding.sentence}"}
    return {"ruleId": finding.rule, "level": "error", "message": message, "locations": [where]}


def _command(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
