/// \file
/// Host time of each kind of host work: the only home of these constants (spec/kernels.md section
/// 5, nccl_cost.md section 5), with sources; two are fitted.
///
/// What a framework's step is made of, each a count of the Program (HostWork):
///
///     every framework   launches, module calls, checkpoints; optimizer's launches, step_overhead
///     DDP               a gradient_hook a parameter (in C++ in truth), a collective a bucket
///     FSDP 1 and 2      a module_hook a unit each way, gradient_hooks, collectives, event_records
///     DeepSpeed 0 to 2  a gradient_hook a parameter, copies into buckets, collectives
///     DeepSpeed 3       a deepspeed_hook a module each way, collectives, event_records
///     Megatron-LM       a gradient_hook a parameter and an addition, one collective
///
/// Not modelled: processors of different speed (`Costs` takes a factor a rank), CUDA graphs, the
/// interpreter lock that other threads hold.
#pragma once

#include "sim/base/units.h"
#include "sim/program/program.h"

namespace zerosim {

struct HostTimes {
  Seconds kernel_launch;    ///< eager op: Python, dispatcher, launch
  Seconds backward_launch;  ///< from the autograd engine: no Python
  Seconds optimizer_launch;
  Seconds collective_launch;
  Seconds module_hook;
  Seconds gradient_hook;
  Seconds deepspeed_hook;
  Seconds event_record;
  Seconds module_call;
  Seconds checkpoint;  ///< of a block: half of what its forward and backward take beside launches
  Seconds step_overhead;
  int launch_queue_depth;           ///< unstarted launches after which the host blocks (rule 0.2)
  double memory_efficiency = 1;     ///< of peak host memory bandwidth, in a pass of all threads
  BytesPerSecond thread_bandwidth;  ///< that one thread draws in a pass; 0: no bound
  BytesPerSecond first_touch;       ///< at which a process is given fresh pages; 0: no bound
  double pageable_copy = 1;         ///< rate of a copy of pageable memory over that of a pinned one
};

[[nodiscard]] HostTimes default_host_times();
[[nodiscard]] Seconds host_time(const HostTimes& times, HostWork work);

/// What the ranks of a node share.
struct HostMemory {
  BytesPerSecond peak;  ///< of the whole node
  int ranks = 1;        ///< of the node
  int threads = 0;      ///< of a rank (OMP_NUM_THREADS); 0: as many as it takes
};

/// Time of a pass over host memory while each rank of the node is in one: they share its bandwidth
/// evenly, and a rank draws no more than its threads can,
///
///     t = bytes / min(peak x memory_efficiency / ranks, threads x thread_bandwidth)
///         + fresh / first_touch
///
/// fresh: memory that the pass has just got from the system, which maps and zeroes each page of 4
/// KiB when it is first written. PyTorch does not keep large blocks of ordinary host memory, so a
/// temporary is fresh in each step.
///
/// Not modelled: a bound by arithmetic, more threads than cores, memory of another socket, huge
/// pages, and what copies between host and device draw from host memory meanwhile.
[[nodiscard]] Seconds host_pass_time(const HostTimes& times, const HostPass& pass,
                                     const HostMemory& memory);

}  // namespace zerosim
