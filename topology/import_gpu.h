/// \file
/// Which GPU a machine has, by what a description tells of it; and what usually comes with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"
#include "topology/gpu.h"
#include "topology/nccl_graph.h"
#include "topology/node_graph.h"

namespace zerosim {

/// What a description tells about its GPUs.
struct GpuEvidence {
  std::string given;           ///< by the user; checked against the rest
  std::string device_kind;     ///< by PCI device id (`gpu_of_device_id`)
  int compute_capability = 0;  ///< 90; 0: not stated
  int gpus = 0;
  bool switched = false;        ///< the NVLinks lead into NVSwitches
  bool states_nvlinks = false;  ///< the description would show NVLinks if there were any
  int nvlinks = 0;              ///< most of one GPU
  int pair_nvlinks = 0;         ///< most of one pair, or into the switches
  SourceLocation where;         ///< of the most telling place
};

/// \param told  gets a sentence for what is not certain
/// \throws ConfigError  naming the candidates if there are several that differ in more than memory
[[nodiscard]] const GpuSpec& choose_gpu(const GpuEvidence& evidence,
                                        std::vector<std::string>& told);

/// "0x20b2" -> "A100-SXM4-80"; "" for one that is not listed.
[[nodiscard]] std::string gpu_of_device_id(std::string_view vendor, std::string_view device);

/// Soldered to a board whose NVLinks are always there (SXM, Grace).
[[nodiscard]] bool is_board_gpu(const GpuSpec& gpu);

/// NVLinks of the usual board with so many GPUs of this kind.
struct UsualLinks {
  std::vector<NvLinkPair> mesh;
  int switch_links = 0;
  std::string sentence;
};
/// None (an empty sentence) for cards.
[[nodiscard]] UsualLinks usual_links(const GpuSpec& gpu, int gpus);

/// Of the NICs that such servers usually have (spec/topologies.md section 2).
[[nodiscard]] BytesPerSecond usual_nic_bandwidth(const GpuSpec& gpu);

/// By what the operating system calls the adapter: "rdmap79s0" is EFA, "eth0" is TCP; "mlx5_0" is
/// InfiniBand, though it may be RoCE.
[[nodiscard]] NetworkKind network_by_name(std::string_view name);

}  // namespace zerosim
