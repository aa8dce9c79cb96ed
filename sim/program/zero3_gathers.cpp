#include "sim/program/zero3_gathers.h"

#include <algorithm>
#include <array>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/program/model_loading.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim {

namespace {

// DeepSpeed's CUDAQuantizer: target_group_size, and of what the elements are a multiple (C10.1).
constexpr std::int64_t kTargetGroup = 8000;
constexpr std::int64_t kQuantum = 8;
constexpr int kScaleBytes = 4;
constexpr int kHalfBytes = 2;  // it works on fp16, whatever the model's type

// Frozen partitions that are stored in int8 are larger than this, whole and here (C10.3).
constexpr std::int64_t kQuantizedWhole = 500'000;
constexpr std::int64_t kQuantizedPiece = 2048;

}  // namespace

std::int64_t quantization_groups(std::int64_t elements, std::string_view what) {
  if (elements % kQuantum != 0) {
    throw ConfigError(format(
        "{}: found {} elements on a rank, expected a multiple of {}: DeepSpeed's quantizer asserts",
        what, elements, kQuantum));
  }
  std::int64_t groups = (elements + kTargetGroup - 1) / kTargetGroup;
  while (elements % (kQuantum * groups) != 0) {
    ++groups;
  }
  while (elements % (2 * kQuantum * groups) == 0 && elements / groups > kTargetGroup) {
    groups *= 2;
  }
  return groups;
}

Zero3Gathers::Zero3Gathers(const FrameworkContext& context, const Zero3Partition& partition,
                           StreamId stream)
    : context_(context),
      model_(context.model),
      zero_(context.strategy.zero),
      partition_(partition),
      builder_(context.builder),
      stream_(stream),
      dtype_(model_dtype(context.strategy.precision)),
      bytes_(dtype_bytes(dtype_)),
      on_host_(zero_.offload_param.device != OffloadDevice::None),
      moves_lists_(deepspeed_release(context.strategy.version).moves_lists),
      full_(model_.parameters.size()),
      secondary_(model_.parameters.size()),
      in_flight_(model_.parameters.size()) {
  if (zero_.hpz_partition_size > 1) {
    hpz_size_ = zero_.hpz_partition_size;
    if (context.world_size % hpz_size_ != 0) {
      throw ConfigError(format("{}: zero_hpz_partition_size {} does not divide the {} ranks",
                               context.strategy.name, hpz_size_, context.world_size));
    }
    hpz_ = add_group(context, {"hpZ", static_cast<int>(hpz_size_)});
  }
  if (zero_.mics_hierarchical_params_gather && zero_.mics_shard_size > 0) {
    // As generate_mics_config of DeepSpeed counts and asserts.
    const std::int64_t node = context.strategy.gpus_per_node;
    nodes_ = node > 0 ? partition.ranks() / node : 1;
    if (nodes_ < 2 || partition.ranks() % nodes_ != 0) {
      throw ConfigError(
          format("{}: mics_hierarchical_params_gather with shards of {} ranks and {} GPUs a node: "
                 "expected "
                 "shards of two whole nodes or more, as DeepSpeed asserts",
                 context.strategy.name, partition.ranks(),
                 node > 0 ? format("{}", node) : std::string("an unknown number of")));
    }
    const auto gpus = static_cast<int>(partition.ranks() / nodes_);
    across_nodes_ = add_group(context, {"MiCS across nodes", static_cast<int>(nodes_), gpus});
    within_node_ = add_group(context, {"MiCS within a node", gpus});
  }
}

void Zero3Gathers::initialize(const std::vector<bool>& gathered, bool updated) {
  if (context_.first_step == 0) {
    partition_model();
  } else {
    allocate_partitions();
  }
  for (std::size_t i = 0; i < full_.size(); ++i) {
    // Made when the model is partitioned; what no step changes keeps it (rule 81).
    if (has_secondaries() && (!updated || !model_.parameters[i].trainable)) {
      make_secondary(ParameterId(i));
    }
    if (gathered[i]) {
      allocate_full(ParameterId(i), kComputeStream, "C1.7");
    }
  }
}

