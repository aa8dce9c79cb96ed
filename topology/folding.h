/// \file
/// Folding: ranks and links that behave alike are simulated once (design.md section 3).
///
/// Partition refinement (colour refinement to a fixed point). Nodes of the graph that is refined
/// are ranks, shared links and communicator instances; its initial colours are what differs from
/// the start:
///
///     rank      program, kind and speed of its GPU and host, capacity of its ring link
///     link      kind, capacity, traffic of others
///     instance  communicator, what its collectives cost (ranks, nodes, NICs, latency)
///
/// In each round a rank takes the colours of the instances that it is in; an instance the set of
/// the colours of its ranks and of (link, share) that it loads; a link the multiset of the colours
/// of the instances that load it, with shares. At the fixed point one representative of each class
/// is simulated, and max-min sharing is the same on the quotient: a representative link sees as
/// many transfers of each class as each link of its class does. Where more than one instance of a
/// class meets on a link, they are told apart first, so that each is simulated. (Copies of alike
/// ranks that have an uplink to themselves go in step: they are one transfer of all their bytes.)
///
/// The expanded cluster is never built: ranks and shared links are numbers, uneven ones are listed
/// (perturbation.h), and a rank's ring link is part of its colour.
///
/// What an instance loads (instances.h): the ring links of its ranks, wholly; on each of its nodes
/// the NICs that its GPUs drive, evenly; between one node and the next, around the ring, the links
/// of the fabric on the way. Trees load the fabric as rings do. Of an all-to-all each node sends an
/// equal part to every other, by the same ways.
///
/// GPUs' slots and the uplinks of PCIe switches (slot_loads.h) are shared links, too, where they
/// matter: where a program copies between host and device, where rings go over PCIe and where a
/// perturbation names PCIe links. Copies are instances of a pattern of their own (`host`), one a
/// rank.
///
/// Not modelled: rings in an order other than that of ranks.
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
  bool host = false;        ///< no communicator: each rank's copies from and to its host
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
  BytesPerSecond nominal{};  ///< of slots and uplinks: before perturbations
  bool uplink = false;       ///< of a PCIe switch: else of these kinds a GPU's slot
};

struct RankClass {
  int representative = 0;  ///< the lowest rank of the class
  int multiplicity = 1;
  int program = 0;
  int gpu = 0;              ///< index into Folding::gpus
  double gpu_speed = 1;     ///< arithmetic
  double memory_speed = 1;  ///< device memory
  double host_speed = 1;
  int intra_link = -1;  ///< its part of rings in the node: index into Folding::links; -1: none
};

/// A collective that costs V bytes on links of a kind (LinkLoad) puts `share` V on this one, an
/// all-to-all `exchange_share` V. On a slot or uplink it puts these shares of what it costs on
/// NICs and the intra shares of what it costs inside a node, but alone it takes at most all of the
/// link (nominally): no collective is slower than its own cost by itself. A copy puts `share` of
/// its bytes on those of its direction.
struct LinkShare {
  int link = 0;
  double share = 0;
  double exchange_share = 0;
  double intra_share = 0;
  double intra_exchange_share = 0;

  [[nodiscard]] bool any() const {
    return share > 0 || exchange_share > 0 || intra_share > 0 || intra_exchange_share > 0;
  }
  bool operator==(const LinkShare&) const = default;
};

/// Shared links that a rank's sends to the next rank of a ring load.
struct RingSend {
  bool leaves_node = false;      ///< not by its ring link: the next rank is on another node
  std::vector<LinkShare> links;  ///< NICs of its node and the fabric on the way; slots, uplinks
};

/// Instances of one communicator that behave alike.
struct InstanceClass {
  std::vector<int> ranks;  ///< rank classes that meet in it
  CollectiveGroup shape;
  std::vector<LinkShare> links;  ///< shared ones; ring links are with the ranks
  int multiplicity = 1;
  /// FoldMode::Off: what adds up to `links`, one for each of `ranks`; of copies none.
  std::vector<RingSend> sends;
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
  std::vector<InstanceClass> copies;  ///< between host and device; empty: no such pattern
  std::vector<int> copies_of;         ///< by rank class: index into `copies`
  std::vector<int> class_of_rank;     ///< empty: one class
  std::vector<LinkBursts> bursts;
};

/// Index of the class of a rank.
[[nodiscard]] int class_of(const Folding& folding, int rank);

/// \param runs    cover all ranks of the cluster that take part, in order
/// \param groups  communicators of the Program, in its order; and the host pattern if it copies
/// \throws ConfigError      if a perturbation names what is not there or leaves nothing of a link
/// \throws SimulationError  if the instances of a group do not tile the ranks
[[nodiscard]] Folding fold(const Cluster& cluster, const std::vector<RankRun>& runs,
                           const std::vector<GroupPattern>& groups, FoldMode mode);

}  // namespace zerosim
