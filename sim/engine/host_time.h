/// \file
/// Host time of each kind of host work: the only home of these constants (spec/kernels.md section
/// 5, nccl_cost.md section 5), with sources.
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
  Seconds event_record;
  Seconds module_call;
  Seconds step_overhead;
  int launch_queue_depth;  ///< unstarted launches after which the host blocks (rule 0.2)
};

[[nodiscard]] HostTimes default_host_times();
[[nodiscard]] Seconds host_time(const HostTimes& times, HostWork work);

}  // namespace zerosim
