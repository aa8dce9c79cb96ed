#include "topology/cluster.h"

#include <algorithm>
#include <cmath>

#include "topology/host_links.h"
#include "topology/node_graph.h"

namespace zerosim {
BytesPerSecond ring_capacity(const NcclGraph& nccl) {
  return BytesPerSecond(nccl.ring_channels * nccl.ring_channel_gbps * nccl.ring_efficiency * 1e9);
}

int nics_in_use(const Cluster& cluster) {
  return cluster.used_nics > 0 ? cluster.used_nics : cluster.node.nics;
}

BytesPerSecond link_capacity(const Cluster& cluster, LinkClass::Kind kind) {
  switch (kind) {
    case LinkClass::Kind::IntraNode:
      return ring_capacity(cluster.nccl());
    case LinkClass::Kind::Network:
    case LinkClass::Kind::Fabric:
      return BytesPerSecond(nics_in_use(cluster) * usable_nic_bandwidth(cluster).per_second());
    case LinkClass::Kind::HostToDevice:
    case LinkClass::Kind::DeviceToHost:
      return copy_rate_of_all(host_links(cluster));
    case LinkClass::Kind::DeviceMemory:
      return cluster.gpu().memory_bandwidth;
  }
  return {};
}

BytesPerSecond usable_nic_bandwidth(const Cluster& cluster) {
  return BytesPerSecond(cluster.node.nic_bandwidth.per_second() * cluster.node.nic_efficiency *
                        cluster.fabric.efficiency);
}

int links_to_switch(const NodeTemplate& node, int gpu) {
  const double rate = nvlink_bandwidth(node.graph, gpu).per_second();
  return static_cast<int>(std::lround(rate / node.nvlink.per_second()));
}

int links_between(const NodeTemplate& node, int gpu, int other) {
  const double rate = nvlink_pair_bandwidth(node.graph, gpu, other).per_second();
  return rate <= 0 ? 0
                   : std::max(1, static_cast<int>(std::lround(rate / node.nvlink.per_second())));
}

FabricNetwork fabric_network(const Cluster& cluster) {
  return {cluster.fabric, cluster.nodes, nics_in_use(cluster), usable_nic_bandwidth(cluster)};
}

std::vector<LinkClass> link_classes(const Cluster& cluster) {
  using Kind = LinkClass::Kind;
  std::vector<LinkClass> classes;
  const auto add = [&](Kind kind, const char* name) {
    classes.push_back({kind, name, link_capacity(cluster, kind)});
  };
  add(Kind::IntraNode, has_nvlink(cluster.intra()) ? "nvlink" : "pcie");
  if (cluster.nodes > 1) add(Kind::Network, "nic");
  add(Kind::HostToDevice, "h2d");
  add(Kind::DeviceToHost, "d2h");
  return classes;
}

}  // namespace zerosim
