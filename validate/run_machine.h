/// \file
/// The cluster of a published training run: its GPU, and the words on its links.
///
/// GPU: the names of data/measured/README.md, else gpu_words.h. Links inside a node and between
/// nodes: link_words.h; on them a preset is found, or a node spelled out, as for logs of nccl-tests
/// (log_machine.h). What the words leave open comes from one table, `usual_networks`, and is told:
///
/// - links inside a node: boards (SXM) have NVSwitches, or, of just as many GPUs as such a preset
///   has, direct NVLinks; cards meet in host memory, unless NVLink is named (a bridge). "A or B" is
///   taken as not said, but two cards that may have an NVLink bridge have it;
/// - the network: by cloud, where the row names one, and GPU. A rate of the whole node without
///   adapters is that of as many usual adapters as come nearest.
///
/// A kind of GPU that no preset has stands in the node of one with the same links
/// (`have_same_links`): GB300 in that of GB200.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/cluster.h"

namespace zerosim {

/// What a row says of its machine.
struct RunPlace {
  std::string gpu;         ///< "A100-SXM4-80GB"
  std::string intra_node;  ///< "NVSwitch (NVLink3)"; blank: not said
  std::string inter_node;  ///< "8x200Gb RoCE (1600 Gb/s per node)"
  std::string cloud;       ///< text that may name one: source, notes
  int nodes = 1;
  int gpus_per_node = 1;
  std::string location;  ///< "runs.csv:12", for messages
};

struct RunMachine {
  std::optional<Cluster> cluster;
  std::string why;  ///< there is none
  std::vector<std::string> assumptions;
};

[[nodiscard]] RunMachine machine_of_run(const RunPlace& place);

/// The network that machines with a GPU usually have.
struct UsualNetwork {
  std::string_view cloud;  ///< "": anywhere
  std::string_view gpu;    ///< what its name begins with; "": any
  std::string_view words;  ///< as link_words.h reads them
  std::string_view source;
};

/// The first entry that fits a row is taken.
[[nodiscard]] std::span<const UsualNetwork> usual_networks();

}  // namespace zerosim