Bytes Zero3Gathers::partition_bytes() {
  Bytes pieces;
  for (const Parameter& parameter : model_.parameters) {
    pieces += piece_bytes(parameter);
  }
  return pieces;
}

void Zero3Gathers::allocate_partitions() {
  const Bytes pieces = partition_bytes();
  if (on_host_) {
    builder_.allocate_on_host(pieces, MemoryClass::Parameters, "parameter_partitions",
                              zero_.offload_param.pin_memory, "C8.8");
  } else {
    builder_.allocate(pieces, MemoryClass::Parameters, "parameter_partitions", kComputeStream,
                      "C1.3");
  }
}

// Inside zero.Init each parameter is whole on the GPU only until it is cut; without it all are,
// once, when the model is moved there.
void Zero3Gathers::partition_model() {
  std::vector<BufferId> whole(model_.parameters.size());
  BufferId checkpoint;
  if (context_.strategy.zero_init) {
    checkpoint = load_checkpoint(context_, CheckpointCopies::OneANode);
  } else {
    whole = load_model(context_);
  }
  std::vector<BufferId> pieces;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Parameter& parameter = model_.parameters[i];
    if (!whole[i].valid()) {
      whole[i] = builder_.allocate(in_model_type(parameter.elements), MemoryClass::LiveParameters,
                                   "whole_parameter", kComputeStream, "C1.1");
    }
    if (!on_host_) {
      pieces.push_back(builder_.allocate(piece_bytes(parameter), MemoryClass::Parameters,
                                         "parameter_partition", kComputeStream, "C1.1"));
    }
    builder_.free(whole[i], "C1.1");
  }
  builder_.free(checkpoint, "E6");
  defragment(pieces);
}

// C1.3: through the host into one tensor.
void Zero3Gathers::defragment(std::vector<BufferId>& pieces) {
  BufferId copy;
  if (!on_host_) {
    copy = builder_.allocate_on_host(partition_bytes(), MemoryClass::Parameters,
                                     "defragmented_partitions", /*pinned=*/false, "C1.3");
  }
  for (BufferId& piece : pieces) {
    builder_.free(piece, "C1.3");
  }
  builder_.empty_cache("C1.3");
  allocate_partitions();
  builder_.free(copy, "C1.3");
}

bool Zero3Gathers::stores_quantized(const Parameter& parameter) const {
  return zero_.quantized_nontrainable_weights && !parameter.trainable &&
         parameter.elements > kQuantizedWhole &&
         partition_.piece(parameter.elements) > kQuantizedPiece;
}

Bytes Zero3Gathers::piece_bytes(const Parameter& parameter) {
  const std::int64_t piece = partition_.piece(parameter.elements);
  if (stores_quantized(parameter)) {
    return Bytes(piece) + Bytes(scales(piece, parameter.name)) * kScaleBytes;
  }
  return in_model_type(piece);
}

void Zero3Gathers::allocate_full(ParameterId id, StreamId pool, std::string_view rule) {
  full_[id.index()] =
      builder_.allocate(in_model_type(partition_.padded(elements(id))), MemoryClass::LiveParameters,
                        "gathered_parameter", pool, rule);
}

void Zero3Gathers::make_secondary(ParameterId id) {
  secondary_[id.index()] =
      builder_.allocate(in_model_type(partition_.padded(elements(id)) / hpz_size_),
                        MemoryClass::Parameters, "secondary_partition", kComputeStream, "C9.2");
}

// At its first release after a step a parameter gets a secondary partition, and the host waits.
void Zero3Gathers::keep_secondary(ParameterId id) {
  if (!has_secondaries() || is_local(id)) {
    return;
  }
  make_secondary(id);
  const Bytes bytes = in_model_type(partition_.padded(elements(id)) / hpz_size_);
  const OpId copy = builder_.kernel(kComputeStream, memory_kernel("copy_secondary", bytes * 3, 2),
                                    HostWork::KernelLaunch, "C9.2");
  builder_.host_wait(copy, "C9.2");
}

