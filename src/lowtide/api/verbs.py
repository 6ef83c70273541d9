"""The verbs of the command line as functions, with the same names and defaults.

Verbs take any program that `open_model` reads, or a function or module followed by its example inputs.
"""

from pathlib import Path
from typing import Any, Unpack

from lowtide.api.fitting import SizeOptions, fit_program
from lowtide.api.opening import PLAN_FILES, check_annotated, check_output, save_applied
from lowtide.api.optimize import Job, Optimized, Target, optimize_model
from lowtide.api.options import FitOptions, PlanOptions, ReadOptions, check_options, opened, settings_of
from lowtide.api.training_sources import with_inputs
from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import UsageError
from lowtide.core.files import path_of, write_bytes
from lowtide.core.progress import Report, Stage, showing
from lowtide.core.techniques import checked_techniques
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, checked_plan
from lowtide.engine.plan.summary import read_plan_summary
from lowtide.engine.planning.frontier import Frontier
from lowtide.engine.planning.measured import Measurement
from lowtide.engine.planning.plan_best_form import program_frontier
from lowtide.engine.planning.plan_file import read_plan
from lowtide.engine.planning.result import Result
from lowtide.frameworks.training_steps import OptimizerName, PrecisionName
from lowtide.reporting.comparison import Comparison, compare_orders
from lowtide.reporting.difference import ProgramDifference, difference
from lowtide.reporting.fitting import DeviceFit
from lowtide.reporting.fitting_sizes import Axis, FitTable
from lowtide.reporting.inspection import Inspection
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.write import check_page, page
from lowtide.reporting.plan_difference import PlanDifference


def read(program: Any, *inputs: Any, **options: Unpack[ReadOptions]) -> Graph:
    """Read any program as a graph, with the errors of `open_model`."""
    check_options("read", options, ReadOptions)
    return opened(program, inputs, options).graph


def apply(plan: Plan, program: Any, *inputs: Any, **options: Unpack[ReadOptions]) -> Any:
    """Return the program with the plan applied, of the framework's own type: a callable, a ModelProto, a graph.

    `host` is the plan's host. Raises FingerprintError for a plan of another program or host, UnsupportedError if this
    framework cannot apply it, and the errors of `open_model`.
    """
    check_options("apply", options, ReadOptions)
    return opened(program, inputs, options).apply(checked_plan(plan))


def measure(plan: Plan, program: Any, *inputs: Any, **options: Unpack[ReadOptions]) -> Measurement:
    """Run a program with and without the plan, and return the peaks of live tensor bytes.

    Raises the errors of `apply`.
    """
    check_options("measure", options, ReadOptions)
    checked = checked_plan(plan)
    return opened(program, inputs, options).measure(checked)


def plan(program: Any, *inputs: Any, **options: Unpack[PlanOptions]) -> Result:
    """Find the plan with the least peak, or the cheapest one within a budget.

    `program` is anything that `lowtide.open_model` takes; a function or module may be followed by its example
    `inputs`. If chunks of its largest tensors lower the peak, the plan may be for that form (`Result.form`). Options
    are those of `lowtide plan`: `budget` is "8 GiB" with weights and state included, or "70%" of the baseline's peak
    without them. `transient` excludes persistent buffers from a budget in bytes. `allow` names techniques: "reorder",
    "share", "recompute", "offload", "rounding". By default, "reorder" and "share" are used, which cost no time, and
    with a budget also "recompute". `scheduler` restricts the search to one order. `costs` are the graph's own
    ("given"), a profile ("eager", "fused"), or prices. `effort` limits the search: "fast", "balanced" or "max". The
    search ends once a good plan is found; `prove` goes on to raise the bound of its cost.

    A verified plan is returned in every case. `Result.shortfall` has the reason for a missed budget; `Result.claims`
    name the class of plans for each bound. Ctrl-C returns the best plan found. Raises UsageError for a bad call, and
    the errors of `open_model`.

    >>> import lowtide
    >>> builder = lowtide.GraphBuilder("two branches")
    >>> x = builder.add_buffer("x", 10, lowtide.Lifetime.INPUT)
    >>> large = [builder.add_buffer(f"large{k}", 100) for k in range(2)]
    >>> small = [builder.add_buffer(f"small{k}", 1, lowtide.Lifetime.OUTPUT) for k in range(2)]
    >>> grow = [builder.add_op(f"grow{k}", "grow", reads=[x], writes=[large[k]]) for k in range(2)]
    >>> shrink = [builder.add_op(f"shrink{k}", "shrink", reads=[large[k]], writes=[small[k]]) for k in range(2)]
    >>> result = lowtide.plan(builder.build())
    >>> result
    Result('two branches': optimal, peak 211 B -> 112 B)
    >>> [step.op for step in result.plan.steps() if hasattr(step, "op")]
    [0, 2, 1, 3]
    """
    check_options("plan", options, PlanOptions)
    with showing(options.get("progress")) as report:
        report(Stage.READ)
        return opened(program, inputs, options).planned(settings_of(options), report)


