"""Write the tables of docs/concepts/comparison.md from benchmarks/RESULTS.md; run it after a benchmark.

Each row names the section that its figure is read from.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "comparison.md"
sys.path.insert(0, str(ROOT / "benchmarks"))

from results import RESULTS, Section, sections_of  # noqa: E402  a script's folder is no package

Row = Mapping[str, str]
AS_IT_IS = "as it is"
"""The program without checkpoints by hand, in the table of large steps."""


@dataclass(frozen=True)
class Compared:
    """A row of the table. `figure` reads the last table of the section with these columns."""

    who: str
    what: str
    section: str
    columns: tuple[str, ...]
    figure: Callable[[Sequence[Row]], str]


def number(cell: str) -> float:
    """Return the first number of a cell."""
    match = re.search(r"-?\d[\d,]*\.?\d*", cell)
    if match is None:
        raise ValueError(f"no number in {cell!r}")
    return float(match[0].replace(",", ""))


def ratios(above: str, below: str, only: Callable[[Row], bool] = bool) -> Callable[[Sequence[Row]], str]:
    """Return what says the range and the median of one column over another, in the rows with both that count."""
    return lambda rows: spread(
        [number(row[above]) / number(row[below]) for row in rows if row[above] and row[below] and only(row)]
    )


def column(name: str) -> Callable[[Sequence[Row]], str]:
    """Return what says the range and the median of a column; cells without a number are passed over."""
    return lambda rows: spread([number(row[name]) for row in rows if re.search(r"\d", row[name])])


def within(name: str, ways: str) -> Callable[[Sequence[Row]], str]:
    """Return what says the range and the median of one column over the lowest share named in another, by model."""

    def figure(rows: Sequence[Row]) -> str:
        lowest: dict[str, tuple[float, float]] = {}
        for row in rows:
            reached, other = lowest.get(row["model"], (inf, inf))
            lowest[row["model"]] = min(reached, number(row[name])), min(other, number(row[ways]))
        return spread([reached / other for reached, other in lowest.values()])

    return figure


def by_hand(rows: Sequence[Row]) -> str:
    """Return what says the cost of plans over that of the checkpoints by hand whose peak they are held to."""
    ratios: list[float] = []
    costs: dict[str, float] = {}
    for row in rows:
        if row["program"] != AS_IT_IS:
            costs[f"peak of {row['program']}"] = number(row["cost"])
        elif row["plan"] in costs:
            ratios.append(number(row["cost"]) / costs[row["plan"]])
    return spread(ratios)


def beside(other: str, name: str, ours: str = "lowtide") -> Callable[[Sequence[Row]], str]:
    """Return what says the range and the median of a column, of one way over another, in programs with both."""

    def figure(rows: Sequence[Row]) -> str:
        ways: dict[str, dict[str, float]] = {}
        for row in rows:
            ways.setdefault(row["program"], {})[row["way"]] = number(row[name])
        return spread([way[ours] / way[other] for way in ways.values() if other in way])

    return figure


def second(name: str) -> Callable[[Sequence[Row]], str]:
    """Return what says the range and the median of the second number of a column."""
    return lambda rows: spread([number(row[name].partition(",")[2]) for row in rows])


def sums(first: str, second: str) -> Callable[[Sequence[Row]], str]:
    """Return what says the sums of two columns."""
    return lambda rows: " against ".join(f"{sum(number(row[name]) for row in rows):.0f}" for name in (first, second))


def spread(values: Iterable[float]) -> str:
    """Return least, median and largest."""
    found = list(values)
    low, middle, high = (f"{value:,.3f}" for value in (min(found), median(found), max(found)))
    return f"{low} to {high}, median {middle} ({len(found)} rows)"


SYSTEMS = (
    Compared(
        "Mesh-TensorFlow, `auto_mtf` LIST",
        "peak of lowtide's order / peak of LIST",
        "Mesh-TensorFlow schedules",
        ("LIST", "lowtide, best"),
        ratios("lowtide, best", "LIST"),
    ),
    Compared(
        "XLA's schedulers for the CPU",
        "peak of lowtide's order / peak of XLA's, one memory model",
        "XLA modules",
        ("XLA's order", "ours"),
        ratios("ours", "XLA's order"),
    ),
    Compared(
        "Caffe2 memonger, searched",
        "bytes of lowtide's order and offsets / bytes of memonger's slots",
        "Caffe2 NetDefs",
        ("memonger, searched", "offsets, our order"),
        ratios("offsets, our order", "memonger, searched"),
    ),
    Compared(
        "PyTorch Inductor's orders",
        "peak of the search / peak of Inductor's best",
        "Inductor's own functions",
        ("search / best",),
        column("search / best"),
    ),
    Compared(
        "TensorFlow Grappler, recomputation",
        "Grappler's own estimate after lowtide's level / after Grappler's",
        "Graphs of TensorFlow",
        ("our level", "Grappler"),
        ratios("our level", "Grappler"),
    ),
)
TODAY = (
    Compared(
        "block checkpoints, Llama and DeepSeek steps",
        "extra time of lowtide's plan / of checkpoints by hand, same peak; simulated for an H100",
        "Large steps, planned for one rank",
        ("program", "plan", "cost"),
        by_hand,
    ),
    Compared(
        "block checkpoints, `activation_memory_budget` and `aot_eager` under Inductor",
        "lowest peak of lowtide (asked: 40 %) / lowest of the others",
        "Everyday training under Inductor",
        ("model", "peak", "least of the others"),
        within("peak", "least of the others"),
    ),
    Compared(
        "Inductor without a budget",
        "step time of lowtide within 70 %, 50 % and 40 % of its peak / its step time",
        "Everyday training under Inductor",
        ("step",),
        column("step"),
    ),
    Compared(
        "`activation_memory_budget`",
        "step time of lowtide / of the largest setting that fits, same budget",
        "Everyday training under Inductor",
        ("step", "torch's budget"),
        ratios("step", "torch's budget"),
    ),
    Compared(
        "`activation_memory_budget`",
        "FLOPs again of lowtide's plan / of torch's, within the same measured peak",
        "Recomputed FLOPs against torch's own budget",
        ("setting", "ratio"),
        column("ratio"),
    ),
    Compared(
        "chunks of the loss by hand, checkpointed",
        "peak of lowtide's step, eager / of the step with 16 chunks",
        "Losses over many classes in PyTorch",
        ("program", "way", "peak"),
        beside("checkpointed chunks", "peak"),
    ),
    Compared(
        "Inductor alone, losses over many classes",
        "step time of lowtide under Inductor / of Inductor, relative to eager",
        "Losses over many classes in PyTorch",
        ("program", "way", "time"),
        beside("Inductor", "time", "lowtide, Inductor"),
    ),
    Compared(
        "Inductor alone, losses over many classes",
        "seconds until the first call is over, with lowtide / without",
        "Losses over many classes in PyTorch",
        ("program", "way", "ready"),
        beside("Inductor", "ready", "lowtide, Inductor"),
    ),
    Compared(
        "`jax.checkpoint` around every block",
        "temp bytes of `lowtide.jax.fit` / of checkpoints, least-memory scheduler",
        "JAX",
        ("checkpoint, least memory", "`lowtide.jax.fit`"),
        ratios("`lowtide.jax.fit`", "checkpoint, least memory"),
    ),
    Compared(
        "XLA's flag for a least-memory schedule (`xla_cpu_scheduler_type`)",
        "peak of lowtide's order / peak of XLA's with the flag, one memory model",
        "XLA modules",
        ("XLA's scheduler", "XLA's order", "ours"),
        ratios("ours", "XLA's order", lambda row: row["XLA's scheduler"] == "memory"),
    ),
    Compared(
        "ONNX Runtime, the best of its settings for memory",
        "resident memory that runs add in lowtide's session / in the stock runtime",
        "ONNX Runtime sessions",
        ("session", "stock, least"),
        ratios("session", "stock, least"),
    ),
    Compared(
        "ONNX Runtime, the best of its settings for time",
        "CPU time of a run in lowtide's session / in the stock runtime",
        "ONNX Runtime speed",
        ("opened",),
        second("opened"),
    ),
    Compared(
        "the same, for files that `lowtide optimize` writes for any machine",
        "CPU time of a run / in the stock runtime",
        "ONNX Runtime speed",
        ("for any machine",),
        second("for any machine"),
    ),
    Compared(
        "onnxslim",
        "resident memory that runs add in lowtide's session / in the stock runtime after onnxslim",
        "ONNX models after onnxslim",
        ("session", "stock, slimmed"),
        ratios("session", "stock, slimmed"),
    ),
    Compared(
        "onnxslim, before lowtide",
        "resident memory that runs add in lowtide's session, with onnxslim / without",
        "ONNX models after onnxslim",
        ("session", "session, slimmed"),
        ratios("session, slimmed", "session"),
    ),
)
PLANNERS = (
    Compared(
        "PyTorch's min-cut partitioner",
        "extra time of lowtide's plan / of torch's, at equal peak",
        "Recomputation against torch's partitioner",
        ("given order", "ratio"),
        column("ratio"),
    ),
    Compared(
        "PyTorch's min-cut partitioner",
        "extra time of lowtide's plan / of torch's cheapest, within equal budgets",
        "Recomputation against torch's partitioner",
        ("torch's peak (setting)", "reordered", "ratio"),
        column("ratio"),
    ),
    Compared(
        "google/minimalloc, published instances",
        "times that lowtide is faster",
        "Packing",
        ("minimalloc, bytes", "times faster"),
        column("times faster"),
    ),
    Compared(
        "google/minimalloc, 100 dissected rectangles",
        "instances fitted at their known height within the work or time that each is given",
        "Packing cut rectangles",
        ("lowtide fits", "minimalloc fits"),
        sums("lowtide fits", "minimalloc fits"),
    ),
    Compared(
        "best of XLA's, TFLite's and TVM's rules, first fit, TLSF, minimalloc",
        "lowtide's arena / the best peer's",
        "Packing",
        ("best peer", "its bytes"),
        ratios("lowtide, bytes", "its bytes"),
    ),
)


def tables(section: Section) -> list[list[Row]]:
    """Return the tables of a section, a mapping from column to cell for every row."""
    found: list[list[Row]] = []
    for block in re.findall(r"(?:^\|.*\|\n)+", section.text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def compared(rows: Iterable[Compared], sections: Mapping[str, Section]) -> str:
    """Return the table; raises KeyError for a section or columns that the results do not have."""
    lines = ["| | compared | figure | section |", "|---|---|---|---|"]
    for row in rows:
        fitting = [table for table in tables(sections[row.section]) if table and set(row.columns) <= table[0].keys()]
        if not fitting:
            raise KeyError(f"section {row.section!r} has no table with columns {row.columns}")
        lines.append(f"| {row.who} | {row.what} | {row.figure(fitting[-1])} | {row.section} |")
    return "\n".join(lines)


def missed(sections: Mapping[str, Section]) -> str:
    """Return every missed target of the benchmarks."""
    lines = ((name, line) for name, section in sections.items() for line in section.text.splitlines())
    missed = (f"- {name}: {line[14:]}" for name, line in lines if line.startswith("- **missed**: "))
    return re.sub(r"(?<=\d)%", " %", "\n".join(missed))


def page(text: str, results: str) -> str:
    """Return the page with new tables between its marks."""
    sections = sections_of(results)
    parts = {
        "today": compared(TODAY, sections),
        "systems": compared(SYSTEMS, sections),
        "planners": compared(PLANNERS, sections),
        "missed": missed(sections),
    }
    for name, content in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        if not found:
            sys.exit(f"{PAGE.name} has no place for {name}; add the lines {begin.strip()} and {end}")
        text = before + begin + "\n" + content + "\n\n" + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), RESULTS.read_text(encoding="utf-8")), encoding="utf-8")
