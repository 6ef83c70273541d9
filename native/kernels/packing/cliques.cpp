#include "kernels/packing/cliques.hpp"

namespace lowtide {

Cliques::Cliques(const PackItems& items) : items_(items) {
  find_discounts();
  find_sections();
}

void Cliques::find_discounts() {
  if (items_.may_overlap.offsets.empty()) return;
  std::vector<int64_t> size(items_.may_overlap.count(), 0);
  for (const Piece& piece : items_.pieces) size[piece.label] = std::max(size[piece.label], piece.high - piece.low);
  discount_.assign(size.size(), 0);
  for (int32_t label = 0; label < static_cast<int32_t>(size.size()); ++label)
    for (int32_t other : items_.may_overlap[label])
      if (other > label) discount_[label] += std::min(size[label], size[other]);
}

// Items of several pieces count in a section with what they hold there.
void Cliques::find_sections() {
  const int32_t n = items_.n(), n_sections = items_.n_sections();
  std::vector<char> born(n_sections + 1, 0), dies(n_sections + 1, 0);
  auto mark = [&](int32_t first, int32_t last) {
    born[first] = 1;
    dies[last] = 1;
  };
  for (int32_t i = 0; i < n; ++i) {
    if (items_.rectangles()) mark(items_.first[i], items_.last[i]);
    else
      for (const Piece& piece : items_.pieces_of(i)) mark(piece.first, piece.last);
  }
  int32_t latest_birth = 0;
  for (int32_t s = 0; s < n_sections; ++s) {
    if (born[s]) latest_birth = s;
    if (dies[s + 1] && (section_.empty() || section_.back() < latest_birth))
      section_.push_back(s);
  }
  cliques_.resize(section_.size());
  crossing_.resize(section_.size());
  first_.assign(n, 0);
  last_.assign(n, 0);
  for (int32_t i = 0; i < n; ++i) {
    const auto begin = section_.begin();
    first_[i] =
        static_cast<int32_t>(std::lower_bound(begin, section_.end(), items_.first[i]) - begin);
    last_[i] = static_cast<int32_t>(std::lower_bound(begin, section_.end(), items_.last[i]) - begin);
    for (int32_t c = first_[i]; c < last_[i]; ++c)
      if (holds(c, i)) cliques_[c].items.push_back(i);
  }
}

bool Cliques::holds(int32_t clique, int32_t item) const {
  if (items_.rectangles()) return true;
  for (const Piece& piece : items_.pieces_of(item))
    if (alive(piece, clique)) return true;
  return false;
}

int64_t Cliques::bytes_in(int32_t clique, int32_t item) const {
  if (items_.rectangles()) return items_.sizes[item];
  int64_t bytes = 0, top = 0;
  for (const Piece& piece : items_.pieces_of(item))  // ascending by low end, so that overlaps are counted once
    if (alive(piece, clique)) {
      bytes += std::max<int64_t>(0, piece.high - std::max(top, piece.low)) - (discount_.empty() ? 0 : discount_[piece.label]);
      top = std::max(top, piece.high);
    }
  return std::max<int64_t>(0, bytes);
}

void Cliques::reset() {
  std::fill(crossing_.begin(), crossing_.end(), 0);
  for (Clique& clique : cliques_) clique.unplaced_bytes = 0;
  for (int32_t i = 0; i < items_.n(); ++i) count(i, 1);
}

void Cliques::count(int32_t item, int32_t sign) {
  for (int32_t c = first_[item]; c < last_[item]; ++c) cliques_[c].unplaced_bytes += sign * bytes_in(c, item);
  for (int32_t c = first_[item] + 1; c < last_[item]; ++c) crossing_[c] += sign;
}

}  // namespace lowtide
