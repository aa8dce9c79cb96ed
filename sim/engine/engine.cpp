#include "sim/engine/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/collective_call.h"
#include "sim/engine/machine.h"

namespace zerosim {

namespace {

using internal::Machine;
using internal::MachineEvent;

constexpr std::int32_t kNone = -1;

LinkClass::Kind link_of(Copy::Direction direction) {
  return direction == Copy::Direction::HostToDevice ? LinkClass::Kind::HostToDevice
                                                    : LinkClass::Kind::DeviceToHost;
}

std::vector<LinkClass> links_of(const Cluster& cluster, const EngineOptions& options) {
  if (!options.links.empty()) {
    return options.links;
  }
  std::vector<LinkClass> links = link_classes(cluster);
  std::erase_if(links, [](const LinkClass& link) {
    return link.kind == LinkClass::Kind::DeviceMemory || link.capacity.per_second() <= 0;
  });
  const GpuSpec& gpu = cluster.gpu();
  links.push_back(
      {LinkClass::Kind::DeviceMemory, "hbm", usable_memory_bandwidth(gpu, kernel_efficiency(gpu))});
  return links;
}

// ---- Costs -------------------------------------------------------------------------------------

/// Times of payloads, each distinct one computed once in the life of the engine.
class Costs {
 public:
  Costs(const Cluster& cluster, const EngineOptions& options)
      : cluster_(cluster), options_(options), efficiency_(kernel_efficiency(cluster.gpu())) {
    for (std::size_t work = 0; work < host_.size(); ++work) {
      host_[work] = host_time(options.host, static_cast<HostWork>(work));
    }
  }

  [[nodiscard]] Seconds host(const Op& op) const {
    return op.host_count * host_[static_cast<std::size_t>(op.host_work)];
  }

  /// \param ranks  of a node.
  [[nodiscard]] Seconds host_pass(const HostPass& pass, int ranks) const {
    return host_pass_time(options_.host, pass, cluster_.node.host_memory_bandwidth, ranks);
  }

  /// Bytes that a copy puts on its link: load is expressed in bytes, never by a slower link.
  [[nodiscard]] Bytes copy_load(const Copy& copy) const {
    if (copy.pinned) return copy.bytes;
    return Bytes(
        std::llround(static_cast<double>(copy.bytes.count()) / options_.host.pageable_copy));
  }

  [[nodiscard]] const KernelTime& kernel(const Kernel& kernel) {
    const KernelKey key{kernel.name,
                        static_cast<int>(kernel.kernel_class),
                        kernel.flops.count(),
                        kernel.bytes.count(),
                        kernel.m,
                        kernel.n,
                        kernel.k,
                        kernel.launches,
                        static_cast<int>(kernel.dtype),
                        kernel.backward};
    const auto [entry, added] = kernels_.try_emplace(key);
    if (added) {
      entry->second = options_.kernel_time ? options_.kernel_time(kernel)
                                           : kernel_time(kernel, cluster_.gpu(), efficiency_);
    }
    return entry->second;
  }

  /// Kept by address: callers may hold on to it.
  [[nodiscard]] const CollectiveCost& collective(const Collective& call,
                                                 const ProcessGroup& group) {
    const CollectiveKey key{static_cast<int>(call.kind),
                            call.input_elements,
                            call.output_elements,
                            static_cast<int>(call.dtype),
                            group.size,
                            group.stride,
                            group.name};
    const auto [entry, added] = collectives_.try_emplace(key);
    if (added && group.size > 1) {
      entry->second = options_.collective_cost
                          ? options_.collective_cost(call, group)
                          : collective_cost(cluster_, collective_op(call.kind),
                                            collective_size(call), placement(cluster_, group));
      merge_loads(entry->second.loads);
    }
    return entry->second;
  }

 private:
  using KernelKey = std::tuple<std::string_view, int, double, std::int64_t, std::int64_t,
                               std::int64_t, std::int64_t, int, int, bool>;
  using CollectiveKey = std::tuple<int, std::int64_t, std::int64_t, int, int, int, std::string>;

  /// One entry a link class, and none without bytes.
  static void merge_loads(std::vector<LinkLoad>& loads) {
    std::vector<LinkLoad> merged;
    for (const LinkLoad& load : loads) {
      const auto same = std::find_if(merged.begin(), merged.end(), [&](const LinkLoad& other) {
        return other.kind == load.kind;
      });
      if (same != merged.end()) {
        same->bytes += load.bytes;
      } else if (load.bytes > Bytes(0)) {
        merged.push_back(load);
      }
    }
    loads = std::move(merged);
  }

