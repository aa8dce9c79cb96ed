/// \file
/// What the engine needs of SimGrid, and nothing else: activities that share resources, and timers.
///
/// The platform, for each rank class:
///
///     one host "gpu"     its speed is the share of SMs that NCCL leaves: power state i leaves n -
///     i of n one link a kind    a pair of hosts joined by it; activities put bytes on the pair
///
/// Sources and destinations form a grid, so that the byte matrix of a parallel task over R rank
/// classes and L kinds has about R (1 + L)^2 entries, not (2 R L)^2 (simgrid_notes.md section 8).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "topology/cluster.h"
#include "topology/collective_model.h"

namespace zerosim::internal {

/// Names a timer or an activity to its owner.
struct MachineEvent {
  std::uint16_t kind = 0;
  std::uint16_t rank_class = 0;
  std::int32_t index = 0;
};

/// Told when a timer goes off or an activity ends. It may start others.
class MachineListener {
 public:
  virtual ~MachineListener() = default;
  virtual void on_event(const MachineEvent& event) = 0;
};

class Machine {
 public:
  /// \throws SimulationError  if this process already has a SimGrid engine.
  Machine(const std::vector<LinkClass>& links, int sm_count, int rank_classes);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Time since the last `begin`.
  [[nodiscard]] Seconds now() const;
  /// Makes the present the time 0, with all SMs free.
  void begin();
  /// Goes on until nothing is left to happen. An exception of the listener comes out here, after
  /// that.
  void run(MachineListener& listener);

  void at(Seconds time, const MachineEvent& event);
  /// `sm_time` of arithmetic with all SMs, beside traffic on the device memory; not both zero.
  void start_kernel(int rank_class, Seconds sm_time, Bytes memory, const MachineEvent& event);
  void start_copy(int rank_class, LinkClass::Kind link, Bytes bytes, const MachineEvent& event);
  /// Puts `loads` on the links of each of the first `rank_classes` classes.
  void start_collective(std::span<const LinkLoad> loads, int rank_classes,
                        const MachineEvent& event);
  /// Takes `sms` SMs of a GPU away, or gives them back where negative; at least one is left.
  void hold_sms(int rank_class, int sms);

  [[nodiscard]] bool has_link(LinkClass::Kind kind) const;
  [[nodiscard]] int rank_classes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zerosim::internal
