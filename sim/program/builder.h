/// \file
/// Writes one RankProgram: the vocabulary in which the framework builders speak.
///
/// Every method appends what the host thread of one rank does next. `context` (step, micro step,
/// phase, module) is stamped on each operation. Rules are string literals.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.h"

namespace zerosim {

/// Host work of one operation.
struct HostCost {
  HostWork work = HostWork::None;
  int count = 1;
};

class RankProgramBuilder {
 public:
  /// Makes the compute stream.
  explicit RankProgramBuilder(Rank representative, int multiplicity);

  /// \name Streams
  ///@{
  StreamId add_stream(const std::string& name);
  /// Registers the communicator's FIFO; call once for each group before its first collective.
  void add_communicator(GroupId group, const std::string& name);
  /// Last operation on `stream`; not valid if there is none.
  [[nodiscard]] OpId last(StreamId stream) const { return last_[stream.index()]; }
  ///@}

  /// \name Context of the operations that follow
  ///@{
  void set_step(int step, int micro_step);
  void set_phase(Phase phase) { phase_ = phase; }
  void set_module(ModuleId module) { module_ = module; }
  [[nodiscard]] ModuleId module() const { return module_; }
  [[nodiscard]] Phase phase() const { return phase_; }
  ///@}

  /// \name Operations
  ///@{
  OpId host(HostCost cost, std::string_view rule);
  /// The host thread goes through host memory; what it issues next waits.
  OpId host_pass(const HostPass& pass, std::string_view rule);
  OpId kernel(StreamId stream, const Kernel& kernel, HostWork work, std::string_view rule);
  /// Of pageable memory the host waits for the end: the driver copies it piece by piece through
  /// pinned memory of its own. \returns the copy.
  OpId copy(StreamId stream, const Copy& copy, std::string_view rule);
  /// The communicator waits for all that `caller` holds; unless async, `caller` then waits for it
  /// (0.4). \returns the collective itself.
  OpId collective(StreamId caller, const Collective& collective, std::string_view rule);
  /// Blocking ones; sizes in elements of this rank's input and output.
  OpId all_reduce(StreamId caller, GroupId group, std::int64_t elements, Dtype dtype,
                  std::string_view rule, ReduceOp reduction = ReduceOp::Sum);
  OpId all_gather(StreamId caller, GroupId group, std::int64_t input, std::int64_t output,
                  Dtype dtype, std::string_view rule);
  OpId reduce_scatter(StreamId caller, GroupId group, std::int64_t input, std::int64_t output,
                      Dtype dtype, std::string_view rule, ReduceOp reduction = ReduceOp::Sum);
  /// `stream` waits for `op`; nothing if `op` is not valid or is on the same stream.
  void stream_wait(StreamId stream, OpId op, std::string_view rule);
  /// `stream` waits for all that `other` holds now.
  void stream_wait_stream(StreamId stream, StreamId other, std::string_view rule);
  /// The host blocks until `op` has ended; nothing if it is not valid.
  void host_wait(OpId op, std::string_view rule);
  void host_wait_stream(StreamId stream, std::string_view rule);
  /// The host blocks until every stream is empty.
  void device_synchronize(std::string_view rule);
  ///@}

  /// \name Memory
  ///@{
  BufferId allocate(Bytes bytes, MemoryClass memory_class, std::string_view owner,
                    StreamId pool = kComputeStream, std::string_view rule = "");
  /// The same on the host.
  BufferId allocate_on_host(Bytes bytes, MemoryClass memory_class, std::string_view owner,
                            bool pinned, std::string_view rule);
  /// Ordinary memory that the ranks of a node have once between them.
  BufferId allocate_on_node(Bytes bytes, MemoryClass memory_class, std::string_view owner,
                            std::string_view rule);
  /// Frees and forgets; nothing if not valid.
  void free(BufferId& buffer, std::string_view rule = "");
  /// The same after record_stream on each of `streams` (E7.8): the memory is used again only when
  /// what they hold now has ended. The buffer's own stream needs none.
  void free_recorded(BufferId& buffer, std::span<const StreamId> streams, std::string_view rule);
  /// The host's time of an allocation and its free, without memory.
  void visit_allocator(std::string_view owner, StreamId pool, std::string_view rule);
  /// torch.cuda.empty_cache().
  void empty_cache(std::string_view rule);
  ///@}

  /// Explains what is issued next.
  void annotate(AnnotationKind kind, std::int64_t elements,
                const std::vector<ParameterId>& parameters);

  /// comms_logger: the device is synchronised after each collective (0.7).
  void synchronize_after_collectives(bool on) { synchronize_after_collectives_ = on; }

  [[nodiscard]] RankProgram finish() { return std::move(program_); }

 private:
  Op& append(OpKind kind, HostCost cost, std::string_view rule);
  void depend_on(Op& op, OpId dependency);
  OpId enqueue(Op& op, StreamId stream);

  RankProgram program_;
  std::vector<OpId> last_;               ///< by stream
  std::vector<StreamId> communicators_;  ///< by group
  Phase phase_ = Phase::Init;
  ModuleId module_;
  int step_ = 0;
  int micro_step_ = 0;
  bool synchronize_after_collectives_ = false;
};

/// A kernel that streams `bytes` (read + written) through device memory.
[[nodiscard]] Kernel memory_kernel(std::string_view name, Bytes bytes, int launches = 1);
/// The same, counted as optimizer time.
[[nodiscard]] Kernel optimizer_kernel(std::string_view name, Bytes bytes, int launches = 1);

}  // namespace zerosim
