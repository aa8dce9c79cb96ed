#include "sim/engine/host_time.h"

#include <algorithm>

namespace zerosim {

namespace {

/// How much longer a model's own code takes on the hosts that training was published from than the
/// reference figures below: one number for launches, module calls and checkpointing.
///
/// Fitted to one micro batch's time where it does not grow with its tokens (vtrain-h1024-l12, -l24,
/// -h2048-l12 of validate/run_split.h: GPT of Megatron-DeepSpeed, full checkpointing, 3.0 ms a
/// layer). Mean error of those 90 rows by factor 4.3: 6.8 %, 4.5: 6.7 %, 4.7: 7.1 %; of the 24 that
/// launches bound most, h1024 at micro batch 1: 4.8, 5.4 and 7.7 %. Seen while choosing:
/// -h1024-l16 at micro batch 1, 2 to 3 % (median). Qwen-1.8B (qwen1.8b) would ask for 1.6 times
/// that below 2,048 tokens, if it ran without DeepSpeed, which its source leaves open.
///
/// What it holds: slower processors and Pythons than the reference's (2 to 3 times), and what is
/// not counted: custom autograd functions, TorchScript's executor and Megatron-LM's tracker of
/// random states. The rows cannot tell these apart. Optimizers' loops are C++ and are not slowed:
/// with them slowed too, rows of two micro batches come out 26 to 35 % too long.
constexpr double kModelCode = 4.4;

}  // namespace

/// Sources: kernels.md section 5 ("CPU-bound regime"), nccl_cost.md section 5, zero_schedule.md
/// 0.2. "Measured": PyTorch 1.13 and Python 3.11 without a GPU, one thread of an AMD EPYC at 2.6
/// GHz, 24 layers of width 8, with views between the launches (1 to 2 each) and modules included.
HostTimes default_host_times() {
  HostTimes times{};
  // 4-6 us a simple operation, 10-20 a composite one: of the 27 kernels of a GPT-2 layer 6 are
  // products: (21 x 5 + 6 x 15) / 27 = 7.2 us; of the 38 of a Llama layer 8: 7.1 us, less for what
  // is in place. Measured, with 3.5 us added for cudaLaunchKernel: Llama 126 us / 38 + 3.5 = 6.8,
  // GPT-2 135 / 27 + 3.5 = 8.5, Megatron-LM 109 / 15 + 3.5 = 10.8.
  times.kernel_launch = Seconds(6.5e-6 * kModelCode);
  // 250-400 us a layer for 30-40 kernels, autograd nodes included. Measured, with 3.5 us added:
  // Llama 185 us / 75 + 3.5 = 6.0, GPT-2 133 / 42 + 3.5 = 6.7, Megatron-LM 119 / 26 + 3.5 = 8.1.
  times.backward_launch = Seconds(8e-6 * kModelCode);
  // nn.Module.__call__ and forward() without their operations (estimate; 0.4 us measured for one
  // without hooks, attributes and keyword arguments).
  times.module_call = Seconds(3e-6 * kModelCode);
  // Random states of host and device read, set and restored, autograd contexts, detached inputs,
  // a graph of its own. Measured for a block, beyond its own launches: 85 to 110 us, of which 30
  // for the random states of the host; the device's are added as much again (estimate): 120 us.
  times.checkpoint = Seconds(60e-6 * kModelCode);
  // One multi-tensor launch packs the addresses of up to a few hundred tensors: twice a simple one.
  // Also what a loop over tensors takes for each: a view and a copy, no module and no graph.
  times.optimizer_launch = Seconds(10e-6);
  // 5-8 us to enqueue and launch, and 10-20 us of Python, work objects, events.
  times.collective_launch = Seconds(20e-6);
  // Python of a hook of FSDP, without the operations that it calls (estimate).
  times.module_hook = Seconds(8e-6);
  // One Python hook of the autograd engine with its bookkeeping: as a module hook (estimate).
  times.gradient_hook = Seconds(8e-6);
  // fetch_sub_module and release_sub_module: Python over parameters, their states and the
  // coordinator's trace and queues, before and after each module each way. Fitted to stage 3 of
  // BLOOM-560M on two GPUs (belle-bloom-560m), 384.6 ms for 512 tokens as for 1024: +0.4 %. Seen
  // while choosing: 6.9B on four H100, 0.6 s: +14 %; GPT-2 XL on processors of 2017: -41 %. Section
  // 5 has 100-300 us a layer, less than two of its hooks.
  times.deepspeed_hook = Seconds(200e-6);
  // cudaEventRecord or cudaStreamWaitEvent (below 1 us) and its Python binding (estimate).
  times.event_record = Seconds(1.5e-6);
  // Loop, data transfer of the batch, learning-rate schedule, timers: a few hundred Python calls
  // (estimate).
  times.step_overhead = Seconds(500e-6);
  times.launch_queue_depth = 1024;  // zero_schedule.md 0.2
  // CPU Adam of 1, 2, 4, 8 and 10 G parameters takes 0.22, 0.51, 1.03, 2.41 and 2.57 s on the two
  // sockets of a DGX-2, 12 channels of DDR4-2666 (ZeRO-Offload, USENIX ATC 2021, table 4): 28 bytes
  // each, 127, 110, 109, 93 and 109 of 256 GB/s, 0.43 in the mean. Seven concurrent streams on two
  // sockets without binding; plain copies reach more (topologies.md section 1).
  times.memory_efficiency = 0.43;
  // A core has 10 to 16 misses of 64 bytes in flight for 70 to 100 ns, and prefetchers: 10 to 15
  // GB/s on servers (estimate).
  times.thread_bandwidth = BytesPerSecond(12e9);
  // A fault of a page of 4 KiB takes some 0.5 us with its zeroing, and the threads of a process
  // wait for each other at its page tables (estimate).
  times.first_touch = BytesPerSecond(8e9);
  // The driver stages pageable memory through pinned buffers of its own. NVIDIA's "How to Optimize
  // Data Transfers in CUDA C/C++" shows 43 % of the pinned rate on one machine and 95 % on another;
  // faster links lose more to the staging copy (estimate).
  times.pageable_copy = 0.5;
  return times;
}

Seconds host_pass_time(const HostTimes& times, const HostPass& pass, const HostMemory& memory) {
  double rate = memory.peak.per_second() * times.memory_efficiency / memory.ranks;
  const double of_threads = memory.threads * times.thread_bandwidth.per_second();
  if (of_threads > 0) rate = std::min(rate, of_threads);
  const bool faults = times.first_touch.per_second() > 0;
  return pass.bytes / BytesPerSecond(rate) + (faults ? pass.fresh / times.first_touch : Seconds(0));
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
    case HostWork::DeepSpeedHook:
      return times.deepspeed_hook;
    case HostWork::EventRecord:
      return times.event_record;
    case HostWork::ModuleCall:
      return times.module_call;
    case HostWork::Checkpoint:
      return times.checkpoint;
    case HostWork::StepOverhead:
      return times.step_overhead;
  }
  return Seconds(0);
}

}  // namespace zerosim
