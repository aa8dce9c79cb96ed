/// \file
/// What makes a cluster uneven: machines, links and traffic that differ from the template.
///
/// Everything here is sparse: a cluster of 16,384 nodes with one slow GPU holds one entry. Where
/// entries meet, factors multiply, background traffic and lost links add up, and of two values (a
/// kind of GPU, a micro batch) the later one wins: but for these the order of entries is of no
/// account.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"

namespace zerosim {

/// Calls `body` for each index that an entry lists: if it lists none, for all from 0 to count - 1.
template <typename Body>
void for_selected(const std::vector<int>& listed, int count, Body body) {
  for (const int index : listed) body(index);
  for (int index = 0; listed.empty() && index < count; ++index) body(index);
}

/// \throws ConfigError  if an entry lists an index that is not there; `what` names one: "node"
void check_selected(const char* what, const std::vector<int>& listed, int count);

/// Some GPUs, and the ranks on them, are not as the template says.
struct GpuPerturbation {
  std::vector<int> nodes;                   ///< empty: every node
  std::vector<int> gpus;                    ///< of each of them; empty: every GPU
  double speed = 1;                         ///< SM clock over the nominal one: arithmetic
  double memory_speed = 1;                  ///< device memory's rate over the nominal one
  double host_speed = 1;                    ///< of the host thread
  std::optional<std::string> kind;          ///< another GPU on the same links (a GpuSpec's name)
  std::optional<std::int64_t> micro_batch;  ///< samples of this rank's micro batch
};

/// Links that are slower than they should be, or that others use.
struct LinkPerturbation {
  enum class Where {
    NvLink,  ///< of a GPU (NVSwitch), or between `gpus` and `peer` (mesh)
    Pcie,    ///< between a GPU and its host
    Nic,     ///< a NIC and its cable
    Fabric,  ///< links of the fabric, by name or level (FabricNetwork::name, FabricLevel)
  };
  Where where = Where::Nic;
  std::vector<int> nodes;     ///< empty: every node; not for Fabric
  std::vector<int> gpus;      ///< NvLink, Pcie; empty: every GPU
  std::vector<int> nics;      ///< Nic; empty: every NIC
  std::string fabric;         ///< Fabric: name or level
  int peer = -1;              ///< NvLink of a mesh: the other GPU
  double bandwidth = 1;       ///< what is left of the rate, before `background`; above 0
  int lost_links = 0;         ///< NvLink: so many of the NVLinks are gone; NCCL sees it
  BytesPerSecond background;  ///< traffic that is always there and does not give way
};

/// Another job that uses links of the fabric or NICs in bursts, and shares them fairly.
struct CompetingJob {
  std::string name;
  LinkPerturbation links;  ///< which ones; its figures are not read
  Bytes bytes;             ///< on each such link, in one burst
  Seconds period{0};  ///< from the begin of a burst to the next; a burst waits for the one before
  Seconds offset{0};  ///< begin of the first
};

/// Random variation: each kernel's time is multiplied by exp(s z - s^2/2) with z normal, so that
/// its mean stays. Ranks draw independently, so nothing can be folded.
struct Jitter {
  double kernels = 0;  ///< s of device kernels
  double host = 0;     ///< s of host work
  std::uint64_t seed = 1;
  int repetitions = 10;
  [[nodiscard]] bool any() const { return kernels > 0 || host > 0; }
};

struct Perturbations {
  std::vector<GpuPerturbation> gpus;
  std::vector<LinkPerturbation> links;
  std::vector<CompetingJob> jobs;
  Jitter jitter;
  [[nodiscard]] bool empty() const {
    return gpus.empty() && links.empty() && jobs.empty() && !jitter.any();
  }
};

}  // namespace zerosim
