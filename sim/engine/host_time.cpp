#include "sim/engine/host_time.h"

namespace zerosim {

/// Sources: kernels.md section 5 ("CPU-bound regime"), nccl_cost.md section 5, zero_schedule.md
/// 0.2. Typical figures of eager PyTorch, not measurements of one machine: calibrate.
HostTimes default_host_times() {
  HostTimes times{};
  // 4-6 us a simple operation, 10-20 a composite one (matmul with autocast 12-15): of the 17
  // kernels of a GPT layer about 5 are matmuls: (12 x 5 + 5 x 11) / 17 = 6.8 us. With ten module
  // calls a layer takes 17 x 6.5 + 10 x 3 = 140 us; section 5 says 120-200.
  times.kernel_launch = Seconds(6.5e-6);
  // 250-400 us a layer for 30-40 kernels, hooks and autograd nodes included.
  times.backward_launch = Seconds(8e-6);
  // One multi-tensor launch packs the addresses of up to a few hundred tensors: twice a simple one.
  times.optimizer_launch = Seconds(10e-6);
  // 5-8 us to enqueue and launch, and 10-20 us of Python, work objects, events.
  times.collective_launch = Seconds(20e-6);
  // ZeRO-3 hooks cost 100-300 us a layer; a Llama layer has 13 modules with one hook before and one
  // after: 200 us / 26.
  times.module_hook = Seconds(8e-6);
  // One Python hook of the autograd engine with its bookkeeping: as a module hook (estimate).
  times.gradient_hook = Seconds(8e-6);
  // cudaEventRecord or cudaStreamWaitEvent (below 1 us) and its Python binding (estimate).
  times.event_record = Seconds(1.5e-6);
  // nn.Module.__call__ and forward() without their operations (estimate).
  times.module_call = Seconds(3e-6);
  // Loop, data transfer of the batch, learning-rate schedule, timers: a few hundred Python calls
  // (estimate).
  times.step_overhead = Seconds(500e-6);
  times.launch_queue_depth = 1024;  // zero_schedule.md 0.2
  // CPU Adam reaches 60 to 75 % of DRAM's peak (kernels.md section 1; topologies.md section 1 gives
  // 75 to 85 % for plain copies). The middle: 4.9 G parameters a second on 8 channels of DDR4-3200,
  // 28 bytes each; 4 to 5 G are reported.
  times.memory_efficiency = 0.675;
  // The driver stages pageable memory through pinned buffers of its own. NVIDIA's "How to Optimize
  // Data Transfers in CUDA C/C++" shows 43 % of the pinned rate on one machine and 95 % on another;
  // faster links lose more to the staging copy (estimate).
  times.pageable_copy = 0.5;
  return times;
}

Seconds host_pass_time(const HostTimes& times, const HostPass& pass, BytesPerSecond peak,
                       int ranks) {
  return pass.bytes / BytesPerSecond(peak.per_second() * times.memory_efficiency / ranks);
}

Seconds host_time(const HostTimes& times, HostWork work) {
  switch (work) {
    case HostWork::None:
      return Seconds(0);
    case HostWork::KernelLaunch:
      return times.kernel_launch;
    case HostWork::BackwardLaunch:
      return times.backward_launch;
    case HostWork::OptimizerLaunch:
      return times.optimizer_launch;
    case HostWork::CollectiveLaunch:
      return times.collective_launch;
    case HostWork::ModuleHook:
      return times.module_hook;
    case HostWork::GradientHook:
      return times.gradient_hook;
    case HostWork::EventRecord:
      return times.event_record;
    case HostWork::ModuleCall:
      return times.module_call;
    case HostWork::StepOverhead:
      return times.step_overhead;
  }
  return Seconds(0);
}

}  // namespace zerosim
