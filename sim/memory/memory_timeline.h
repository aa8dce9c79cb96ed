/// \file
/// Memory of one rank class over time: a plain ledger of what the framework allocates and frees.
///
/// The ledger rounds each request to 512 bytes as PyTorch does (E7.1) and knows no pools or segments:
/// reserved = allocated. The caching allocator (E7) comes in part 6 behind the same interface.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/allocation_observer.h"
#include "sim/program/program.h"

namespace zerosim {

/// Bytes by MemoryClass, index = static_cast<int>(class).
using MemoryByClass = std::array<Bytes, kMemoryClasses>;

struct MemoryPeak {
  Bytes allocated;             ///< largest sum over classes
  MemoryByClass by_class{};    ///< at that moment
  Phase phase = Phase::Init;   ///< phase of the request that reached it
  std::string op;              ///< "saved_activation in model.layers.31.mlp"
  Seconds at{0};
  MemoryByClass class_peaks{}; ///< the largest of each class, at whatever moment
};

/// One change of the total, for plots.
struct MemorySample {
  Seconds at{0};
  Bytes allocated;
};

class MemoryLedger : public AllocationObserver {
 public:
  explicit MemoryLedger(const Program& program, bool keep_samples = false);
  Seconds on_allocate(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                      Seconds now) override;
  Seconds on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                  Seconds now) override;

  [[nodiscard]] const MemoryPeak& peak(int rank_class) const;
  [[nodiscard]] MemoryByClass current(int rank_class) const;
  [[nodiscard]] const std::vector<MemorySample>& samples(int rank_class) const;

 private:
  struct RankLedger {
    Bytes allocated;
    MemoryByClass by_class{};
    MemoryPeak peak;
    std::vector<MemorySample> samples;
  };
  const Program* program_;
  bool keep_samples_;
  std::vector<RankLedger> ranks_;
};

/// Replays the Allocate and Free operations of a Program in host order, without time.
[[nodiscard]] MemoryPeak replay_memory(const Program& program, int rank_class = 0);

}  // namespace zerosim
