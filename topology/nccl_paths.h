/// \file
/// Links that a job's environment keeps NCCL from using: what then carries its traffic.
///
/// Each function changes the cluster as it would have been found without those links, NCCL's
/// channels by the rule of nccl_graph.h, and says what it did in half a sentence; "" if nothing
/// changes. They build on each other in the order in which they stand here, so whether it matters
/// to any collective is known behind the last one only (collective_change.h): adapters of one node
/// do if GPUs are to talk through them.
///
/// Distances are NCCL's own (NCCL_P2P_LEVEL, NCCL_NET_GDR_LEVEL): PathKind, and none at all for
/// LOC.
///
/// Not modelled: traffic of one node that goes through its NICs (shared memory is off) contends
/// with nothing but other collectives of the node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/cluster.h"
#include "topology/node_graph.h"

namespace zerosim {

/// Code of a ConfigError: what is left does not join all GPUs.
inline constexpr const char* kNoWayLeft = "no_way_left";

/// GPUs copy from each other only where they are no farther apart; nullopt: nowhere. Without
/// NVLink and PCIe rings go through host memory (IntraNode::PcieHostStaged): busbw as nccl_cost.md
/// 7.2 has it, shared by the GPUs of the most crowded link to a CPU. NVLinks of several nodes are
/// off then, too, and perturbations of NVLinks fall away. A wider limit than the usual PXB lets
/// cards copy over their CPUs, if the driver does (`is_consumer_card`).
/// \throws ConfigError  if the nodes have no NICs and NVLink joined them
[[nodiscard]] std::string limit_peer_copies(Cluster& cluster, std::optional<PathKind> farthest);

/// NVLink joins no nodes (NCCL_MNNVL_ENABLE=0). \throws ConfigError  if they have no NICs
[[nodiscard]] std::string separate_nodes(Cluster& cluster);

/// Nodes talk by TCP over the adapters that they have: figures of NetworkKind::Tcp, no SHARP, no
/// faster than before in rate, least time or a step (GPUDirect-TCPX is the same sockets, but that
/// payloads stay on the GPU); and `stage_sockets`.
[[nodiscard]] std::string use_sockets(Cluster& cluster);
/// NCCL's sockets go through host memory: a TCP network gets no more than `limit_gpudirect` tells.
/// Where GPU and adapter are on different switches the way is theirs alone, each direction. Others
/// are left as they are.
void stage_sockets(Cluster& cluster);

/// Names of adapters, as NCCL_IB_HCA lists them.
struct AdapterList {
  bool excluded = false;           ///< "^": all but these
  bool exact = false;              ///< "=": whole names, else how names begin
  std::vector<std::string> names;  ///< without ports, each once
};
/// NCCL uses these InfiniBand or RoCE adapters alone; by TCP if that leaves none, as NCCL does.
///
/// A cluster's adapters have no names: adapter i is taken for mlx5_i. A machine has others besides,
/// which are left out of the cluster (storage); so where a list names others than these, as many as
/// it names are used, the first; all, if it has words without a number.
[[nodiscard]] std::string keep_adapters(Cluster& cluster, const AdapterList& list);

/// Adapters reach GPU memory only where they are no farther; nullopt: nowhere. Else they go through
/// host memory: of the way between GPUs and CPUs (LinkClass HostToDevice) each adapter has its
/// part, and half of it where GPU and adapter hang from the same PCIe switch, whose way up then
/// carries both; and LL128 is off between nodes.
[[nodiscard]] std::string limit_gpudirect(Cluster& cluster, std::optional<PathKind> farthest);

/// Sends go through host memory, receives do not (NCCL_NET_GDR_READ=0): a part of the same way.
[[nodiscard]] std::string stage_sends(Cluster& cluster);

/// GPUs of a node share no host memory (NCCL_SHM_DISABLE): where they went through it they go
/// through the NICs, of which each GPU has its part, and a step costs what one between nodes costs.
/// \throws ConfigError  if there are none
[[nodiscard]] std::string leave_shared_memory(Cluster& cluster);

}  // namespace zerosim
