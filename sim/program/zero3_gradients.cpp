#include "sim/program/zero3_gradients.h"

#include <algorithm>
#include <array>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/program/optimizer_offload.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim {

Zero3Gradients::Zero3Gradients(const FrameworkContext& context, const Zero3Partition& partition,
                               const Zero3Step& step, StreamId stream)
    : model_(context.model),
      strategy_(context.strategy),
      zero_(context.strategy.zero),
      partition_(partition),
      step_(step),
      builder_(context.builder),
      stream_(stream),
      world_size_(context.world_size),
      bytes_(dtype_bytes(model_dtype(strategy_.precision))),
      wire_bytes_(dtype_bytes(strategy_.communication_dtype)),
      gradient_bytes_(dtype_bytes(strategy_.grad_accum_dtype)),
      moves_lists_(deepspeed_release(strategy_.version).moves_lists) {
  node_ = strategy_.gpus_per_node;
  const std::int64_t nodes_of_world = node_ > 0 ? world_size_ / node_ : 1;
  if (zero_.quantized_gradients && node_ == 0 && world_size_ > 1) {
    context.program.assumptions.emplace_back(
        "zero_quantized_gradients: all ranks are on one node, since no cluster says otherwise: "
        "gradients are not quantised (C10.2)");
  }
  if (zero_.quantized_gradients && nodes_of_world > 1) {
    if (world_size_ % node_ != 0) {
      throw ConfigError(
          format("{}: zero_quantized_gradients: nodes of {} GPUs do not divide the {} "
                 "ranks",
                 strategy_.name, node_, world_size_));
    }
    const auto gpus = static_cast<int>(node_);
    const auto nodes = static_cast<int>(nodes_of_world);
    within_node_ = add_group(context, {"a2a local", gpus});
    across_nodes_ = add_group(context, {"a2a global", nodes, gpus});
  }
}

void Zero3Gradients::initialize() {
  const Bytes pieces = Bytes(step_.elements()) * gradient_bytes_;
  if (step_.offloads()) {
    builder_.allocate_on_host(pieces, MemoryClass::Gradients, "gradient_partitions",
                              zero_.offload_optimizer.pin_memory, "C1.4");
  } else {
    builder_.allocate(pieces, MemoryClass::Gradients, "gradient_partitions", kComputeStream,
                      "C1.4");
  }
  if (zero_.contiguous_gradients) {
    builder_.allocate(wire(zero_.reduce_bucket_size), MemoryClass::TemporaryBuffers, "ipg_bucket",
                      kComputeStream, "C1.5");
  }
}

void Zero3Gradients::add(ParameterId id, BufferId gradient) {
  builder_.host({HostWork::GradientHook}, "C6.1");
  const std::int64_t n = elements(id);
  if (bucket_elements_ > 0 && bucket_elements_ + n > zero_.reduce_bucket_size) {  // C6.2
    reduce_bucket();
  }
  builder_.stream_wait_stream(stream_, kComputeStream, "C6.3");
  if (zero_.contiguous_gradients && bucket_elements_ + n <= zero_.reduce_bucket_size) {
    kernel("copy_to_bucket", Bytes(n) * bytes_ * 2, "C6.3");
    builder_.free_recorded(gradient, std::array{stream_}, "C6.3");
  }
  bucket_.push_back({id, gradient});
  bucket_elements_ += n;
}

void Zero3Gradients::finish() {
  if (!bucket_.empty()) {
    reduce_bucket();
  }
  builder_.host_wait_stream(stream_, "C6.7");
}

// ---- Reductions --------------------------------------------------------------------------------

