#include "topology/host_links.h"

#include <algorithm>
#include <utility>

#include "topology/node_graph.h"

namespace zerosim {
namespace {

/// What copies achieve of a link that peaks at `peak`, where they achieve `cluster.node.host_link`
/// of one that peaks at `narrowest`.
BytesPerSecond achieved(const Cluster& cluster, BytesPerSecond peak, BytesPerSecond narrowest) {
  const BytesPerSecond known = cluster.node.host_link;
  if (peak == narrowest || narrowest.per_second() <= 0) return known;
  return BytesPerSecond(known.per_second() * (peak.per_second() / narrowest.per_second()));
}

/// Used GPUs below a PCIe switch, and the peak of the widest of their slots.
struct Below {
  int gpus = 0;
  BytesPerSecond widest;
};

class Builder {
 public:
  explicit Builder(const Cluster& cluster)
      : cluster_(cluster),
        graph_(cluster.node.graph),
        narrowest_(slowest_host_path(graph_, cluster.node.gpus)) {}

  HostLinks build() {
    const int gpus = cluster_.gpus_per_node;
    for (int gpu = 0; gpu < gpus; ++gpu) add_slot(gpu);
    add_uplinks();
    for (int gpu = 0; gpu < gpus; ++gpu) {
      result_.above_gpu.push_back(uplinks_above(DeviceKind::Gpu, gpu));
    }
    for (int nic = 0; nic < cluster_.node.nics; ++nic) {
      result_.above_nic.push_back(uplinks_above(DeviceKind::Nic, nic));
    }
    return std::move(result_);
  }

 private:
  void add_slot(int gpu) {
    const BytesPerSecond peak = host_link(graph_, DeviceKind::Gpu, gpu).bandwidth;
    result_.slots.push_back(achieved(cluster_, peak, narrowest_));
    for (const int above : switches_above(graph_, DeviceKind::Gpu, gpu)) {
      const auto index = static_cast<std::size_t>(above);
      if (index >= below_.size()) below_.resize(index + 1);
      ++below_[index].gpus;
      below_[index].widest = std::max(below_[index].widest, peak);
    }
  }

  void add_uplinks() {
    uplink_of_.assign(below_.size(), -1);
    for (std::size_t i = 0; i < below_.size(); ++i) {
      if (below_[i].gpus == 0) continue;
      const auto number = static_cast<int>(i);
      const BytesPerSecond peak = host_link(graph_, DeviceKind::PcieSwitch, number).bandwidth;
      if (below_[i].gpus == 1 && peak >= below_[i].widest) continue;
      uplink_of_[i] = static_cast<int>(result_.uplinks.size());
      result_.uplinks.push_back({number, achieved(cluster_, peak, narrowest_), below_[i].gpus});
    }
  }

  [[nodiscard]] std::vector<int> uplinks_above(DeviceKind kind, int index) const {
    std::vector<int> all;
    for (const int above : switches_above(graph_, kind, index)) {
      const auto at = static_cast<std::size_t>(above);
      if (at < uplink_of_.size() && uplink_of_[at] >= 0) all.push_back(uplink_of_[at]);
    }
    return all;
  }

  const Cluster& cluster_;
  const NodeGraph& graph_;
  BytesPerSecond narrowest_;
  std::vector<Below> below_;    ///< by PCIe switch
  std::vector<int> uplink_of_;  ///< by PCIe switch; -1: nobody's limit
  HostLinks result_;
};

}  // namespace

HostLinks host_links(const Cluster& cluster) {
  if (cluster.node.host_link.per_second() <= 0) return {};
  return Builder(cluster).build();
}

BytesPerSecond copy_rate_of_all(const HostLinks& links) {
  if (links.slots.empty()) return {};
  BytesPerSecond least = *std::min_element(links.slots.begin(), links.slots.end());
  for (const Uplink& uplink : links.uplinks) {
    least = std::min(least, BytesPerSecond(uplink.capacity.per_second() / uplink.gpus));
  }
  return least;
}

}  // namespace zerosim
