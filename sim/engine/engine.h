/// \file
/// Executes Programs on SimGrid (design.md section 3): the only place where contention is resolved.
///
/// It simulates the rank classes, links and communicator instances of a Folding, one of each class.
///
/// Only what contends is a SimGrid activity: kernels (arithmetic on a host whose speed is the share
/// of SMs that NCCL leaves, beside bytes on an `hbm` link), copies, collectives (one parallel task
/// over pairs of hosts, one pair per link class and rank class). Host work, latencies and launch
/// gaps are timers.
///
/// Rules of execution:
/// - A host thread walks its operations in order and pays the host time of each before it takes
///   effect. It stops in a HostWait, and in the launch of an operation while
///   `HostTimes::launch_queue_depth` launches or more are issued but not ready (rule 0.2): a kernel
///   has `Kernel::launches` of them, other device operations one. A HostPass keeps it for
///   `host_pass_time`; host threads of one node share its memory as if all were in one.
/// - A device operation is *ready* when it is issued, its dependencies have ended and the one
///   before it on the stream has ended. A kernel starts `launch_gap` after that; a copy at once; a
///   StreamWait ends at once.
/// - A copy puts its bytes on the slot of its GPU and the uplinks above it, one way (folding.h),
///   those of pageable memory more of them (`HostTimes::pageable_copy`).
/// - The n-th collectives of the rank classes of a communicator's instance meet (rule 0.3): one
///   that loads the links of its ranks and, by its shares, NICs, fabric and slots (folding.h).
///   From its own readiness to the end each rank's NCCL kernel holds SMs; `delay` after the last
///   one is ready, all transfer together. Consecutive calls with one `coalesced` number run as one
///   collective of their summed size; its spans share out the time in proportion to bytes.
///
/// - Warm-up steps of the program (Program::warm_up_steps) have ended at time 0: the observer sees
///   their allocations and frees on a device that is done with everything, nothing else of them
///   happens.
/// - Where an AllocationObserver asks what has ended, the host thread stands still until the
///   device's clock is at its present; where an allocation synchronises the device, until it is
///   idle.
///
/// - Of a rank's kernels arithmetic takes 1 / `gpu_speed` of the time on its kind of GPU, and its
///   memory is `memory_speed` times as fast; its host work takes 1 / `host_speed` of its time.
///   Jitter multiplies each (perturbation.h).
/// - With `CollectiveForm::Stepped` rings go step by step, each rank by itself (stepped_ring.h).
/// - Another job puts its bursts on each of its links by itself, in the same shares as everybody.
///   It stops when the program has ended.
///
/// Not modelled: power limits, clocks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/allocation_observer.h"
#include "sim/engine/host_time.h"
#include "sim/engine/kernel_time.h"
#include "sim/engine/timeline.h"
#include "sim/program/program.h"
#include "topology/calibration.h"
#include "topology/cluster.h"
#include "topology/collective_model.h"
#include "topology/folding.h"

namespace zerosim {

/// How the transfer of a collective that NCCL runs as a ring is simulated.
enum class CollectiveForm {
  Fluid,    ///< all of its bytes at once on all of its links
  Stepped,  ///< every send of every rank; trees, NVLS and all-to-alls stay fluid
};

/// Rank classes that one run takes: SimGrid activities carry their number in 16 bits.
constexpr int kMostRankClasses = 65'535;

struct EngineOptions {
  HostTimes host = default_host_times();
  /// Threads of a rank in a pass over host memory (OMP_NUM_THREADS); 0: its share of the node's
  /// cores, where these are known.
  int host_threads = 0;
  /// \name Room: SimGrid seals the platform at the first run. There is room for at least what the
  /// first run needs.
  ///@{
  int rank_classes = 16;
  int links = 128;  ///< of a Folding, and one for each rank class
  ///@}

  /// \name What a calibration may replace; empty: the tables of this folder and of topology
  ///@{
  /// Pure function of the kernel: its answers are kept.
  std::function<KernelTime(const Kernel&)> kernel_time;
  /// Pure function of kind, elements, type and group. Not asked for groups of one rank.
  std::function<CollectiveCost(const Collective&, const ProcessGroup&)> collective_cost;
  /// Of collectives, where `collective_cost` is empty (topology/calibrated_cost.h).
  Calibration calibration;
  /// What kernels of a GPU can draw from its memory; 0: `usable_memory_bandwidth` of its kind.
  BytesPerSecond device_memory;
  ///@}
};

/// One cluster's simulator. SimGrid allows one engine a process: a second object in one process
/// throws SimulationError, even after the first is gone. A forked child inherits its parent's
/// object and may run programs on it; for another cluster, fork before the first object is made.
class Engine {
 public:
  /// \throws SimulationError  if the process has or had an Engine, or for a GPU that cannot be
  ///                          simulated
  explicit Engine(const Cluster& cluster, const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Runs `program`, which must pass `check_program`, from time 0 with idle devices. May be called
  /// again; runs do not influence each other, but SimGrid's clock goes on: from the second run on
  /// times are exact to the resolution of a double at the sum of all times so far.
  /// \param folding   of this cluster and the program's groups (`group_patterns`, `fold`)
  /// \param observer  may be null: allocations are then free. Each rank class's calls come in host
  ///                  order; between classes there is no order, for a host thread that does not
  ///                  wait is walked ahead of the others.
  /// \param repetition  of a cluster with jitter: another draws other factors. Jitter needs a
  ///                    folding in which every rank is a class.
  /// \param form  Stepped needs a folding with FoldMode::Off.
  /// \throws SimulationError  if rank classes disagree about a collective; if operations wait for
  ///                          something that never happens (it names them); if there is no room
  ///                          for the folding; if it folds ranks that jitter or send
  ///                          step by step.
  [[nodiscard]] Timeline run(const Program& program, const Folding& folding,
                             AllocationObserver* observer = nullptr, int repetition = 0,
                             CollectiveForm form = CollectiveForm::Fluid);

  /// The same, folded as far as it goes.
  [[nodiscard]] Timeline run(const Program& program, AllocationObserver* observer = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zerosim