  const Cluster& cluster_;
  const EngineOptions& options_;
  KernelEfficiency efficiency_;
  std::array<Seconds, static_cast<std::size_t>(HostWork::StepOverhead) + 1> host_{};
  std::map<KernelKey, KernelTime> kernels_;
  std::map<CollectiveKey, CollectiveCost> collectives_;
};

// ---- State of a run ----------------------------------------------------------------------------

/// Whether an operation waits for its dependencies; for those of a Free, its memory does.
bool waits(const Op& op) {
  return op.kind != OpKind::Free;
}

/// An operation of one rank class during a run.
struct OpState {
  Seconds issued{0};
  Seconds ready{0};  ///< latest end of what it has waited for so far
  Seconds start{0};
  Seconds end{0};            ///< once it has ended
  std::int32_t pending = 0;  ///< its issue, dependencies and predecessor that are still to come
  std::int32_t successor = kNone;    ///< next on the stream
  std::int32_t leader = kNone;       ///< first of its coalesced calls; else itself
  std::int32_t next_member = kNone;  ///< next of the coalesced calls
  std::int32_t meeting = kNone;      ///< of a collective
  std::uint32_t first_dependent = 0;
  bool issued_yet = false;
  bool ended = false;
};

enum class HostState : std::uint8_t {
  Running,
  WaitsForOps,
  WaitsForQueue,
  WaitsForClock,  ///< an observer asks what has ended by the host's present
  WaitsForIdle,   ///< an allocation synchronises the device
  Done,
};

struct RankState {
  const RankProgram* program = nullptr;
  std::vector<OpState> ops;
  std::vector<std::int32_t> dependents;    ///< pool: those of op i begin at ops[i].first_dependent
  std::vector<const KernelTime*> kernels;  ///< by payload; null of warm-up steps
  HostState host_state = HostState::Running;
  std::size_t first_timed = 0;  ///< operations before it are of warm-up steps
  std::size_t next_op = 0;      ///< where the host thread is
  Seconds host_now{0};          ///< may be ahead of the machine's clock
  int unready = 0;              ///< launches of issued device operations that are not ready
  int unfinished = 0;           ///< issued device operations that have not ended
  Seconds last_end{0};          ///< of a device operation
  bool idle_wanted = false;     ///< by the present allocation
  Seconds allocation_cost{0};   ///< to be spent when the device is idle
};

/// Those that do not lie in the warm-up.
std::int32_t open_dependencies(const RankState& rank, const Op& op) {
  std::int32_t open = 0;
  for (const OpId dependency : rank.program->dependencies_of(op)) {
    if (dependency.index() >= rank.first_timed) ++open;
  }
  return open;
}

/// What the host thread of a rank class may know at its present.
class Progress final : public DeviceProgress {
 public:
  /// \param known  the device has come to the host's present.
  Progress(const RankState& rank, bool known) : rank_(rank), known_(known) {}

  [[nodiscard]] State state(OpId op) const override {
    const OpState& asked = rank_.ops[op.index()];
    if (asked.ended) return asked.end <= rank_.host_now ? State::Ended : State::Running;
    return known_ ? State::Running : State::Unknown;
  }

 private:
  const RankState& rank_;
  bool known_;
};

/// The n-th collectives of all rank classes on one communicator.
struct Meeting {
  const CollectiveCost* cost = nullptr;
  Collective call;  ///< of rank class 0, sizes summed over coalesced calls
  int arrived = 0;
  Seconds last_arrival{0};
  bool ended = false;

  [[nodiscard]] bool instant() const { return cost->loads.empty() && cost->delay.count() <= 0; }
};

enum class EventKind : std::uint16_t {
  StartKernel,
  StartCopy,
  EndOp,    ///< index: operation
  HoldSms,  ///< index: meeting
  StartMeeting,
  EndMeeting,
  ResumeHost,  ///< the clock is where the host thread is
};

/// One run of one program.
///
/// A host thread's clock may be ahead of the machine's: nothing can stop a thread that does not
/// wait, so it is walked until it does, and the operations that it issues carry their instants.
/// Times that are sums of known ones are added here and never read from the machine's clock; only
/// ends of activities are. Everything that happens is put on lists and worked off without
/// recursion.
class Execution final : public internal::MachineListener {
 public:
  /// \param ranks_of_a_node  that share its host memory.
  Execution(const Program& program, Machine& machine, Costs& costs, int launch_queue_depth,
            int ranks_of_a_node, AllocationObserver* observer)
      : program_(program),
        machine_(machine),
        costs_(costs),
        launch_queue_depth_(std::max(1, launch_queue_depth)),
        ranks_of_a_node_(ranks_of_a_node),
        observer_(observer) {
    prepare();
  }

  Timeline run();
  void on_event(const MachineEvent& event) override;

 private:
  struct Ended {
    int rank_class;
    std::int32_t op;
    Seconds time;
  };

  void prepare();
  void prepare_warm_up(RankState& rank) const;
  void prepare_ops(RankState& rank);
  void prepare_dependents(RankState& rank);
  void prepare_meetings(int rank_class);
  void join_meeting(int rank_class, std::int32_t first, const Collective& call,
                    std::size_t meeting);
  [[nodiscard]] std::vector<std::vector<std::int32_t>> collectives_by_group(int rank_class) const;
  void check_links() const;

  void start_hosts();
  void warm_up(int rank_class);
  void work_off();
  void walk_host(int rank_class);
  bool walk_op(int rank_class, const Op& op, std::int32_t index);
  [[nodiscard]] Seconds host_time_of(const RankProgram& program, const Op& op) const;
  void spend(int rank_class, std::int32_t op, Seconds time);
  void wait_until(int rank_class, std::int32_t op, Seconds time);
  bool walk_allocation(int rank_class, const Op& op, std::int32_t index, HostState before);
  Seconds memory_cost(int rank_class, const Op& op);
  void issue(int rank_class, std::int32_t op);
  void arrive(int rank_class, std::int32_t op, Seconds time);
  void on_ready(int rank_class, std::int32_t op);
  void launch_kernel(int rank_class, std::int32_t op);
  void start_kernel(int rank_class, std::int32_t op);
  void start_copy(int rank_class, std::int32_t op);
  void finish(int rank_class, std::int32_t op, Seconds time);
  void notify(const Ended& ended);
  void add_spans(int rank_class, std::int32_t op, Seconds end);
  void note_end(const Op& op, Seconds time);