minimize = plan
"""The same as `plan`."""


def optimize(
    program: Any,
    *inputs: Any,
    output: str | Path | None = None,
    measure: bool = False,
    level: str | None = None,
    for_this_machine: bool = False,
    target: Target = "any-runtime",
    annotate: bool = False,
    **options: Unpack[PlanOptions],
) -> Optimized:
    """Plan a program, write the planned program to `output`, and measure both if asked.

    `output` has the program's file ending, or `.plan.json[.gz]` for the plan. `level` is a level of the runtime's
    optimizations (ONNX Runtime); `for_this_machine` is its last, for this kind of processor. Other options and errors
    are those of `plan`. Raises UsageError for an unusable output, UnsupportedError if the program cannot be applied or
    measured.
    """
    check_options("optimize", options, PlanOptions)
    path = None if output is None else path_of(output)
    with showing(options.get("progress")) as report:
        report(Stage.READ)
        model, settings = opened(program, inputs, options, path), settings_of(options)
        if annotate:
            check_annotated(model, path)
        job = Job(
            settings=settings,
            output=path,
            measure=measure,
            level=level,
            for_this_machine=for_this_machine,
            target=target,
            annotate=annotate,
        )
        return optimize_model(model, job, report)


def inspect(
    program: Any,
    *inputs: Any,
    in_place: bool = True,
    effort: EffortName = DEFAULT_EFFORT,
    progress: bool | Report = True,
    **options: Unpack[ReadOptions],
) -> Inspection:
    """Return the peak of a program, the tensors alive at it, its lower bound, and all that is not modeled."""
    check_options("inspect", options, ReadOptions)
    with showing(progress) as report:
        report("reading the program")
        graph = opened(program, inputs, options).graph
        return Inspection.of(graph, in_place=in_place, effort=effort, progress=report)


def fits(
    program: Any,
    *inputs: Any,
    device: str | int,
    batch: int | None = None,
    sequence: int | None = None,
    largest: Axis | None = None,
    optimizer: OptimizerName | None = None,
    precision: PrecisionName | None = None,
    **options: Unpack[FitOptions],
) -> DeviceFit | FitTable:
    """Return whether a program fits a device, unmodified or with the cheapest techniques that suffice.

    `device` is the size of its usable memory ("24 GiB"), a name ("h100"; the CUDA context is subtracted), or "mps".
    Techniques are tried in order: "reorder" and "share", "recompute", "rounding" for chunks of PyTorch programs, and
    "offload" with a host. `allow` restricts them; with "rounding", chunks are used where they cost less than
    recomputation.

    For a PyTorch training step, the result is a table by batch size, for eager PyTorch. The step is (`TrainingStep` or
    model, batch), "train.py:function" that returns one, a `config.json` or its folder, the id of a model in the local
    cache of Hugging Face, or a name of timm. It is captured without weights. `batch` fixes the batch size; `largest`
    ("batch" or "sequence") finds the largest size. `sequence` is the tokens per row. `optimizer` is "adamw", "adam",
    "sgd" or "adafactor", `precision` "float32", "bfloat16", "float16" or "amp".
    """
    check_options("fits", options, FitOptions)
    source = with_inputs(program, inputs)
    sizes = SizeOptions(batch=batch, sequence=sequence, largest=largest, optimizer=optimizer, precision=precision)
    allow = options.get("allow")
    with showing(options.get("progress")) as report:
        report(Stage.READ)
        return fit_program(
            source,
            device,
            sizes,
            settings_of(options),
            options.get("dims") or {},
            trust=options.get("trust", False),
            report=report,
            allow=None if allow is None else checked_techniques(allow),
        )


