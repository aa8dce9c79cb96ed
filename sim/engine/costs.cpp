#include "sim/engine/costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/engine/calibrated_host.h"
#include "sim/engine/collective_call.h"
#include "topology/calibrated_cost.h"
#include "topology/rank_figures.h"

namespace zerosim::internal {

namespace {

/// One entry a link class, and none without bytes.
std::vector<LinkLoad> merged(const std::vector<LinkLoad>& loads) {
  std::vector<LinkLoad> result;
  for (const LinkLoad& load : loads) {
    const auto same = std::find_if(result.begin(), result.end(),
                                   [&](const LinkLoad& other) { return other.kind == load.kind; });
    if (same != result.end()) {
      same->bytes += load.bytes;
    } else if (load.bytes > Bytes(0)) {
      result.push_back(load);
    }
  }
  return result;
}

}  // namespace

Costs::Costs(const Cluster& cluster, const EngineOptions& options)
    : cluster_(cluster), options_(options) {
  for (std::size_t work = 0; work < host_.size(); ++work) {
    host_[work] =
        calibrated_host_time(options.host, static_cast<HostWork>(work), options.calibration.host);
  }
  for (const std::string& kind : gpu_kinds(cluster)) {
    gpus_[kind].efficiency = calibrated_efficiency(gpu_in_use(cluster, kind), options.calibration);
  }
}

Seconds Costs::host_pass(const HostPass& pass, int ranks) const {
  const NodeTemplate& node = cluster_.node;
  const int cores = node.host_cores > 0 ? std::max(1, node.host_cores / ranks) : 0;
  const int threads = options_.host_threads > 0 ? options_.host_threads : cores;
  return host_pass_time(options_.host, pass, {node.host_memory_bandwidth, ranks, threads});
}

Bytes Costs::copy_load(const Copy& copy) const {
  if (copy.pinned) return copy.bytes;
  return Bytes(std::llround(static_cast<double>(copy.bytes.count()) / options_.host.pageable_copy));
}

BytesPerSecond Costs::device_memory(const std::string& gpu) const {
  if (options_.device_memory.per_second() > 0) return options_.device_memory;
  return usable_memory_bandwidth(gpu_spec(gpu), gpus_.at(gpu).efficiency);
}

const KernelTime& Costs::kernel(const Kernel& kernel, const std::string& gpu) {
  const KernelKey key{kernel.name,
                      static_cast<int>(kernel.kernel_class),
                      kernel.flops.count(),
                      kernel.bytes.count(),
                      kernel.m,
                      kernel.n,
                      kernel.k,
                      kernel.launches,
                      static_cast<int>(kernel.dtype),
                      kernel.backward,
                      static_cast<int>(kernel.layout),
                      static_cast<int>(kernel.units),
                      static_cast<int>(kernel.flash),
                      kernel.causal,
                      kernel.fp32_accumulate};
  GpuKind& kind = gpus_.at(gpu);
  const auto [entry, added] = kind.kernels.try_emplace(key);
  if (added) {
    entry->second = options_.kernel_time ? options_.kernel_time(kernel)
                                         : kernel_time(kernel, gpu_spec(gpu), kind.efficiency);
  }
  return entry->second;
}

const CollectiveCost& Costs::collective(const Collective& call, const ProcessGroup& group,
                                        const CollectiveGroup& shape) {
  const CollectiveKey key{static_cast<int>(call.kind),
                          call.input_elements,
                          call.output_elements,
                          static_cast<int>(call.dtype),
                          group.size,
                          group.stride,
                          group.name,
                          shape.ranks,
                          shape.nodes,
                          shape.nics,
                          shape.network_latency.count()};
  const auto [entry, added] = collectives_.try_emplace(key);
  if (added && group.size > 1) {
    entry->second = options_.collective_cost
                        ? options_.collective_cost(call, group)
                        : calibrated_cost(options_.calibration, cluster_, collective_op(call.kind),
                                          collective_size(call), shape);
    entry->second.loads = merged(entry->second.loads);
  }
  return entry->second;
}

}  // namespace zerosim::internal