  void arrive_at_meeting(int rank_class, std::int32_t op);
  void hold(int rank_class, std::int32_t meeting);
  void start_meeting(std::int32_t meeting);
  void end_meeting(std::int32_t meeting, Seconds time);

  [[noreturn]] void fail_stopped() const;
  [[noreturn]] void fail_mismatch(int rank_class, std::int32_t op, std::size_t meeting,
                                  const Collective& call) const;
  [[nodiscard]] std::string describe(int rank_class, std::int32_t op) const;
  [[nodiscard]] std::string reason(int rank_class, std::int32_t op) const;
  [[nodiscard]] std::string meeting_reason(std::int32_t meeting) const;

  RankState& rank(int rank_class) { return ranks_[static_cast<std::size_t>(rank_class)]; }
  [[nodiscard]] const RankState& rank(int rank_class) const {
    return ranks_[static_cast<std::size_t>(rank_class)];
  }
  OpState& state(int rank_class, std::int32_t op) {
    return rank(rank_class).ops[static_cast<std::size_t>(op)];
  }
  [[nodiscard]] const OpState& state(int rank_class, std::int32_t op) const {
    return rank(rank_class).ops[static_cast<std::size_t>(op)];
  }
  [[nodiscard]] const Op& op_of(int rank_class, std::int32_t op) const {
    return rank(rank_class).program->ops[static_cast<std::size_t>(op)];
  }
  [[nodiscard]] const Collective& call_of(int rank_class, std::int32_t op) const {
    const RankProgram& program = *rank(rank_class).program;
    return program.collectives[static_cast<std::size_t>(op_of(rank_class, op).payload)];
  }
  /// What an operation takes of the launch queue (rule 0.2).
  [[nodiscard]] int launches(int rank_class, std::int32_t op) const {
    const Op& own = op_of(rank_class, op);
    if (own.kind != OpKind::Kernel) return 1;
    const RankProgram& program = *rank(rank_class).program;
    return std::max(1, program.kernels[static_cast<std::size_t>(own.payload)].launches);
  }
  [[nodiscard]] int classes() const { return static_cast<int>(ranks_.size()); }
  /// Cell of a table of meetings by rank class.
  [[nodiscard]] std::size_t cell(std::int32_t meeting, int rank_class) const {
    return static_cast<std::size_t>(meeting) * ranks_.size() + static_cast<std::size_t>(rank_class);
  }
  static MachineEvent event(EventKind kind, int rank_class, std::int32_t index) {
    return {static_cast<std::uint16_t>(kind), static_cast<std::uint16_t>(rank_class), index};
  }

  const Program& program_;
  Machine& machine_;
  Costs& costs_;
  int launch_queue_depth_;
  int ranks_of_a_node_;
  AllocationObserver* observer_;

  std::vector<RankState> ranks_;
  std::vector<Meeting> meetings_;
  std::vector<std::int32_t> members_;  ///< by meeting and rank class: the (first) operation
  std::vector<char> holds_;            ///< by meeting and rank class: SMs are held

