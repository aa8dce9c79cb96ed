/// \file
/// Times of payloads: each distinct one is computed once in the life of an engine.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/kernel_efficiency.h"

namespace zerosim::internal {

class Costs {
 public:
  /// Both must outlive it.
  Costs(const Cluster& cluster, const EngineOptions& options);

  [[nodiscard]] Seconds host(const Op& op) const {
    return op.host_count * host_[static_cast<std::size_t>(op.host_work)];
  }
  /// \param ranks  of a node.
  [[nodiscard]] Seconds host_pass(const HostPass& pass, int ranks) const;
  /// Bytes that a copy puts on its link: load is expressed in bytes, never by a slower link.
  [[nodiscard]] Bytes copy_load(const Copy& copy) const;
  /// What kernels of a GPU kind can draw from its memory.
  [[nodiscard]] BytesPerSecond device_memory(const std::string& gpu) const;

  /// Answers of this and the next are kept by address: callers may hold on to them.
  [[nodiscard]] const KernelTime& kernel(const Kernel& kernel, const std::string& gpu);
  [[nodiscard]] const CollectiveCost& collective(const Collective& call, const ProcessGroup& group,
                                                 const CollectiveGroup& shape);
  /// How long its loads take without contention.
  [[nodiscard]] Seconds transfer_time(const CollectiveCost& cost) const {
    return cost.transfer_time(cluster_);
  }

 private:
  using KernelKey =
      std::tuple<std::string_view, int, double, std::int64_t, std::int64_t, std::int64_t,
                 std::int64_t, int, int, bool, int, int, int, bool, bool>;
  using CollectiveKey = std::tuple<int, std::int64_t, std::int64_t, int, int, int, std::string, int,
                                   int, int, double>;
  struct GpuKind {
    KernelEfficiency efficiency;
    std::map<KernelKey, KernelTime> kernels;
  };

  const Cluster& cluster_;
  const EngineOptions& options_;
  std::array<Seconds, static_cast<std::size_t>(HostWork::StepOverhead) + 1> host_{};
  std::map<std::string, GpuKind> gpus_;
  std::map<CollectiveKey, CollectiveCost> collectives_;
};

}  // namespace zerosim::internal
