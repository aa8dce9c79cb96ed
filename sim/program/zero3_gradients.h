/// \file
/// ZeRO-3's gradients: one bucket, reduced onto the ranks' pieces (spec C6; rules 41 to 46 of
/// deepspeed_recorded.md), what becomes of the pieces (C6.6; offloaded: C8.6), MiCS' reduction over
/// replicas (C11), qgZ (C10.2).
///
/// Of a bucket of tensors of n_i elements on N ranks, pieces p_i = ceil(n_i / N), sorted by id:
///
///     default            flat buffer, rank by rank; divide; reduce-scatter of N sum p_i -> sum p_i
///     one tensor, N | n  the same in place
///     reduce_scatter false, contiguous, within the bucket's size
///                        all-reduce of sum n_i in place
///     DeepSpeed to 0.5   each tensor by itself: N copies into a flat buffer, a reduce-scatter of
///                        a list
///     qgZ, several nodes each tensor by itself: int4, two all-to-alls within the node, two across;
///                        vectors and sizes that 2 N does not divide as by default
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/program/frameworks.h"
#include "sim/program/throttle.h"
#include "sim/program/zero3_partition.h"
#include "sim/program/zero3_step.h"

namespace zerosim {

class Zero3Gradients {
 public:
  /// \param partition, step  outlive the object
  /// \param stream           the reduce-and-partition stream (0.6)
  /// \throws ConfigError     if qgZ is to run on nodes that do not divide the ranks
  Zero3Gradients(const FrameworkContext& context, const Zero3Partition& partition,
                 const Zero3Step& step, StreamId stream);

  /// Allocates the bucket and the pieces (C1.4, C1.5).
  void initialize();
  void begin(const MicroBatch& micro) { micro_ = micro; }
  /// C6.1 to C6.3: `gradient` is whole; the bucket leaves first if it does not fit.
  void add(ParameterId id, BufferId gradient);
  /// C6.7: reduces what is left; the host waits for the reductions.
  void finish();

 private:
  struct Entry {
    ParameterId parameter;
    BufferId gradient;  ///< valid: kept in its own memory, larger than the bucket (C6.3)
  };

  [[nodiscard]] const Parameter& parameter(ParameterId id) const {
    return model_.parameters[id.index()];
  }
  [[nodiscard]] std::int64_t elements(ParameterId id) const { return parameter(id).elements; }
  [[nodiscard]] std::int64_t piece(ParameterId id) const { return partition_.piece(elements(id)); }
  [[nodiscard]] Bytes wire(std::int64_t n) const { return Bytes(n) * wire_bytes_; }
  [[nodiscard]] bool quantizes(const Parameter& parameter) const;

  void reduce_bucket();
  void all_reduce_bucket();
  void reduce_scatter(const std::vector<ParameterId>& parameters);
  void reduce_quantized(ParameterId id);
  void all_to_all(std::int64_t elements, Dtype dtype, GroupId group);
  void reduce_over_replicas();
  void keep_piece(Entry& entry);
  void keep_on_host(ParameterId id);
  void hand_to_step(ParameterId id);
  void kernel(std::string_view name, Bytes bytes, std::string_view rule);
  void copy(Copy::Direction direction, Bytes bytes);

  const Model& model_;
  const Strategy& strategy_;
  const ZeroOptions& zero_;
  const Zero3Partition& partition_;
  const Zero3Step& step_;
  RankProgramBuilder& builder_;
  StreamId stream_;
  std::int64_t world_size_;
  int bytes_;                           ///< of an element in the model's type
  int wire_bytes_;                      ///< in the type that is communicated
  int gradient_bytes_;                  ///< in the accumulation type
  GroupId within_node_, across_nodes_;  ///< qgZ's; may not be there
  std::int64_t node_ = 0;               ///< GPUs of a node
  bool moves_lists_;                    ///< DeepSpeedRelease::moves_lists
  MicroBatch micro_;
  std::vector<Entry> bucket_;
  std::int64_t bucket_elements_ = 0;
  Throttle throttle_;
};

}  // namespace zerosim
