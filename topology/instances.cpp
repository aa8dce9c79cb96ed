#include "topology/instances.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/node_graph.h"
#include "topology/slot_loads.h"

namespace zerosim {
namespace {

/// A NIC that a group drives, `nic` among the used ones.
struct Site {
  std::int32_t node = 0;
  std::int32_t nic = 0;
};

/// Node and number on it of a link, where nodes have `of_node` each.
std::pair<int, int> parts_of(int link, int of_node) {
  ZS_CHECK(of_node > 0, "a link of a node that has some");
  return {link / of_node, link % of_node};
}

/// Used NICs of a node, and which of them each of its GPUs drives (positions among the used ones).
struct NodeNics {
  std::vector<int> used;
  std::vector<std::vector<int>> of_gpu;
};

/// A GPU drives those of the used NICs that are nearest to it, and a NIC that is nobody's nearest
/// is driven by the GPUs that are nearest to it.
NodeNics node_nics(const Cluster& cluster) {
  const NodeGraph& graph = cluster.node.graph;
  const auto gpus = static_cast<std::size_t>(cluster.gpus_per_node);
  NodeNics result{used_nics(graph, cluster.gpus_per_node).nics, {}};
  std::vector<std::vector<PathKind>> paths(gpus);
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    for (const int nic : result.used) {
      paths[gpu].push_back(nic_path(graph, static_cast<int>(gpu), nic));
    }
  }
  result.of_gpu.resize(gpus);
  std::vector<bool> driven(result.used.size());
  for (std::size_t gpu = 0; gpu < gpus && !driven.empty(); ++gpu) {
    const PathKind best = *std::min_element(paths[gpu].begin(), paths[gpu].end());
    for (std::size_t nic = 0; nic < driven.size(); ++nic) {
      if (paths[gpu][nic] != best) continue;
      result.of_gpu[gpu].push_back(static_cast<int>(nic));
      driven[nic] = true;
    }
  }
  for (std::size_t nic = 0; nic < driven.size(); ++nic) {
    if (driven[nic]) continue;
    PathKind best = PathKind::None;
    for (const std::vector<PathKind>& own : paths) best = std::min(best, own[nic]);
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      if (paths[gpu][nic] == best) result.of_gpu[gpu].push_back(static_cast<int>(nic));
    }
  }
  return result;
}

/// What links carry, summed up.
class LinkSums {
 public:
  explicit LinkSums(int links) : sums_(static_cast<std::size_t>(links)) {}

  void add(int link, double share, bool exchange) {
    LinkShare& sum = sums_[static_cast<std::size_t>(link)];
    if (!sum.any()) touched_.push_back(link);
    (exchange ? sum.exchange_share : sum.share) += share;
  }

  /// Appends the sums in the order of links, numbered from `first_link` on, and forgets them.
  void flush(int first_link, std::vector<LinkShare>& uses) {
    std::sort(touched_.begin(), touched_.end());
    for (const int link : touched_) {
      LinkShare& sum = sums_[static_cast<std::size_t>(link)];
      uses.push_back(
          {first_link + link, rounded_share(sum.share), rounded_share(sum.exchange_share), 0, 0});
      sum = {};
    }
    touched_.clear();
  }

 private:
  std::vector<LinkShare> sums_;
  std::vector<int> touched_;
};

}  // namespace

struct InstanceMap::Impl {
  /// An instance's ranks on one node: where theirs begin and end in `gpus` and `sites`.
  struct Part {
    int node = 0;
    std::size_t first_gpu = 0, last_gpu = 0;
    std::size_t first_site = 0, last_site = 0;
  };
  /// GPUs and NICs of a part, ranks of its group, NICs of the domain.
  using PartKey = std::tuple<std::vector<int>, std::vector<int>, int, std::size_t>;

  Impl(const Cluster& described, int ranks, bool slots_matter)
      : cluster(described),
        nics(described.nodes > 1 ? node_nics(described) : NodeNics{}),
        nodes((ranks + described.gpus_per_node - 1) / described.gpus_per_node),
        fabric(fabric_network(described)),
        sums(fabric.link_count()),
        driven(nics.used.size(), -1) {
    if (slots_matter) slots.emplace(described);
  }

  void find_sites(const GroupPattern& group, int instance);
  void use_nics(std::size_t from, std::vector<LinkShare>& uses) const;
  void use_fabric(const GroupPattern& group, std::vector<LinkShare>& uses);
  void send(std::size_t from, std::size_t to, double part, bool exchange);
  void use_slots(const GroupPattern& group, std::vector<LinkShare>& uses);
  void use_slots_of_node(const Part& part, int ranks, std::size_t nics_of_domain,
                         std::vector<LinkShare>& uses);
  void give_slots(const GroupPattern& group, std::vector<RingSend>& sends);
  [[nodiscard]] std::size_t place_of_sender(int link) const;
  void use_copies(int rank, std::vector<LinkShare>& uses) const;
  [[nodiscard]] Seconds ring_latency() const;

