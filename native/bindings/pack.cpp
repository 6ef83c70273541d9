#include <nanobind/stl/tuple.h>

#include "bindings/monitor.hpp"
#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "kernels/packing/best_fit_by_birth.hpp"
#include "kernels/packing/by_priority.hpp"
#include "kernels/packing/canonical.hpp"
#include "kernels/packing/ejection.hpp"
#include "kernels/packing/exact.hpp"
#include "kernels/packing/in_order.hpp"
#include "kernels/packing/joined.hpp"

namespace lowtide::bindings {
namespace {

// Items that keep the arrays behind them alive, checked once so that kernels can index by them.
struct HeldPackItems {
  PackItems items;
  std::vector<Piece> pieces;
  std::vector<nb::object> held;
};

void require(bool holds, const char* message) {
  if (!holds) throw nb::value_error(message);
}

// Rows of other labels per label, or none at all.
Rows partners(const Array<int64_t>& offsets, const Array<int32_t>& values, std::span<const Piece> pieces) {
  if (offsets.shape(0) == 0) return {};
  const Rows rows = rows_of(offsets, values);
  require(rows.offsets.front() == 0 && rows.offsets.back() == static_cast<int64_t>(rows.values.size()) &&
              std::is_sorted(rows.offsets.begin(), rows.offsets.end()),
          "pair rows must bound their values");
  for (int32_t other : rows.values) require(other >= 0 && other < rows.count(), "pair rows must name labels");
  for (const Piece& piece : pieces)
    require(piece.label >= 0 && piece.label < rows.count(), "pair rows must have one row per label");
  return rows;
}

void init(HeldPackItems* self, Array<int32_t> first, Array<int32_t> last, Array<int64_t> sizes, Array<int64_t> alignment,
          Array<int64_t> fixed, Array<int64_t> piece_rows, Array<int64_t> pieces, Array<int64_t> overlap_offsets,
          Array<int32_t> overlap_values, Array<int64_t> apart_offsets, Array<int32_t> apart_values) {
  new (self) HeldPackItems();
  const size_t n = sizes.shape(0);
  PackItems& items = self->items;
  items = {span_of(first), span_of(last), span_of(sizes), span_of(alignment), span_of(fixed), span_of(piece_rows), {}, {}, {}};
  require(items.first.size() == n && items.last.size() == n && items.alignment.size() == n && items.fixed.size() == n,
          "items need columns of one length");
  for (size_t i = 0; i < n; ++i)
    require(0 <= items.first[i] && items.first[i] < items.last[i] && items.sizes[i] > 0 && items.alignment[i] > 0,
            "items need a live range from section 0 on, and a positive size and alignment");
  if (piece_rows.shape(0) > 0) {
    const auto rows = items.piece_rows;
    const auto values = span_of(pieces);
    require(rows.size() == n + 1 && rows.front() == 0 && std::is_sorted(rows.begin(), rows.end()) &&
                values.size() == static_cast<size_t>(5 * rows.back()),
            "piece rows must bound pieces of five figures");
    for (size_t i = 0; i < n; ++i)
      for (int64_t p = rows[i]; p < rows[i + 1]; ++p) {
        const int64_t* piece = values.data() + 5 * p;
        require(items.first[i] <= piece[0] && piece[0] < piece[1] && piece[1] <= items.last[i] && 0 <= piece[2] &&
                    piece[2] < piece[3] && piece[3] <= items.sizes[i],
                "a piece must lie within its item");
        self->pieces.push_back({static_cast<int32_t>(piece[0]), static_cast<int32_t>(piece[1]), piece[2], piece[3],
                                static_cast<int32_t>(piece[4])});
      }
    items.pieces = self->pieces;
  }
  items.may_overlap = partners(overlap_offsets, overlap_values, self->pieces);
  items.apart = partners(apart_offsets, apart_values, self->pieces);
  for (nb::object held : {nb::cast(first), nb::cast(last), nb::cast(sizes), nb::cast(alignment), nb::cast(fixed),
                          nb::cast(piece_rows), nb::cast(overlap_offsets), nb::cast(overlap_values),
                          nb::cast(apart_offsets), nb::cast(apart_values)})
    self->held.push_back(std::move(held));
}

void require_plain(const PackItems& items) {
  require(items.rectangles() && std::all_of(items.fixed.begin(), items.fixed.end(), [](int64_t at) { return at < 0; }),
          "only plain rectangles can be packed so");
}

}  // namespace

void register_pack(nb::module_& m) {
  nb::class_<HeldPackItems>(m, "PackItems", "What the packing kernels place; see native/kernels/packing/items.hpp.")
      .def("__init__", init, nb::arg("first"), nb::arg("last"), nb::arg("sizes"), nb::arg("alignment"), nb::arg("fixed"),
           nb::arg("piece_rows"), nb::arg("pieces"), nb::arg("overlap_offsets"), nb::arg("overlap_values"),
           nb::arg("apart_offsets"), nb::arg("apart_values"));

  m.def(
      "pack_best_fit_by_birth",
      [](const HeldPackItems& held) {
        std::vector<int64_t> offsets;
        {
          nb::gil_scoped_release released;
          offsets = pack_best_fit_by_birth(held.items);
        }
        return to_numpy(std::move(offsets));
      },
      nb::arg("items"), "Offsets: by birth, each in the tightest free block; plain rectangles only.");

  m.def(
      "pack_in_order",
      [](const HeldPackItems& held, Array<int32_t> order, bool tightest) {
        const auto ids = span_of(order);
        for (int32_t item : ids) require(item >= 0 && item < held.items.n(), "order must name items");
        std::vector<int64_t> offsets;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          offsets = pack_in_order(held.items, ids, tightest ? Gap::kTightest : Gap::kLowest,
                                  [&] { return monitor.go_on(); });
        }
        monitor.raise();
        return to_numpy(std::move(offsets));
      },
      nb::arg("items"), nb::arg("order"), nb::arg("tightest"),
      "Offsets: in the given order, each in the lowest or the tightest gap.");

