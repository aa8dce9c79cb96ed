/// \file
/// NCCL's topology XML as lists of devices and what hangs from what: what it says, without meaning.
///
///     system > cpu > pci (bridges nest) > gpu > nvlink, c2c
///                                       > nic > net
///                  > nic > net           (sockets, virtual adapters)
///
/// A PCI device is told by the longest known prefix of its class: 0x0604 bridge, 0x03 GPU, 0x02
/// NIC, 0x068000 NVSwitch; without a class by its children. A bridge below one with the same four
/// ids is part of it (cascaded chips of one switch); a bridge without devices is left out. A PCI
/// link without speed is generation 3, without width x16, as NCCL takes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"
#include "topology/node_graph.h"

namespace zerosim {

/// A device's place and identity.
struct NcclPci {
  SourceLocation where;
  std::string busid;  ///< lower case; "" of an adapter without PCI device
  std::string pci_class, vendor, device;
  HostParent parent;
  BytesPerSecond link;  ///< upwards, peak of one direction; 0: not a PCI device
  bool link_stated = true;
};

struct NcclNvLink {
  SourceLocation where;
  std::string target;        ///< lower case bus id
  std::string target_class;  ///< "0x068000"; "": not stated
  int count = 1;
};

struct NcclGpu {
  NcclPci pci;
  int dev = -1;  ///< CUDA device; -1: not stated
  int sm = 0;    ///< 90; 0: not stated
  std::vector<NcclNvLink> nvlinks;
  BytesPerSecond c2c;  ///< to its Grace CPU, one direction; 0: none
  int cpu = 0;         ///< the CPU that it is below
};

struct NcclNic {
  NcclPci pci;
  bool has_net = false;  ///< a `net` describes it
  std::string name;
  int dev = -1;
  double megabits = 0;  ///< per second; 0: not stated
  int ports = 1;        ///< `net`s that share its PCI link
};

struct NcclCpu {
  int numa = 0;
  std::string arch, vendor;
  int family = 0, model = 0;
};

struct NcclTopology {
  SourceLocation where;
  std::vector<NcclCpu> cpus;
  std::vector<NcclPci> switches;  ///< parents before their children
  std::vector<NcclGpu> gpus;      ///< in the order of the file
  std::vector<NcclNic> nics;
  std::vector<NcclPci> unclassified;  ///< neither class nor children
  int ignored = 0;                    ///< devices of other classes
  std::vector<std::string> told;      ///< what was read otherwise than it stands there
};

/// \throws ConfigError  with line and column.
[[nodiscard]] NcclTopology parse_nccl_topology(std::string_view text, const std::string& file);

}  // namespace zerosim