  [[nodiscard]] int nic_links() const { return nodes * static_cast<int>(nics.used.size()); }
  [[nodiscard]] int first_slot() const { return nic_links() + fabric.link_count(); }
  [[nodiscard]] int slots_of_node() const { return slots ? slots->links_of_node() : 0; }
  /// Node, and number on it.
  [[nodiscard]] std::pair<int, int> place_of_slot(int link) const {
    return parts_of(link - first_slot(), slots_of_node());
  }
  [[nodiscard]] std::size_t domains() const { return begins.size() - 1; }
  [[nodiscard]] std::span<const Site> domain(std::size_t i) const {
    return {sites.data() + begins[i], begins[i + 1] - begins[i]};
  }
  /// The node's own number of a NIC: NIC 4 is on rail 4 even if it is the only one that is used.
  [[nodiscard]] int number_of(const Site& site) const {
    return nics.used[static_cast<std::size_t>(site.nic)];
  }
  /// Where what NIC `j` of `count` sends to a domain arrives.
  [[nodiscard]] int peer_node(std::size_t to, std::size_t j, std::size_t count) const {
    const std::span<const Site> peers = domain(to);
    return peers[j * peers.size() / count].node;
  }

  const Cluster& cluster;
  NodeNics nics;
  int nodes;
  FabricNetwork fabric;
  LinkSums sums;
  std::optional<SlotLoads> slots;                        ///< where they matter
  std::map<PartKey, std::vector<LinkShare>> slot_loads;  ///< of a node, of each kind of part so far

  // Of the instance at hand.
  std::vector<Site> sites;           ///< by domain
  std::vector<std::size_t> begins;   ///< of each domain's sites, and the end
  std::vector<int> last_places;      ///< by domain: places of its last rank
  std::vector<Part> parts;           ///< by node; this and the next only where slots matter
  std::vector<int> gpus;             ///< by part: of the node
  std::vector<std::int64_t> driven;  ///< by NIC: the latest node that is known to drive it
  std::vector<FabricShare> way;
  std::int64_t nodes_seen = 0;  ///< of all instances so far
};

void InstanceMap::Impl::find_sites(const GroupPattern& group, int instance) {
  sites.clear();
  begins.clear();
  last_places.clear();
  parts.clear();
  gpus.clear();
  int node = -1;
  int last_domain = -1;
  for (int k = 0; k < group.size; ++k) {
    const int rank = rank_of(group, instance, k);
    if (rank / cluster.gpus_per_node != node) {
      node = rank / cluster.gpus_per_node;
      ++nodes_seen;
      if (node / cluster.fabric.nvlink_domain_nodes != last_domain) {
        begins.push_back(sites.size());
        last_places.push_back(k);
      }
      last_domain = node / cluster.fabric.nvlink_domain_nodes;
      if (slots) parts.push_back({node, gpus.size(), gpus.size(), sites.size(), sites.size()});
    }
    if (slots) {
      gpus.push_back(rank % cluster.gpus_per_node);
      parts.back().last_gpu = gpus.size();
    }
    last_places.back() = k;
    if (nics.used.empty()) continue;
    for (const int nic : nics.of_gpu[static_cast<std::size_t>(rank % cluster.gpus_per_node)]) {
      std::int64_t& seen = driven[static_cast<std::size_t>(nic)];
      if (seen == nodes_seen) continue;
      seen = nodes_seen;
      sites.push_back({node, nic});
      if (slots) parts.back().last_site = sites.size();
    }
  }
  begins.push_back(sites.size());
}

void InstanceMap::Impl::use_nics(std::size_t from, std::vector<LinkShare>& uses) const {
  const auto of_node = static_cast<std::int32_t>(nics.used.size());
  const double share = 1.0 / static_cast<double>(domain(from).size());
  for (const Site& site : domain(from)) {
    uses.push_back({site.node * of_node + site.nic, share, share, 0, 0});
  }
}

/// `part` of V from one domain to another.
void InstanceMap::Impl::send(std::size_t from, std::size_t to, double part, bool exchange) {
  const std::span<const Site> senders = domain(from);
  const double share = part / static_cast<double>(senders.size());
  for (std::size_t j = 0; j < senders.size(); ++j) {
    way.clear();
    fabric.route(senders[j].node, number_of(senders[j]), peer_node(to, j, senders.size()), way);
    for (const FabricShare& link : way) sums.add(link.link, share * link.share, exchange);
  }
}

