#include "kernels/program/in_place.hpp"

#include <algorithm>

namespace lowtide {

void InPlaceMatcher::sort_outputs() {
  std::sort(outputs_.begin(), outputs_.end(), [this](int32_t a, int32_t b) {
    return graph_.sizes[a] != graph_.sizes[b] ? graph_.sizes[a] > graph_.sizes[b] : a < b;
  });
  outputs_.erase(std::unique(outputs_.begin(), outputs_.end()), outputs_.end());
}

bool InPlaceMatcher::augment(int32_t written) {
  for (const auto& pair : candidates_) {
    if (pair.written != written || visited_[pair.read] == round_) continue;
    visited_[pair.read] = round_;
    if (taken_by_[pair.read] < 0 || augment(taken_by_[pair.read])) {
      taken_by_[pair.read] = written;
      return true;
    }
  }
  return false;
}

}  // namespace lowtide
