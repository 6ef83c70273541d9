// Holes that what is born and what dies gives away, or that make two blocks fit.
#include <cmath>

#include "kernels/packing/cuts.hpp"

namespace lowtide {
namespace {

constexpr size_t kMostAround = 48;   // blocks at cuts that are searched for pads
constexpr double kAreaDoubt = 0.05;  // of every doubling of a pad
constexpr double kRival = 0.7, kSame = 4, kSmaller = 0.1, kBare = 4, kOther = 0.3;
constexpr int64_t kWorkPerPad = 4;

uint64_t both(int32_t first, int32_t last) { return (static_cast<uint64_t>(first) << 32) | static_cast<uint32_t>(last); }

}  // namespace

// Holes that make two blocks one size where they meet, or one life.
void Cuts::offer_pads(int32_t cut, Choice& best) {
  const auto& [moment_of, gain, dying, born] = cuts_[cut];
  if (dying.size() > kMostAround || born.size() > kMostAround) return;
  const double n_dying = static_cast<double>(dying.size()), n_born = static_cast<double>(born.size());
  const double tries = n_dying * n_born + n_born * (n_born - 1) / 2 + n_dying * (n_dying - 1) / 2;
  work_ += kWorkPerPad * static_cast<int64_t>(tries);
  // The hole, and the ends and size of the block that `one` and `other` become with it.
  auto consider = [&](int32_t first, int32_t last, int64_t bytes, const Ends& joined, int64_t size, int32_t one, int32_t other) {
    if (bytes <= 0 || moment(first) >= moment(last)) return;
    const double area = static_cast<double>(bytes / unit_) * (moment(last) - moment(first));
    const double doubt = tries * end_doubt(first, bytes, bytes) * end_doubt(last, -bytes, bytes) *
                         (1 + kAreaDoubt * std::log2(area + 1)) * varied(both(first, last), bytes);
    if (doubt * 1e-4 < best.doubt)
      offer_hole(doubt * follow_up(joined.born, joined.dying, size, one, other), first, last, bytes, best);
  };
  if (!at_edge(cut))
    for (int32_t one : dying)
      for (int32_t two : born) {
        const Ends joined{ends_[one].born, ends_[two].dying};
        const int64_t more = size(one) - size(two);
        if (more > 0) consider(cut, joined.dying, more, joined, size(one), one, two);
        else consider(joined.born, cut, -more, joined, size(two), one, two);
      }
  for (int32_t one : born)
    for (int32_t two : born)
      consider(ends_[one].dying, ends_[two].dying, size(one), {cut, ends_[two].dying}, size(one) + size(two), one, two);
  for (int32_t one : dying)
    for (int32_t two : dying)
      consider(ends_[two].born, ends_[one].born, size(one), {ends_[two].born, cut}, size(one) + size(two), one, two);
}

// A hole from a cut with fewer bytes born than dying to the next one with as many more.
void Cuts::offer_whole_hole(int32_t cut, Choice& best) {
  const int64_t bytes = -cuts_[cut].gain;
  const auto ends = of_gain_.find(bytes);
  if (ends == of_gain_.end()) return;
  int32_t last = -1;
  double rivals = -1;
  for (int32_t end : ends->second)
    if (moment(end) > moment(cut) && room(cut, end, bytes)) {
      ++rivals;
      if (last < 0 || moment(end) < moment(last)) last = end;
    }
  if (last < 0) return;
  for (int32_t begin : of_gain_.find(-bytes)->second)
    rivals += begin != cut && moment(begin) < moment(last) && room(begin, last, bytes);
  const double doubt = kRival * rivals + n_gaining_ * coincidence(bytes);
  offer_hole(doubt * varied(both(cut, last), bytes), cut, last, bytes, best);
}

// A hole that balances a cut and ends at another one, later (1) or earlier (-1), as far as there is room for it: less doubt the
// fewer such cuts there are.
void Cuts::offer_half_hole(int32_t cut, int32_t direction, Choice& best) {
  const int64_t bytes = std::abs(cuts_[cut].gain);
  int32_t other = -1;
  double most = 0, sum = 0;
  const bool later = direction > 0;
  for (int32_t s = later ? moment(cut) : moment(cut) - 1; s >= 0 && s < tree_.n_moments() - 1 && spare_[s] >= bytes; s += direction) {
    ++work_;
    for (int32_t end : at_moment_[later ? s + 1 : s]) {
      const int64_t gain = cuts_[end].gain * direction;
      if (gain <= 0) continue;
      const bool bare = (later ? cuts_[end].dying : cuts_[end].born).empty();
      const double likely = (gain == bytes ? kSame : gain > bytes ? 1 : kSmaller) * (bare ? kBare : 1);
      sum += likely;
      if (likely > most) {
        most = likely;
        other = end;
      }
    }
  }
  if (other < 0) return;
  const int32_t first = later ? cut : other, last = later ? other : cut;
  const double doubt = rules_.half_doubt * (sum - most + kOther) / most;
  offer_hole(doubt * varied(both(first, last), bytes), first, last, bytes, best);
}

}  // namespace lowtide