  m.def(
      "pack_by_priority",
      [](const HeldPackItems& held, int64_t target, bool improve, int64_t max_work) {
        PackResult result;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          result = pack_by_priority(held.items, target, improve, {max_work, [&] { return monitor.go_on(); }});
        }
        monitor.raise();
        return std::make_tuple(to_numpy(std::move(result.offsets)), result.work);
      },
      nb::arg("items"), nb::arg("target"), nb::arg("improve"), nb::arg("max_work"),
      "Offsets of the best packing along the skyline, and the work: items placed.");

  m.def(
      "pack_within",
      [](const HeldPackItems& held, int64_t capacity, int64_t max_work) {
        PackFitResult result;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          result = fit_capacity(held.items, capacity, {max_work, [&] { return monitor.go_on(); }});
        }
        monitor.raise();
        return std::make_tuple(static_cast<int32_t>(result.fit), to_numpy(std::move(result.offsets)), result.work);
      },
      nb::arg("items"), nb::arg("capacity"), nb::arg("max_work"),
      "0 found, 1 impossible or 2 stopped; the offsets when found; the work: items looked at.");

  m.def(
      "pack_within_canonically",
      [](const HeldPackItems& held, Array<int64_t> steps, int64_t capacity, int64_t max_work, int32_t inferences) {
        const auto lives = span_of(steps);
        require(lives.size() == held.items.sizes.size(), "every item needs its steps");
        require_plain(held.items);
        PackFitResult result;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          result = fit_canonically(held.items, lives, capacity, inferences, {max_work, [&] { return monitor.go_on(); }});
        }
        monitor.raise();
        return std::make_tuple(static_cast<int32_t>(result.fit), to_numpy(std::move(result.offsets)), result.work);
      },
      nb::arg("items"), nb::arg("steps"), nb::arg("capacity"), nb::arg("max_work"),
      nb::arg("inferences") = static_cast<int32_t>(kAllInferences),
      "As `pack_within`, by the second exact search; plain rectangles only. `inferences`: what it may infer, as bits.");

  m.def(
      "pack_within_joined",
      [](const HeldPackItems& held, int64_t capacity, int64_t max_work, int32_t joins) {
        require_plain(held.items);
        PackFitResult result;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          result = fit_joined(held.items, capacity, joins, {max_work, [&] { return monitor.go_on(); }});
        }
        monitor.raise();
        return std::make_tuple(static_cast<int32_t>(result.fit), to_numpy(std::move(result.offsets)), result.work);
      },
      nb::arg("items"), nb::arg("capacity"), nb::arg("max_work"), nb::arg("joins") = static_cast<int32_t>(kAllJoins),
      "As `pack_within`, over blocks of joined items; never 1. Plain rectangles only. `joins`: what is joined, as bits.");

  m.def(
      "pack_within_by_ejection",
      [](const HeldPackItems& held, Array<int64_t> offsets, int64_t capacity, int64_t max_work, uint32_t seed) {
        require_plain(held.items);
        const auto start = span_of(offsets);
        require(start.size() == held.items.sizes.size(), "every item needs an offset or -1");
        PackFitResult result;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          result = fit_by_ejection(held.items, capacity, start, seed, {max_work, [&] { return monitor.go_on(); }});
        }
        monitor.raise();
        return std::make_tuple(static_cast<int32_t>(result.fit), to_numpy(std::move(result.offsets)), result.work);
      },
      nb::arg("items"), nb::arg("offsets"), nb::arg("capacity"), nb::arg("max_work"), nb::arg("seed") = 0,
      "As `pack_within`, by repair of the packing in `offsets`; never 1. Plain rectangles only.");

  m.def(
      "pack_joined_by_priority",
      [](const HeldPackItems& held, int64_t target, int64_t max_work) {
        require_plain(held.items);
        PackResult result;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          result = pack_joined_by_priority(held.items, target, {max_work, [&] { return monitor.go_on(); }});
        }
        monitor.raise();
        return std::make_tuple(to_numpy(std::move(result.offsets)), result.work);
      },
      nb::arg("items"), nb::arg("target"), nb::arg("max_work"),
      "As `pack_by_priority`, over blocks of joined items; plain rectangles only.");
}

}  // namespace lowtide::bindings