void InstanceMap::Impl::use_fabric(const GroupPattern& group, std::vector<LinkShare>& uses) {
  for (std::size_t i = 0; i < domains(); ++i) send(i, (i + 1) % domains(), 1, false);
  const double part = 1.0 / static_cast<double>(domains() - 1);
  for (std::size_t i = 0; group.all_to_all && i < domains(); ++i) {
    for (std::size_t k = 0; k < domains(); ++k) {
      if (k != i) send(i, k, part, true);
    }
  }
  sums.flush(nic_links(), uses);
}

void InstanceMap::Impl::use_slots(const GroupPattern& group, std::vector<LinkShare>& uses) {
  std::size_t domain = 0;
  for (const Part& part : parts) {
    while (domain + 1 < domains() && part.first_site >= begins[domain + 1]) ++domain;
    use_slots_of_node(part, group.size, begins[domain + 1] - begins[domain], uses);
  }
}

/// Nodes are alike: each kind of part is worked out once.
void InstanceMap::Impl::use_slots_of_node(const Part& part, int ranks, std::size_t nics_of_domain,
                                          std::vector<LinkShare>& uses) {
  PartKey key{{gpus.begin() + static_cast<std::ptrdiff_t>(part.first_gpu),
               gpus.begin() + static_cast<std::ptrdiff_t>(part.last_gpu)},
              {},
              ranks,
              nics_of_domain};
  auto& [own_gpus, own_nics, group_ranks, all_nics] = key;
  for (std::size_t i = part.first_site; i < part.last_site && domains() > 1; ++i) {
    own_nics.push_back(number_of(sites[i]));
  }
  auto known = slot_loads.find(key);
  if (known == slot_loads.end()) {
    const double nic_share = 1.0 / static_cast<double>(std::max<std::size_t>(all_nics, 1));
    const NodePart loads{own_gpus, own_nics, nic_share, group_ranks};
    known = slot_loads.emplace(key, slots->of_group(loads)).first;
  }
  for (LinkShare load : known->second) {
    load.link += first_slot() + part.node * slots_of_node();
    uses.push_back(load);
  }
}

/// Each slot and uplink to the rank whose sends take it along.
void InstanceMap::Impl::give_slots(const GroupPattern& group, std::vector<RingSend>& sends) {
  std::vector<LinkShare> uses;
  use_slots(group, uses);
  for (const LinkShare& use : uses) sends[place_of_sender(use.link)].links.push_back(use);
}

/// The last rank below a slot or uplink for what goes to the host, the one before the first rank
/// below it for what comes from there; the last one of the node where only NICs are below it.
std::size_t InstanceMap::Impl::place_of_sender(int link) const {
  const auto [node, slot] = place_of_slot(link);
  const auto part = std::find_if(parts.begin(), parts.end(),
                                 [node = node](const Part& one) { return one.node == node; });
  std::size_t first = part->last_gpu;
  std::size_t last = part->last_gpu - 1;
  for (std::size_t k = part->first_gpu; k < part->last_gpu; ++k) {
    if (!slots->is_below(gpus[k], slot)) continue;
    first = std::min(first, k);
    last = k;
  }
  const bool to_host = SlotLoads::kind(slot) == LinkClass::Kind::DeviceToHost;
  return to_host ? last : (first + gpus.size() - 1) % gpus.size();
}

void InstanceMap::Impl::use_copies(int rank, std::vector<LinkShare>& uses) const {
  if (!slots) return;
  const int node = rank / cluster.gpus_per_node;
  for (LinkShare load : slots->of_copies(rank % cluster.gpus_per_node)) {
    load.link += first_slot() + node * slots_of_node();
    uses.push_back(load);
  }
}

Seconds InstanceMap::Impl::ring_latency() const {
  if (cluster.fabric.hop_latency.count() <= 0) return Seconds(0);
  Seconds sum{0};
  for (std::size_t i = 0; i < domains(); ++i) {
    const std::span<const Site> senders = domain(i);
    for (std::size_t j = 0; j < senders.size(); ++j) {
      const int to = peer_node((i + 1) % domains(), j, senders.size());
      sum += fabric.latency(senders[j].node, number_of(senders[j]), to);
    }
  }
  return Seconds(rounded_share(sum.count() / static_cast<double>(sites.size())));
}

InstanceMap::InstanceMap(const Cluster& cluster, int ranks, bool slots)
    : impl_(std::make_unique<Impl>(cluster, ranks, slots)) {}
InstanceMap::~InstanceMap() = default;

