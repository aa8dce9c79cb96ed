/// \file
/// A Program: for each rank class, the operations in the order in which its host thread issues
/// them.
///
/// A Program speaks of ranks, groups, elements and bytes, never of links or seconds. It is static:
/// throttles are unconditional waits on an operation a fixed number of places back, no-ops if that
/// is past (design.md section 2). Each rank has device streams (FIFO) and one more FIFO per
/// communicator (rule 0.3): a collective is an operation of its communicator's stream that waits
/// for the caller's stream; a blocking one is followed by a StreamWait of the caller's stream (rule
/// 0.4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/model/operators.h"

namespace zerosim {

enum class OpKind : std::uint8_t {
  Host,        ///< host time only
  Kernel,      ///< device kernel on a stream
  Copy,        ///< between host and device on a stream
  Collective,  ///< on a communicator's stream; starts when every member has arrived
  StreamWait,  ///< the stream goes on when the dependencies have ended; no host wait
  HostWait,    ///< the host goes on when the dependencies have ended
  Allocate,
  Free,
  EmptyCache,  ///< torch.cuda.empty_cache(): the host waits for an idle device (E7.14)
};

/// "host", "kernel", "copy", "collective", "stream_wait", "host_wait", "allocate", "free",
/// "empty_cache".
[[nodiscard]] std::string_view to_string(OpKind kind);
/// Whether operations of this kind are put on a stream.
[[nodiscard]] bool runs_on_device(OpKind kind);

/// Words of the recordings: "init", "fwd", "bwd", "step".
enum class Phase : std::uint8_t { Init, Forward, Backward, Step };
[[nodiscard]] std::string_view to_string(Phase phase);

/// What the host thread does for an operation; seconds are the engine's (sim/engine/host_time.h).
enum class HostWork : std::uint8_t {
  None,
  KernelLaunch,      ///< one eager kernel, Python and dispatcher included
  BackwardLaunch,    ///< one kernel launched by the autograd engine
  OptimizerLaunch,   ///< one multi-tensor kernel, or one of a loop over tensors
  CollectiveLaunch,  ///< one torch.distributed call
  ModuleHook,        ///< one module hook of FSDP (D2.4, D2.7)
  GradientHook,      ///< one per-parameter gradient hook (B3, C6.1, D1.4)
  DeepSpeedHook,     ///< one module hook of ZeRO-3 (C2)
  EventRecord,       ///< record or stream wait
  ModuleCall,        ///< nn.Module.__call__
  Checkpoint,        ///< torch.utils.checkpoint of a block, once forward and once backward
  StepOverhead,      ///< Python of optimizer.step, zero_grad and the loop, once a step
};

/// "kernel_launch", "module_hook", ...; "host" for None.
[[nodiscard]] std::string_view to_string(HostWork work);

/// ZeRO paper's classes, finer where reports tell them apart (spec E1).
enum class MemoryClass : std::uint8_t {
  Parameters,        ///< weights or partitions
  Gradients,         ///< kept gradients
  OptimizerStates,   ///< master weights and moments
  Activations,       ///< saved for backward, checkpoints, recompute working set
  Logits,            ///< logits, their fp32 copy and gradients; reported within activations too
  TemporaryBuffers,  ///< buckets, flat buffers, casts
  LiveParameters,    ///< gathered parameters
};
inline constexpr int kMemoryClasses = 7;
[[nodiscard]] std::string_view to_string(MemoryClass memory_class);

/// Names of operations, words of the recordings.
enum class CollectiveKind : std::uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  Broadcast,
  Reduce,
  AllToAll,  ///< of equal shares
};
[[nodiscard]] std::string_view to_string(CollectiveKind kind);

/// What a reduction does with the ranks' elements.
enum class ReduceOp : std::uint8_t { Sum, Max, Average };
/// "SUM", "MAX", "AVG": words of the recordings.
[[nodiscard]] std::string_view to_string(ReduceOp reduction);

