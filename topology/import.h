/// \file
/// Reads what people have of a machine - the text of `nvidia-smi topo -m`, or NCCL's topology XML
/// (NCCL_TOPO_DUMP_FILE) - as a node of ours, with everything that had to be assumed.
///
/// Neither format says all: the matrix has no speeds and no names, the XML may leave out what NCCL
/// finds out at run time. What is missing is taken from the kind of GPU and told; where nothing
/// sensible can be taken, the error lists the candidates. The result is meant for
/// `cluster_file_text` (cluster_writer.h); memory and cores of the host, which no format has, are
/// left to the defaults of cluster files.
///
/// Not read: bandwidth between NUMA nodes of one socket (all CPU links are alike), CPU affinity
/// masks beyond telling NUMA nodes apart, collNet and port numbers, several hosts in one file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/presets/machines.h"

namespace zerosim {

struct ImportOptions {
  std::string gpu;                              ///< a GpuSpec's name; "": found out
  std::string name;                             ///< of the machine; "": the file's
  std::optional<BytesPerSecond> nic_bandwidth;  ///< peak of each NIC whose rate is not stated
};

struct ImportedNode {
  Machine machine;
  std::vector<std::string> assumptions;
  std::vector<int> gpu_devices;  ///< what the file calls each GPU (CUDA device number)
};

/// Told by content: XML begins with "<".
/// \param file  stands for the text in messages
/// \throws ConfigError  with line and, where it makes sense, column.
[[nodiscard]] ImportedNode import_topology(const std::string& text, const std::string& file,
                                           const ImportOptions& options);

[[nodiscard]] ImportedNode import_nvidia_smi(const std::string& text, const std::string& file,
                                             const ImportOptions& options);
[[nodiscard]] ImportedNode import_nccl_xml(const std::string& text, const std::string& file,
                                           const ImportOptions& options);

/// Takes the channels of a graph file (NCCL_GRAPH_DUMP_FILE) in place of our rule's: the ring
/// graph's number and speed on one node or, if its channels leave by a NIC, between nodes; and the
/// heads of NVLS.
/// \throws ConfigError  also if its GPUs are not those of `node`.
void apply_nccl_graph(ImportedNode& node, const std::string& text, const std::string& file);

}  // namespace zerosim
