#include "topology/nccl_paths.h"

#include <algorithm>
#include <charconv>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/nccl_graph.h"

namespace zerosim {
namespace {

bool is_verbs(NetworkKind kind) {
  return kind == NetworkKind::InfiniBand || kind == NetworkKind::Roce;
}

/// Between any two of the used GPUs, over PCIe.
PathKind farthest_pair(const Cluster& cluster) {
  PathKind farthest = PathKind::PcieSwitch;
  for (int a = 0; a < cluster.gpus_per_node; ++a) {
    for (int b = a + 1; b < cluster.gpus_per_node; ++b) {
      farthest = std::max(farthest, gpu_host_path(cluster.node.graph, a, b));
    }
  }
  return farthest;
}

/// Channels between nodes by the rule, with the adapters that are left. What a step cost before it
/// still costs: adapters that lose an ability are no faster.
void set_network(Cluster& cluster) {
  NodeTemplate& node = cluster.node;
  if (node.nics == 0) return;
  const UsedNics used = used_nics(node.graph, cluster.gpus_per_node);
  const NcclGraph before = node.nccl;
  cluster.used_nics = static_cast<int>(used.nics.size());
  node.nic_bandwidth = used.bandwidth;
  set_inter_node(node.nccl, cluster.gpu(), cluster.used_nics, used.bandwidth, node.network);
  node.nccl.extra_network_latency_us =
      std::max(before.extra_network_latency_us, node.nccl.extra_network_latency_us);
  node.nccl.inter_floor_us = std::max(before.inter_floor_us, node.nccl.inter_floor_us);
}

void set_intra(Cluster& cluster, IntraNode intra) {
  NodeTemplate& node = cluster.node;
  NodeShape shape;
  shape.gpus = node.gpus;
  shape.pcie = slowest_host_path(node.graph, cluster.gpus_per_node);
  node.intra = intra;
  set_intra_node(node.nccl, intra, shape, cluster.gpu(), std::max(2, cluster.gpus_per_node),
                 gpus_per_host_link(node.graph, cluster.gpus_per_node));
  set_network(cluster);
}

void drop_nvlink_perturbations(Cluster& cluster) {
  std::erase_if(cluster.perturbations.links, [](const LinkPerturbation& entry) {
    return entry.where == LinkPerturbation::Where::NvLink;
  });
}

IntraNode intra_within(const Cluster& cluster, std::optional<PathKind> farthest) {
  const IntraNode own = cluster.node.intra;
  if (!farthest) return IntraNode::PcieHostStaged;
  if (has_nvlink(own)) return own;
  const PathKind pair = farthest_pair(cluster);
  if (own == IntraNode::Pcie) {
    // PXB is the rule anyway, and what the cluster says of its links counts for more.
    const bool within = *farthest >= PathKind::PcieSwitches || pair <= *farthest;
    return within ? own : IntraNode::PcieHostStaged;
  }
  const bool wider = *farthest >= PathKind::HostBridge && pair <= *farthest;
  return wider && !is_consumer_card(cluster.gpu()) ? IntraNode::Pcie : own;
}

std::string ring_text(const Cluster& cluster) {
  return format("rings reach {:.3g} GB/s", ring_capacity(cluster.node.nccl).gb_per_second());
}

/// How near adapter and GPU are where they are farthest apart: of each used adapter its nearest
/// GPU.
PathKind farthest_adapter(const Cluster& cluster) {
  const NodeGraph& graph = cluster.node.graph;
  PathKind farthest = PathKind::PcieSwitch;
  for (const int nic : used_nics(graph, cluster.gpus_per_node).nics) {
    PathKind nearest = PathKind::None;
    for (int gpu = 0; gpu < cluster.gpus_per_node; ++gpu) {
      nearest = std::min(nearest, nic_path(graph, gpu, nic));
    }
    farthest = std::max(farthest, nearest);
  }
  return farthest;
}

/// Of the way between GPUs and CPUs what each adapter has, bytes a second, by `part` of it.
/// \returns what it says about adapters; the cluster's are no faster.
std::string stage(Cluster& cluster, double part) {
  NodeTemplate& node = cluster.node;
  const double host = link_capacity(cluster, LinkClass::Kind::HostToDevice).per_second();
  const double each = part * host * cluster.gpus_per_node / nics_in_use(cluster);
  const double before = node.nic_bandwidth.per_second() * node.nic_efficiency;
  node.nic_efficiency = std::min(before, each) / node.nic_bandwidth.per_second();
  if (each >= before) return "which keeps up";
  return format("{:.3g} of {:.3g} GB/s an adapter", each * 1e-9, before * 1e-9);
}

/// Number of a name's end: 7 of "mlx5_7"; -1: it has none.
int number_at_end(const std::string& name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  const char* first = name.data() + (end == std::string::npos ? 0 : end + 1);
  int number = -1;
  std::from_chars(first, name.data() + name.size(), number);
  return number;
}

bool is_listed(const AdapterList& list, const std::string& adapter) {
  return std::any_of(list.names.begin(), list.names.end(), [&](const std::string& name) {
    return list.exact ? adapter == name : adapter.starts_with(name);
  });
}

/// Of this cluster's adapters, by the names that they are taken to have.
bool names_ours(const Cluster& cluster, const std::string& name) {
  constexpr std::string_view kStem = "mlx5_";
  if (kStem.starts_with(name)) return true;
  const bool numbered = name.starts_with(kStem) && name.size() > kStem.size() &&
                        name.find_first_not_of("0123456789", kStem.size()) == std::string::npos;
  return numbered && number_at_end(name) < cluster.node.nics;
}

std::vector<bool> kept_adapters(const Cluster& cluster, const AdapterList& list) {
  const auto all = [&](auto test) {
    return std::all_of(list.names.begin(), list.names.end(), test);
  };
  const bool ours = all([&](const std::string& name) { return names_ours(cluster, name); });
  const bool numbered = all([](const std::string& name) { return number_at_end(name) >= 0; });
  const auto count = static_cast<std::size_t>(cluster.node.nics);
  std::vector<bool> kept(count, true);
  for (std::size_t i = 0; i < count; ++i) {
    if (ours || list.excluded) {
      kept[i] = is_listed(list, format("mlx5_{}", i)) != list.excluded;
    } else if (numbered) {
      kept[i] = i < list.names.size();
    }
  }
  return kept;
}

void fail_without_nics(const Cluster& cluster, const char* who) {
  if (cluster.node.nics > 0) return;
  throw ConfigError(
      SourceLocation{},
      format("{} then reach each other through adapters only, and nodes ({}) have none", who,
             cluster.node.name),
      kNoWayLeft);
}

}  // namespace

std::string separate_nodes(Cluster& cluster) {
  if (cluster.fabric.nvlink_domain_nodes == 1 || cluster.nodes == 1) return "";
  fail_without_nics(cluster, "nodes");
  cluster.fabric.nvlink_domain_nodes = 1;
  return "NVLink joins no nodes, which talk through their adapters";
}

std::string limit_peer_copies(Cluster& cluster, std::optional<PathKind> farthest) {
  const IntraNode intra = intra_within(cluster, farthest);
  if (intra == cluster.node.intra) return "";
  const std::string nodes = has_nvlink(cluster.node.intra) ? separate_nodes(cluster) : "";
  drop_nvlink_perturbations(cluster);
  set_intra(cluster, intra);
  settle_nccl(cluster);
  const char* way = intra == IntraNode::Pcie ? "directly over PCIe" : "through host memory";
  return format("GPUs of a node talk {}, where {}{}{}", way, ring_text(cluster),
                nodes.empty() ? "" : "; ", nodes);
}

void stage_sockets(Cluster& cluster) {
  const NodeTemplate& node = cluster.node;
  const bool known = node.host_link.per_second() > 0;
  if (node.nics == 0 || node.network != NetworkKind::Tcp || !known) return;
  const bool shares_a_switch = farthest_adapter(cluster) < PathKind::HostBridge;
  static_cast<void>(stage(cluster, shares_a_switch ? 0.5 : 1));
}

std::string use_sockets(Cluster& cluster) {
  NodeTemplate& node = cluster.node;
  if (node.nics == 0 || node.network == NetworkKind::Tcp) return "";
  node.network = NetworkKind::Tcp;
  node.nic_efficiency =
      std::min(node.nic_efficiency, network_efficiency(NetworkKind::Tcp, node.nic_bandwidth));
  cluster.fabric.sharp = false;
  set_network(cluster);
  stage_sockets(cluster);
  settle_nccl(cluster);
  return format("adapters talk by TCP through host memory, {:.3g} GB/s each, {:g} us more a step",
                usable_nic_bandwidth(cluster).gb_per_second(), node.nccl.extra_network_latency_us);
}

std::string keep_adapters(Cluster& cluster, const AdapterList& list) {
  NodeTemplate& node = cluster.node;
  if (node.nics == 0 || !is_verbs(node.network)) return "";
  const int before = nics_in_use(cluster);
  const std::vector<bool> kept = kept_adapters(cluster, list);
  if (std::find(kept.begin(), kept.end(), true) == kept.end()) {
    const std::string sockets = use_sockets(cluster);
    return sockets.empty() ? "" : "no adapter is left, so " + sockets;
  }
  for (const DeviceId device : devices_of(node.graph, DeviceKind::Nic)) {
    Device& nic = node.graph[device];
    nic.off = !kept[static_cast<std::size_t>(nic.index)];
  }
  if (reachable_nics(node.graph, cluster.gpus_per_node) == before &&
      std::find(kept.begin(), kept.end(), false) == kept.end()) {
    return "";
  }
  set_network(cluster);
  settle_nccl(cluster);
  return format("a node uses {} of {} adapters (adapter i is taken for mlx5_i)",
                nics_in_use(cluster), before);
}

std::string limit_gpudirect(Cluster& cluster, std::optional<PathKind> farthest) {
  NodeTemplate& node = cluster.node;
  if (node.nics == 0 || node.network == NetworkKind::Tcp) return "";
  const PathKind path = farthest_adapter(cluster);
  const bool usual = path < PathKind::HostBridge;
  if (!usual || (farthest && path <= *farthest)) return "";
  node.nccl.inter_ll128 = false;
  const std::string rate = stage(cluster, 0.5);
  settle_nccl(cluster);
  return format("adapters reach GPUs through host memory, {}, and LL128 is off", rate);
}

std::string stage_sends(Cluster& cluster) {
  const NodeTemplate& node = cluster.node;
  if (node.nics == 0 || node.network == NetworkKind::Tcp) return "";
  const double before = node.nic_efficiency;
  const std::string rate = stage(cluster, 1);
  if (node.nic_efficiency == before) return "";
  return format("sends through adapters go through host memory, {}", rate);
}

std::string leave_shared_memory(Cluster& cluster) {
  NodeTemplate& node = cluster.node;
  if (node.intra != IntraNode::PcieHostStaged || cluster.gpus_per_node == 1) return "";
  fail_without_nics(cluster, "GPUs of a node");
  NcclGraph& graph = node.nccl;
  const double adapters = usable_nic_bandwidth(cluster).gb_per_second() * nics_in_use(cluster);
  const double slot = slowest_host_path(node.graph, cluster.gpus_per_node).gb_per_second();
  const double each = std::min(adapters / cluster.gpus_per_node, slot);
  graph.ring_channel_gbps = each / graph.ring_channels;
  graph.ring_efficiency = 1;
  graph.staged = false;
  graph.over_nics = true;
  const bool ll128 = graph.inter_ll128;
  set_network(cluster);
  graph.inter_ll128 = graph.inter_ll128 && ll128;
  settle_nccl(cluster);
  return format("GPUs of a node talk through its adapters, where {}", ring_text(cluster));
}

}  // namespace zerosim
