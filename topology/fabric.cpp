#include "topology/fabric.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/random.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

/// `count` different numbers below `among`, in random order (Fisher and Yates).
std::vector<int> drawn_places(int count, int among, std::uint64_t seed) {
  std::vector<int> places(static_cast<std::size_t>(among));
  std::iota(places.begin(), places.end(), 0);
  std::mt19937_64 generator(seed);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::swap(places[i], places[i + draw_below(generator, places.size() - i)]);
  }
  places.resize(static_cast<std::size_t>(count));
  return places;
}

int all_places(const Fabric& fabric, int nodes) {
  const Placement& placement = fabric.placement;
  if (!placement.scattered || placement.among == 0) return nodes;
  if (placement.among < nodes) {
    throw ConfigError(
        format("fabric: {} places are not enough for {} nodes", placement.among, nodes));
  }
  return placement.among;
}

FabricNetwork::Network build(const Fabric& fabric, int places, int nics,
                             BytesPerSecond nic_bandwidth) {
  const auto derated = [&](BytesPerSecond rate) {
    return BytesPerSecond(rate.per_second() * fabric.efficiency);
  };
  switch (fabric.kind) {
    case FabricKind::Switch:
      break;
    case FabricKind::LeafSpine:
    case FabricKind::RailOptimised:
    case FabricKind::FatTree: {
      ClosShape shape = fabric.clos;
      shape.rails = fabric.kind == FabricKind::RailOptimised;
      if (fabric.kind == FabricKind::LeafSpine) shape.leaves_per_pod = 0;
      return ClosNetwork(shape, places, nics, nic_bandwidth);
    }
    case FabricKind::Dragonfly: {
      DragonflyShape shape = fabric.dragonfly;
      shape.cable = derated(shape.cable);
      return DragonflyNetwork(shape, places, nics, nic_bandwidth);
    }
    case FabricKind::Torus: {
      TorusShape shape = fabric.torus;
      shape.cable = derated(shape.cable);
      return TorusNetwork(shape, places);
    }
  }
  return FabricNetwork::SingleSwitch{};
}

/// Calls `visit` with the network, or gives `otherwise` for a single switch.
template <typename Result, typename Visit>
Result visit_links(const FabricNetwork::Network& network, Result otherwise, Visit visit) {
  return std::visit(
      [&](const auto& chosen) -> Result {
        using Chosen = std::decay_t<decltype(chosen)>;
        if constexpr (std::is_same_v<Chosen, FabricNetwork::SingleSwitch>) {
          return std::move(otherwise);
        } else {
          return visit(chosen);
        }
      },
      network);
}

}  // namespace

std::string_view to_string(FabricKind kind) {
  return fabric_kind_names()[static_cast<std::size_t>(kind)];
}

const std::vector<std::string>& fabric_kind_names() {
  static const std::vector<std::string> kNames = {"switch",   "leaf-spine", "rail-optimised",
                                                  "fat-tree", "dragonfly",  "torus"};
  return kNames;
}

bool Fabric::hashed() const {
  const bool is_tree = kind == FabricKind::LeafSpine || kind == FabricKind::RailOptimised ||
                       kind == FabricKind::FatTree;
  return is_tree && clos.hashed;
}

FabricNetwork::FabricNetwork(const Fabric& fabric, int nodes, int nics,
                             BytesPerSecond nic_bandwidth)
    : nodes_(nodes),
      nics_(nics),
      all_nics_(std::max(fabric.node_nics, nics)),
      nic_bandwidth_(nic_bandwidth),
      hop_latency_(fabric.hop_latency),
      all_places_(zerosim::all_places(fabric, nodes)),
      network_(build(fabric, all_places_, all_nics_, nic_bandwidth)) {
  if (fabric.placement.scattered) {
    places_ = drawn_places(nodes, all_places_, fabric.placement.seed);
  }
}

int FabricNetwork::places() const {
  return all_places_;
}

std::vector<FabricLevel> FabricNetwork::levels() const {
  return visit_links(network_, std::vector<FabricLevel>(),
                     [](const auto& network) { return network.levels(); });
}

