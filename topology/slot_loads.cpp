#include "topology/slot_loads.h"

#include <algorithm>
#include <cmath>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

/// Below this a share is what rounding leaves of nothing.
constexpr double kNothing = 1e-12;

double settled(double share) {
  return share > kNothing ? rounded_share(share) : 0;
}

bool has(const std::vector<int>& all, int one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

double rounded_share(double share) {
  int exponent = 0;
  const double mantissa = std::frexp(share, &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, 40)), exponent - 40);
}

/// Sums of shares on each link of a node.
class SlotLoads::Sum {
 public:
  /// One of the four shares of a LinkShare.
  using Share = double LinkShare::*;

  explicit Sum(const SlotLoads& loads) : loads_(loads) {
    const auto count = static_cast<std::size_t>(loads.links_of_node());
    sums_.assign(count, {0, 0, 0, 0, 0});
  }

  void add_gpu_to_gpu(int from, int to, double share, Share of) {
    const std::vector<int>& up = loads_.links_.above_gpu[static_cast<std::size_t>(from)];
    const std::vector<int>& down = loads_.links_.above_gpu[static_cast<std::size_t>(to)];
    add(slot(from, true), share, of);
    add(slot(to, false), share, of);
    cross(up, down, loads_.direct_, share, of);
  }
  void add_to_nic(int gpu, int nic, double share, Share of) {
    if (is_below(nic, gpu)) return;
    add(slot(gpu, true), share, of);
    cross(loads_.links_.above_gpu[static_cast<std::size_t>(gpu)],
          loads_.links_.above_nic[static_cast<std::size_t>(nic)], true, share, of);
  }
  void add_from_nic(int nic, int gpu, double share, Share of) {
    if (is_below(nic, gpu)) return;
    add(slot(gpu, false), share, of);
    cross(loads_.links_.above_nic[static_cast<std::size_t>(nic)],
          loads_.links_.above_gpu[static_cast<std::size_t>(gpu)], true, share, of);
  }
  void add_copies(int gpu) {
    for (const bool to_host : {false, true}) {
      add(slot(gpu, to_host), 1, &LinkShare::share);
      for (const int uplink : loads_.links_.above_gpu[static_cast<std::size_t>(gpu)]) {
        add(uplink_link(uplink, to_host), 1, &LinkShare::share);
      }
    }
  }

  [[nodiscard]] std::vector<LinkShare> links() const {
    std::vector<LinkShare> loaded;
    loaded.reserve(sums_.size());
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const LinkShare& sum = sums_[i];
      const LinkShare link{static_cast<int>(i), settled(sum.share), settled(sum.exchange_share),
                           settled(sum.intra_share), settled(sum.intra_exchange_share)};
      if (link.any()) loaded.push_back(link);
    }
    return loaded;
  }

 private:
  [[nodiscard]] bool is_below(int nic, int gpu) const {
    return loads_.gpu_above_[static_cast<std::size_t>(nic)] == gpu;
  }
  [[nodiscard]] int uplink_link(int uplink, bool to_host) const {
    return slot(static_cast<int>(loads_.links_.slots.size()) + uplink, to_host);
  }
  void add(int link, double share, Share of) { sums_[static_cast<std::size_t>(link)].*of += share; }

  /// Uplinks on the way from a device below `from` to one below `to`.
  void cross(const std::vector<int>& from, const std::vector<int>& to, bool direct, double share,
             Share of) {
    for (const int uplink : from) {
      if (!direct || !has(to, uplink)) add(uplink_link(uplink, true), share, of);
    }
    for (const int uplink : to) {
      if (!direct || !has(from, uplink)) add(uplink_link(uplink, false), share, of);
    }
  }

  const SlotLoads& loads_;
  std::vector<LinkShare> sums_;
};

SlotLoads::SlotLoads(const Cluster& cluster) : links_(host_links(cluster)) {
  const NodeGraph& graph = cluster.node.graph;
  rings_over_pcie_ = !has_nvlink(cluster.intra());
  direct_ = cluster.intra() == IntraNode::Pcie;
  ZS_CHECK(!links_.slots.empty(), "slots of a known rate");
  for (int gpu = 0; gpu < cluster.gpus_per_node; ++gpu) {
    std::vector<PathKind>& own = paths_.emplace_back();
    own.reserve(static_cast<std::size_t>(cluster.node.nics));
    for (int nic = 0; nic < cluster.node.nics; ++nic) own.push_back(nic_path(graph, gpu, nic));
  }
  gpu_above_.reserve(static_cast<std::size_t>(cluster.node.nics));
  for (int nic = 0; nic < cluster.node.nics; ++nic) {
    const HostParent parent = host_link(graph, DeviceKind::Nic, nic).parent;
    gpu_above_.push_back(parent.kind == DeviceKind::Gpu ? parent.index : -1);
  }
}