/// One collective as rank 0 asks for it; sizes in elements of this rank's input and output.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::int64_t input_elements = 0;
  std::int64_t output_elements = 0;
  Dtype dtype = Dtype::Bf16;
  GroupId group;
  ReduceOp reduction = ReduceOp::Sum;  ///< of all_reduce, reduce and reduce_scatter
  bool async = false;
  bool recorded = true;  ///< false: issued in C++, not seen by recordings (D1.2, D1.7)
  int coalesced = -1;    ///< calls with the same number form one NCCL group
  int root = -1;         ///< of broadcast and reduce
};

/// Full vector as nccl-tests counts it: output of a gather, input of a reduce-scatter or
/// all-to-all.
[[nodiscard]] Bytes collective_size(const Collective& collective);

struct Copy {
  enum class Direction : std::uint8_t { HostToDevice, DeviceToHost };
  Direction direction = Direction::HostToDevice;
  Bytes bytes;
  bool pinned = true;  ///< the host side is page-locked
};

/// What a Host operation reads and writes of host memory, as large vectors are gone through with
/// all threads of the rank: CPU Adam, scaling, casts.
struct HostPass {
  std::string_view name;  ///< string literal: "cpu_adam"
  Bytes bytes;            ///< read + written
  Bytes fresh{};          ///< of these, written to pages that no pass has touched before
};

/// Where a buffer lies.
enum class MemoryPlace : std::uint8_t {
  Device,      ///< of the caching allocator
  Host,        ///< ordinary, pageable
  PinnedHost,  ///< page-locked, of PyTorch's host allocator (E6)
  NodeHost,    ///< ordinary, one for all ranks of a node
};

/// A piece of memory with its owner; its life is an Allocate and a Free operation.
struct Buffer {
  Bytes bytes;
  MemoryClass memory_class = MemoryClass::TemporaryBuffers;
  StreamId stream;         ///< whose allocator pool (E8); on the host without meaning
  std::string_view owner;  ///< string literal: "ipg_bucket", "saved_activation"
  MemoryPlace place = MemoryPlace::Device;
};

struct Op {
  OpKind kind = OpKind::Host;
  Phase phase = Phase::Init;
  HostWork host_work = HostWork::None;
  std::uint16_t host_count = 0;  ///< how many such pieces of host work
  StreamId stream;  ///< Kernel, Copy, StreamWait: the stream; Collective: its communicator's
  /// Index into kernels, copies, collectives, buffers; of a Host operation into host_passes, or -1:
  /// it goes through no memory.
  std::int32_t payload = -1;
  /// What it waits for. Of a Free: what must have ended before its memory is used again, the last
  /// operations on the other streams that it was recorded on (E7.8); the host does not wait.
  std::uint32_t first_dependency = 0;
  std::uint32_t dependency_count = 0;
  ModuleId module;
  std::int16_t step = 0;
  std::int16_t micro_step = 0;
  std::string_view rule;  ///< "C4.3": rule of spec/zero_schedule.md; string literal
};

/// Why an operation is there: the markers of the recordings. They carry no traffic and no time.
enum class AnnotationKind : std::uint8_t {
  FlushBucket,     ///< a reduce bucket with its gradients, before its collectives (B3.3, C6.4)
  Bucket,          ///< the same of DDP, in bucket order (D1.4)
  FetchSubModule,  ///< ZeRO-3: a module's pre-forward or pre-backward hook (C4.3)
  GatherParams,    ///< ZeRO-3: the parameters of the gather (or gathers) that follow (C3)
  Release,         ///< ZeRO-3: parameters that are freed (C4.6, C4.8, C8.1)
};
/// Words of the recordings: "flush_bucket", "bucket", "fetch_sub_module", "gather_params",
/// "release".
[[nodiscard]] std::string_view to_string(AnnotationKind kind);

