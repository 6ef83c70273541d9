"""`lowtide verify`: check a saved plan against its program."""

import math
from pathlib import Path

import click

from lowtide.api.opening import open_model
from lowtide.cli import options
from lowtide.cli.output import print_json, print_page
from lowtide.cli.progress import Progress
from lowtide.core.documents import fields_of
from lowtide.core.units import format_by_space, format_bytes
from lowtide.engine.plan import Plan
from lowtide.engine.planning.plan_file import read_plan
from lowtide.engine.search import Certificate, CheckedBound, CheckedClaim, check_certificate, read_proof_file
from lowtide.engine.search.proof_of_cost import CostProof
from lowtide.reporting.claims import ClaimFields
from lowtide.reporting.fields import VerifyFields
from lowtide.reporting.table import printable


@click.command("verify")
@click.argument("plan", type=click.Path(path_type=Path))
@options.model
@options.dims
@options.trust
@options.file("--proof", "proof_path", help="Also check this proof of the lower bound.")
@options.over_budget
@click.option("--strict", is_flag=True, help="Exit with 1 unless every claim of the plan is proven here.")
@options.host_options
@options.json
def command(
    plan: Path,
    model: str,
    proof_path: Path | None,
    strict: bool,
    host_bandwidth: int | None,
    host_capacity: int | None,
    over_budget: bool,
    dims: dict[str, int],
    trust: bool,
    as_json: bool,
) -> int:
    """Check that PLAN computes the same as MODEL within the memory it states, and which of its claims are proven.

    If the plan was made with a host, give the same host. A plan that is marked as over its budget fails, unless
    --allow-over-budget is given.
    """
    with Progress() as progress:
        progress(f"reading {model}")
        opened = open_model(model, dims, options.host_of(host_bandwidth, host_capacity), trust=trust)
        progress(f"verifying {plan}")
        form, loaded = read_plan(plan, opened, over_budget=over_budget)
        proof = None
        if proof_path is not None:
            progress(f"checking {proof_path}")
            proof = read_proof_file(proof_path)
        certificate = check_certificate(form.graph, loaded, proof)
    code = 1 if strict and not all(checked.is_shown for checked in certificate.claims) else 0
    if as_json:
        print_json("verify", _to_json(loaded, certificate, is_proven=proof is not None))
        return code
    click.echo(f"{plan}: valid for {printable(form.graph.name)}, peak {format_by_space(loaded.peak_bytes)}")
    for checked in certificate.claims:
        print_page(f"  {_claimed(checked)}")
    for bound in certificate.bounds:
        print_page(f"{proof_path}: no order needs less than {_confirmed(bound)}")
    if proof is not None and proof.cost is not None and certificate.extra_cost is not None:
        print_page(f"{proof_path}: {_confirmed_cost(proof.cost, certificate.extra_cost)}")
    return code


def _to_json(plan: Plan, certificate: Certificate, *, is_proven: bool) -> VerifyFields:
    shown = [fields_of(ClaimFields, checked.claim, shown=checked.is_shown) for checked in certificate.claims]
    fields = fields_of(VerifyFields, plan, valid=True, claims=shown)
    if is_proven:
        fields["confirmed_bound_bytes"] = {bound.space: bound.confirmed_bytes for bound in certificate.bounds}
        fields["not_rechecked"] = sum(len(bound.not_rechecked) for bound in certificate.bounds)
    if certificate.extra_cost is not None:
        fields["confirmed_extra_cost"] = certificate.extra_cost if math.isfinite(certificate.extra_cost) else None
    return fields


def _claimed(checked: CheckedClaim) -> str:
    claim = checked.claim
    figure = f"{claim.at_least:.6g}" if claim.space is None else format_bytes(int(claim.at_least))
    where = "" if claim.space is None else f" in {printable(claim.space)}"
    how = "proven" if checked.is_shown else "claimed, not proven here"
    return f"{claim.figure}{where} at least {figure}: {claim.sentence} ({how})"


def _confirmed_cost(proof: CostProof, confirmed: float) -> str:
    of_order = "with first runs in the order of the proof"
    if math.isinf(confirmed):
        return f"no plan {of_order} fits {format_bytes(proof.budget_bytes)}, confirmed"
    within = format_bytes(proof.budget_bytes)
    return f"no plan {of_order} within {within} costs less than {confirmed:.6g} extra, confirmed"


def _confirmed(bound: CheckedBound) -> str:
    text = f"{format_bytes(bound.confirmed_bytes)} in {printable(bound.space)}, confirmed"
    if not bound.not_rechecked:
        return text
    most = max(bound.not_rechecked)
    return f"{text}; the claimed {format_bytes(most)} need too much work to check here"