  std::vector<Ended> ended_;  ///< not yet told to those that wait for them
  std::vector<int> runnable_hosts_;
  Timeline timeline_;
};

// ---- Preparation -------------------------------------------------------------------------------

void Execution::prepare() {
  timeline_.step_ends.assign(static_cast<std::size_t>(program_.steps), Seconds(0));
  ranks_.resize(program_.ranks.size());
  std::size_t device_ops = 0;
  std::size_t ops = 0;
  for (int r = 0; r < classes(); ++r) {
    rank(r).program = &program_.ranks[static_cast<std::size_t>(r)];
    rank(r).ops.resize(rank(r).program->ops.size());
    prepare_warm_up(rank(r));
    prepare_meetings(r);
    prepare_ops(rank(r));
    prepare_dependents(rank(r));
    ops += rank(r).ops.size();
    device_ops += rank(r).program->kernels.size() + rank(r).program->copies.size() +
                  rank(r).program->collectives.size();
  }
  check_links();
  timeline_.spans.reserve(device_ops);
  timeline_.host_spans.reserve(ops);
}

void Execution::check_links() const {
  const auto need = [this](LinkClass::Kind kind, std::string_view what) {
    if (!machine_.has_link(kind)) {
      throw SimulationError(format("the cluster has no link for {}", what));
    }
  };
  for (const Meeting& meeting : meetings_) {
    for (const LinkLoad& load : meeting.cost->loads) {
      need(load.kind, "what a collective loads");
    }
  }
  for (const RankState& rank : ranks_) {
    for (const Copy& copy : rank.program->copies) {
      need(link_of(copy.direction), "copies between host and device");
    }
    for (const KernelTime* kernel : rank.kernels) {
      if (kernel != nullptr && kernel->memory_bytes > Bytes(0)) {
        need(LinkClass::Kind::DeviceMemory, "the device memory that kernels use");
      }
    }
  }
}

/// Operations of warm-up steps have ended at time 0.
void Execution::prepare_warm_up(RankState& rank) const {
  const std::vector<Op>& ops = rank.program->ops;
  const int first_timed_step = program_.first_step + program_.warm_up_steps;
  const auto in_warm_up = [&](const Op& op) {
    return op.step >= program_.first_step && op.step < first_timed_step;
  };
  while (rank.first_timed < ops.size() && in_warm_up(ops[rank.first_timed])) {
    rank.ops[rank.first_timed++].ended = true;
  }
  rank.next_op = rank.first_timed;
}

/// Counts what each operation waits for and links streams.
void Execution::prepare_ops(RankState& rank) {
  const RankProgram& program = *rank.program;
  rank.kernels.resize(program.kernels.size());
  std::vector<std::int32_t> last(program.streams.size(), kNone);
  for (std::size_t i = rank.first_timed; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const auto index = static_cast<std::int32_t>(i);
    const int step = op.step - program_.first_step;
    if (step < 0 || step >= program_.steps) {
      throw SimulationError(format("operation {} belongs to step {}, the program has {} from {} on",
                                   i, op.step, program_.steps, program_.first_step));
    }
    if (op.kind == OpKind::Kernel) {
      const auto payload = static_cast<std::size_t>(op.payload);
      rank.kernels[payload] = &costs_.kernel(program.kernels[payload]);
    }
    OpState& own = rank.ops[i];
    if (own.leader == kNone) {
      own.leader = index;
    }
    OpState& leader = rank.ops[static_cast<std::size_t>(own.leader)];
    if (waits(op)) leader.pending += open_dependencies(rank, op);
    if (!runs_on_device(op.kind)) {
      continue;
    }
    ++leader.pending;  // its issue
    if (own.leader == index) {
      std::int32_t& previous = last[op.stream.index()];
      if (previous != kNone) {
        rank.ops[static_cast<std::size_t>(previous)].successor = index;
        ++own.pending;
      }
      previous = index;
    }
  }
}

void Execution::prepare_dependents(RankState& rank) {
  const RankProgram& program = *rank.program;
  std::vector<std::uint32_t> counts(rank.ops.size() + 1, 0);
  for (std::size_t i = rank.first_timed; i < program.ops.size(); ++i) {
    if (!waits(program.ops[i])) continue;
    for (const OpId dependency : program.dependencies_of(program.ops[i])) {
      ++counts[dependency.index() + 1];
    }
  }
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    counts[i + 1] += counts[i];
    rank.ops[i].first_dependent = counts[i];
  }
  rank.dependents.resize(counts.back());
  std::vector<std::uint32_t>& next = counts;  // where the next dependent of op i goes
  for (std::size_t i = rank.first_timed; i < program.ops.size(); ++i) {
    if (!waits(program.ops[i])) continue;
    for (const OpId dependency : program.dependencies_of(program.ops[i])) {
      rank.dependents[next[dependency.index()]++] = rank.ops[i].leader;
    }
  }
}

std::vector<std::vector<std::int32_t>> Execution::collectives_by_group(int rank_class) const {
  std::vector<std::vector<std::int32_t>> result(program_.groups.size());
  const RankProgram& program = *rank(rank_class).program;
  for (std::size_t i = rank(rank_class).first_timed; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.kind != OpKind::Collective) {
      continue;
    }
    const auto index = static_cast<std::int32_t>(i);
    const Collective& call = call_of(rank_class, index);
    const Stream& stream = program.streams[op.stream.index()];
    if (stream.communicator != call.group) {
      throw SimulationError(format(
          R"({} is on stream "{}", which is not the one of its communicator "{}")",
          describe(rank_class, index), stream.name, program_.groups[call.group.index()].name));
    }
    result[call.group.index()].push_back(index);
  }
  return result;
}

/// Finds the coalesced calls and who meets whom. Class 0 makes the meetings, group by group; the
/// others join them in the same order.
void Execution::prepare_meetings(int rank_class) {
  std::size_t meeting = 0;
  for (const std::vector<std::int32_t>& calls : collectives_by_group(rank_class)) {
    for (std::size_t i = 0; i < calls.size();) {
      const std::int32_t first = calls[i];
      Collective sum = call_of(rank_class, first);
      state(rank_class, first).leader = first;
      std::int32_t previous = first;
      for (++i; i < calls.size(); ++i) {
        const Collective& call = call_of(rank_class, calls[i]);
        if (call.coalesced < 0 || call.coalesced != sum.coalesced || call.kind != sum.kind ||
            call.dtype != sum.dtype) {
          break;
        }
        sum.input_elements += call.input_elements;
        sum.output_elements += call.output_elements;
        state(rank_class, previous).next_member = calls[i];
        state(rank_class, calls[i]).leader = first;
        previous = calls[i];
      }
      join_meeting(rank_class, first, sum, meeting++);
    }
  }
  if (meeting != meetings_.size()) {
    fail_mismatch(rank_class, kNone, meeting, {});
  }
}

void Execution::join_meeting(int rank_class, std::int32_t first, const Collective& call,
                             std::size_t meeting) {
  if (rank_class == 0) {
    Meeting& added = meetings_.emplace_back();
    added.call = call;
    added.cost = &costs_.collective(call, program_.groups[call.group.index()]);
    members_.resize(members_.size() + ranks_.size(), kNone);
    holds_.resize(members_.size(), 0);
  }
  const bool missing = meeting >= meetings_.size();
  const Collective& expected = missing ? call : meetings_[meeting].call;
  if (missing || call.group != expected.group || call.kind != expected.kind ||
      call.dtype != expected.dtype || call.root != expected.root ||
      collective_size(call) != collective_size(expected)) {
    fail_mismatch(rank_class, first, meeting, call);
  }
  members_[cell(static_cast<std::int32_t>(meeting), rank_class)] = first;
  state(rank_class, first).meeting = static_cast<std::int32_t>(meeting);
}

