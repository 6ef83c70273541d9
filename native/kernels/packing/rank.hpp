// In which order exact search prefers items, and how restarts vary it.
#pragma once
#include <compare>
#include <cstdint>

namespace lowtide {

struct Rank {
  double first, second, third;
  int32_t item;
  auto operator<=>(const Rank&) const = default;
};

inline constexpr double kVariation = 0.1, kLearning = 0.2;

// A figure in [0, 1) that depends on both arguments and looks random.
inline double noise(uint64_t restart, uint64_t item) {
  uint64_t mixed = restart * 0x9E3779B97F4A7C15u + item * 0xD1B54A32D192ED03u;
  mixed = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<double>((mixed ^ (mixed >> 32)) & 0xFFFFFF) / 0x1000000;
}

}  // namespace lowtide
