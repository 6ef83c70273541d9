"""A host named on the command line: buffers visit it, the report says what that costs, bad values are refused."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import Command, Finished

USAGE = 2
FAST_HOST = ("--host-bandwidth", "200GB/s")
BOTH = ("--allow", "reorder,share,recompute,offload")


def planned(done: Finished) -> dict[str, Any]:
    assert (done.code, done.complaints) == (0, []), done.stderr
    return json.loads(done.stdout)


def test_a_fast_host_takes_buffers_and_costs_no_more_than_running_again(
    lowtide: Command, programs: str, tmp_path: Path
) -> None:
    model, budget, out = f"{programs}:deep", ("--budget", "60%"), tmp_path / "p.plan.json"
    alone = planned(lowtide("plan", model, *budget, "--allow", "reorder,share,recompute", "--json"))
    both = planned(lowtide("plan", model, *budget, *BOTH, *FAST_HOST, "-o", out, "--json"))
    assert alone["offloaded_bytes"] == alone["hidden_seconds"] == alone["stall_seconds"] == 0
    assert both["offloaded_bytes"] > 0
    assert both["hidden_seconds"] > 0
    assert both["stall_seconds"] <= both["extra_cost"] <= alone["extra_cost"]
    assert lowtide("verify", out, model, *FAST_HOST).code == 0


def test_the_page_for_people_says_what_is_copied_and_what_waits(
    lowtide: Command, programs: str, tmp_path: Path
) -> None:
    arguments = [f"{programs}:deep", "--budget", "60%", "--allow", "offload,share,reorder", *FAST_HOST]
    for verb in (["plan"], ["optimize", "-o", tmp_path / "o.plan.json"]):
        done = lowtide(*verb, *arguments)
        assert done.code == 0
        assert "offloaded" in done.stdout
        assert "compute waits" in " ".join(done.stdout.split())
        percent = float(done.stdout.split(" of the baseline in cpu")[0].split("(")[-1])
        assert percent <= 0.6


def test_weights_that_do_not_fit_stay_on_the_host_as_the_next_command_of_fits_plans(
    lowtide: Command, tmp_path: Path
) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(6)))
    torch.export.save(torch.export.export(model, (torch.ones(1, 128),)), tmp_path / "m.pt2")
    fit = lowtide("fits", tmp_path / "m.pt2", "--device", "256KiB", *FAST_HOST)
    assert fit.code == 0
    command = shlex.split(fit.stdout.split("  next ")[1])
    done = lowtide(*command[1:3], "-o", tmp_path / "m.plan.json", *command[5:])
    assert done.code == 0
    assert "of parameters, copied to the device for each use" in done.stdout


def test_a_full_host_takes_nothing(lowtide: Command, programs: str) -> None:
    arguments = [f"{programs}:deep", "--budget", "60%", *BOTH, *FAST_HOST, "--host-capacity", "0", "--json"]
    assert planned(lowtide("plan", *arguments))["offloaded_bytes"] == 0


def test_a_plan_with_a_host_is_for_that_host_and_no_other(lowtide: Command, graph_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.plan.json"
    assert lowtide("plan", graph_file, *FAST_HOST, "-o", out).code == 0
    assert lowtide("verify", out, graph_file, *FAST_HOST).code == 0
    for options in ([], ["--host-bandwidth", "100GB/s"], [*FAST_HOST, "--host-capacity", "1GiB"]):
        done = lowtide("verify", out, graph_file, *options)
        assert (done.code, len(done.complaints)) == (3, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host-bandwidth", "25GB"], "bandwidth"),
        (["--host-bandwidth", "fast"], "bandwidth"),
        (["--host-bandwidth", "0GB/s"], "more than 0"),
        (["--host-bandwidth", "9999999999999999999TiB/s"], "more than 0"),
        (["--host-bandwidth", "-1GB/s"], "-1GB"),
        (["--host-capacity", "8GiB"], "--host-bandwidth"),
        ([*FAST_HOST, "--host-capacity", "much"], "size"),
        ([*FAST_HOST, "--host-capacity", "9999999999999999999TiB"], "--host-capacity"),
        (["--curve", *FAST_HOST], "--curve"),
        (["--curve", "--allow", "offload"], "--curve"),
        (["--budget", "60%", "--allow", "offload", "--costs", "eager"], "--host-bandwidth"),
    ],
)
def test_a_host_that_makes_no_sense_is_refused_in_one_line(
    lowtide: Command, graph_file: Path, options: list[str], words: str
) -> None:
    done = lowtide("plan", graph_file, *options)
    assert (done.code, done.stdout, len(done.complaints)) == (USAGE, "", 1)
    assert words in done.complaints[0]


def test_offload_asks_for_prices_where_nobody_has_priced_the_ops(lowtide: Command, onnx_file: Path) -> None:
    model = [onnx_file, "--dim", "batch=4", "--budget", "60%", "--allow", "offload", *FAST_HOST]
    done = lowtide("plan", *model)
    assert (done.code, len(done.complaints)) == (USAGE, 1)
    assert "--costs eager" in done.complaints[0]
    assert lowtide("plan", *model, "--costs", "eager").code in (0, 1)


def test_a_program_with_a_host_goes_to_a_plan_file_only(lowtide: Command, programs: str, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    done = lowtide("optimize", f"{programs}:train", *FAST_HOST, "-o", out)
    assert (done.code, len(done.complaints), out.exists()) == (USAGE, 1, False)
    assert ".plan.json" in done.complaints[0]


def test_copies_are_carried_out_and_measured_where_the_program_is_of_pytorch(lowtide: Command, programs: str) -> None:
    done = planned(lowtide("optimize", f"{programs}:deep", "--budget", "60%", *BOTH, *FAST_HOST, "--measure", "--json"))
    assert done["offloaded_bytes"] > 0
    assert done["outputs_equal"] is True
    assert done["measured_host_bytes"] == done["peak_bytes"]["host"]
    assert abs(done["measured_after_bytes"] - done["peak_bytes"]["cpu"]) <= 0.02 * done["peak_bytes"]["cpu"]
    assert done["measured_after_bytes"] <= 0.61 * done["baseline_peak_bytes"]["cpu"]


def test_copies_of_other_programs_are_not_run(lowtide: Command, onnx_file: Path) -> None:
    done = lowtide("optimize", onnx_file, "--dim", "batch=4", *FAST_HOST, "--measure")
    assert (done.code, len(done.complaints)) == (3, 1)
    assert "cannot copy to a host by a plan; write a plan" in done.complaints[0]
