#include "topology/instances.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

/// A NIC that a group drives, `nic` among the used ones.
struct Site {
  std::int32_t node = 0;
  std::int32_t nic = 0;
};

/// Sums of the same terms in another order differ in their last bits: shares keep 40 of them, so
/// that links that are loaded alike are found to be.
double rounded(double share) {
  int exponent = 0;
  const double mantissa = std::frexp(share, &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, 40)), exponent - 40);
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
    LinkUse& sum = sums_[static_cast<std::size_t>(link)];
    if (sum.share == 0 && sum.exchange_share == 0) touched_.push_back(link);
    (exchange ? sum.exchange_share : sum.share) += share;
  }

  /// Appends the sums in the order of links, numbered from `first_link` on, and forgets them.
  void flush(int first_link, std::vector<LinkUse>& uses) {
    std::sort(touched_.begin(), touched_.end());
    for (const int link : touched_) {
      LinkUse& sum = sums_[static_cast<std::size_t>(link)];
      uses.push_back({first_link + link, rounded(sum.share), rounded(sum.exchange_share)});
      sum = {};
    }
    touched_.clear();
  }

 private:
  std::vector<LinkUse> sums_;
  std::vector<int> touched_;
};

}  // namespace

struct InstanceMap::Impl {
  Impl(const Cluster& described, int ranks)
      : cluster(described),
        nics(described.nodes > 1 ? node_nics(described) : NodeNics{}),
        nodes((ranks + described.gpus_per_node - 1) / described.gpus_per_node),
        fabric(fabric_network(described)),
        sums(fabric.link_count()),
        driven(nics.used.size(), -1) {}

  void find_sites(const GroupPattern& group, int instance);
  void use_nics(std::size_t from, std::vector<LinkUse>& uses) const;
  void use_fabric(const GroupPattern& group, std::vector<LinkUse>& uses);
  void send(std::size_t from, std::size_t to, double part, bool exchange);
  [[nodiscard]] Seconds ring_latency() const;

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

  // Of the instance at hand.
  std::vector<Site> sites;           ///< by domain
  std::vector<std::size_t> begins;   ///< of each domain's sites, and the end
  std::vector<int> last_ranks;       ///< by domain
  std::vector<std::int64_t> driven;  ///< by NIC: the latest node that is known to drive it
  std::vector<FabricShare> way;
  std::int64_t nodes_seen = 0;  ///< of all instances so far
};

void InstanceMap::Impl::find_sites(const GroupPattern& group, int instance) {
  sites.clear();
  begins.clear();
  last_ranks.clear();
  int node = -1;
  int last_domain = -1;
  for (int k = 0; k < group.size; ++k) {
    const int rank = rank_of(group, instance, k);
    if (rank / cluster.gpus_per_node != node) {
      node = rank / cluster.gpus_per_node;
      ++nodes_seen;
      if (node / cluster.fabric.nvlink_domain_nodes != last_domain) {
        begins.push_back(sites.size());
        last_ranks.push_back(rank);
      }
      last_domain = node / cluster.fabric.nvlink_domain_nodes;
    }
    last_ranks.back() = rank;
    if (nics.used.empty()) continue;
    for (const int nic : nics.of_gpu[static_cast<std::size_t>(rank % cluster.gpus_per_node)]) {
      std::int64_t& seen = driven[static_cast<std::size_t>(nic)];
      if (seen == nodes_seen) continue;
      seen = nodes_seen;
      sites.push_back({node, nic});
    }
  }
  begins.push_back(sites.size());
}

void InstanceMap::Impl::use_nics(std::size_t from, std::vector<LinkUse>& uses) const {
  const auto of_node = static_cast<std::int32_t>(nics.used.size());
  const double share = 1.0 / static_cast<double>(domain(from).size());
  for (const Site& site : domain(from)) {
    uses.push_back({site.node * of_node + site.nic, share, share});
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

void InstanceMap::Impl::use_fabric(const GroupPattern& group, std::vector<LinkUse>& uses) {
  for (std::size_t i = 0; i < domains(); ++i) send(i, (i + 1) % domains(), 1, false);
  const double part = 1.0 / static_cast<double>(domains() - 1);
  for (std::size_t i = 0; group.all_to_all && i < domains(); ++i) {
    for (std::size_t k = 0; k < domains(); ++k) {
      if (k != i) send(i, k, part, true);
    }
  }
  sums.flush(nodes * static_cast<int>(nics.used.size()), uses);
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
  return Seconds(rounded(sum.count() / static_cast<double>(sites.size())));
}

InstanceMap::InstanceMap(const Cluster& cluster, int ranks)
    : impl_(std::make_unique<Impl>(cluster, ranks)) {}
InstanceMap::~InstanceMap() = default;

const std::vector<int>& InstanceMap::nics() const {
  return impl_->nics.used;
}
int InstanceMap::nic_links() const {
  return impl_->nodes * static_cast<int>(impl_->nics.used.size());
}
int InstanceMap::link_count() const {
  return nic_links() + impl_->fabric.link_count();
}
const FabricNetwork& InstanceMap::fabric() const {
  return impl_->fabric;
}

CollectiveGroup InstanceMap::place(const GroupPattern& group, int instance,
                                   std::vector<LinkUse>& uses) {
  Impl& own = *impl_;
  own.find_sites(group, instance);
  CollectiveGroup shape{group.size, static_cast<int>(own.domains()), 0, Seconds(0)};
  if (own.domains() == 1) return shape;
  if (own.sites.empty()) {
    throw SimulationError(format("cluster \"{}\" has several nodes and no NICs", own.cluster.name));
  }
  std::size_t fewest = own.sites.size();
  for (std::size_t i = 0; i < own.domains(); ++i) fewest = std::min(fewest, own.domain(i).size());
  shape.nics = static_cast<int>(fewest);
  shape.network_latency = own.ring_latency();
  for (std::size_t i = 0; i < own.domains(); ++i) own.use_nics(i, uses);
  if (own.fabric.link_count() > 0) own.use_fabric(group, uses);
  return shape;
}

std::vector<BorderUse> InstanceMap::borders(const GroupPattern& group, int instance) {
  Impl& own = *impl_;
  own.find_sites(group, instance);
  std::vector<BorderUse> result;
  if (own.domains() == 1) return result;
  result.reserve(own.domains());
  for (std::size_t i = 0; i < own.domains(); ++i) {
    BorderUse& border = result.emplace_back();
    border.sender = own.last_ranks[i];
    own.use_nics(i, border.uses);
    if (own.fabric.link_count() == 0) continue;
    own.send(i, (i + 1) % own.domains(), 1, false);
    own.sums.flush(nic_links(), border.uses);
  }
  return result;
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
  std::vector<LinkUse> uses;
  return map.place(group, 0, uses);
}

}  // namespace zerosim