void Zero3Gradients::reduce_bucket() {
  std::vector<ParameterId> arrived;
  for (const Entry& entry : bucket_) {
    arrived.push_back(entry.parameter);
  }
  builder_.annotate(AnnotationKind::FlushBucket, bucket_elements_, arrived);
  throttle_.wait(builder_, "C6.5");
  std::sort(bucket_.begin(), bucket_.end(),
            [](const Entry& a, const Entry& b) { return a.parameter < b.parameter; });
  std::sort(arrived.begin(), arrived.end());
  const bool fits = bucket_elements_ <= zero_.reduce_bucket_size;
  if (partition_.alone()) {
    // Its only rank has all that there is to sum.
  } else if (within_node_.valid()) {
    for (const ParameterId id : arrived) {
      quantizes(parameter(id)) ? reduce_quantized(id) : reduce_scatter({id});
    }
  } else if (!zero_.reduce_scatter && zero_.contiguous_gradients && fits) {
    all_reduce_bucket();
  } else if (moves_lists_) {
    for (const ParameterId id : arrived) reduce_scatter({id});
  } else {
    reduce_scatter(arrived);
  }
  for (Entry& entry : bucket_) {
    keep_piece(entry);
  }
  if (micro_.boundary && partition_.replicas() > 1) {
    reduce_over_replicas();
  }
  for (const Entry& entry : bucket_) {
    if (step_.offloads() && micro_.boundary) {
      hand_to_step(entry.parameter);
    }
  }
  builder_.host({HostWork::EventRecord}, "C6.5");
  throttle_.record(builder_.last(stream_));
  bucket_.clear();
  bucket_elements_ = 0;
}

void Zero3Gradients::all_reduce_bucket() {
  kernel("divide", Bytes(bucket_elements_) * bytes_ * 2, "C6.4");
  builder_.all_reduce(stream_, partition_.group(), bucket_elements_, strategy_.communication_dtype,
                      "C6.4");
}

void Zero3Gradients::reduce_scatter(const std::vector<ParameterId>& parameters) {
  std::int64_t real = 0;
  std::int64_t pieces = 0;
  for (const ParameterId id : parameters) {
    real += elements(id);
    pieces += piece(id);
  }
  const std::int64_t whole = pieces * partition_.ranks();
  BufferId cast;
  if (wire_bytes_ != bytes_) {
    cast = builder_.allocate(wire(real), MemoryClass::TemporaryBuffers, "cast_gradients", stream_,
                             "C6.4");
    kernel("cast", Bytes(real) * bytes_ + wire(real), "C6.4");
  }
  BufferId flat;
  const bool in_place = parameters.size() == 1 && real == whole && !moves_lists_;
  if (!in_place) {
    flat = builder_.allocate(wire(whole), MemoryClass::TemporaryBuffers, "reduce_scatter_flat",
                             stream_, "C6.4");
    const auto tensors = static_cast<int>(moves_lists_ ? partition_.ranks() : 1);
    builder_.kernel(stream_, memory_kernel("flatten", wire(whole) * 2, tensors),
                    moves_lists_ ? HostWork::OptimizerLaunch : HostWork::BackwardLaunch, "C6.4");
  }
  kernel("divide", wire(whole) * 2, "C6.4");
  builder_.reduce_scatter(stream_, partition_.group(), whole, pieces, strategy_.communication_dtype,
                          "C6.4");
  builder_.free(flat, "C6.4");
  builder_.free(cast, "C6.4");
}

// C10.2: a matrix that two int4 a byte divide over all ranks.
bool Zero3Gradients::quantizes(const Parameter& parameter) const {
  return parameter.shape.size() > 1 && parameter.elements % (2 * world_size_) == 0;
}

// C10.2: n / 2 bytes to the ranks of the node, each of which sums a g-th; n / (2 g) bytes across.
void Zero3Gradients::reduce_quantized(ParameterId id) {
  const std::int64_t n = elements(id);
  const std::vector<std::int64_t>& shape = parameter(id).shape;
  const std::int64_t groups = std::max({shape[0], shape[1], world_size_});
  const std::int64_t groups_across = groups / node_;
  const std::int64_t across = n / (2 * node_);
  const std::int64_t nodes = world_size_ / node_;
  const auto buffer = [&](std::int64_t bytes, std::int64_t scales) {
    return builder_.allocate(Bytes(bytes) + Bytes(scales) * kFp32, MemoryClass::TemporaryBuffers,
                             "quantized_gradient", stream_, "C10.2");
  };
  BufferId sent = buffer(n / 2, groups);
  kernel("swizzle_quantize", Bytes(n) * bytes_ + Bytes(n / 2), "C10.2");
  BufferId received = buffer(n / 2, groups);
  all_to_all(n / 2, Dtype::U8, within_node_);
  all_to_all(groups, Dtype::F32, within_node_);
  BufferId sum = buffer(across, groups_across);
  kernel("quantized_reduction", Bytes(n / 2) + Bytes(across), "C10.2");
  builder_.free(sent, "C10.2");
  builder_.free(received, "C10.2");
  BufferId parts = buffer(across, groups_across);
  all_to_all(across, Dtype::U8, across_nodes_);
  all_to_all(groups_across, Dtype::F32, across_nodes_);
  kernel("dequantize", Bytes(across) * (1 + 2 * bytes_), "C10.2");
  kernel("average", Bytes(n / node_) * bytes_ + Bytes(n / node_ / nodes) * bytes_, "C10.2");
  builder_.free(sum, "C10.2");
  builder_.free(parts, "C10.2");
}

