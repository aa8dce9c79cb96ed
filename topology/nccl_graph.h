/// \file
/// Channels and speeds that NCCL's search settles on, where no table names the machine
/// (spec/nccl_cost.md sections 3 and 7).
///
/// The search takes, from a menu of speeds of one channel, the largest (channels x speed) that the
/// links allow. Here it is done by rule per link class rather than over paths.
///
/// Not modelled: rings that mix NVLink and PCIe, NICs of different speeds.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/cluster.h"
#include "topology/node_graph.h"

namespace zerosim {

/// Channels that NCCL has at most (MAXCHANNELS).
inline constexpr int kMaxNcclChannels = 64;

/// How far rings between nodes may exceed those inside: the table of nccl_cost.md section 3 has 8 x
/// 48 between H100 nodes, 12 x 30 inside.
inline constexpr double kInterOverIntra = 384.0 / 360;

/// Adapters between nodes and what is known of their kind.
enum class NetworkKind { InfiniBand, Roce, Efa, EfaV1, EfaV3, Tcp, Tcpx, Tcpxo };

[[nodiscard]] std::string_view to_string(NetworkKind kind);
/// "infiniband", "roce", "efa" (version 2: p5), "efa-v1" (p4d, g5), "efa-v3" (p5en, p6), "tcp",
/// "tcpx" (GPUDirect-TCPX: a3-highgpu), "tcpxo" (GPUDirect-TCPXO: a3-megagpu).
[[nodiscard]] const std::vector<std::string>& network_kind_names();
[[nodiscard]] std::optional<NetworkKind> network_kind(std::string_view name);

/// Of any version.
[[nodiscard]] bool is_efa(NetworkKind kind);

/// Achieved / peak of one NIC (spec/topologies.md section 1).
///
/// TCP's sockets are processors' work, which does not grow with the adapter: no NIC gets more than
/// 9 GB/s, the middle of the 8 to 10 that those of 100 Gb/s reach (nccl_cost.md 7.2). No log says
/// what faster ones do.
[[nodiscard]] double network_efficiency(NetworkKind kind, BytesPerSecond peak);
/// The same of an adapter that would reach `usual`.
[[nodiscard]] double network_efficiency(NetworkKind kind, BytesPerSecond peak, double usual);
/// What a step costs beside NCCL's own figure (spec/nccl_cost.md section 7.1).
[[nodiscard]] double extra_network_latency_us(NetworkKind kind);

/// NCCL's speed of all NVLinks of one GPU, GB/s in one direction: its own figure per link and
/// architecture, scaled as `nvlink` (peak of this node) is to the GPU's datasheet.
[[nodiscard]] double nccl_nvlink_gbps(const GpuSpec& gpu, BytesPerSecond nvlink);

/// Fills the one-node part of `graph`: channels, NVLS, kappa, floors, CTAs.
/// \param gpu   the kind of GPU
/// \param gpus  how many take part; `shape` may have more. A mesh must have a ring over them.
/// \param gpus_per_host_link  that share the most crowded link to a CPU: what rings through host
///                             memory have of it
void set_intra_node(NcclGraph& graph, IntraNode intra, const NodeShape& shape, const GpuSpec& gpu,
                    int gpus, int gpus_per_host_link = 1);

/// Fills the part of `graph` that holds when nodes > 1; the one-node part must be there.
/// \param nics  NICs that the used GPUs drive, at least 1
void set_inter_node(NcclGraph& graph, const GpuSpec& gpu, int nics, BytesPerSecond nic_bandwidth,
                    NetworkKind kind);

/// Channels as NCCL's own search found them, in place of the rule's; CTAs follow.
void give_rings(NcclGraph& graph, int channels, double gbps);
void give_inter_rings(NcclGraph& graph, int channels, double gbps);

/// How the first `gpus` GPUs reach each other, by their links (spec/nccl_cost.md section 3):
///
/// - every one in the NVSwitches: NvSwitch;
/// - NVLinks that form a ring over them: NvLinkMesh (one bridged pair among three cards forms none,
///   and NCCL's rings then go over PCIe for all);
/// - else peer-to-peer copies over PCIe, if every pair is within PXB, or, with an AMD CPU and at
///   most two GPUs, anywhere: Pcie;
/// - else, and for consumer cards, whose driver refuses peer access: PcieHostStaged.
[[nodiscard]] IntraNode intra_by_links(const NodeGraph& graph, std::span<const NvLinkPair> mesh,
                                       const GpuSpec& gpu, std::string_view cpu, int gpus);
/// A GeForce card, whose driver refuses peer-to-peer copies over PCIe.
[[nodiscard]] bool is_consumer_card(const GpuSpec& gpu);

/// NVLS heads and their one-node speed for `gpus` GPUs of an NVSwitch node: one head a GPU.
void set_nvls(NcclGraph& graph, const GpuSpec& gpu, double nvlink_gbps, int gpus);

/// Fills `cluster.settled` where perturbations take NVLinks away: all nodes use the channels that
/// the worst one can carry. Does nothing where none is lost.
/// \throws ConfigError  if more links are lost than there are; a mesh needs `peer`.
void settle_nccl(Cluster& cluster);

}  // namespace zerosim
