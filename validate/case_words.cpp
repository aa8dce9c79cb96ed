#include "validate/case_words.h"

#include <algorithm>
#include <array>

namespace zerosim {

namespace {

/// Those that are not met wait for their part of the project.
constexpr auto kNeeds = std::to_array<Need>({
    {"memory", true},
    {"time", true},
    {"offload", true},
    {"lora", true},
    {"moe", true},
    {"hpz", true},
    {"fsdp", true},
    {"multi_node", true},
    {"config", true},
    {"explain", false},
    {"oom_text", true},
    {"host_memory", true},
    {"nvme", false},
    {"calibration", false},
});

constexpr auto kMetrics = std::to_array<Metric>({
    {"memory.model_states", MetricSource::ModelStates, "bytes", ""},
    {"memory.parameters", MetricSource::Memory, "bytes", ""},
    {"memory.gradients", MetricSource::Memory, "bytes", ""},
    {"memory.optimizer_states", MetricSource::Memory, "bytes", ""},
    {"memory.activations", MetricSource::Memory, "bytes", ""},
    {"memory.temporary_buffers", MetricSource::Memory, "bytes", ""},
    {"memory.logits", MetricSource::Memory, "bytes", ""},
    {"memory.peak_allocated", MetricSource::Memory, "bytes", ""},
    {"memory.peak_reserved", MetricSource::Memory, "bytes", ""},
    {"memory.host", MetricSource::Memory, "bytes", ""},
    {"estimator.gpu", MetricSource::Estimator, "bytes", ""},
    {"estimator.host", MetricSource::Estimator, "bytes", ""},
    {"time.step", MetricSource::Time, "time", ""},
    {"time.forward", MetricSource::Time, "time", ""},
    {"time.backward", MetricSource::Time, "time", ""},
    {"time.optimizer", MetricSource::Time, "time", ""},
    {"time.exposed_communication", MetricSource::Time, "time", ""},
    {"communication.collectives", MetricSource::Communication, "count", ""},
    {"communication.bytes_sent_per_rank", MetricSource::Communication, "bytes", ""},
    {"communication.inter_node_bytes", MetricSource::Communication, "bytes", ""},
    {"throughput.tokens_per_s", MetricSource::Time, "rate", "1/s"},
    {"throughput.tokens_per_s_per_gpu", MetricSource::Time, "rate", "1/s"},
    {"throughput.tflops_per_gpu", MetricSource::Time, "rate", "TFLOP/s"},
    {"throughput.mfu", MetricSource::Time, "rate", "1"},
    {"implied.bandwidth", MetricSource::Implied, "rate", "GB/s"},
});

constexpr auto kUnits = std::to_array<CaseUnit>({
    {"B", "bytes", 1},
    {"MiB", "bytes", 0x1p20},
    {"GiB", "bytes", 0x1p30},
    {"MB", "bytes", 1e6},
    {"GB", "bytes", 1e9},
    {"s", "time", 1},
    {"1/s", "rate", 1},
    {"TFLOP/s", "rate", 1e12},
    {"GB/s", "rate", 1e9},
    {"1", "rate", 1},
});

constexpr auto kCauses = std::to_array<std::string_view>({
    "volume",
    "small_collectives",
    "insufficient_prefetch",
    "exposed_head_tail",
    "serial_communicator",
    "allocator_churn",
    "host_overhead",
    "host_sync",
    "sm_hbm_contention",
    "copy_kernels",
    "inter_node_bandwidth",
    "small_micro_batch",
    "grad_accum_communication",
    "recompute_gathers",
    "optimizer_tail",
    "stragglers",
    "intra_node_bandwidth",
    "param_allgather_after_step",
    "offload_cpu_optimizer",
    "offload_copies",
    "nvme_bandwidth",
    "model_states",
    "optimizer_step_temporary",
    "activations",
    "logits",
    "reduce_bucket",
    "live_parameters",
    "largest_parameter",
    "fragmentation",
    "whole_model_materialised",
    "no_sharding",
    "host_copies_per_rank",
});

constexpr auto kAdvice = std::to_array<std::string_view>({
    "lower_stage",
    "higher_stage",
    "use_ddp",
    "hpz",
    "offload_optimizer",
    "offload_optimizer_only",
    "offload_param",
    "offload_activations",
    "no_offload",
    "fused_optimizer",
    "lora",
    "more_gpus",
    "activation_checkpointing",
    "larger_micro_batch",
    "more_grad_accum",
    "smaller_reduce_bucket",
    "smaller_sub_group",
    "smaller_max_live_parameters",
    "smaller_prefetch_bucket",
    "larger_persistence_threshold",
    "contiguous_gradients_off",
    "no_overlap_comm",
    "leaf_modules",
    "fused_cross_entropy",
    "sequence_parallel",
    "expert_parallel",
    "expandable_segments",
    "zero_init",
    "gather_on_save_off",
    "enable_p2p",
    "enable_ib",
    "faster_network",
    "faster_nvme",
    "more_host_threads",
    "bind_cores",
});

constexpr auto kObserved = std::to_array<std::string_view>({
    "memory_used",
    "allocated",
    "peak_allocated",
    "reserved",
    "reserved_unallocated",
    "free",
    "oom_request",
    "activations",
    "logits",
    "bucket_bytes",
    "swap",
    "host_memory",
    "oom",
    "runs",
    "hang",
    "step_time",
    "run_time",
    "forward_time",
    "backward_time",
    "optimizer_time",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "samples_per_s",
    "iterations_per_s",
    "tflops_per_gpu",
    "mfu",
    "speedup",
    "estimator_gpu",
    "estimator_host",
    "bus_bandwidth",
    "link_rate",
    "other",
});

template <typename Row, std::size_t size>
const Row* find_row(const std::array<Row, size>& rows, std::string_view name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

std::span<const Need> case_needs() {
  return kNeeds;
}

std::span<const Metric> case_metrics() {
  return kMetrics;
}

const Metric* find_metric(std::string_view name) {
  return find_row(kMetrics, name);
}

std::span<const CaseUnit> case_units() {
  return kUnits;
}

const CaseUnit* find_unit(std::string_view name) {
  return find_row(kUnits, name);
}

std::span<const std::string_view> cause_codes() {
  return kCauses;
}

std::span<const std::string_view> advice_codes() {
  return kAdvice;
}

std::span<const std::string_view> observed_metrics() {
  return kObserved;
}

}  // namespace zerosim
