#include "topology/clos_network.h"

#include <algorithm>
#include <cmath>

#include "sim/base/error.h"
#include "sim/base/random.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

constexpr std::int64_t kMostLeafNics = 1 << 20;

/// The fewest of a set of upper switches over which `uplinks` cables of each of `lower` switches
/// spread evenly; as many as the ports demand if there is no such number.
int upper_switches(int lower, int uplinks, int ports) {
  const int fewest = static_cast<int>((std::int64_t{lower} * uplinks + ports - 1) / ports);
  for (int count = std::max(fewest, 1); count <= uplinks; ++count) {
    if (uplinks % count == 0) return count;
  }
  return std::max(fewest, 1);
}

int rounded_up(double value) {
  return std::max(1, static_cast<int>(std::ceil(value - 1e-9)));
}

}  // namespace

ClosNetwork::ClosNetwork(const ClosShape& shape, int nodes, int nics, BytesPerSecond nic_bandwidth)
    : shape_(shape), nodes_(nodes), nics_(std::max(nics, 1)) {
  const std::int64_t below = std::int64_t{shape_.nodes_per_leaf} * (shape_.rails ? 1 : nics_);
  if (below > kMostLeafNics) {
    throw ConfigError(
        format("fabric: a leaf of {} NICs, expected at most {}", below, kMostLeafNics));
  }
  const int units = parts(nodes, shape_.nodes_per_leaf);
  leaves_ = checked_link_count(std::int64_t{units} * (shape_.rails ? nics_ : 1));
  pods_ = shape_.leaves_per_pod > 0 ? parts(units, shape_.leaves_per_pod) : 1;
  if (shape_.most_pods > 0 && pods_ > shape_.most_pods) {
    throw ConfigError(
        format("fabric: {} nodes need {} pods of {} leaves with {} nodes each, but "
               "there are ports for {}",
               nodes, pods_, shape_.leaves_per_pod, shape_.nodes_per_leaf, shape_.most_pods));
  }
  count_switches();
  add_levels(nic_bandwidth.per_second());
}

int ClosNetwork::leaf_nics() const {
  return shape_.nodes_per_leaf * (shape_.rails ? 1 : nics_);
}

int ClosNetwork::pod_leaves() const {
  if (pods_ == 1) return leaves_;
  return shape_.leaves_per_pod * (shape_.rails ? nics_ : 1);
}

void ClosNetwork::count_switches() {
  leaf_uplinks_ = rounded_up(leaf_nics() / shape_.oversubscription);
  const int ports = leaf_nics() + leaf_uplinks_;
  const double core = shape_.core_oversubscription;
  const int down =
      pods_ == 1 ? ports : std::max(1, static_cast<int>(std::lround(ports * core / (1 + core))));
  spines_per_pod_ = upper_switches(pod_leaves(), leaf_uplinks_, down);
  if (pods_ == 1) return;
  const double cables = static_cast<double>(pod_leaves()) * leaf_uplinks_ / core;
  spine_uplinks_ = rounded_up(cables / spines_per_pod_);
  cores_per_plane_ = upper_switches(pods_, spine_uplinks_, ports);
}

void ClosNetwork::add_levels(double nic_rate) {
  const double cables = leaf_nics() / shape_.oversubscription;
  const auto add = [this](const char* name, std::int64_t count, double rate) {
    const int first = levels_.empty() ? 0 : levels_.back().first + levels_.back().count;
    static_cast<void>(checked_link_count(first + count));
    levels_.push_back({name, first, static_cast<int>(count), BytesPerSecond(rate)});
  };
  if (shape_.hashed) {
    const std::int64_t leaf_cables = std::int64_t{leaves_} * leaf_uplinks_;
    add("leaf uplink", leaf_cables, nic_rate);
    add("leaf downlink", leaf_cables, nic_rate);
    if (pods_ == 1) return;
    const std::int64_t spine_cables = std::int64_t{pods_} * spines_per_pod_ * spine_uplinks_;
    add("spine uplink", spine_cables, nic_rate);
    add("spine downlink", spine_cables, nic_rate);
    return;
  }
  const double leaf_rate = cables * nic_rate * shape_.ecmp_efficiency;
  add("leaf uplink", leaves_, leaf_rate);
  if (pods_ > 1) {
    add("spine uplink", pods_, pod_leaves() * leaf_rate / shape_.core_oversubscription);
  }
}

