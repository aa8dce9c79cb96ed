#include "sim/engine/timeline.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace zerosim {

namespace {

/// Sizes and bandwidths are round numbers, so that times half-way between two nanoseconds are
/// common and the last bit of a double would decide. The borders are moved to where no such time
/// falls.
std::int64_t nanoseconds(Seconds time) {
  constexpr double kOffset = 0.0027182818;
  return std::llround(time.count() * 1e9 + kOffset);
}

/// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv
class Hash {
 public:
  void add(std::int64_t value) {
    auto bits = static_cast<std::uint64_t>(value);
    for (int i = 0; i < 8; ++i) {
      hash_ = (hash_ ^ (bits & 0xff)) * 0x100000001b3;
      bits >>= 8;
    }
  }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

int program_of(const Timeline& timeline, int rank_class) {
  if (timeline.ranks.empty()) return rank_class;
  return timeline.ranks[static_cast<std::size_t>(rank_class)].program;
}

Seconds last_step(const Timeline& timeline) {
  const std::size_t steps = timeline.step_ends.size();
  if (steps == 0) return timeline.end;
  return timeline.step_ends[steps - 1] - (steps > 1 ? timeline.step_ends[steps - 2] : Seconds(0));
}

void sort(Timeline& timeline) {
  std::sort(timeline.spans.begin(), timeline.spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.start, a.rank_class, a.stream, a.op) <
           std::tie(b.start, b.rank_class, b.stream, b.op);
  });
  std::sort(timeline.host_spans.begin(), timeline.host_spans.end(),
            [](const HostSpan& a, const HostSpan& b) {
              return std::tie(a.start, a.rank_class, a.op, a.waiting) <
                     std::tie(b.start, b.rank_class, b.op, b.waiting);
            });
}

std::uint64_t fingerprint(const Timeline& timeline) {
  using Row = std::tuple<int, std::int32_t, std::int64_t, std::int64_t>;
  std::vector<Row> rows;
  rows.reserve(timeline.spans.size());
  for (const Span& span : timeline.spans) {
    rows.emplace_back(span.rank_class, span.stream.value(), nanoseconds(span.start),
                      nanoseconds(span.end));
  }
  std::sort(rows.begin(), rows.end());  // streams are FIFO: times order each of them
  Hash hash;
  for (const auto& [rank_class, stream, start, end] : rows) {
    hash.add(rank_class);
    hash.add(stream);
    hash.add(start);
    hash.add(end);
  }
  return hash.value();
}

}  // namespace zerosim
