/// \file
/// Folding: ranks and links that behave alike are simulated once (design.md section 3).
///
/// Partition refinement (colour refinement to a fixed point). Nodes of the graph that is refined
/// are ranks, shared links and communicator instances; its initial colours are what differs from
/// the start:
///
///     rank      program, kind and speed of its GPU and host, capacities of its own links
///     link      kind, capacity, traffic of others
///     instance  communicator, what its collectives cost (ranks, nodes, NICs, latency)
///
/// In each round a rank takes the colours of the instances that it is in; an instance the set of
/// the colours of its ranks and of (link, share) that it loads; a link the multiset of the colours
/// of the instances that load it, with shares. At the fixed point one representative of each class
/// is simulated, and max-min sharing is the same on the quotient: a representative link sees as
/// many transfers of each class as each link of its class does. Where more than one instance of a
/// class meets on a link, they are told apart first, so that each is simulated.
///
/// The expanded cluster is never built: ranks and NICs are numbers, uneven ones are listed
/// (perturbation.h), and a rank's own links are part of its colour.
///
/// What an instance loads (instances.h): the ring and host links of its ranks, wholly; on each of
/// its nodes the NICs that its GPUs drive, evenly; between one node and the next, around the ring,
/// the links of the fabric on the way. Trees load the fabric as rings do. Of an all-to-all each
/// node sends an equal part to every other, by the same ways.
///
/// Not modelled: what a slow PCIe slot takes from the GPU's way to its NIC, rings in an order other
/// than that of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/cluster.h"
#include "topology/collective_model.h"

namespace zerosim {

enum class FoldMode {
  On,     ///< as Exact; and what differs only in size of local pieces is one program (sim/program)
  Exact,  ///< equal to Off to rounding
  Off,    ///< every rank is a class of its own
};

/// A communicator's shape: `size` ranks, `stride` apart; its instances tile the ranks: of each
/// block of size x stride ranks, every rank below `stride` begins one.
struct GroupPattern {
  int size = 1;
  int stride = 1;
  bool all_to_all = false;  ///< some of its collectives are (costs a way for every pair of nodes)
};

/// Consecutive ranks that run the same program.
struct RankRun {
  int first = 0;
  int count = 1;
  int program = 0;  ///< index into Program::ranks
};

/// A link of the simulation. It stands for `multiplicity` alike.
struct FoldedLink {
  LinkClass::Kind kind = LinkClass::Kind::IntraNode;  ///< never DeviceMemory: it is the engine's
  std::string name;                                   ///< of the first of its class: "node3.nic0"
  BytesPerSecond capacity;
  std::int64_t multiplicity = 1;
};

struct RankClass {
  int representative = 0;  ///< the lowest rank of the class
  int multiplicity = 1;
  int program = 0;
  int gpu = 0;              ///< index into Folding::gpus
  double gpu_speed = 1;     ///< arithmetic
  double memory_speed = 1;  ///< device memory
  double host_speed = 1;
  /// Links that are its own: indices into Folding::links; -1: there is none.
  int intra_link = -1, host_to_device = -1, device_to_host = -1;
};

/// A collective that costs V bytes on links of a kind (LinkLoad) puts `share` V on this one, an
/// all-to-all `exchange_share` V.
struct LinkShare {
  int link = 0;
  double share = 1;
  double exchange_share = 1;
};

/// Where a ring goes from one of its nodes to the next.
struct RingBorder {
  int sender = 0;                ///< class of the node's last rank
  std::vector<LinkShare> links;  ///< NICs of its node and the fabric on the way: `share` of V
};

/// Instances of one communicator that behave alike.
struct InstanceClass {
  std::vector<int> ranks;  ///< rank classes that meet in it
  CollectiveGroup shape;
  std::vector<LinkShare> links;  ///< NICs and fabric; those of the ranks are with the ranks
  int multiplicity = 1;
  /// FoldMode::Off: what adds up to `links`, by sender; of one node: none.
  std::vector<RingBorder> borders;
};

/// Bursts of another job on a link.
struct LinkBursts {
  int link = 0;
  int job = 0;  ///< index into Perturbations::jobs
};

struct Folding {
  std::vector<std::string> gpus;  ///< kinds (GpuSpec's names)
  std::vector<RankClass> ranks;   ///< by representative
  std::vector<FoldedLink> links;
  std::vector<std::vector<InstanceClass>> groups;  ///< by communicator
  std::vector<std::vector<int>> instance_of;       ///< by communicator and rank class
  std::vector<int> class_of_rank;                  ///< empty: one class
  std::vector<LinkBursts> bursts;
};

/// Index of the class of a rank.
[[nodiscard]] int class_of(const Folding& folding, int rank);

/// \param runs    cover all ranks of the cluster that take part, in order
/// \param groups  communicators of the Program, in its order
/// \throws ConfigError      if a perturbation names what is not there or leaves nothing of a link
/// \throws SimulationError  if the instances of a group do not tile the ranks
[[nodiscard]] Folding fold(const Cluster& cluster, const std::vector<RankRun>& runs,
                           const std::vector<GroupPattern>& groups, FoldMode mode);

}  // namespace zerosim