// ---- Host threads ------------------------------------------------------------------------------

Timeline Execution::run() {
  machine_.begin();
  start_hosts();
  machine_.run(*this);
  for (const RankState& rank : ranks_) {
    const auto open = [](const OpState& op) { return !op.ended; };
    if (rank.host_state != HostState::Done || std::any_of(rank.ops.begin(), rank.ops.end(), open)) {
      fail_stopped();
    }
  }
  sort(timeline_);
  return std::move(timeline_);
}

void Execution::start_hosts() {
  for (int r = 0; r < classes(); ++r) {
    warm_up(r);
    runnable_hosts_.push_back(r);
  }
  work_off();
}

void Execution::warm_up(int rank_class) {
  if (observer_ == nullptr) return;
  const RankState& own = rank(rank_class);
  for (std::size_t i = 0; i < own.first_timed; ++i) {
    const Op& op = own.program->ops[i];
    if (op.kind == OpKind::Allocate) {
      observer_->poll_device(rank_class, Progress(own, /*known=*/true));
    }
    if (op.kind == OpKind::Allocate || op.kind == OpKind::Free || op.kind == OpKind::EmptyCache) {
      (void)memory_cost(rank_class, op);
    }
  }
}

void Execution::on_event(const MachineEvent& event) {
  const int rank_class = event.rank_class;
  switch (static_cast<EventKind>(event.kind)) {
    case EventKind::StartKernel:
      start_kernel(rank_class, event.index);
      break;
    case EventKind::StartCopy:
      start_copy(rank_class, event.index);
      break;
    case EventKind::EndOp:
      finish(rank_class, event.index, machine_.now());
      break;
    case EventKind::HoldSms:
      hold(rank_class, event.index);
      break;
    case EventKind::StartMeeting:
      start_meeting(event.index);
      break;
    case EventKind::EndMeeting:
      end_meeting(event.index, machine_.now());
      break;
    case EventKind::ResumeHost:
      runnable_hosts_.push_back(rank_class);
      break;
  }
  work_off();
}

void Execution::work_off() {
  while (!ended_.empty() || !runnable_hosts_.empty()) {
    if (!ended_.empty()) {
      const Ended ended = ended_.back();
      ended_.pop_back();
      notify(ended);
    } else {
      const int host = runnable_hosts_.back();
      runnable_hosts_.pop_back();
      walk_host(host);
    }
  }
}

void Execution::walk_host(int rank_class) {
  RankState& own = rank(rank_class);
  const std::vector<Op>& ops = own.program->ops;
  while (own.next_op < ops.size()) {
    if (!walk_op(rank_class, ops[own.next_op], static_cast<std::int32_t>(own.next_op))) {
      return;
    }
    ++own.next_op;
  }
  own.host_state = HostState::Done;
}

/// \returns false if the host thread has to wait in the operation.
bool Execution::walk_op(int rank_class, const Op& op, std::int32_t index) {
  RankState& own = rank(rank_class);
  OpState& op_state = state(rank_class, index);
  const HostState before = own.host_state;
  own.host_state = HostState::Running;
  if (before == HostState::Running) {
    spend(rank_class, index, host_time_of(*own.program, op));
  }
  if (runs_on_device(op.kind)) {
    if (own.unready >= launch_queue_depth_) {
      own.host_state = HostState::WaitsForQueue;
      return false;
    }
    issue(rank_class, index);
    return true;
  }
  if (op.kind == OpKind::HostWait) {
    if (op_state.pending > 0) {
      own.host_state = HostState::WaitsForOps;
      return false;
    }
    wait_until(rank_class, index, op_state.ready);
  } else if ((op.kind == OpKind::Allocate || op.kind == OpKind::EmptyCache) &&
             observer_ != nullptr) {
    if (!walk_allocation(rank_class, op, index, before)) {
      return false;
    }
  } else if (op.kind == OpKind::Free && observer_ != nullptr) {
    spend(rank_class, index, memory_cost(rank_class, op));
  }
  op_state.ended = true;
  note_end(op, own.host_now);
  return true;
}

/// An Allocate or EmptyCache that somebody observes. \returns false if the host thread has to wait
/// in it: for the device's clock, to see what has ended, or for an idle device.
bool Execution::walk_allocation(int rank_class, const Op& op, std::int32_t index,
                                HostState before) {
  RankState& own = rank(rank_class);
  if (before != HostState::WaitsForIdle) {
    const bool known = before == HostState::WaitsForClock;
    if (!observer_->poll_device(rank_class, Progress(own, known)) && !known) {
      own.host_state = HostState::WaitsForClock;
      machine_.at(own.host_now, event(EventKind::ResumeHost, rank_class, index));
      return false;
    }
    own.allocation_cost = memory_cost(rank_class, op);
    own.idle_wanted = observer_->synchronized(rank_class);
    if (own.idle_wanted && own.unfinished > 0) {
      own.host_state = HostState::WaitsForIdle;
      return false;
    }
  }
  if (own.idle_wanted) {
    wait_until(rank_class, index, own.last_end);
  }
  spend(rank_class, index, own.allocation_cost);
  return true;
}

