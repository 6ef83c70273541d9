"""Bytes of ten NetDefs under names, slots and offsets; seconds for a net of 20,000 ops."""

import time
from collections.abc import Callable

from caffe2_nets import NetBuilder, all_nets, unrolled_lstm
from results import write_section

from lowtide.caffe2 import Caffe2Model, memonger, plan, write_net
from lowtide.frameworks.caffe2.nets.load import read_net

LARGE_STEPS = 1_667
"""Of an LSTM with 13 ops a step."""


def bytes_row(made: NetBuilder) -> tuple[str, bool]:
    """Return the row of one net, and whether measured peaks are the predicted ones with equal results."""
    sizes = Caffe2Model(made.net, shapes=made.shapes).blob_sizes()
    counted = {blob: 0 if blob in made.parameters else size for blob, size in sizes.items()}
    static = [*made.net.external_input, *made.net.external_output]
    searched = memonger.optimize_interference(
        made.net, static, blob_sizes=counted, algo=memonger.AssignmentAlgorithm.DYNAMIC_PROGRAMMING
    )
    best = plan(made.net, made.shapes, parameters=made.parameters)
    model = Caffe2Model(made.net, shapes=made.shapes, parameters=made.parameters)
    measured = model.measure(best.result.plan)
    predicted = measured.after_bytes == best.peak_bytes and measured.outputs_equal
    figures = (
        best.blob_bytes,
        best.memonger_bytes,
        memonger.get_memory_usage(searched.assignments),
        best.slot_bytes,
        best.arena_bytes,
        best.lower_bound_bytes,
    )
    return f"| {made.net.name} | {len(made.net.op)} | {' | '.join(f'{figure:,}' for figure in figures)} |", predicted


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds of processor time of the fastest of three runs, which other programs hardly change."""
    times: list[float] = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def large_rows() -> list[str]:
    """Return the rows of what is done with a net of 20,000 ops."""
    made = unrolled_lstm(LARGE_STEPS, 4, 2, training=False)
    net = made.net
    static = [*net.external_input, *net.external_output]
    binary, text = (read_net(write_net(net, name), name) for name in ("net.pb", "net.pbtxt"))
    shared = memonger.optimize_interference(net, static).net
    works: dict[str, Callable[[], object]] = {
        "interference graph": lambda: memonger.compute_interference_graph(net.op),
        "optimize_interference, topological, greedy": lambda: memonger.optimize_interference(net, static),
        "optimize_interference, longest path, greedy": lambda: memonger.optimize_interference(
            net, static, memonger.topological_sort_traversal_longest_path
        ),
        "optimize_inference_fast": lambda: memonger.optimize_inference_fast(net, []),
        "release_blobs_when_used": lambda: memonger.release_blobs_when_used(net, set()),
        "verify_graph_equality": lambda: memonger.verify_graph_equality(net, shared),
        "reading and writing, binary": lambda: write_net(read_net(write_net(binary, "net.pb"), "net.pb"), "net.pb"),
        "reading and writing, text": lambda: write_net(
            read_net(write_net(text, "net.pbtxt"), "net.pbtxt"), "net.pbtxt"
        ),
        "NetDef to graph": lambda: Caffe2Model(net, shapes=made.shapes),
    }
    rows = [f"| {name} | {seconds_of(work):.2f} |" for name, work in works.items()]
    title = f"An LSTM of {LARGE_STEPS} steps, {len(net.op):,} ops:"
    return [title, "", "| work | processor seconds |", "|---|--:|", *rows]


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    rows = [bytes_row(made) for made in all_nets()]
    head = (
        "| net | ops | plain | memonger, greedy | memonger, searched | slots, our order | offsets, our order | bound |"
    )
    lines = [
        "Bytes of blobs without parameters. Plain: every blob has storage of its own, as in Caffe2. memonger: slots in",
        "plain order, greedy, and the least that its dynamic programming is after. Slots and offsets in our order:",
        "`lowtide.caffe2.plan`. Bound: no order needs less. Batches and images are small; ratios are what matters.",
        f"Measured peaks are the predicted ones with equal results on {sum(ok for _, ok in rows)} of {len(rows)} nets.",
        "",
        head,
        "|---|--:|--:|--:|--:|--:|--:|--:|",
        *(row for row, _ in rows),
        "",
        *large_rows(),
    ]
    print("\n".join(lines))
    write_section("Caffe2 NetDefs", "python benchmarks/bench_caffe2.py", "\n".join(lines))


if __name__ == "__main__":
    main()