void Zero3Gathers::drop_secondaries() {
  for (std::size_t i = 0; i < secondary_.size(); ++i) {
    if (model_.parameters[i].trainable) {
      builder_.free(secondary_[i], "C9.4");
    }
  }
}

// ---- Requests ----------------------------------------------------------------------------------

// Those with a secondary partition apart and first (rule 54), and so the quantised frozen ones.
void Zero3Gathers::issue(const std::vector<ParameterId>& parameters, std::string_view rule) {
  if (parameters.empty()) {
    return;
  }
  std::int64_t requested = 0;
  for (const ParameterId id : parameters) {
    requested += elements(id);
  }
  builder_.annotate(AnnotationKind::GatherParams, requested, parameters);
  std::vector<ParameterId> sorted = parameters;
  const auto kind = [this](ParameterId id) {
    const int global = is_local(id) ? 0 : 1;
    return stores_quantized(model_.parameters[id.index()]) ? global : 2 + global;
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](ParameterId a, ParameterId b) { return kind(a) < kind(b); });
  for (auto first = sorted.begin(); first != sorted.end();) {
    const auto last =
        std::find_if(first, sorted.end(), [&](ParameterId id) { return kind(id) != kind(*first); });
    issue_alike({first, last}, rule);
    first = last;
  }
}

void Zero3Gathers::issue_alike(const std::vector<ParameterId>& parameters, std::string_view rule) {
  // MiCS has a gather of its own, which does not look at it.
  if ((zero_.allgather_sequential || moves_lists_) && zero_.mics_shard_size <= 0) {
    for (const ParameterId id : parameters) {
      issue_gather({id}, rule);
    }
  } else {
    issue_gather(parameters, rule);
  }
}

void Zero3Gathers::issue_gather(const std::vector<ParameterId>& parameters, std::string_view rule) {
  Gather gather;
  gather.parameters = parameters;
  gather.pending = parameters.size();
  for (const ParameterId id : parameters) {
    gather.whole += partition_.padded(elements(id));
    in_flight_[id.index()] = gathers_.size();
  }
  fetch_pieces(parameters, stream_);
  if (partition_.alone()) {
    copy_alone(gather);
  } else if (nodes_ > 1) {
    gather_across_nodes(gather, rule);
  } else if (zero_.mics_shard_size > 0) {
    gather_each(gather, rule);
  } else if (zero_.quantized_weights ||
             stores_quantized(model_.parameters[parameters.front().index()])) {
    gather_quantized(gather);
  } else if (moves_lists_) {
    gather_list(gather);
  } else {
    gather_flat(gather, rule);
  }
  gathers_.push_back(std::move(gather));
}

// C3.5: the host waits for the all-gather stream with each one, whether page-locked or not.
void Zero3Gathers::fetch_pieces(const std::vector<ParameterId>& parameters, StreamId stream) {
  if (!on_host_) {
    return;
  }
  for (const ParameterId id : parameters) {
    Copy copy;
    copy.bytes = piece_bytes(model_.parameters[id.index()]);
    copy.pinned = zero_.offload_param.pin_memory;
    builder_.host_wait(builder_.copy(stream, copy, "C3.5"), "C3.5");
  }
}

// C3.3
void Zero3Gathers::copy_alone(Gather& gather) {
  for (const ParameterId id : gather.parameters) {
    allocate_full(id, stream_, "C3.1");
  }
  gather.collective =
      builder_.kernel(stream_, memory_kernel("copy_parameter", in_model_type(gather.whole) * 2),
                      HostWork::KernelLaunch, "C3.3");
  builder_.host_wait(gather.collective, "C3.3");
  gather.copied_out = true;
}