void Zero3Gradients::all_to_all(std::int64_t elements, Dtype dtype, GroupId group) {
  Collective call;
  call.kind = CollectiveKind::AllToAll;
  call.input_elements = call.output_elements = elements;
  call.dtype = dtype;
  call.group = group;
  builder_.collective(stream_, call, "C10.2");
}

// C11: `all_reduce_coalesced` of the bucket's pieces.
void Zero3Gradients::reduce_over_replicas() {
  std::int64_t pieces = 0;
  for (const Entry& entry : bucket_) {
    pieces += piece(entry.parameter);
  }
  kernel("divide", Bytes(pieces) * gradient_bytes_ * 2, "C11");
  builder_.all_reduce(stream_, partition_.replica_group(), pieces, strategy_.grad_accum_dtype,
                      "C11");
}

// ---- Pieces ------------------------------------------------------------------------------------

// C6.6: the first micro batch copies, later ones add.
void Zero3Gradients::keep_piece(Entry& entry) {
  if (step_.offloads()) {
    keep_on_host(entry.parameter);
  } else {
    const std::int64_t n = piece(entry.parameter);
    const int passes = micro_.index == 0 ? 1 : 2;
    kernel(micro_.index == 0 ? "copy_partition" : "add_partition",
           wire(n) + Bytes(n) * gradient_bytes_ * passes, "C6.6");
  }
  builder_.free_recorded(entry.gradient, std::array{stream_}, "C6.6");
}

// C8.6: the piece goes to the host and comes back, or the other way round; it is added to on the
// device.
void Zero3Gradients::keep_on_host(ParameterId id) {
  const Bytes bytes = Bytes(piece(id)) * gradient_bytes_;
  BufferId on_device = builder_.allocate(bytes, MemoryClass::TemporaryBuffers,
                                         "accumulated_gradient", stream_, "C8.6");
  if (micro_.index == 0) {
    copy(Copy::Direction::DeviceToHost, bytes);
    copy(Copy::Direction::HostToDevice, bytes);
  } else {
    copy(Copy::Direction::HostToDevice, bytes);
    kernel("accumulate", bytes * 2 + wire(piece(id)), "C8.6");
    copy(Copy::Direction::DeviceToHost, bytes);
  }
  builder_.free(on_device, "C8.6");
}

// C8.6, at the boundary: its norm in fp64, then fp32 into the gradient that the step reads.
void Zero3Gradients::hand_to_step(ParameterId id) {
  const std::int64_t n = piece(id);
  BufferId fp64 = builder_.allocate(Bytes(n) * kFp64, MemoryClass::TemporaryBuffers, "fp64_norm",
                                    stream_, "C8.6");
  kernel("gradient_norm", Bytes(n) * (gradient_bytes_ + 2 * kFp64), "C8.6");
  builder_.free(fp64, "C8.6");
  const Bytes fp32_bytes = Bytes(n) * kFp32;
  BufferId fp32;
  if (gradient_bytes_ != kFp32) {
    fp32 = builder_.allocate(fp32_bytes, MemoryClass::TemporaryBuffers, "fp32_gradient", stream_,
                             "C8.6");
    kernel("cast", Bytes(n) * gradient_bytes_ + fp32_bytes, "C8.6");
  }
  if (step_.on_host(id)) {
    copy(Copy::Direction::DeviceToHost, fp32_bytes);
  } else {
    kernel("copy_partition", fp32_bytes * 2, "C8.6");
  }
  builder_.free(fp32, "C8.6");
}

void Zero3Gradients::kernel(std::string_view name, Bytes bytes, std::string_view rule) {
  builder_.kernel(stream_, memory_kernel(name, bytes), HostWork::BackwardLaunch, rule);
}

void Zero3Gradients::copy(Copy::Direction direction, Bytes bytes) {
  Copy copy;
  copy.direction = direction;
  copy.bytes = bytes;
  copy.pinned = zero_.offload_optimizer.pin_memory;
  builder_.copy(stream_, copy, "C8.6");
}

}  // namespace zerosim