int ClosNetwork::leaf_of(int node, int nic) const {
  const int unit = node / shape_.nodes_per_leaf;
  return shape_.rails ? unit * nics_ + nic : unit;
}

int ClosNetwork::pod_of_leaf(int leaf) const {
  return pods_ == 1 ? 0 : leaf / pod_leaves();
}

int ClosNetwork::leaf_link(int leaf, int cable, bool down) const {
  if (!shape_.hashed) return leaf;
  return levels_[down ? 1 : 0].first + leaf * leaf_uplinks_ + cable;
}

int ClosNetwork::spine_link(int pod, int cable, bool down) const {
  if (!shape_.hashed) return levels_[1].first + pod;
  return levels_[down ? 3 : 2].first + pod * spines_per_pod_ * spine_uplinks_ + cable;
}

std::string ClosNetwork::leaf_name(int leaf) const {
  return shape_.rails ? format("unit{}.rail{}", leaf / nics_, leaf % nics_)
                      : format("leaf{}", leaf);
}

std::string ClosNetwork::name(int link) const {
  const auto level = static_cast<std::size_t>(
      std::count_if(levels_.begin(), levels_.end(),
                    [link](const FabricLevel& l) { return l.first + l.count <= link; }));
  const int index = link - levels_[level].first;
  if (!shape_.hashed) return level == 0 ? leaf_name(index) + ".up" : format("pod{}.up", index);
  const char* way = level % 2 == 0 ? "up" : "down";
  if (level < 2) {
    return format("{}.{}{}", leaf_name(index / leaf_uplinks_), way, index % leaf_uplinks_);
  }
  const int pod_cables = spines_per_pod_ * spine_uplinks_;
  return format("pod{}.{}{}", index / pod_cables, way, index % pod_cables);
}

void ClosNetwork::route(int from, int nic, int to, std::vector<FabricShare>& links) const {
  const int leaf = leaf_of(from, nic);
  const int other_leaf = leaf_of(to, nic);
  if (leaf == other_leaf) return;
  if (shape_.hashed) return hashed_route(from, nic, to, links);
  links.push_back({leaf_link(leaf, 0, false), 1});
  const int pod = pod_of_leaf(leaf);
  if (pod != pod_of_leaf(other_leaf)) links.push_back({spine_link(pod, 0, false), 1});
}

void ClosNetwork::hashed_route(int from, int nic, int to, std::vector<FabricShare>& links) const {
  const std::uint64_t flow =
      mixed(mixed(mixed(shape_.hash_seed) + static_cast<std::uint64_t>(nic)) +
            (static_cast<std::uint64_t>(from) << 32U) + static_cast<std::uint64_t>(to));
  const int up = static_cast<int>(flow % static_cast<std::uint64_t>(leaf_uplinks_));
  const int leaf = leaf_of(from, nic);
  const int other_leaf = leaf_of(to, nic);
  const int pod = pod_of_leaf(leaf);
  const int other_pod = pod_of_leaf(other_leaf);
  links.push_back({leaf_link(leaf, up, false), 1});
  if (pod != other_pod) {
    // The spine that the cable leads to decides the plane; cable and core are the same on both
    // sides.
    const int spine = up % spines_per_pod_;
    const auto core = static_cast<int>(mixed(flow) % static_cast<std::uint64_t>(spine_uplinks_));
    const int cable = spine * spine_uplinks_ + core;
    links.push_back({spine_link(pod, cable, false), 1});
    links.push_back({spine_link(other_pod, cable, true), 1});
  }
  links.push_back({leaf_link(other_leaf, up, true), 1});
}

int ClosNetwork::switches(int from, int nic, int to) const {
  const int leaf = leaf_of(from, nic);
  const int other_leaf = leaf_of(to, nic);
  if (leaf == other_leaf) return 1;
  return pod_of_leaf(leaf) == pod_of_leaf(other_leaf) ? 3 : 5;
}

FabricCounts ClosNetwork::counts() const {
  FabricCounts counts;
  counts.leaves = leaves_;
  counts.spines = std::int64_t{pods_} * spines_per_pod_;
  counts.cores = std::int64_t{spines_per_pod_} * cores_per_plane_;
  counts.node_cables = std::int64_t{nodes_} * nics_;
  counts.leaf_cables = std::int64_t{leaves_} * leaf_uplinks_;
  counts.spine_cables = counts.spines * spine_uplinks_;
  return counts;
}

}  // namespace zerosim
