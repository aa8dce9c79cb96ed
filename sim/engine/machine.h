/// \file
/// What the engine needs of SimGrid, and nothing else: activities that share resources, and timers.
///
/// The platform:
///
///     one host "gpu" a rank class  its speed is the share of SMs that NCCL leaves; power states
///                                  first + i of its kind leave n - i of n SMs
///     one pair of hosts a link     joined by it; activities put bytes on the pair
///
/// Sources and destinations form a grid: link l of L joins source l / sqrt(L) and destination l mod
/// sqrt(L), so that the byte matrix of a parallel task over all links has 4 L entries
/// (simgrid_notes.md section 8). Hosts of GPUs lie apart: they have no routes, and a table of
/// routes grows with the square of its hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/base/units.h"

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

/// Bytes of an activity on one link.
struct LinkBytes {
  int link = 0;
  double bytes = 0;
};

class Machine {
 public:
  /// \throws SimulationError  if this process already has a SimGrid engine.
  Machine();
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Once, before anything else: SimGrid seals the platform at the first run.
  /// \param sm_counts  of the kinds of GPUs
  void build(int gpus, int links, const std::vector<int>& sm_counts);
  [[nodiscard]] bool is_built() const;
  [[nodiscard]] int gpus() const;
  [[nodiscard]] int links() const;

  /// Time since the last `begin`.
  [[nodiscard]] Seconds now() const;
  /// Makes the present the time 0, with all SMs free. What a failed run has left is dropped, here
  /// and at the end of the machine.
  /// \param capacities  of the first links, bytes per second
  /// \param gpu_kinds   of the first GPUs, indices into `sm_counts`
  void begin(std::span<const double> capacities, std::span<const int> gpu_kinds);
  /// Goes on until nothing is left to happen. An exception of the listener comes out here, after
  /// that.
  void run(MachineListener& listener);

  void at(Seconds time, const MachineEvent& event);
  /// `sm_time` of arithmetic with all SMs of `gpu`, beside `memory` bytes on `memory_link`; not
  /// both zero.
  void start_kernel(int gpu, Seconds sm_time, int memory_link, double memory,
                    const MachineEvent& event);
  /// One transfer that puts bytes on several links at once, each named once; at least one.
  void start_transfer(std::span<const LinkBytes> loads, const MachineEvent& event);
  /// Takes `sms` SMs of a GPU away, or gives them back where negative; at least one is left.
  void hold_sms(int gpu, int sms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zerosim::internal
