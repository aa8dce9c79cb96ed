/// \file
/// The gradient bucket ("IPG") of ZeRO stages 1 and 2: spec B3.1 to B3.6.
///
/// Gradients are copied into a buffer of `reduce_bucket_size` elements. Before one that no longer
/// fits, the bucket is flushed: reduced by one or more collectives on the reduction stream, which
/// is the compute stream without `overlap_comm`.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/program/flat_layout.h"
#include "sim/program/frameworks.h"

namespace zerosim {

/// A gradient in the bucket.
struct BucketEntry {
  ParameterId parameter;
  BufferId gradient;  ///< valid: reduced in its own memory (extra-large, or not contiguous; B3.4)
  Dtype dtype = Dtype::Bf16;  ///< of `gradient`
};

class GradientBucket {
 public:
  /// \param layout   outlives the bucket
  /// \param reduced  is called on the reduction stream's behalf for the gradients of each flush
  ///                 once its collectives have been issued, in the order of arrival (B3.7)
  GradientBucket(const FrameworkContext& context, const FlatLayout& layout,
                 std::function<void(std::span<BucketEntry>)> reduced);

  /// Allocates the buffers unless they are there (B3.1): at the first gradient that a hook sees.
  void set_up();
  /// A gradient arrives; flushes first if it does not fit (B3.3, B3.4).
  /// \param dtype  of `gradient`, which the bucket owns from here on
  void add(ParameterId id, BufferId gradient, Dtype dtype);
  /// Reduces what the bucket holds; of an empty one only the waits of B3.5 remain.
  void flush();
  /// Frees the buffers (B3.9); the next gradient allocates new ones.
  void release();

  [[nodiscard]] StreamId reduction_stream() const { return reduction_stream_; }

 private:
  void reduce();
  void reduce_scatter();
  void all_reduce_slices();
  void reduce_to_owners();
  void all_reduce(std::int64_t elements, int pieces, bool divide_first);
  /// One message of `elements` out of `pieces` tensors: flattened unless it is one, cast, averaged.
  void message(CollectiveKind kind, std::int64_t elements, int pieces, bool divide_first, int root);
  void collective(CollectiveKind kind, std::int64_t input, std::int64_t output, int root,
                  std::string_view rule);
  void kernel(std::string_view name, Bytes bytes, std::string_view rule);
  void synchronize_before_message();
  /// Maximal runs of consecutive elements that one rank owns (B3.6).
  [[nodiscard]] std::vector<PartitionSlice> slices() const;
  /// Type of the memory that holds the bucket's gradients.
  [[nodiscard]] Dtype source_dtype() const;
  [[nodiscard]] Bytes low(std::int64_t elements) const { return Bytes(elements) * bytes_; }
  [[nodiscard]] Bytes wire(std::int64_t elements) const;

  const Strategy& strategy_;
  const ZeroOptions& zero_;
  RankProgramBuilder& builder_;
  const FlatLayout& layout_;
  std::function<void(std::span<BucketEntry>)> reduced_;
  GroupId group_;
  int world_size_;
  int bytes_;  ///< of an element in the model's type
  StreamId reduction_stream_;
  std::vector<BufferId> buffers_;
  std::vector<BucketEntry> entries_;
  std::int64_t elements_ = 0;
};

}  // namespace zerosim