/// Explains the operation that follows it.
struct Annotation {
  AnnotationKind kind = AnnotationKind::FlushBucket;
  OpId before;  ///< the next operation; one past the last if there is none
  /// Of its parameters, without padding; of FetchSubModule what the coordinator counts as available
  /// before it (rule 30).
  std::int64_t elements = 0;
  std::uint32_t first_parameter = 0;
  std::uint32_t parameter_count = 0;
  ModuleId module;  ///< ZeRO-3: whose hook it is
  Phase phase = Phase::Init;
  std::int16_t step = 0;
  std::int16_t micro_step = 0;
};

struct Stream {
  std::string name;      ///< "compute", "all_gather", "reduce", "nccl:WORLD"
  GroupId communicator;  ///< valid: this is that communicator's FIFO
};

/// What one rank class does. The first stream is the compute stream.
struct RankProgram {
  Rank representative;
  int multiplicity = 1;  ///< ranks of this class
  std::vector<Stream> streams;
  std::vector<Op> ops;
  std::vector<OpId> dependencies;  ///< pool; an op's are [first_dependency, +dependency_count)
  std::vector<Kernel> kernels;
  std::vector<Copy> copies;
  std::vector<Collective> collectives;
  std::vector<HostPass> host_passes;
  std::vector<Buffer> buffers;

  std::vector<Annotation> annotations;  ///< in host order
  std::vector<ParameterId> annotated;   ///< pool of their parameters

  [[nodiscard]] std::span<const ParameterId> parameters_of(const Annotation& annotation) const {
    return {annotated.data() + annotation.first_parameter, annotation.parameter_count};
  }
  [[nodiscard]] std::span<const OpId> dependencies_of(const Op& op) const {
    return {dependencies.data() + op.first_dependency, op.dependency_count};
  }
};

inline constexpr StreamId kComputeStream{std::int32_t{0}};

/// A communicator: `size` ranks, the same shape for every rank. Those of the group that rank 0 is
/// in are 0, stride, 2 stride, ...; every rank is in one group alike.
struct ProcessGroup {
  std::string name;  ///< "WORLD", "DP" (rule 0.5)
  int size = 1;
  int stride = 1;  ///< distance of neighbours; 1: consecutive ranks
};

/// Consecutive ranks that run one of a Program's programs (topology's RankRun, which this folder
/// does not know).
struct ProgramRun {
  int first = 0;
  int count = 1;
  int program = 0;  ///< index into Program::ranks
};

/// Ordering of `ranks` is by representative; every class belongs to every group. All issue the same
/// collectives, in the same order on every communicator.
struct Program {
  std::string strategy;
  int world_size = 1;
  int first_step = 0;  ///< number of the first simulated step (rules 0.7, C4.1: 2 is steady)
  int steps = 1;
  /// The engine lets so many of the first steps, and what precedes them, pass in no time: they are
  /// there for what they allocate and leave behind (initialisation, Adam's states, the cache).
  int warm_up_steps = 0;
  std::vector<ProcessGroup> groups;
  std::vector<RankProgram> ranks;
  std::vector<ProgramRun> runs;  ///< all ranks in order; empty: all run the first
  std::vector<std::string> module_names;
  std::vector<std::string> parameter_names;
  std::int64_t parameter_elements = 0;  ///< Psi
  Bytes parameter_bytes;                ///< Psi in the type that is communicated
  std::vector<std::string> assumptions;
};

/// Whether any rank goes through host memory.
[[nodiscard]] bool uses_host_memory(const Program& program);

/// Checks what every builder promises: dependencies point backwards, payloads exist, each buffer is
/// allocated before it is freed and at most once, streams exist. Aborts through ZS_CHECK otherwise.
void check_program(const Program& program);

/// The first collective on which two of the programs do not agree, in words; nothing if they all
/// issue the same ones (kind, sizes, type, reduction, root, NCCL group) on every communicator, as
/// they must lest the job hangs.
[[nodiscard]] std::optional<std::string> disagreement(const Program& program);

}  // namespace zerosim