Seconds Execution::host_time_of(const RankProgram& program, const Op& op) const {
  const Seconds work = costs_.host(op);
  if (op.kind != OpKind::Host || op.payload < 0) return work;
  const HostPass& pass = program.host_passes[static_cast<std::size_t>(op.payload)];
  return work + costs_.host_pass(pass, ranks_of_a_node_);
}

Seconds Execution::memory_cost(int rank_class, const Op& op) {
  const RankState& own = rank(rank_class);
  if (op.kind == OpKind::EmptyCache) {
    return observer_->on_empty_cache(rank_class, op, own.host_now);
  }
  const BufferId id(op.payload);
  const Buffer& buffer = own.program->buffers[id.index()];
  return op.kind == OpKind::Allocate
             ? observer_->on_allocate(rank_class, id, buffer, op, own.host_now)
             : observer_->on_free(rank_class, id, buffer, op, own.host_now);
}

void Execution::spend(int rank_class, std::int32_t op, Seconds time) {
  if (time.count() > 0) {
    RankState& own = rank(rank_class);
    const Seconds end = own.host_now + time;
    timeline_.host_spans.push_back({rank_class, OpId(op), own.host_now, end, false});
    own.host_now = end;
  }
}

void Execution::wait_until(int rank_class, std::int32_t op, Seconds time) {
  RankState& own = rank(rank_class);
  if (time > own.host_now) {
    timeline_.host_spans.push_back({rank_class, OpId(op), own.host_now, time, true});
    own.host_now = time;
  }
}

// ---- Device operations -------------------------------------------------------------------------

void Execution::issue(int rank_class, std::int32_t op) {
  OpState& own = state(rank_class, op);
  own.issued = rank(rank_class).host_now;
  own.issued_yet = true;
  rank(rank_class).unready += launches(rank_class, op);
  ++rank(rank_class).unfinished;
  arrive(rank_class, own.leader, own.issued);
}

/// Something that `op` waits for has come at `time`.
void Execution::arrive(int rank_class, std::int32_t op, Seconds time) {
  OpState& own = state(rank_class, op);
  own.ready = std::max(own.ready, time);
  if (--own.pending > 0) {
    return;
  }
  RankState& owner = rank(rank_class);
  if (op_of(rank_class, op).kind != OpKind::HostWait) {
    on_ready(rank_class, op);
  } else if (owner.host_state == HostState::WaitsForOps &&
             owner.next_op == static_cast<std::size_t>(op)) {
    runnable_hosts_.push_back(rank_class);
  }
}

/// `ready` is not in the future of the host thread: it is the present or an instant of issue.
void Execution::on_ready(int rank_class, std::int32_t op) {
  RankState& owner = rank(rank_class);
  const Seconds ready = state(rank_class, op).ready;
  for (std::int32_t member = op; member != kNone; member = state(rank_class, member).next_member) {
    owner.unready -= launches(rank_class, member);
  }
  if (owner.host_state == HostState::WaitsForQueue &&
      std::find(runnable_hosts_.begin(), runnable_hosts_.end(), rank_class) ==
          runnable_hosts_.end()) {
    wait_until(rank_class, static_cast<std::int32_t>(owner.next_op), ready);
    runnable_hosts_.push_back(rank_class);
  }
  switch (op_of(rank_class, op).kind) {
    case OpKind::Kernel:
      launch_kernel(rank_class, op);
      break;
    case OpKind::Copy:
      state(rank_class, op).start = ready;
      if (ready > machine_.now()) {
        machine_.at(ready, event(EventKind::StartCopy, rank_class, op));
      } else {
        start_copy(rank_class, op);
      }
      break;
    case OpKind::Collective:
      arrive_at_meeting(rank_class, op);
      break;
    default:
      finish(rank_class, op, ready);
  }
}

void Execution::launch_kernel(int rank_class, std::int32_t op) {
  OpState& own = state(rank_class, op);
  const auto payload = static_cast<std::size_t>(op_of(rank_class, op).payload);
  own.start = own.ready + rank(rank_class).kernels[payload]->launch_gap;
  if (own.start > machine_.now()) {
    machine_.at(own.start, event(EventKind::StartKernel, rank_class, op));
  } else {
    start_kernel(rank_class, op);
  }
}

void Execution::start_kernel(int rank_class, std::int32_t op) {
  const auto payload = static_cast<std::size_t>(op_of(rank_class, op).payload);
  const KernelTime& time = *rank(rank_class).kernels[payload];
  if (time.sm_time.count() <= 0 && time.memory_bytes <= Bytes(0)) {
    finish(rank_class, op, state(rank_class, op).start);
  } else {
    machine_.start_kernel(rank_class, time.sm_time, time.memory_bytes,
                          event(EventKind::EndOp, rank_class, op));
  }
}

void Execution::start_copy(int rank_class, std::int32_t op) {
  const RankProgram& program = *rank(rank_class).program;
  const Copy& copy = program.copies[static_cast<std::size_t>(op_of(rank_class, op).payload)];
  if (copy.bytes <= Bytes(0)) {
    finish(rank_class, op, state(rank_class, op).start);
  } else {
    machine_.start_copy(rank_class, link_of(copy.direction), costs_.copy_load(copy),
                        event(EventKind::EndOp, rank_class, op));
  }
}

void Execution::finish(int rank_class, std::int32_t op, Seconds time) {
  add_spans(rank_class, op, time);
  ended_.push_back({rank_class, op, time});
}

