#include "topology/dragonfly_network.h"

#include <algorithm>
#include <cmath>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

/// Each link once, from element `begin` on: gateways of several ways may be one switch.
void merge_from(std::ptrdiff_t begin, std::vector<FabricShare>& links) {
  const auto first = links.begin() + begin;
  std::sort(first, links.end(),
            [](const FabricShare& a, const FabricShare& b) { return a.link < b.link; });
  auto last = first;
  for (auto next = first + 1; next < links.end(); ++next) {
    if (next->link == last->link) {
      last->share += next->share;
    } else {
      *++last = *next;
    }
  }
  links.erase(last + 1, links.end());
}

}  // namespace

DragonflyNetwork::DragonflyNetwork(const DragonflyShape& shape, int nodes, int nics,
                                   BytesPerSecond nic_bandwidth)
    : shape_(shape), nodes_(nodes), nics_(std::max(nics, 1)) {
  groups_ = parts(parts(nodes, shape_.nodes_per_switch), shape_.switches_per_group);
  if (groups_ > 1) {
    const double group_nics =
        static_cast<double>(shape_.nodes_per_switch) * nics_ * shape_.switches_per_group;
    const double cables = std::floor(group_nics / shape_.taper + 1e-9);
    if (cables < groups_ - 1) {
      throw ConfigError(
          format("fabric: {} nodes are {} groups of a dragonfly, but a group has {} global cables "
                 "and so joins at most {} groups",
                 nodes, groups_, cables, cables + 1));
    }
    global_links_ = checked_link_count(static_cast<std::int64_t>(cables) / (groups_ - 1));
  }
  const bool as_nic = shape_.cable.per_second() <= 0;
  add_levels((as_nic ? nic_bandwidth : shape_.cable).per_second());
}

void DragonflyNetwork::add_levels(double cable_rate) {
  const std::int64_t in_group = std::int64_t{shape_.switches_per_group} * shape_.switches_per_group;
  const int local = checked_link_count(groups_ * in_group);
  const int global = checked_link_count(std::int64_t{groups_} * groups_);
  static_cast<void>(checked_link_count(std::int64_t{local} + global));
  levels_.push_back({"local link", 0, local, BytesPerSecond(shape_.local_links * cable_rate)});
  if (groups_ > 1) {
    levels_.push_back({"global link", local, global, BytesPerSecond(global_links_ * cable_rate)});
  }
}

int DragonflyNetwork::gateway(int group, int other, int cable) const {
  const std::int64_t turn = other < group ? other : other - 1;
  const int size = shape_.switches_per_group;
  return group * size + static_cast<int>((turn * global_links_ + cable) % size);
}

int DragonflyNetwork::gateways() const {
  return std::min(global_links_, shape_.switches_per_group);
}

double DragonflyNetwork::gateway_share(int cable) const {
  const int size = shape_.switches_per_group;
  const int cables = global_links_ / size + (cable < global_links_ % size ? 1 : 0);
  return static_cast<double>(cables) / global_links_;
}

int DragonflyNetwork::local_link(int from_switch, int to_switch) const {
  return from_switch * shape_.switches_per_group + to_switch % shape_.switches_per_group;
}

int DragonflyNetwork::global_link(int from_group, int to_group) const {
  return levels_[1].first + from_group * groups_ + to_group;
}

std::string DragonflyNetwork::name(int link) const {
  const int size = shape_.switches_per_group;
  if (link < levels_[0].count) {
    const int from = link / size;
    return format("group{}.switch{}.to{}", from / size, from % size, link % size);
  }
  const int index = link - levels_[0].count;
  return format("group{}.to{}", index / groups_, index % groups_);
}

void DragonflyNetwork::add_local(int from_switch, int to_switch, double share,
                                 std::vector<FabricShare>& links) const {
  if (from_switch != to_switch) links.push_back({local_link(from_switch, to_switch), share});
}