int FabricNetwork::link_count() const {
  return visit_links(network_, 0, [](const auto& network) {
    return network.levels().empty() ? 0
                                    : network.levels().back().first + network.levels().back().count;
  });
}

namespace {

/// Of "unit3.rail12.up": 3, 12. Within a level names come in the order of their numbers.
std::vector<std::int64_t> numbers_in(std::string_view name) {
  constexpr std::int64_t kBeyondAny = std::int64_t{1} << 40;
  std::vector<std::int64_t> numbers;
  bool in_number = false;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !in_number) numbers.push_back(0);
    if (digit) numbers.back() = std::min(10 * numbers.back() + (c - '0'), kBeyondAny);
    in_number = digit;
  }
  return numbers;
}

/// Of a level, the first link whose name does not come before `wanted`, by bisection; its end if
/// there is none.
int first_not_before(const FabricNetwork& network, const FabricLevel& level,
                     const std::vector<std::int64_t>& wanted) {
  int begin = level.first;
  int end = level.first + level.count;
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (numbers_in(network.name(middle)) < wanted) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

const FabricLevel& level_of(const FabricNetwork::Network& network, int link) {
  const FabricLevel* const none = nullptr;
  const FabricLevel* found = visit_links(network, none, [link](const auto& chosen) {
    const FabricLevel* in = nullptr;
    for (const FabricLevel& level : chosen.levels()) {
      if (link >= level.first && link < level.first + level.count) in = &level;
    }
    return in;
  });
  ZS_CHECK(found != nullptr, "a link that the fabric has");
  return *found;
}

}  // namespace

BytesPerSecond FabricNetwork::capacity(int link) const {
  return level_of(network_, link).capacity;
}

std::string FabricNetwork::name(int link) const {
  ZS_CHECK(link >= 0 && link < link_count(), "a link that the fabric has");
  return visit_links(network_, std::string(),
                     [link](const auto& network) { return network.name(link); });
}

std::vector<int> FabricNetwork::links_named(std::string_view name_or_level) const {
  for (const FabricLevel& level : levels()) {
    if (level.name != name_or_level) continue;
    std::vector<int> links(static_cast<std::size_t>(level.count));
    std::iota(links.begin(), links.end(), level.first);
    return links;
  }
  const std::vector<std::int64_t> wanted = numbers_in(name_or_level);
  for (const FabricLevel& level : levels()) {
    const int end = level.first + level.count;
    for (int link = first_not_before(*this, level, wanted); link < end; ++link) {
      const std::string found = name(link);
      if (found == name_or_level) return {link};
      if (numbers_in(found) != wanted) break;
    }
  }
  return {};
}

void FabricNetwork::route(int from, int from_nic, int to, std::vector<FabricShare>& links) const {
  from = place(from);
  to = place(to);
  if (const auto* clos = std::get_if<ClosNetwork>(&network_)) {
    clos->route(from, from_nic, to, links);
  } else if (const auto* dragonfly = std::get_if<DragonflyNetwork>(&network_)) {
    dragonfly->route(from, to, links);
  } else if (const auto* torus = std::get_if<TorusNetwork>(&network_)) {
    torus->route(from, to, links);
  }
}

int FabricNetwork::switches(int from, int from_nic, int to) const {
  from = place(from);
  to = place(to);
  if (const auto* clos = std::get_if<ClosNetwork>(&network_)) {
    return clos->switches(from, from_nic, to);
  }
  if (const auto* dragonfly = std::get_if<DragonflyNetwork>(&network_)) {
    return dragonfly->switches(from, to);
  }
  if (const auto* torus = std::get_if<TorusNetwork>(&network_)) return torus->switches(from, to);
  return 1;
}

Seconds FabricNetwork::latency(int from, int from_nic, int to) const {
  const bool single = std::holds_alternative<SingleSwitch>(network_);
  return hop_latency_ * (single ? 1 : switches(from, from_nic, to) - 1);
}

FabricCounts FabricNetwork::counts() const {
  FabricCounts single;
  single.leaves = 1;
  single.node_cables = std::int64_t{all_places_} * all_nics_;
  return visit_links(network_, single, [](const auto& network) { return network.counts(); });
}

}  // namespace zerosim
