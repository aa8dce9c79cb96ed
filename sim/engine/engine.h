/// \file
/// Executes Programs on SimGrid (design.md section 3): the only place where contention is resolved.
///
/// Only what contends is a SimGrid activity: kernels (arithmetic on a host `gpu` whose speed is the share of
/// SMs that NCCL leaves, beside bytes on an `hbm` link), copies, collectives (one parallel task over pairs of
/// hosts, one pair per link class and rank class). Host work, latencies and launch gaps are timers.
///
/// Not modelled: power limits, clocks.
#pragma once

#include <memory>

#include "sim/base/units.h"
#include "sim/engine/allocation_observer.h"
#include "sim/engine/host_time.h"
#include "sim/engine/kernel_time.h"
#include "sim/engine/timeline.h"
#include "sim/program/program.h"
#include "topology/cluster.h"

namespace zerosim {

struct EngineOptions {
  HostTimes host = default_host_times();
  int max_rank_classes = 1;  ///< the platform is sealed at the first run: room for so many classes
};

/// One cluster's simulator. SimGrid allows one engine a process: a second object in one process throws
/// SimulationError; runs on one cluster share an object, other clusters fork (sim/analysis/isolate.h).
class Engine {
 public:
  Engine(const Cluster& cluster, const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Runs `program` from time 0 with idle devices. May be called again; runs do not influence each other.
  /// \param observer  may be null: allocations are then free.
  /// \throws SimulationError  if operations wait for something that never happens; it names them.
  [[nodiscard]] Timeline run(const Program& program, AllocationObserver* observer = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zerosim
