#include "kernels/play_plan.hpp"

#include <nanobind/stl/tuple.h>

#include "bindings/register.hpp"

namespace lowtide::bindings {

struct PlayedResult {
  int32_t broken;
  int64_t step;
  int32_t op, buffer, other, space, wanted, found;
  Result<int64_t> peaks, peak_steps, residencies;
};

std::span<const uint8_t> mask_of(const Array<bool>& mask) {
  return {reinterpret_cast<const uint8_t*>(mask.data()), mask.shape(0)};
}

void register_play_plan(nb::module_& m) {
  nb::class_<PlayedResult>(m, "PlayedResult")
      .def_ro("broken", &PlayedResult::broken)
      .def_ro("step", &PlayedResult::step)
      .def_ro("op", &PlayedResult::op)
      .def_ro("buffer", &PlayedResult::buffer)
      .def_ro("other", &PlayedResult::other)
      .def_ro("space", &PlayedResult::space)
      .def_ro("wanted", &PlayedResult::wanted)
      .def_ro("found", &PlayedResult::found)
      .def_ro("peaks", &PlayedResult::peaks, nb::rv_policy::automatic)
      .def_ro("peak_steps", &PlayedResult::peak_steps, nb::rv_policy::automatic)
      .def_ro("residencies", &PlayedResult::residencies, nb::rv_policy::automatic);
  m.def(
      "number_versions",
      [](Array<uint8_t> lifetimes, Array<int64_t> read_offsets, Array<int32_t> reads, Array<int64_t> mutate_offsets,
         Array<int32_t> mutates, Array<int64_t> write_offsets, Array<int32_t> writes) {
        OwnedVersions v = number_versions(span_of(lifetimes), rows_of(read_offsets, reads),
                                          rows_of(mutate_offsets, mutates), rows_of(write_offsets, writes));
        return std::tuple(to_numpy(std::move(v.first)), to_numpy(std::move(v.writes_from)),
                          to_numpy(std::move(v.buffers)), to_numpy(std::move(v.seen)), to_numpy(std::move(v.at_end)));
      },
      nb::arg("lifetimes"), nb::arg("read_offsets"), nb::arg("reads"), nb::arg("mutate_offsets"), nb::arg("mutates"),
      nb::arg("write_offsets"), nb::arg("writes"),
      "Number the contents of every buffer: first, writes_from, buffers, seen, at_end; see `lowtide.plan.versions`.");
  m.def(
      "play_plan",
      [](Array<int64_t> first, Array<int64_t> writes_from, Array<int32_t> buffers, Array<int32_t> seen,
         Array<int32_t> at_end, Array<int64_t> after_offsets, Array<int32_t> after, Array<int64_t> in_place_offsets,
         Array<int32_t> in_place, Array<bool> may_run_twice, Array<bool> ordered, Array<uint8_t> lifetimes,
         Array<int64_t> sizes, Array<int16_t> homes, Array<int64_t> transient, int32_t n_spaces, Array<uint8_t> kinds,
         Array<int32_t> targets, Array<int16_t> spaces, Array<int64_t> pair_offsets, Array<int32_t> pairs) {
        const PlayedProgram program{
            {span_of(first), span_of(writes_from), span_of(buffers), span_of(seen), span_of(at_end)},
            rows_of(after_offsets, after),
            rows_of(in_place_offsets, in_place),
            mask_of(may_run_twice),
            mask_of(ordered),
            span_of(lifetimes),
            span_of(sizes),
            span_of(homes),
            span_of(transient),
            n_spaces};
        const PlayedPlan plan{span_of(kinds), span_of(targets), span_of(spaces), rows_of(pair_offsets, pairs)};
        Played p;
        {
          nb::gil_scoped_release released;
          p = play_plan(program, plan);
        }
        return PlayedResult{p.broken,
                            p.step,
                            p.op,
                            p.buffer,
                            p.other,
                            p.space,
                            p.wanted,
                            p.found,
                            to_numpy(std::move(p.peaks)),
                            to_numpy(std::move(p.peak_steps)),
                            to_numpy(std::move(p.residencies))};
      },
      nb::arg("first"), nb::arg("writes_from"), nb::arg("buffers"), nb::arg("seen"), nb::arg("at_end"),
      nb::arg("after_offsets"), nb::arg("after"), nb::arg("in_place_offsets"), nb::arg("in_place"),
      nb::arg("may_run_twice"), nb::arg("ordered"), nb::arg("lifetimes"), nb::arg("sizes"), nb::arg("homes"),
      nb::arg("transient"), nb::arg("n_spaces"), nb::arg("kinds"), nb::arg("targets"), nb::arg("spaces"),
      nb::arg("pair_offsets"), nb::arg("pairs"),
      "Play the steps of a plan whose ids are in range; the first rule that is broken, peaks and residencies.");
}

}  // namespace lowtide::bindings
