/// \file
/// Memory of one rank class over time: a plain ledger of what the framework allocates and frees.
///
/// The ledger rounds each request to 512 bytes as PyTorch does (E7.1) and knows no pools or
/// segments: reserved = allocated, and neither an allocation nor a free costs host time.
///
/// Host memory (B6.1) is counted apart, as a plain sum for all ranks of a node: ordinary memory as
/// asked for, page-locked memory as PyTorch's host allocator rounds it (E6). Pages that are never
/// touched count too.
///
/// Not modelled: the caching allocator (E7.2 to E7.14): allocator_observer.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/engine/allocation_observer.h"
#include "sim/program/program.h"

namespace zerosim {

/// Bytes by MemoryClass, index = static_cast<int>(class).
using MemoryByClass = std::array<Bytes, kMemoryClasses>;

/// A request in words: "saved_activation in model.layers.31.mlp".
[[nodiscard]] std::string request_text(const Program& program, const Buffer& buffer,
                                       ModuleId module);

/// What a request takes of the device (E7.1): the next multiple of 512 bytes; nothing for nothing.
[[nodiscard]] Bytes rounded_allocation(Bytes request);

/// What a page-locked request takes of the host (E6): the next power of two.
/// \throws std::overflow_error  beyond 2^62 bytes.
[[nodiscard]] Bytes rounded_pinned_allocation(Bytes request);

struct MemoryPeak {
  Bytes allocated;              ///< largest sum over classes
  MemoryByClass by_class{};     ///< at that moment
  Phase phase = Phase::Init;    ///< phase of the request that reached it
  std::string op;               ///< "saved_activation in model.layers.31.mlp"
  Seconds at{0};                ///< the first moment, if several are as high
  MemoryByClass class_peaks{};  ///< the largest of each class, at whatever moment
  Bytes host;                   ///< host memory at its largest, at whatever moment
};

/// One change of the total, for plots.
struct MemorySample {
  Seconds at{0};
  Bytes allocated;
};

/// Counts what each rank class holds. An event costs O(1) whatever is live.
///
/// A buffer is allocated and freed at most once, as `check_program` has it; a ledger therefore sees
/// one run of its program. Anything else aborts through ZS_CHECK.
class MemoryLedger : public AllocationObserver {
 public:
  /// \param program          must outlive the ledger.
  /// \param keep_samples     record every change, for `samples`.
  /// \param ranks_of_a_node  that each have what the rank has in host memory.
  /// \param programs         by rank class: the program that it runs; empty: each of them once
  explicit MemoryLedger(const Program& program, bool keep_samples = false, int ranks_of_a_node = 1,
                        std::vector<int> programs = {});
  Seconds on_allocate(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                      Seconds now) override;
  Seconds on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                  Seconds now) override;

  [[nodiscard]] MemoryPeak peak(int rank_class) const;
  /// Of the device.
  [[nodiscard]] const MemoryByClass& current(int rank_class) const;
  [[nodiscard]] Bytes current_host(int rank_class) const;
  /// In host order; empty unless they are kept.
  [[nodiscard]] const std::vector<MemorySample>& samples(int rank_class) const;

 private:
  enum class BufferState : std::uint8_t { Unused, Live, Freed };

  struct RankLedger {
    Bytes allocated;
    Bytes host;
    MemoryByClass by_class{};
    MemoryPeak peak;       ///< without `op`, which is put into words when asked for
    BufferId peak_buffer;  ///< whose request reached the peak
    ModuleId peak_module;
    std::vector<BufferState> states;  ///< by BufferId
    std::vector<MemorySample> samples;
  };

  [[nodiscard]] Bytes host_bytes(const Buffer& buffer) const;
  RankLedger& ledger_of(int rank_class);
  [[nodiscard]] const RankLedger& ledger_of(int rank_class) const;
  void sample(RankLedger& ledger, Seconds now) const;

  const Program* program_;
  std::vector<int> programs_;
  bool keep_samples_;
  int ranks_of_a_node_;
  std::vector<RankLedger> ranks_;
};

/// `programs`, or if it is empty 0, 1, 2, ...: each program of `program` once.
[[nodiscard]] std::vector<int> programs_of_classes(const Program& program,
                                                   std::vector<int> programs);

/// Gives the Allocate and Free operations of one of the programs to `observer` in host order, as
/// those of the rank class of the same number, without time: a device that is always done.
void replay(const Program& program, AllocationObserver& observer, int rank_class = 0);

/// What a ledger sees of it.
[[nodiscard]] MemoryPeak replay_memory(const Program& program, int rank_class = 0);

}  // namespace zerosim
