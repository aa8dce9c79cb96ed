/// \file
/// The text of `nvidia-smi topo -m` as a matrix of connections: what it says, without meaning.
///
/// Accepted: tabs or padding by spaces, CRLF, ANSI escapes, text before the matrix, old names of
/// columns (mlx5_0) and cells (SOC), missing NIC rows, affinity columns in all versions, the NIC
/// legend. The legend of cells is not read: its wording changed, the cells did not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace zerosim {

struct TopoCell {
  enum class Kind {
    Unknown,  ///< neither row has it
    Self,     ///< X
    NvLink,   ///< NV#: so many bonded NVLinks
    Pix,      ///< at most one PCIe switch
    Pxb,      ///< several PCIe switches, not the host bridge
    Phb,      ///< through a host bridge (CPU)
    Node,     ///< through several host bridges of a NUMA node
    Sys,      ///< between NUMA nodes
  };
  Kind kind = Kind::Unknown;
  int nvlinks = 0;
  int line = 0, column = 0;  ///< in the text, from 1

  /// On one NUMA node without NVLink: PIX, PXB, PHB, NODE.
  [[nodiscard]] bool same_numa() const { return kind >= Kind::Pix && kind <= Kind::Node; }
  /// Below one tree of PCIe switches.
  [[nodiscard]] bool same_tree() const { return kind == Kind::Pix || kind == Kind::Pxb; }
};

struct TopoDevice {
  std::string name;           ///< "GPU0", "NIC0", "mlx5_0"
  std::string legend;         ///< of a NIC: "mlx5_0" as the NIC legend has it
  std::string cpu_affinity;   ///< "0-31,64-95"; "": not given
  std::string numa_affinity;  ///< "0", "0-1"; "": not given or N/A
};

/// GPUs first, then NICs, each in the order of the columns.
struct TopoMatrix {
  std::string file;
  std::vector<TopoDevice> devices;
  int gpus = 0;
  std::vector<std::vector<TopoCell>> cells;

  [[nodiscard]] const TopoCell& at(int a, int b) const {
    return cells[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
  }
  [[nodiscard]] int size() const { return static_cast<int>(devices.size()); }
};

/// \throws ConfigError  with line and column: no matrix, a missing row, an unknown cell, two cells
///                      that contradict each other.
[[nodiscard]] TopoMatrix parse_topo_matrix(std::string_view text, const std::string& file);

}  // namespace zerosim
