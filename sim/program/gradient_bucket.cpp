#include "sim/program/gradient_bucket.h"

#include <algorithm>
#include <utility>

namespace zerosim {

GradientBucket::GradientBucket(const FrameworkContext& context, const FlatLayout& layout,
                               std::function<void(std::span<BucketEntry>)> reduced)
    : strategy_(context.strategy),
      zero_(context.strategy.zero),
      builder_(context.builder),
      layout_(layout),
      reduced_(std::move(reduced)),
      group_(context.data_parallel),
      world_size_(context.world_size),
      bytes_(dtype_bytes(model_dtype(context.strategy.precision))),
      reduction_stream_(zero_.overlap_comm ? context.builder.add_stream("reduce")
                                           : kComputeStream) {}

Bytes GradientBucket::wire(std::int64_t elements) const {
  return Bytes(elements) * dtype_bytes(strategy_.communication_dtype);
}

void GradientBucket::set_up() {  // B3.1
  if (!buffers_.empty() || !zero_.contiguous_gradients) {
    return;
  }
  for (int i = 0; i < (zero_.overlap_comm ? 2 : 1); ++i) {
    buffers_.push_back(builder_.allocate(low(zero_.reduce_bucket_size),
                                         MemoryClass::TemporaryBuffers, "ipg_bucket",
                                         kComputeStream, "B3.1"));
  }
}

void GradientBucket::add(ParameterId id, BufferId gradient, Dtype dtype) {
  set_up();
  const std::int64_t n = layout_.elements_of[id.index()];
  if (n == 0) {
    builder_.free(gradient);
    return;
  }
  if (elements_ + n > zero_.reduce_bucket_size) {  // B3.3
    flush();
  }
  if (zero_.contiguous_gradients && n <= zero_.reduce_bucket_size) {  // B3.4
    builder_.kernel(kComputeStream,
                    memory_kernel("copy_to_bucket", Bytes(n) * dtype_bytes(dtype) + low(n)),
                    HostWork::BackwardLaunch, "B3.4");
    builder_.free(gradient, "B3.4");
  }
  entries_.push_back({id, gradient, dtype});
  elements_ += n;
}

void GradientBucket::flush() {
  if (zero_.overlap_comm && zero_.contiguous_gradients) {  // B3.5
    const OpId previous = builder_.last(reduction_stream_);
    builder_.stream_wait_stream(reduction_stream_, kComputeStream, "B3.5");
    builder_.stream_wait(kComputeStream, previous, "B3.5");
  }
  if (!entries_.empty()) {
    std::vector<ParameterId> parameters;
    for (const BucketEntry& entry : entries_) {
      parameters.push_back(entry.parameter);
    }
    builder_.annotate(AnnotationKind::FlushBucket, elements_, parameters);
    if (world_size_ > 1) {
      reduce();
    }
    reduced_(entries_);
  }
  entries_.clear();
  elements_ = 0;
}

void GradientBucket::release() {
  for (BufferId& buffer : buffers_) {
    builder_.free(buffer, "B3.1");
  }
  buffers_.clear();
}

// B3.6: which collectives a flush issues.
void GradientBucket::reduce() {
  if (zero_.true_reduce_scatter) {
    reduce_scatter();
  } else if (!zero_.contiguous_gradients) {
    synchronize_before_message();
    all_reduce(elements_, static_cast<int>(entries_.size()), /*divide_first=*/true);
  } else if (!zero_.reduce_scatter) {
    all_reduce(elements_, 1, /*divide_first=*/false);
  } else if (zero_.use_multi_rank_bucket_allreduce) {
    all_reduce_slices();
  } else {
    reduce_to_owners();
  }
}

void GradientBucket::synchronize_before_message() {
  if (zero_.overlap_comm) {
    builder_.device_synchronize("B3.6");
  }
}

std::vector<PartitionSlice> GradientBucket::slices() const {
  std::vector<PartitionSlice> runs;
  for (const BucketEntry& entry : entries_) {
    for (const PartitionSlice& slice : layout_.slices(entry.parameter)) {
      if (!runs.empty() && runs.back().owner == slice.owner) {
        runs.back().elements += slice.elements;
      } else {
        runs.push_back(slice);
      }
    }
  }
  return runs;
}

// One all-reduce of all slices; regrouped greedily, so that an extra-large parameter that spans
// ranks may be split (B3.10: 1200 = 526 + 626 + 48 with bucket 1000 gives 1152 and 48).
void GradientBucket::all_reduce_slices() {
  std::int64_t sum = 0;
  int pieces = 0;
  for (const PartitionSlice& slice : slices()) {
    sum += slice.elements;
    ++pieces;
    if (sum > zero_.reduce_bucket_size) {
      all_reduce(sum, pieces, /*divide_first=*/true);
      sum = 0;
      pieces = 0;
    }
  }
  if (sum > 0) {
    all_reduce(sum, pieces, /*divide_first=*/true);
  }
}

// One reduce to each owner, in order of first appearance (rule 2 of deepspeed_recorded.md).
void GradientBucket::reduce_to_owners() {
  std::vector<PartitionSlice> owners;
  std::vector<int> pieces;
  for (const PartitionSlice& slice : slices()) {
    const auto found = std::find_if(owners.begin(), owners.end(), [&](const PartitionSlice& other) {
      return other.owner == slice.owner;
    });
    if (found == owners.end()) {
      owners.push_back(slice);
      pieces.push_back(1);
    } else {
      found->elements += slice.elements;
      ++pieces[static_cast<std::size_t>(found - owners.begin())];
    }
  }
  for (std::size_t i = 0; i < owners.size(); ++i) {
    synchronize_before_message();
    message(CollectiveKind::Reduce, owners[i].elements, pieces[i], /*divide_first=*/true,
            static_cast<int>(owners[i].owner));
  }
}

// The paper's: each rank receives its piece of the bucket and nothing else (B7, not DeepSpeed's).
void GradientBucket::reduce_scatter() {
  const std::int64_t piece = (elements_ + world_size_ - 1) / world_size_;
  const std::int64_t padded = piece * world_size_;
  BufferId flat = builder_.allocate(wire(padded), MemoryClass::TemporaryBuffers, "flat_bucket",
                                    reduction_stream_, "B7");
  kernel("flatten", low(elements_) + wire(padded), "B7");
  kernel("divide", wire(padded) * 2, "B7");
  collective(CollectiveKind::ReduceScatter, padded, piece, -1, "B7");
  builder_.free(flat);
}

void GradientBucket::all_reduce(std::int64_t elements, int pieces, bool divide_first) {
  message(CollectiveKind::AllReduce, elements, pieces, divide_first, -1);
}

// Gradients in their own memory keep its type; those in the buffer have the model's.
Dtype GradientBucket::source_dtype() const {
  const BucketEntry& first = entries_.front();
  return first.gradient.valid() ? first.dtype : model_dtype(strategy_.precision);
}

void GradientBucket::message(CollectiveKind kind, std::int64_t elements, int pieces,
                             bool divide_first, int root) {
  const Bytes source = Bytes(elements) * dtype_bytes(source_dtype());
  const bool cast = strategy_.communication_dtype != source_dtype();
  BufferId flat;
  BufferId wire_copy;
  if (pieces > 1) {
    flat = builder_.allocate(source, MemoryClass::TemporaryBuffers, "flat_bucket",
                             reduction_stream_, "B3.6");
    kernel("flatten", source * 2, "B3.6");
  }
  if (cast) {
    wire_copy = builder_.allocate(wire(elements), MemoryClass::TemporaryBuffers, "cast_bucket",
                                  reduction_stream_, "B3.6");
    kernel("cast", source + wire(elements), "B3.6");
  }
  if (divide_first) {
    kernel("divide", wire(elements) * 2, "B3.6");
  }
  collective(kind, elements, elements, root, "B3.6");
  if (!divide_first) {
    kernel("average", wire(elements) * 2, "B3.6");
  }
  if (cast) {
    kernel("cast", source + wire(elements), "B3.6");
    builder_.free(wire_copy);
  }
  builder_.free(flat);
}

void GradientBucket::collective(CollectiveKind kind, std::int64_t input, std::int64_t output,
                                int root, std::string_view rule) {
  Collective collective;
  collective.kind = kind;
  collective.input_elements = input;
  collective.output_elements = output;
  collective.dtype = strategy_.communication_dtype;
  collective.group = group_;
  collective.root = root;
  builder_.collective(reduction_stream_, collective, rule);
}

void GradientBucket::kernel(std::string_view name, Bytes bytes, std::string_view rule) {
  builder_.kernel(reduction_stream_, memory_kernel(name, bytes), HostWork::BackwardLaunch, rule);
}

}  // namespace zerosim