void Execution::notify(const Ended& ended) {
  RankState& owner = rank(ended.rank_class);
  for (std::int32_t member = ended.op; member != kNone;
       member = state(ended.rank_class, member).next_member) {
    const auto index = static_cast<std::size_t>(member);
    owner.ops[index].ended = true;
    owner.ops[index].end = ended.time;
    --owner.unfinished;
    note_end(owner.program->ops[index], ended.time);
    const std::size_t last = index + 1 < owner.ops.size() ? owner.ops[index + 1].first_dependent
                                                          : owner.dependents.size();
    for (std::size_t i = owner.ops[index].first_dependent; i < last; ++i) {
      arrive(ended.rank_class, owner.dependents[i], ended.time);
    }
  }
  owner.last_end = std::max(owner.last_end, ended.time);
  if (owner.unfinished == 0 && owner.host_state == HostState::WaitsForIdle) {
    runnable_hosts_.push_back(ended.rank_class);
  }
  const std::int32_t successor = state(ended.rank_class, ended.op).successor;
  if (successor != kNone) {
    arrive(ended.rank_class, successor, ended.time);
  }
}

/// Coalesced calls share the time out in proportion to their bytes.
void Execution::add_spans(int rank_class, std::int32_t op, Seconds end) {
  const Op& first = op_of(rank_class, op);
  if (first.kind == OpKind::StreamWait) {
    return;
  }
  const OpState& leader = state(rank_class, op);
  if (leader.next_member == kNone) {
    const Seconds ready = first.kind == OpKind::Collective ? leader.start : leader.ready;
    timeline_.spans.push_back(
        {rank_class, first.stream, OpId(op), leader.issued, ready, leader.start, end});
    return;
  }
  const double total = static_cast<double>(
      collective_size(meetings_[static_cast<std::size_t>(leader.meeting)].call).count());
  Bytes done;
  Seconds start = leader.start;
  for (std::int32_t member = op; member != kNone;) {
    const OpState& own = state(rank_class, member);
    done += collective_size(call_of(rank_class, member));
    const Seconds until =
        own.next_member == kNone || total <= 0
            ? end
            : leader.start + (end - leader.start) * (static_cast<double>(done.count()) / total);
    timeline_.spans.push_back(
        {rank_class, first.stream, OpId(member), own.issued, leader.start, start, until});
    start = until;
    member = own.next_member;
  }
}

void Execution::note_end(const Op& op, Seconds time) {
  Seconds& step_end = timeline_.step_ends[static_cast<std::size_t>(op.step - program_.first_step)];
  step_end = std::max(step_end, time);
  timeline_.end = std::max(timeline_.end, time);
}

// ---- Collectives -------------------------------------------------------------------------------

void Execution::arrive_at_meeting(int rank_class, std::int32_t op) {
  const OpState& own = state(rank_class, op);
  Meeting& meeting = meetings_[static_cast<std::size_t>(own.meeting)];
  ++meeting.arrived;
  meeting.last_arrival = std::max(meeting.last_arrival, own.ready);
  if (meeting.cost->ctas > 0 && !meeting.instant()) {
    if (own.ready > machine_.now()) {
      machine_.at(own.ready, event(EventKind::HoldSms, rank_class, own.meeting));
    } else {
      hold(rank_class, own.meeting);
    }
  }
  if (meeting.arrived < classes()) {
    return;
  }
  for (int r = 0; r < classes(); ++r) {
    state(r, members_[cell(own.meeting, r)]).start = meeting.last_arrival;
  }
  const Seconds transfer = meeting.last_arrival + meeting.cost->delay;
  if (transfer > machine_.now()) {
    machine_.at(transfer, event(EventKind::StartMeeting, 0, own.meeting));
  } else {
    start_meeting(own.meeting);
  }
}

void Execution::hold(int rank_class, std::int32_t meeting) {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  if (!own.ended) {
    holds_[cell(meeting, rank_class)] = 1;
    machine_.hold_sms(rank_class, own.cost->ctas);
  }
}

void Execution::start_meeting(std::int32_t meeting) {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  if (own.cost->loads.empty()) {
    end_meeting(meeting, own.last_arrival + own.cost->delay);
  } else {
    machine_.start_collective(own.cost->loads, classes(), event(EventKind::EndMeeting, 0, meeting));
  }
}

void Execution::end_meeting(std::int32_t meeting, Seconds time) {
  Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  own.ended = true;
  for (int r = 0; r < classes(); ++r) {
    if (holds_[cell(meeting, r)] != 0) {
      machine_.hold_sms(r, -own.cost->ctas);
    }
    finish(r, members_[cell(meeting, r)], time);
  }
}

// ---- Errors ------------------------------------------------------------------------------------

std::string Execution::describe(int rank_class, std::int32_t op) const {
  const RankProgram& program = *rank(rank_class).program;
  const Op& own = op_of(rank_class, op);
  std::string what(to_string(own.kind));
  if (own.kind == OpKind::Collective) {
    const Collective& call = call_of(rank_class, op);
    what = format("{} of {} bytes", to_string(call.kind), collective_size(call).count());
  } else if (own.kind == OpKind::Kernel) {
    what = format("kernel {}", program.kernels[static_cast<std::size_t>(own.payload)].name);
  }
  std::string result = format("operation {} ({}", op, what);
  if (own.stream.valid()) {
    result += format(", stream \"{}\"", program.streams[own.stream.index()].name);
  }
  if (!own.rule.empty()) {
    result += format(", rule {}", own.rule);
  }
  return result +
         format(") of rank class {} (rank {})", rank_class, program.representative.value());
}

