/// \file
/// How ZeRO-3 gets parameters to a rank and rid of them again (spec C3, C4.4, C9, C10.1, C11): the
/// streams, buffers and collectives that carry out what the coordinator decides.
///
/// One request becomes, on the all-gather stream (n elements, a piece of p on each of N ranks, b
/// bytes each):
///
///     one parameter (C3.1)    a gather of p, straight into the parameter
///     several (C3.2)          pieces side by side; a gather into a flat buffer; at the wait a copy
///                             of each parameter out of it
///     all-reduced (C3.6)      the same flat buffer, summed: parameters are views of it
///     MiCS (C11)              a gather for each parameter, in one NCCL group, straight into it;
///                             hierarchical: across nodes first, then within the node
///     quantised (C10.1)       int8 pieces and fp32 scales, two gathers; dequantised at the wait
///     DeepSpeed 0.3 to 0.5    each parameter by itself: the device is synchronised, a gather into
///                             a flat buffer, N copies of p out of it (all_gather of a list)
///     pieces on the CPU (C3.5)  a copy of each to the device first, for which the host waits
///
/// Parameters with a secondary partition (hpZ, C9) and quantised frozen ones (C10.3) are gathered
/// apart from the rest of their request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/program/frameworks.h"
#include "sim/program/throttle.h"
#include "sim/program/zero3_partition.h"

namespace zerosim {

/// Groups that an int8 quantisation of `elements` elements makes (C10.1): from ceil(x / 8000) up
/// until 8 times as many divide x, then doubled while more than 8,000 elements are in each.
/// \throws ConfigError  if the elements are no multiple of 8, as DeepSpeed asserts; `what` is what
///                      was to be quantised.
[[nodiscard]] std::int64_t quantization_groups(std::int64_t elements, std::string_view what);

class Zero3Gathers {
 public:
  /// \param partition  outlives the object
  /// \param stream     the all-gather stream (0.6)
  /// \throws ConfigError  if hpZ's groups or, in hierarchical gathers, nodes do not divide the
  /// ranks.
  Zero3Gathers(const FrameworkContext& context, const Zero3Partition& partition, StreamId stream);

  /// Allocates the pieces, and what the last step left gathered.
  /// \param gathered  by parameter: whole when the Program begins
  /// \param updated   the step before has updated the parameters: secondary copies are gone
  void initialize(const std::vector<bool>& gathered, bool updated);

  /// \name The coordinator's requests
  ///@{
  /// Starts one request (C3); nothing if it is empty.
  /// \throws ConfigError  of what cannot be quantised.
  void issue(const std::vector<ParameterId>& parameters, std::string_view rule);
  [[nodiscard]] bool in_flight(ParameterId id) const { return in_flight_[id.index()].has_value(); }
  /// The all-gather stream waits for the gather of `id`, the host for the third event before
  /// (C4.4).
  void wait_for(ParameterId id);
  /// One gather on the spot, for the compute stream (C2.6).
  void gather_now(ParameterId id);
  void release(const std::vector<ParameterId>& parameters, std::string_view rule);
  /// The memory of `parameters` stays for as long as autograd holds it (C2.7): \returns it.
  [[nodiscard]] std::vector<BufferId> leave_to_autograd(const std::vector<ParameterId>& parameters);
  ///@}

  /// \name After the optimizer step
  ///@{
  /// Each one gathered by itself, back to back; wait for the last, device synchronise (C8.5).
  void gather_persistent(const std::vector<bool>& persistent);
  /// Secondary partitions of what the optimizer has changed go (C9.4).
  void drop_secondaries();
  ///@}

  [[nodiscard]] StreamId stream() const { return stream_; }

 private:
  /// One request on its way, and what is waiting for it.
  struct Gather {
    std::vector<ParameterId> parameters;
    OpId collective;         ///< the last one; not valid with one rank
    BufferId flat;           ///< what arrives, where it is not the parameters themselves
    BufferId scales;         ///< of int8
    std::int64_t whole = 0;  ///< elements, padded
    bool quantized = false;
    bool are_views = false;  ///< the parameters are views of `flat` (C3.6)
    bool copied_out = false;
    std::size_t pending = 0;  ///< parameters not yet popped by their own module's fetch
  };

  /// What a rank gives and gets.
  struct Share {
    std::int64_t input, output;  ///< elements
    Dtype dtype;
  };

  [[nodiscard]] std::int64_t elements(ParameterId id) const {
    return model_.parameters[id.index()].elements;
  }
  [[nodiscard]] Bytes in_model_type(std::int64_t elements) const {
    return Bytes(elements) * bytes_;
  }
  [[nodiscard]] bool has_secondaries() const { return hpz_.valid(); }
  [[nodiscard]] bool is_local(ParameterId id) const { return secondary_[id.index()].valid(); }
  [[nodiscard]] bool stores_quantized(const Parameter& parameter) const;
  [[nodiscard]] Bytes piece_bytes(const Parameter& parameter);
  [[nodiscard]] Bytes partition_bytes();
  void allocate_partitions();
  void partition_model();
  void defragment(std::vector<BufferId>& pieces);
  void allocate_full(ParameterId id, StreamId pool, std::string_view rule);
  void make_secondary(ParameterId id);
  void keep_secondary(ParameterId id);

  void issue_alike(const std::vector<ParameterId>& parameters, std::string_view rule);
  void issue_gather(const std::vector<ParameterId>& parameters, std::string_view rule);
  void fetch_pieces(const std::vector<ParameterId>& parameters, StreamId stream);
  void copy_alone(Gather& gather);
  void gather_each(Gather& gather, std::string_view rule);
  void gather_across_nodes(Gather& gather, std::string_view rule);
  void gather_quantized(Gather& gather);
  void gather_flat(Gather& gather, std::string_view rule);
  void gather_list(Gather& gather);
  void copy_out(Gather& gather);
  void dequantize(Gather& gather);
  [[nodiscard]] std::int64_t scales(std::int64_t elements, std::string_view what);
  [[nodiscard]] std::int64_t scales_of(const Gather& gather, std::int64_t piece);
  /// One that the caller waits for later.
  OpId all_gather(const Share& share, GroupId group, StreamId caller, std::string_view rule,
                  int coalesced = -1);
  void kernel(std::string_view name, Bytes bytes, std::string_view rule);

  FrameworkContext context_;
  const Model& model_;
  const ZeroOptions& zero_;
  const Zero3Partition& partition_;
  RankProgramBuilder& builder_;
  StreamId stream_;
  Dtype dtype_;       ///< of the model
  int bytes_;         ///< of an element of it
  bool on_host_;      ///< pieces (offload_param)
  bool moves_lists_;  ///< DeepSpeedRelease::moves_lists
  GroupId hpz_, across_nodes_, within_node_;
  std::int64_t hpz_size_ = 1;        ///< ranks of a secondary partition
  std::int64_t nodes_ = 1;           ///< of a shard, in hierarchical gathers; 1: not hierarchical
  int next_coalesced_ = 0;           ///< number of the next NCCL group
  std::vector<BufferId> full_;       ///< gathered parameters
  std::vector<BufferId> secondary_;  ///< by parameter (C9)
  std::vector<std::optional<std::size_t>> in_flight_;  ///< by parameter: index into gathers_
  std::vector<Gather> gathers_;
  std::map<std::int64_t, std::int64_t> scales_;  ///< by elements: quantization_groups
  Throttle throttle_;
};

}  // namespace zerosim