const std::vector<int>& InstanceMap::nics() const {
  return impl_->nics.used;
}
int InstanceMap::nic_links() const {
  return impl_->nic_links();
}
int InstanceMap::link_count() const {
  return impl_->first_slot() + impl_->nodes * impl_->slots_of_node();
}
const FabricNetwork& InstanceMap::fabric() const {
  return impl_->fabric;
}

LinkClass::Kind InstanceMap::kind(int link) const {
  if (link < impl_->nic_links()) return LinkClass::Kind::Network;
  if (link < impl_->first_slot()) return LinkClass::Kind::Fabric;
  return SlotLoads::kind(impl_->place_of_slot(link).second);
}

BytesPerSecond InstanceMap::capacity(int link) const {
  if (link < impl_->nic_links()) return usable_nic_bandwidth(impl_->cluster);
  if (link < impl_->first_slot()) return impl_->fabric.capacity(link - impl_->nic_links());
  return impl_->slots->capacity(impl_->place_of_slot(link).second);
}

std::string InstanceMap::name(int link) const {
  const Impl& own = *impl_;
  if (link < own.nic_links()) {
    const auto [node, nic] = parts_of(link, static_cast<int>(own.nics.used.size()));
    return format("node{}.nic{}", node, own.nics.used[static_cast<std::size_t>(nic)]);
  }
  if (link < own.first_slot()) return own.fabric.name(link - own.nic_links());
  const auto [node, slot] = own.place_of_slot(link);
  return format("node{}.{}", node, own.slots->name(slot));
}

bool InstanceMap::is_uplink(int link) const {
  if (link < impl_->first_slot()) return false;
  return impl_->place_of_slot(link).second >= SlotLoads::slot(impl_->cluster.gpus_per_node, false);
}

std::vector<int> InstanceMap::slots(int node, int gpu) const {
  if (impl_->slots_of_node() == 0 || node >= impl_->nodes) return {};
  const int first = impl_->first_slot() + node * impl_->slots_of_node();
  return {first + SlotLoads::slot(gpu, false), first + SlotLoads::slot(gpu, true)};
}

CollectiveGroup InstanceMap::place(const GroupPattern& group, int instance,
                                   std::vector<LinkShare>& uses) {
  Impl& own = *impl_;
  if (group.host) {
    own.use_copies(rank_of(group, instance, 0), uses);
    return {};
  }
  own.find_sites(group, instance);
  CollectiveGroup shape{group.size, static_cast<int>(own.domains()), 0, Seconds(0)};
  if (own.domains() > 1) {
    if (own.sites.empty()) {
      throw SimulationError(
          format("cluster \"{}\" has several nodes and no NICs", own.cluster.name));
    }
    std::size_t fewest = own.sites.size();
    for (std::size_t i = 0; i < own.domains(); ++i) fewest = std::min(fewest, own.domain(i).size());
    shape.nics = static_cast<int>(fewest);
    shape.network_latency = own.ring_latency();
    for (std::size_t i = 0; i < own.domains(); ++i) own.use_nics(i, uses);
    if (own.fabric.link_count() > 0) own.use_fabric(group, uses);
  }
  if (own.slots) own.use_slots(group, uses);
  return shape;
}

std::vector<RingSend> InstanceMap::ring_sends(const GroupPattern& group, int instance) {
  Impl& own = *impl_;
  own.find_sites(group, instance);
  std::vector<RingSend> sends(static_cast<std::size_t>(group.size));
  for (std::size_t i = 0; i < own.domains() && own.domains() > 1; ++i) {
    RingSend& border = sends[static_cast<std::size_t>(own.last_places[i])];
    border.leaves_node = true;
    own.use_nics(i, border.links);
    if (own.fabric.link_count() == 0) continue;
    own.send(i, (i + 1) % own.domains(), 1, false);
    own.sums.flush(nic_links(), border.links);
  }
  if (own.slots) own.give_slots(group, sends);
  return sends;
}

int instance_count(const GroupPattern& group, int ranks) {
  const std::int64_t block = std::int64_t{group.size} * group.stride;
  if (group.size < 1 || group.stride < 1 || block > ranks || ranks % block != 0) {
    throw SimulationError(format("groups of {} ranks, {} apart, do not tile {} ranks", group.size,
                                 group.stride, ranks));
  }
  return static_cast<int>(ranks / group.size);
}

CollectiveGroup group_shape(const Cluster& cluster, const GroupPattern& group) {
  InstanceMap map(cluster, group.size * group.stride);
  std::vector<LinkShare> uses;
  return map.place(group, 0, uses);
}

}  // namespace zerosim
