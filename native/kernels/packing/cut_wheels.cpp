// Five blocks that turn around a middle one, and four of them around a hole or beside one.
#include "kernels/packing/cuts.hpp"

namespace lowtide {
namespace {

constexpr size_t kMostAround = 32;  // blocks at cuts that are searched for wheels
enum Part { kBottom, kLeft, kMiddle, kTop, kRight, kNoPart };

}  // namespace

// The left block dies at the early cut, where the middle and the top one are born; the bottom and the middle one die at the
// late cut, where the right one is born; left and bottom are born at the first cut, top and right die at the last. One size of
// left = middle + top and right = bottom + middle follows from the other where a part is missing, and then the other must hold.
void Cuts::offer_wheels(int32_t early, Choice& best) {
  const auto& [moment_of, gain, dying, born] = cuts_[early];
  if (dying.size() > kMostAround || born.size() > kMostAround) return;
  std::array<double, 6> tries{};
  std::array<Choice, 6> found;  // per part that is missing
  auto offer_without = [&](Part missing, const std::array<int32_t, 5>& parts, int32_t first, int32_t last, int64_t bytes,
                           int64_t agree) {
    Choice& here = found[missing];
    if (missing == kNoPart) return offer({coincidence(agree) * coincidence(agree), Step::kWheel, parts}, here);
    if (!rules_.holes || moment(first) >= moment(last) || bytes <= 0) return;
    offer_hole(coincidence(agree) * end_doubt(first, bytes, bytes) * end_doubt(last, -bytes, bytes) *
                   varied((static_cast<uint64_t>(first) << 32) | last, bytes),
               first, last, bytes, here);
  };
  auto end = [&](int32_t block) { return ends_[block].dying; };
  for (int32_t middle : born) {
    const int32_t late = end(middle);
    if (at_edge(late)) continue;
    work_ += static_cast<int64_t>(dying.size() + born.size());
    for (int32_t left : dying) {
      const int32_t first = ends_[left].born;
      for (int32_t bottom : cuts_[first].born) {
        if (end(bottom) != late) continue;
        for (int32_t right : cuts_[late].born) {
          ++tries[kTop];
          if (size(right) != size(bottom) + size(middle)) continue;
          offer_without(kTop, {}, early, end(right), size(left) - size(middle), size(right));
          for (int32_t top : born) {
            if (top == middle || end(top) != end(right)) continue;
            ++tries[kNoPart];
            if (size(top) + size(middle) == size(left))
              offer_without(kNoPart, {bottom, left, middle, top, right}, 0, 0, 0, size(left));
          }
        }
        for (int32_t top : born) {
          if (top == middle || moment(end(top)) <= moment(late)) continue;
          ++tries[kRight];
          if (size(top) + size(middle) == size(left))
            offer_without(kRight, {}, late, end(top), size(bottom) + size(middle), size(left));
        }
      }
    }
    for (int32_t top : born) {
      if (top == middle || moment(end(top)) <= moment(late)) continue;
      for (int32_t right : cuts_[late].born) {
        if (end(right) != end(top)) continue;
        work_ += static_cast<int64_t>(dying.size() + cuts_[late].dying.size());
        for (int32_t left : dying) {
          ++tries[kBottom];
          if (size(top) + size(middle) == size(left))
            offer_without(kBottom, {}, ends_[left].born, late, size(right) - size(middle), size(left));
        }
        for (int32_t bottom : cuts_[late].dying) {
          if (moment(ends_[bottom].born) >= moment(early)) continue;
          ++tries[kLeft];
          if (size(right) == size(bottom) + size(middle))
            offer_without(kLeft, {}, ends_[bottom].born, early, size(middle) + size(top), size(right));
        }
      }
    }
  }
  for (int32_t left : dying)
    for (int32_t bottom : cuts_[ends_[left].born].born) {
      const int32_t late = end(bottom);
      if (moment(late) <= moment(early) || at_edge(late)) continue;
      for (int32_t top : born)
        for (int32_t right : cuts_[late].born) {
          ++work_;
          if (end(right) != end(top) || moment(end(top)) <= moment(late)) continue;
          ++tries[kMiddle];
          if (size(right) - size(bottom) == size(left) - size(top))
            offer_without(kMiddle, {}, early, late, size(left) - size(top), size(left) - size(top));
        }
    }
  for (int missing = 0; missing <= kNoPart; ++missing) {
    found[missing].doubt *= tries[missing];
    if (found[missing].step != Step::kNone) offer(found[missing], best);
  }
}

}  // namespace lowtide