def compare(
    program: Any,
    *inputs: Any,
    in_place: bool = True,
    effort: EffortName = DEFAULT_EFFORT,
    progress: bool | Report = True,
    **options: Unpack[ReadOptions],
) -> Comparison:
    """Return a program's peak under every order, with the lower bound of all orders."""
    check_options("compare", options, ReadOptions)
    with showing(progress) as report:
        report("reading the program")
        model = opened(program, inputs, options)
        return compare_orders(model.graph, model.reserved(), in_place=in_place, effort=effort, progress=report)


def frontier(program: Any, *inputs: Any, **options: Unpack[PlanOptions]) -> Frontier:
    """Plan a program for seven budgets, from the least peak of an order down to the floor.

    Plans use recomputation and are verified. Those that another one matches or beats in peak and extra cost are left
    out. Raises UsageError for a budget, a scheduler or `transient`.
    """
    check_options("frontier", options, PlanOptions)
    if options.get("budget") is not None or options.get("scheduler") is not None or options.get("transient"):
        raise UsageError("a frontier has budgets and orders of its own; leave out budget, transient and scheduler")
    with showing(options.get("progress")) as report:
        report("reading the program")
        return program_frontier(opened(program, inputs, options), settings_of(options), report)


def report(
    program: Any, *inputs: Any, output: str | Path, measure: bool = False, **options: Unpack[PlanOptions]
) -> Path:
    """Plan a program and write a page about the plan to `output` (.html); return the path.

    The page needs no network. With `measure`, the program runs with and without the plan.
    """
    check_options("report", options, PlanOptions)
    path = path_of(output)
    check_page(path)
    with showing(options.get("progress")) as reporter:
        reporter(Stage.READ)
        model, settings = opened(program, inputs, options), settings_of(options)
        if measure:
            model.check_measurable()
        result = model.planned(settings, reporter)
    measured = model.measure(result.plan) if measure else None
    prices = settings.prices(result.graph)
    facts = Facts.of(result.graph, result.plan, prices=prices, result=result, measured=measured, unmodified=model.graph)
    write_bytes(path, page(facts))
    return path


def diff(before: Any, after: Any, **options: Unpack[ReadOptions]) -> ProgramDifference | PlanDifference:
    """Compare two programs, or two plan files, and return how their memory differs.

    Programs are compared without a plan; ops and buffers are matched by name.
    """
    check_options("diff", options, ReadOptions)
    if is_plan_file(before) and is_plan_file(after):
        summaries = read_plan_summary(before), read_plan_summary(after)
        return PlanDifference.of((str(before), str(after)), *summaries)
    first, second = (opened(each, (), options).graph for each in (before, after))
    return difference(first, Plan.baseline(first), second, Plan.baseline(second))


def is_plan_file(source: Any) -> bool:
    return isinstance(source, str | Path) and str(source).endswith(PLAN_FILES)


def save_plan(plan: Plan, path: str | Path, program: Any, **options: Unpack[ReadOptions]) -> None:
    """Write a plan for a program to a plan file (.plan.json[.gz]), which `load_plan` reads.

    Raises UsageError for another file ending, WriteError if the file cannot be written, FingerprintError for a plan of
    another program.

    >>> import lowtide
    >>> builder = lowtide.GraphBuilder("one op")
    >>> y = builder.add_buffer("y", 1024, lowtide.Lifetime.OUTPUT)
    >>> op = builder.add_op("make", "make", writes=[y])
    >>> graph = builder.build()
    >>> lowtide.save_plan(lowtide.plan(graph).plan, "one_op.plan.json", graph)
    >>> lowtide.load_plan("one_op.plan.json", graph).peak_bytes
    {'device': 1024}
    """
    check_options("save_plan", options, ReadOptions)
    target = path_of(path)
    check_output(target)
    save_applied(opened(program, (), options), checked_plan(plan), target)


def load_plan(path: str | Path, program: Any, *, over_budget: bool = False, **options: Unpack[ReadOptions]) -> Plan:
    """Read a plan file that was written for a program and verify it.

    Raises FingerprintError for a plan of another program or host, VerificationError for a wrong plan and, unless
    `over_budget`, one marked infeasible, InputError and subclasses for an unreadable file.
    """
    check_options("load_plan", options, ReadOptions)
    return read_plan(path_of(path), opened(program, (), options), over_budget=over_budget)[1]