void Execution::fail_mismatch(int rank_class, std::int32_t op, std::size_t meeting,
                              const Collective& call) const {
  const bool extra = meeting >= meetings_.size();
  const std::string other =
      extra ? "has no such collective"
            : "calls " + describe(0, members_[cell(static_cast<std::int32_t>(meeting), 0)]);
  const Collective& named = op == kNone ? meetings_[meeting].call : call;
  const std::string own = op == kNone
                              ? format("rank class {} (rank {}) has no such collective", rank_class,
                                       rank(rank_class).program->representative.value())
                              : "calls " + describe(rank_class, op);
  throw SimulationError(
      format("rank classes disagree about a collective on \"{}\": rank class 0 {}, {}{}",
             program_.groups[named.group.index()].name, other,
             op == kNone ? "" : format("rank class {} ", rank_class), own));
}

/// Why an operation that has not ended has not.
std::string Execution::reason(int rank_class, std::int32_t op) const {
  const RankState& owner = rank(rank_class);
  const OpState& own = state(rank_class, op);
  for (std::int32_t member = op; member != kNone; member = state(rank_class, member).next_member) {
    for (const OpId dependency : owner.program->dependencies_of(op_of(rank_class, member))) {
      if (!owner.ops[dependency.index()].ended) {
        return "for " + describe(rank_class, dependency.value());
      }
    }
    if (runs_on_device(op_of(rank_class, member).kind) && !state(rank_class, member).issued_yet) {
      return format("for the launch of {}", describe(rank_class, member));
    }
  }
  if (own.pending > 0) {
    for (std::size_t i = 0; i < owner.ops.size(); ++i) {
      if (owner.ops[i].successor == op) {
        return "for " + describe(rank_class, static_cast<std::int32_t>(i));
      }
    }
  }
  if (own.meeting != kNone) {
    return meeting_reason(own.meeting);
  }
  return "for room in the launch queue";
}

std::string Execution::meeting_reason(std::int32_t meeting) const {
  for (int r = 0; r < classes(); ++r) {
    const std::int32_t member = members_[cell(meeting, r)];
    if (state(r, member).pending > 0) {
      const std::string waits =
          state(r, member).issued_yet
              ? format("waits {}", reason(r, member))
              : format("is not launched: its host thread is at {}",
                       describe(r, static_cast<std::int32_t>(rank(r).next_op)));
      return format("for {}, which {}", describe(r, member), waits);
    }
  }
  return "for its end";
}

void Execution::fail_stopped() const {
  for (int r = 0; r < classes(); ++r) {
    for (std::size_t i = 0; i < rank(r).ops.size(); ++i) {
      if (!rank(r).ops[i].ended) {
        const auto op = static_cast<std::int32_t>(i);
        throw SimulationError(
            format("the simulation stops at {} although operations are left: {} waits {}",
                   to_string(machine_.now()), describe(r, op), reason(r, op)));
      }
    }
  }
  ZS_CHECK(false, "a run that stops has an operation left");
}

}  // namespace

// ---- Engine ------------------------------------------------------------------------------------

struct Engine::Impl {
  Impl(Cluster simulated, EngineOptions given)
      : cluster(std::move(simulated)),
        options(std::move(given)),
        costs(cluster, options),
        machine(links_of(cluster, options), cluster.gpu().sm_count, options.max_rank_classes) {}

  Cluster cluster;
  EngineOptions options;
  Costs costs;
  Machine machine;
};

Engine::Engine(const Cluster& cluster, const EngineOptions& options) {
  constexpr int kMostRankClasses = 65535;  // width of MachineEvent::rank_class
  if (options.max_rank_classes < 1 || options.max_rank_classes > kMostRankClasses) {
    throw SimulationError(format("an engine has room for 1 to {} rank classes, not {}",
                                 kMostRankClasses, options.max_rank_classes));
  }
  if (cluster.gpu().sm_count < 1) {
    throw SimulationError(
        format("the number of SMs of GPU \"{}\" is not published: it cannot be "
               "simulated",
               cluster.gpu().name));
  }
  impl_ = std::make_unique<Impl>(cluster, options);
}

Engine::~Engine() = default;

Timeline Engine::run(const Program& program, AllocationObserver* observer) {
  const auto classes = static_cast<int>(program.ranks.size());
  if (classes > impl_->options.max_rank_classes) {
    throw SimulationError(format("the program has {} rank classes, the engine has room for {}",
                                 classes, impl_->options.max_rank_classes));
  }
  if (program.world_size > impl_->cluster.world_size()) {
    throw SimulationError(format("the program is for {} ranks, the cluster \"{}\" has {}",
                                 program.world_size, impl_->cluster.name,
                                 impl_->cluster.world_size()));
  }
  if (uses_host_memory(program) && impl_->cluster.node.host_memory_bandwidth.per_second() <= 0) {
    throw SimulationError(
        format("the bandwidth of the host memory of cluster \"{}\" is not known, and the program "
               "works there",
               impl_->cluster.name));
  }
  const int ranks_of_a_node = std::min(impl_->cluster.gpus_per_node, program.world_size);
  Execution execution(program, impl_->machine, impl_->costs, impl_->options.host.launch_queue_depth,
                      ranks_of_a_node, observer);
  return execution.run();
}

}  // namespace zerosim