int SlotLoads::links_of_node() const {
  return 2 * static_cast<int>(links_.slots.size() + links_.uplinks.size());
}

std::string SlotLoads::name(int link) const {
  const auto gpus = static_cast<int>(links_.slots.size());
  const bool to_host = link % 2 == 1;
  if (link / 2 < gpus) return format("gpu{}.{}", link / 2, to_host ? "d2h" : "h2d");
  const Uplink& uplink = links_.uplinks[static_cast<std::size_t>(link / 2 - gpus)];
  return format("switch{}.{}", uplink.pcie_switch, to_host ? "up" : "down");
}

BytesPerSecond SlotLoads::capacity(int link) const {
  const auto index = static_cast<std::size_t>(link / 2);
  return index < links_.slots.size() ? links_.slots[index]
                                     : links_.uplinks[index - links_.slots.size()].capacity;
}

bool SlotLoads::is_below(int gpu, int link) const {
  const int uplink = link / 2 - static_cast<int>(links_.slots.size());
  return uplink < 0 ? link / 2 == gpu
                    : has(links_.above_gpu[static_cast<std::size_t>(gpu)], uplink);
}

LinkClass::Kind SlotLoads::kind(int link) {
  return link % 2 == 1 ? LinkClass::Kind::DeviceToHost : LinkClass::Kind::HostToDevice;
}

/// Places among `part.gpus`.
std::vector<std::size_t> SlotLoads::nearest(const NodePart& part, int nic) const {
  const auto path = [&](int gpu) {
    return paths_[static_cast<std::size_t>(gpu)][static_cast<std::size_t>(nic)];
  };
  PathKind best = PathKind::None;
  for (const int gpu : part.gpus) best = std::min(best, path(gpu));
  std::vector<std::size_t> places;
  for (std::size_t k = 0; k < part.gpus.size(); ++k) {
    if (path(part.gpus[k]) == best) places.push_back(k);
  }
  return places;
}

void SlotLoads::add_rings(const NodePart& part, Sum& sum) const {
  const std::size_t gpus = part.gpus.size();
  const bool inside = rings_over_pcie_ && gpus > 1;
  const auto before = [&](std::size_t k) { return inside ? (k + gpus - 1) % gpus : k; };
  std::vector<double> closed(gpus, 1.0);  // part of V on the hop that ends at a GPU
  for (const int nic : part.nics) {
    const std::vector<std::size_t> first = nearest(part, nic);
    const double share = part.nic_share / static_cast<double>(first.size());
    for (const std::size_t k : first) {
      sum.add_to_nic(part.gpus[before(k)], nic, share, &LinkShare::share);
      sum.add_from_nic(nic, part.gpus[k], share, &LinkShare::share);
      closed[k] -= share;
    }
  }
  for (std::size_t k = 0; inside && k < gpus; ++k) {
    sum.add_gpu_to_gpu(part.gpus[before(k)], part.gpus[k], closed[k], &LinkShare::intra_share);
  }
}

void SlotLoads::add_exchange(const NodePart& part, Sum& sum) const {
  const std::size_t gpus = part.gpus.size();
  const bool inside = rings_over_pcie_ && gpus > 1;
  for (const int nic : part.nics) {
    std::vector<std::size_t> users = nearest(part, nic);
    if (inside) {
      users.resize(gpus);
      for (std::size_t k = 0; k < gpus; ++k) users[k] = k;
    }
    const double share = part.nic_share / static_cast<double>(users.size());
    for (const std::size_t k : users) {
      sum.add_to_nic(part.gpus[k], nic, share, &LinkShare::exchange_share);
      sum.add_from_nic(nic, part.gpus[k], share, &LinkShare::exchange_share);
    }
  }
  const double each = 1.0 / std::max(1, part.ranks - 1);
  for (std::size_t a = 0; inside && a < gpus; ++a) {
    for (std::size_t b = 0; b < gpus; ++b) {
      if (a == b) continue;
      sum.add_gpu_to_gpu(part.gpus[a], part.gpus[b], each, &LinkShare::intra_exchange_share);
    }
  }
}

std::vector<LinkShare> SlotLoads::of_group(const NodePart& part) const {
  Sum sum(*this);
  add_rings(part, sum);
  add_exchange(part, sum);
  return sum.links();
}

std::vector<LinkShare> SlotLoads::of_copies(int gpu) const {
  Sum sum(*this);
  sum.add_copies(gpu);
  return sum.links();
}

}  // namespace zerosim