// C11: no flat buffer.
void Zero3Gathers::gather_each(Gather& gather, std::string_view rule) {
  for (const ParameterId id : gather.parameters) {
    allocate_full(id, stream_, "C11");
  }
  for (const ParameterId id : gather.parameters) {
    const std::int64_t piece = partition_.piece(elements(id));
    gather.collective = all_gather({piece, partition_.padded(elements(id)), dtype_},
                                   partition_.group(), stream_, rule, next_coalesced_);
  }
  ++next_coalesced_;
  gather.copied_out = true;
}

// C11, rule 58: ranks of equal place in their nodes first, into one place of the parameter; what
// has come is moved to where it belongs; then each node's share, within the node.
void Zero3Gathers::gather_across_nodes(Gather& gather, std::string_view rule) {
  OpId across;
  for (const ParameterId id : gather.parameters) {
    allocate_full(id, stream_, "C11");
  }
  for (const ParameterId id : gather.parameters) {
    const std::int64_t piece = partition_.piece(elements(id));
    across =
        all_gather({piece, piece * nodes_, dtype_}, across_nodes_, stream_, rule, next_coalesced_);
  }
  ++next_coalesced_;
  builder_.stream_wait(stream_, across, "C11");
  for (const ParameterId id : gather.parameters) {
    const Bytes moved = in_model_type(partition_.piece(elements(id)) * nodes_);
    BufferId copy = builder_.allocate(moved, MemoryClass::TemporaryBuffers, "rearranged_pieces",
                                      stream_, "C11");
    builder_.kernel(stream_, memory_kernel("rearrange", moved * 4, 2), HostWork::KernelLaunch,
                    "C11");
    builder_.free(copy, "C11");
  }
  const std::int64_t node = partition_.ranks() / nodes_;
  for (const ParameterId id : gather.parameters) {
    const std::int64_t piece = partition_.piece(elements(id));
    for (std::int64_t n = 0; n < nodes_; ++n) {
      gather.collective =
          all_gather({piece, piece * node, dtype_}, within_node_, stream_, rule, next_coalesced_);
    }
  }
  ++next_coalesced_;
  gather.copied_out = true;
}

// C10.1: int8 and a scale for each group.
void Zero3Gathers::gather_quantized(Gather& gather) {
  const ParameterId first = gather.parameters.front();
  const std::int64_t ranks = is_local(first) ? hpz_size_ : partition_.ranks();
  const GroupId group = is_local(first) ? hpz_ : partition_.group();
  const std::int64_t piece = gather.whole / ranks;
  const std::int64_t groups = scales_of(gather, piece);
  gather.quantized = true;
  gather.flat = builder_.allocate(Bytes(gather.whole), MemoryClass::TemporaryBuffers,
                                  "gather_int8_buffer", stream_, "C10.1");
  gather.scales =
      builder_.allocate(Bytes(groups * ranks) * kScaleBytes, MemoryClass::TemporaryBuffers,
                        "gather_scales", stream_, "C10.1");
  const bool stored = stores_quantized(model_.parameters[first.index()]);
  if (gather.parameters.size() > 1) {
    kernel("concatenate", stored ? Bytes(piece) * 2 : in_model_type(piece) * 2, "C10.1");
  }
  if (!stored) {
    if (dtype_ != Dtype::F16) {
      kernel("cast_to_half", Bytes(piece) * (bytes_ + kHalfBytes), "C10.1");
    }
    kernel("quantize", Bytes(piece) * (kHalfBytes + 1), "C10.1");
  }
  all_gather({piece, gather.whole, Dtype::U8}, group, stream_, "C10.1");
  gather.collective = all_gather({groups, groups * ranks, Dtype::F32}, group, stream_, "C10.1");
}

std::int64_t Zero3Gathers::scales(std::int64_t elements, std::string_view what) {
  const auto [entry, added] = scales_.try_emplace(elements);
  if (added) {
    entry->second = quantization_groups(elements, what);
  }
  return entry->second;
}