void DragonflyNetwork::route(int from, int to, std::vector<FabricShare>& links) const {
  const int from_switch = switch_of(from);
  const int to_switch = switch_of(to);
  if (from_switch == to_switch) return;
  const auto begin = static_cast<std::ptrdiff_t>(links.size());
  if (group_of(from_switch) == group_of(to_switch)) {
    route_in_group(from_switch, to_switch, links);
  } else if (shape_.routing == DragonflyRouting::Minimal) {
    route_between(from_switch, to_switch, 1, links);
  } else {
    route_adaptively(from_switch, to_switch, links);
  }
  merge_from(begin, links);
}

void DragonflyNetwork::route_adaptively(int from_switch, int to_switch,
                                        std::vector<FabricShare>& links) const {
  const int from_group = group_of(from_switch);
  const int to_group = group_of(to_switch);
  const double share = 1.0 / (groups_ - 1);
  route_between(from_switch, to_switch, share, links);
  for (int by = 0; by < groups_; ++by) {
    if (by != from_group && by != to_group) {
      route_by_group(from_switch, by, to_switch, share, links);
    }
  }
}

void DragonflyNetwork::route_in_group(int from_switch, int to_switch,
                                      std::vector<FabricShare>& links) const {
  const bool minimal = shape_.routing == DragonflyRouting::Minimal;
  const double share = minimal ? 1.0 : 1.0 / (shape_.switches_per_group - 1);
  add_local(from_switch, to_switch, share, links);
  if (minimal) return;
  const int first = group_of(from_switch) * shape_.switches_per_group;
  for (int by = first; by < first + shape_.switches_per_group; ++by) {
    if (by == from_switch || by == to_switch) continue;
    add_local(from_switch, by, share, links);
    add_local(by, to_switch, share, links);
  }
}

void DragonflyNetwork::route_between(int from_switch, int to_switch, double share,
                                     std::vector<FabricShare>& links) const {
  const int from_group = group_of(from_switch);
  const int to_group = group_of(to_switch);
  links.push_back({global_link(from_group, to_group), share});
  for (int cable = 0; cable < gateways(); ++cable) {
    const double part = share * gateway_share(cable);
    add_local(from_switch, gateway(from_group, to_group, cable), part, links);
    add_local(gateway(to_group, from_group, cable), to_switch, part, links);
  }
}

void DragonflyNetwork::route_by_group(int from_switch, int by_group, int to_switch, double share,
                                      std::vector<FabricShare>& links) const {
  const int from_group = group_of(from_switch);
  const int to_group = group_of(to_switch);
  links.push_back({global_link(from_group, by_group), share});
  links.push_back({global_link(by_group, to_group), share});
  for (int cable = 0; cable < gateways(); ++cable) {
    const double part = share * gateway_share(cable);
    add_local(from_switch, gateway(from_group, by_group, cable), part, links);
    add_local(gateway(by_group, from_group, cable), gateway(by_group, to_group, cable), part,
              links);
    add_local(gateway(to_group, by_group, cable), to_switch, part, links);
  }
}

int DragonflyNetwork::switches(int from, int to) const {
  const int from_switch = switch_of(from);
  const int to_switch = switch_of(to);
  if (from_switch == to_switch) return 1;
  const int from_group = group_of(from_switch);
  const int to_group = group_of(to_switch);
  if (from_group == to_group) return 2;
  int most = 2;
  for (int cable = 0; cable < gateways(); ++cable) {
    const int before = gateway(from_group, to_group, cable) == from_switch ? 0 : 1;
    const int after = gateway(to_group, from_group, cable) == to_switch ? 0 : 1;
    most = std::max(most, 2 + before + after);
  }
  return most;
}

FabricCounts DragonflyNetwork::counts() const {
  const std::int64_t size = shape_.switches_per_group;
  FabricCounts counts;
  counts.leaves = groups_ * size;
  counts.node_cables = std::int64_t{nodes_} * nics_;
  counts.leaf_cables = groups_ * size * (size - 1) / 2 * shape_.local_links;
  counts.spine_cables = std::int64_t{groups_} * (groups_ - 1) / 2 * global_links_;
  return counts;
}

}  // namespace zerosim
