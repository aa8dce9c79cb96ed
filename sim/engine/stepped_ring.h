/// \file
/// A ring collective step by step (`--collectives stepped`), to check the fluid form against.
///
/// The fluid form (engine.h) moves all bytes of a ring at once over all of its links. Here every
/// rank sends its part to the next one by itself, in steps:
///
///     all-gather, reduce-scatter   N - 1 steps;  all-reduce  2 (N - 1)
///       a rank may send in step i when it has sent in step i - 1 and, but for the first step, has
///       what the rank before it sent in step i - 1. Parts of more than one chunk a channel (2 MiB,
///       nccl_cost.md section 4) go round in so many loops one after the other
///     broadcast, reduce            a chain from (to) the root of C pieces through N - 1 ranks
///       a rank may send piece i when it has sent piece i - 1 and has piece i
///
/// and a rank is at most one step ahead of the next one (a piece more in a chain): a connection's
/// buffers hold two chunks, so links inside a node keep the pace of a slower one between nodes. A
/// step of n, over all loops, moves 1/n of the bytes of the cost's loads: over the sender's own
/// ring link; where the next rank is on another node over the NICs of the sender's node (in the
/// same shares as the fluid form) and the fabric to that node instead; device memory of the sender
/// goes along, and what the fluid form puts on slots and uplinks (topology/instances.h,
/// `ring_sends`).
///
/// The cost's delay comes first, as in the fluid form: chunks of one step are on their way while
/// those of the one before are waited for, so what a ring's latencies leave idle is the time until
/// its pipeline is full (nccl_cost.md sections 7 and 9). What is alone on its links takes the time
/// of the fluid form:
///
///     delay + n V / (n B) = delay + V / B
///
/// A chain's last rank but one has the first piece after N - 2 sends. That fill is part of the
/// cost's delay. So C is the least number of pieces whose fill is at most half of the delay, and
/// what is left of the delay comes first; C is at most 2000 (N - 2), with which the fill is 1/2000
/// of the transfer.
///
/// Not modelled: ranks that begin before the last one has arrived or end before the others (the
/// kernel of all begins and ends at once, as in the fluid form); each channel's own order of GPUs
/// (a node is left by its last rank only); which of an uplink's sends below it is on it when (one
/// of them takes all of its load along).
#pragma once

#include <cstddef>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/call_loads.h"
#include "sim/engine/machine.h"
#include "sim/program/program.h"
#include "topology/collective_model.h"
#include "topology/folding.h"

namespace zerosim::internal {

/// Links of a folding in the machine.
struct LinkNumbers {
  const Folding& folding;
  const std::vector<int>& machine_links;  ///< by link of the folding
  const std::vector<double>& capacities;  ///< of the machine's links, bytes per second

  [[nodiscard]] int of(int link) const { return machine_links[static_cast<std::size_t>(link)]; }
  [[nodiscard]] int intra(int rank_class) const {
    return of(folding.ranks[static_cast<std::size_t>(rank_class)].intra_link);
  }
  [[nodiscard]] static int device_memory(int rank_class) { return rank_class; }
};

/// Whether a collective is a ring's: neither a tree's nor in the switch, and no all-to-all.
[[nodiscard]] bool has_ring_steps(const Collective& call, const CollectiveCost& cost);

/// One collective under way.
class SteppedRing {
 public:
  /// Every rank is a class of its own (FoldMode::Off). All but `call` must outlive it.
  SteppedRing(const InstanceClass& instance, const Collective& call, const CollectiveCost& cost,
              const CallLoads& loads, const LinkNumbers& links);

  /// Before the first sends.
  [[nodiscard]] Seconds delay() const { return delay_; }
  /// Appends the rank classes that send first.
  void begin(std::vector<int>& senders);
  /// What this rank class has been sending is there; appends those that may now send.
  void sent(int rank_class, std::vector<int>& senders);
  [[nodiscard]] bool done() const { return sends_left_ == 0; }

  /// What a send of this rank class puts on which links of the machine.
  void find_loads(int rank_class, std::vector<LinkBytes>& loads) const;

 private:
  /// A rank's place in the ring.
  struct Place {
    int sends = 0;  ///< in all
    int sent = 0, received = 0;
    bool sending = false;
  };

  void cut_chain(int first);
  [[nodiscard]] Seconds whole_send(std::size_t place) const;
  void start_if_ready(std::size_t place, std::vector<int>& senders);
  [[nodiscard]] std::size_t place_of(int rank_class) const;
  [[nodiscard]] bool next_has_room(std::size_t place) const;
  [[nodiscard]] std::size_t next(std::size_t place) const { return (place + 1) % places_.size(); }
  [[nodiscard]] std::size_t previous(std::size_t place) const {
    return (place + places_.size() - 1) % places_.size();
  }

  const InstanceClass& instance_;
  const CollectiveCost& cost_;
  CallLoads loads_;
  LinkNumbers links_;
  std::vector<Place> places_;
  bool chain_ = false;
  std::size_t first_ = 0;  ///< of a chain
  int loop_ = 1;           ///< steps of a loop; of a chain all
  int steps_ = 1;          ///< of each rank that sends
  Seconds delay_{0};
  long sends_left_ = 0;
};

}  // namespace zerosim::internal