// Of what is stored in int8 (C10.3) those of each parameter; else of the request as a whole.
std::int64_t Zero3Gathers::scales_of(const Gather& gather, std::int64_t piece) {
  const Parameter& first = model_.parameters[gather.parameters.front().index()];
  if (!stores_quantized(first)) {
    return scales(piece, format("a quantised gather of {}{}", first.name,
                                gather.parameters.size() > 1 ? " and others" : ""));
  }
  std::int64_t sum = 0;
  for (const ParameterId id : gather.parameters) {
    const Parameter& parameter = model_.parameters[id.index()];
    sum += scales(partition_.piece(parameter.elements), parameter.name);
  }
  return sum;
}

// DeepSpeed 0.3: _allgather_param of partition_parameters.py, ProcessGroupNCCL::allgather.
void Zero3Gathers::gather_list(Gather& gather) {
  constexpr std::string_view kRule = "0.3";
  const Bytes whole = in_model_type(gather.whole);
  const auto ranks = static_cast<int>(partition_.ranks());
  builder_.device_synchronize(kRule);
  allocate_full(gather.parameters.front(), stream_, kRule);
  kernel("fill_zero", whole, kRule);
  BufferId flat =
      builder_.allocate(whole, MemoryClass::TemporaryBuffers, "gathered_list", stream_, kRule);
  const OpId gathered =
      all_gather({gather.whole / ranks, gather.whole, dtype_}, partition_.group(), stream_, kRule);
  builder_.stream_wait(stream_, gathered, kRule);
  gather.collective = builder_.kernel(stream_, memory_kernel("copy_list", whole * 2, ranks),
                                      HostWork::OptimizerLaunch, kRule);
  builder_.free(flat, kRule);
}

// C3.1, C3.2, C3.6
void Zero3Gathers::gather_flat(Gather& gather, std::string_view rule) {
  const bool local = is_local(gather.parameters.front());
  const std::int64_t piece = gather.whole / (local ? hpz_size_ : partition_.ranks());
  const bool several = gather.parameters.size() > 1;
  gather.are_views = zero_.use_all_reduce_for_fetch_params && several && !local;
  if (several) {
    gather.flat = builder_.allocate(in_model_type(gather.whole), MemoryClass::TemporaryBuffers,
                                    "gather_flat_buffer", stream_, "C3.2");
    kernel(gather.are_views ? "fill_flat" : "concatenate",
           in_model_type(piece) * 2 + (gather.are_views ? in_model_type(gather.whole) : Bytes()),
           "C3.2");
  } else {
    allocate_full(gather.parameters.front(), stream_, "C3.1");
  }
  if (gather.are_views) {
    Collective sum;
    sum.input_elements = sum.output_elements = gather.whole;
    sum.dtype = dtype_;
    sum.group = partition_.group();
    sum.async = true;
    gather.collective = builder_.collective(stream_, sum, "C3.6");
  } else {
    gather.collective =
        all_gather({piece, gather.whole, dtype_}, local ? hpz_ : partition_.group(), stream_, rule);
  }
}

// C4.4: throttle, wait, copy out (first waiter of a set), record.
void Zero3Gathers::wait_for(ParameterId id) {
  ZS_CHECK(in_flight(id), "only what is on its way is waited for");
  Gather& gather = gathers_[*in_flight_[id.index()]];
  in_flight_[id.index()].reset();
  throttle_.wait(builder_, "C4.4");
  builder_.stream_wait(stream_, gather.collective, "C4.4");
  if (gather.flat.valid() && !gather.copied_out) {
    if (gather.quantized) {
      dequantize(gather);
    } else {
      copy_out(gather);
    }
  }
  gather.copied_out = true;
  builder_.host({HostWork::EventRecord}, "C4.4");
  throttle_.record(builder_.last(stream_));
  if (--gather.pending == 0) {
    builder_.free(gather.flat, "C3.2");
  }
}

void Zero3Gathers::copy_out(Gather& gather) {
  // Parameters are views of an all-reduced buffer (C3.6): its bytes become theirs, without a copy.
  if (gather.are_views) {
    builder_.free(gather.flat, "C3.6");
  }
  for (const ParameterId member : gather.parameters) {
    allocate_full(member, stream_, "C3.2");
    if (!gather.are_views) {
      kernel("copy_out", in_model_type(elements(member)) * 2, "C3.2");
    }
  }
}

