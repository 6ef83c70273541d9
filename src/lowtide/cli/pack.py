"""`lowtide pack`: find offsets for the buffers of a CSV file."""

import math
import time
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from lowtide.api.outputs import check_separate, save
from lowtide.cli import options
from lowtide.cli.interrupts import interrupted_code
from lowtide.cli.options import MOST_BYTES, checked_size, parse_size
from lowtide.cli.output import print_json, print_page
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.core.errors import UsageError
from lowtide.core.files import check_writable, read_stdin, write_bytes
from lowtide.core.units import parse_bytes
from lowtide.engine.packing import Buffers, pack
from lowtide.engine.packing.csv_file import packed_lines, parse_buffers, read_buffer_file, write_buffer_file
from lowtide.engine.packing.rules import RULES
from lowtide.reporting.export.svg import packing_svg
from lowtide.reporting.packing import packed_to_json, packed_to_text

_PIPE = Path("-")


def _parse_alignment(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    return None if text is None else checked_size("--alignment", parse_bytes(text))


@click.command("pack")
@click.argument("buffers_csv", metavar="BUFFERS.csv", type=click.Path(path_type=Path))
@click.option("--capacity", metavar="SIZE", callback=parse_size, help="Find a packing within this size, like 1MiB.")
@click.option(
    "--alignment",
    metavar="N",
    callback=_parse_alignment,
    help="Align every offset to N bytes, in addition to the alignments of the file.",
)
@click.option("--method", metavar="NAME", help=f"Use this rule only, instead of the best one: {', '.join(RULES)}.")
@options.file("-o", "--output", help="Write the lines with offsets here; - is stdout.")
@options.file("--svg", help="Draw the packing here.")
@options.force
@options.effort
@options.json
def command(
    buffers_csv: Path,
    capacity: int | None,
    alignment: int | None,
    method: str | None,
    output: Path | None,
    svg: Path | None,
    force: bool,
    effort: EffortName,
    as_json: bool,
) -> int:
    """Find offsets for the buffers of BUFFERS.csv that make the arena as small as possible.

    "-" reads from stdin. "-o -" writes the lines to stdout and the summary to stderr.

    One buffer per line. Columns in any order: id, size, lower and upper (half-open) or start and end (inclusive).
    Optional: alignment, offset (fixed), hint, gaps.
    """
    piped_in, piped_out = buffers_csv == _PIPE, output == _PIPE
    if piped_out and as_json:
        raise UsageError("-o - and --json both write to stdout; give -o a file, or leave one of them out")
    written = None if piped_out else output
    check_separate({"BUFFERS.csv": None if piped_in else buffers_csv}, {"-o": written, "--svg": svg}, force=force)
    for path in (written, svg):
        if path is not None:
            check_writable(path)
    name = "stdin" if piped_in else buffers_csv.name
    with Progress() as progress:
        progress(f"reading {name if piped_in else buffers_csv}")
        file = parse_buffers(read_stdin(), name) if piped_in else read_buffer_file(buffers_csv)
        buffers = file.buffers if alignment is None else _aligned(file.buffers, alignment)
        progress(f"packing {len(buffers)} buffers")
        start = time.perf_counter()
        packed = pack(buffers, capacity=capacity, method=method, effort=effort, progress=progress)
        seconds = time.perf_counter() - start
        if written is not None:
            progress(f"writing {written}")
            save(written, lambda path: write_buffer_file(path, file, packed.offsets))
        if svg is not None:
            progress(f"drawing {svg}")
            save(svg, lambda path: write_bytes(path, packing_svg(name, buffers, packed, capacity)))
    if as_json:
        print_json("pack", packed_to_json(buffers, packed, capacity, seconds))
    else:
        print_page(packed_to_text(name, buffers, packed, capacity, seconds), err=piped_out)
    if piped_out:
        click.echo(packed_lines(file, packed.offsets), nl=False)
    if packed.status == "interrupted":
        return interrupted_code()
    return 0 if capacity is None or packed.arena_bytes <= capacity else 1


def _aligned(buffers: Buffers, alignment: int) -> Buffers:
    if alignment < 1:
        raise UsageError(f"--alignment {alignment} is not an alignment; give at least 1 byte")
    alignments, places = np.unique(buffers.alignment, return_inverse=True)
    joint = [math.lcm(alignment, each) for each in alignments.tolist()]
    for each, both in zip(alignments.tolist(), joint, strict=True):
        if both > MOST_BYTES:
            raise UsageError(f"--alignment {alignment} and the file's {each} have no common multiple within 64 bits")
    return replace(buffers, alignment=np.asarray(joint, np.int64)[places])