// Whole in fp16, then cast into each parameter.
void Zero3Gathers::dequantize(Gather& gather) {
  BufferId half = builder_.allocate(Bytes(gather.whole) * kHalfBytes, MemoryClass::TemporaryBuffers,
                                    "dequantized_half", stream_, "C10.1");
  kernel("dequantize", Bytes(gather.whole) * (1 + kHalfBytes), "C10.1");
  builder_.free(gather.flat, "C10.1");
  builder_.free(gather.scales, "C10.1");
  for (const ParameterId member : gather.parameters) {
    allocate_full(member, stream_, "C10.1");
    kernel("copy_out", Bytes(elements(member)) * (kHalfBytes + bytes_), "C10.1");
  }
  builder_.free(half, "C10.1");
}

void Zero3Gathers::gather_now(ParameterId id) {
  fetch_pieces({id}, kComputeStream);
  allocate_full(id, kComputeStream, "C2.6");
  if (!partition_.alone()) {
    builder_.all_gather(kComputeStream, partition_.group(), partition_.piece(elements(id)),
                        partition_.padded(elements(id)), dtype_, "C2.6");
  }
}

void Zero3Gathers::release(const std::vector<ParameterId>& parameters, std::string_view rule) {
  for (const ParameterId id : parameters) {
    keep_secondary(id);
    // record_stream: compute may still read it (C4.6).
    builder_.free_recorded(full_[id.index()], std::array{kComputeStream}, rule);
  }
}

std::vector<BufferId> Zero3Gathers::leave_to_autograd(const std::vector<ParameterId>& parameters) {
  std::vector<BufferId> held;
  for (const ParameterId id : parameters) {
    keep_secondary(id);
    held.push_back(full_[id.index()]);
    full_[id.index()] = {};
  }
  return held;
}

// A list of one takes another path in DeepSpeed: it blocks, and the host does not wait.
void Zero3Gathers::gather_persistent(const std::vector<bool>& persistent) {
  const bool several = std::count(persistent.begin(), persistent.end(), true) > 1;
  OpId last;
  for (std::size_t i = 0; i < full_.size(); ++i) {
    if (!persistent[i]) {
      continue;
    }
    const ParameterId id(i);
    const std::int64_t n = elements(id);
    fetch_pieces({id}, kComputeStream);
    allocate_full(id, kComputeStream, "C8.5");
    if (partition_.alone()) {
      last = builder_.kernel(kComputeStream, memory_kernel("copy_parameter", in_model_type(n) * 2),
                             HostWork::KernelLaunch, "C3.3");
    } else if (several) {
      last = all_gather({partition_.piece(n), partition_.padded(n), dtype_}, partition_.group(),
                        kComputeStream, "C8.5");
    } else {
      builder_.all_gather(kComputeStream, partition_.group(), partition_.piece(n),
                          partition_.padded(n), dtype_, "C8.5");
    }
  }
  if (last.valid()) {
    builder_.stream_wait(kComputeStream, last, "C8.5");
    builder_.device_synchronize("C8.5");
  }
}

OpId Zero3Gathers::all_gather(const Share& share, GroupId group, StreamId caller,
                              std::string_view rule, int coalesced) {
  Collective collective;
  collective.kind = CollectiveKind::AllGather;
  collective.input_elements = share.input;
  collective.output_elements = share.output;
  collective.dtype = share.dtype;
  collective.group = group;
  collective.async = true;
  collective.coalesced = coalesced;
  return builder_.collective(caller, collective, rule);
}

void Zero3Gathers::kernel(std::string_view name, Bytes bytes, std::string_view rule) {
  builder_.kernel(stream_, memory_kernel(name, bytes), HostWork::KernelLaunch, rule);
}

}  // namespace zerosim
