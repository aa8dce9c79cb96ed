#include "sim/engine/execution.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/call_loads.h"
#include "sim/engine/jitter.h"
#include "sim/engine/link_meter.h"
#include "sim/engine/machine.h"
#include "sim/engine/prepared_program.h"
#include "sim/engine/stepped_ring.h"

namespace zerosim::internal {

namespace {

LinkClass::Kind link_of(Copy::Direction direction) {
  return direction == Copy::Direction::HostToDevice ? LinkClass::Kind::HostToDevice
                                                    : LinkClass::Kind::DeviceToHost;
}

// ---- State of a run ----------------------------------------------------------------------------

/// An operation of one rank class during a run.
struct OpState {
  Seconds issued{0};
  Seconds ready{0};  ///< latest end of what it has waited for so far
  Seconds start{0};
  Seconds end{0};            ///< once it has ended
  std::int32_t pending = 0;  ///< its issue, dependencies and predecessor that are still to come
  bool issued_yet = false;
  bool ended = false;
  bool holds_sms = false;
};

enum class HostState : std::uint8_t {
  Running,
  WaitsForOps,
  WaitsForQueue,
  WaitsForClock,  ///< an observer asks what has ended by the host's present
  WaitsForIdle,   ///< an allocation synchronises the device
  Done,
};

/// Own links of a rank class in the machine; -1: there is none.
struct OwnLinks {
  int intra = kNone, device_memory = kNone;
};

struct RankState {
  const RankClass* rank = nullptr;
  const PreparedProgram* prepared = nullptr;
  const RankProgram* program = nullptr;
  const std::vector<const KernelTime*>* kernels = nullptr;  ///< by payload; null of warm-up steps
  OwnLinks links;
  const InstanceClass* copies = nullptr;  ///< what its copies load
  std::vector<OpState> ops;
  std::vector<std::int32_t> first_meetings;  ///< by communicator: of its instance class
  HostState host_state = HostState::Running;
  std::size_t next_op = 0;     ///< where the host thread is
  Seconds host_now{0};         ///< may be ahead of the machine's clock
  int unready = 0;             ///< launches of issued device operations that are not ready
  int unfinished = 0;          ///< issued device operations that have not ended
  Seconds last_end{0};         ///< of a device operation
  bool idle_wanted = false;    ///< by the present allocation
  Seconds allocation_cost{0};  ///< to be spent when the device is idle
  std::optional<RankJitter> jitter;
  std::vector<double> kernel_factors;  ///< by operation, where there is jitter
};

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

/// The n-th collectives of the rank classes that meet in one instance class of a communicator.
struct Meeting {
  const CollectiveCost* cost = nullptr;
  const InstanceClass* instance = nullptr;
  const PreparedCall* call = nullptr;  ///< of the first of its rank classes
  Seconds alone{0};                    ///< how long it loads links without contention
  std::size_t arrived = 0;
  Seconds last_arrival{0};
  bool ended = false;

  [[nodiscard]] CallLoads loads() const {
    return {*cost, alone, call->call.kind == CollectiveKind::AllToAll};
  }
  [[nodiscard]] bool instant() const { return cost->loads.empty() && cost->delay.count() <= 0; }
};

/// Bursts of another job on one link.
struct BurstState {
  int link = 0;  ///< of the machine
  const CompetingJob* job = nullptr;
  Seconds due{0};  ///< begin of the next
};

enum class EventKind : std::uint16_t {
  StartKernel,
  StartCopy,
  EndOp,    ///< index: operation
  HoldSms,  ///< index: meeting
  StartMeeting,
  EndMeeting,
  StartSend,  ///< index: meeting, of the rank class
  EndSend,
  ResumeHost,  ///< the clock is where the host thread is
  BeginBurst,  ///< index: burst
  EndBurst,
};

/// One run of one program.
///
/// A host thread's clock may be ahead of the machine's: nothing can stop a thread that does not
/// wait, so it is walked until it does, and the operations that it issues carry their instants.
/// Times that are sums of known ones are added here and never read from the machine's clock; only
/// ends of activities are. Everything that happens is put on lists and worked off without
/// recursion.
class Execution final : public MachineListener {
 public:
  Execution(const RunSetup& setup, Machine& machine, Costs& costs)
      : setup_(setup),
        program_(*setup.program),
        folding_(*setup.folding),
        machine_(machine),
        costs_(costs),
        observer_(setup.observer) {
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
  void prepare_programs();
  void prepare_links();
  void prepare_rank(int rank_class);
  void prepare_meetings();
  void prepare_instance(std::size_t group, const InstanceClass& instance);
  void check_agreement(std::size_t group, const InstanceClass& instance);
  void prepare_bursts();
  [[nodiscard]] bool loads_slots(const InstanceClass& instance) const;
  void check_links(const InstanceClass& instance, const CollectiveCost& cost) const;
  void check_copies(const RankState& rank) const;

  void start_hosts();
  void warm_up(int rank_class);
  void work_off();
  void walk_host(int rank_class);
  bool walk_op(int rank_class, const Op& op, std::int32_t index);
  [[nodiscard]] Seconds host_time_of(RankState& rank, const Op& op) const;
  static void draw_kernel(RankState& rank, const Op& op, std::int32_t index);
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
  void end_op(int rank_class, std::int32_t op);
  void finish(int rank_class, std::int32_t op, Seconds time);
  void notify(const Ended& ended);
  void add_spans(int rank_class, std::int32_t op, Seconds end);
  void note_end(const Op& op, Seconds time);

  void arrive_at_meeting(int rank_class, std::int32_t op);
  void hold(int rank_class, std::int32_t meeting);
  void start_meeting(std::int32_t meeting);
  void end_fluid(std::int32_t meeting);
  void end_meeting(std::int32_t meeting, Seconds time);
  void find_loads(const Meeting& meeting);

  [[nodiscard]] bool is_stepped(const Meeting& meeting) const;
  void start_ring(std::int32_t meeting);
  void start_sends(std::int32_t meeting, Seconds time);
  void start_send(int rank_class, std::int32_t meeting);
  void end_send(int rank_class, std::int32_t meeting);

  [[nodiscard]] double kernel_factor(int rank_class, std::int32_t op) const;
  void find_op_loads(int rank_class, std::int32_t op);
  void start_transfer(int rank_class, std::int32_t op, std::span<const LinkBytes> loads,
                      const MachineEvent& end);
  void meter_begin(int rank_class, std::int32_t op, std::span<const LinkBytes> loads);
  void meter_end(int rank_class, std::int32_t op, std::span<const LinkBytes> loads);

  void at(Seconds time, const MachineEvent& event);
  void note_end_of_program();
  void begin_burst(std::int32_t burst);
  void end_burst(std::int32_t burst);

  [[noreturn]] void fail_stopped() const;
  [[noreturn]] void fail_mismatch(std::size_t group, int first_class, int rank_class,
                                  std::size_t call) const;
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
  [[nodiscard]] bool is_in_last_step(int rank_class, std::int32_t op) const {
    return op_of(rank_class, op).step == program_.first_step + program_.steps - 1;
  }
  /// What an operation takes of the launch queue (rule 0.2).
  [[nodiscard]] int launches(int rank_class, std::int32_t op) const {
    const Op& own = op_of(rank_class, op);
    if (own.kind != OpKind::Kernel) return 1;
    const RankProgram& program = *rank(rank_class).program;
    return std::max(1, program.kernels[static_cast<std::size_t>(own.payload)].launches);
  }
  [[nodiscard]] int classes() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const PreparedOp& prepared(int rank_class, std::int32_t op) const {
    return rank(rank_class).prepared->ops[static_cast<std::size_t>(op)];
  }
  /// Of a collective's first operation.
  [[nodiscard]] std::int32_t meeting_of(int rank_class, std::int32_t op) const {
    const std::size_t group = call_of(rank_class, op).group.index();
    return rank(rank_class).first_meetings[group] + prepared(rank_class, op).call;
  }
  /// The (first) operation with which a rank class takes part in a meeting.
  [[nodiscard]] std::int32_t member(int rank_class, const Meeting& meeting) const {
    const PreparedProgram& own = *rank(rank_class).prepared;
    const Collective& call = meeting.call->call;
    const std::vector<PreparedCall>& calls = own.calls[call.group.index()];
    return calls[static_cast<std::size_t>(number_of(meeting))].first;
  }
  [[nodiscard]] std::int32_t number_of(const Meeting& meeting) const {
    const RankState& first = rank(meeting.instance->ranks[0]);
    return first.prepared->ops[static_cast<std::size_t>(meeting.call->first)].call;
  }
  static MachineEvent event(EventKind kind, int rank_class, std::int32_t index) {
    return {static_cast<std::uint16_t>(kind), static_cast<std::uint16_t>(rank_class), index};
  }

  const RunSetup& setup_;
  const Program& program_;
  const Folding& folding_;
  Machine& machine_;
  Costs& costs_;
  AllocationObserver* observer_;

  std::vector<PreparedProgram> programs_;
  std::map<std::pair<int, int>, std::vector<const KernelTime*>> kernels_;  ///< by program and GPU
  std::vector<double> capacities_;  ///< of the machine's links
  std::vector<int> machine_links_;  ///< by link of the folding
  std::vector<RankState> ranks_;
  std::vector<Meeting> meetings_;
  std::set<std::tuple<int, int, std::size_t>> agreed_;  ///< programs, communicator
  std::vector<BurstState> bursts_;
  std::vector<LinkBytes> loads_;  ///< reused by every transfer
  std::optional<LinkMeter> meter_;
  std::map<std::int32_t, SteppedRing> rings_;  ///< by meeting: those under way
  std::vector<int> senders_;                   ///< reused by every send

  std::vector<Ended> ended_;  ///< not yet told to those that wait for them
  std::vector<int> runnable_hosts_;
  std::int64_t outstanding_ = 0;  ///< events to come that are the program's own
  bool over_ = false;             ///< none is left
  Seconds over_at_{0};
  Timeline timeline_;
};

// ---- Preparation -------------------------------------------------------------------------------

void Execution::prepare() {
  timeline_.step_ends.assign(static_cast<std::size_t>(program_.steps), Seconds(0));
  prepare_programs();
  prepare_links();
  ranks_.resize(folding_.ranks.size());
  std::size_t device_ops = 0;
  std::size_t ops = 0;
  for (int r = 0; r < classes(); ++r) {
    prepare_rank(r);
    ops += rank(r).ops.size();
    device_ops += rank(r).program->kernels.size() + rank(r).program->copies.size() +
                  rank(r).program->collectives.size();
  }
  prepare_meetings();
  for (const RankState& rank : ranks_) check_copies(rank);
  prepare_bursts();
  timeline_.spans.reserve(device_ops);
  timeline_.host_spans.reserve(ops);
}

void Execution::prepare_programs() {
  programs_.reserve(program_.ranks.size());
  for (std::size_t i = 0; i < program_.ranks.size(); ++i) {
    programs_.push_back(internal::prepare(program_, i));
  }
}

/// Machine links: device memories first, then the folding's, kind by kind, so that those that one
/// collective loads are neighbours in the grid.
void Execution::prepare_links() {
  for (const RankClass& rank : folding_.ranks) {
    const std::string& gpu = folding_.gpus[static_cast<std::size_t>(rank.gpu)];
    capacities_.push_back(costs_.device_memory(gpu).per_second() * rank.memory_speed);
  }
  std::vector<std::size_t> order(folding_.links.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return folding_.links[a].kind < folding_.links[b].kind;
  });
  machine_links_.resize(order.size());
  for (const std::size_t link : order) {
    machine_links_[link] = static_cast<int>(capacities_.size());
    capacities_.push_back(folding_.links[link].capacity.per_second());
  }
  meter_.emplace(capacities_.size());
}

void Execution::prepare_rank(int rank_class) {
  RankState& own = rank(rank_class);
  own.rank = &folding_.ranks[static_cast<std::size_t>(rank_class)];
  own.prepared = &programs_[static_cast<std::size_t>(own.rank->program)];
  own.program = own.prepared->program;
  const auto [kernels, added] = kernels_.try_emplace({own.rank->program, own.rank->gpu});
  if (added) {
    kernels->second =
        own.prepared->kernel_times(costs_, folding_.gpus[static_cast<std::size_t>(own.rank->gpu)]);
  }
  own.kernels = &kernels->second;
  const auto link = [&](int index) {
    return index < 0 ? kNone : machine_links_[static_cast<std::size_t>(index)];
  };
  own.links = {link(own.rank->intra_link), rank_class};
  if (!folding_.copies.empty()) {
    const int copies = folding_.copies_of[static_cast<std::size_t>(rank_class)];
    own.copies = &folding_.copies[static_cast<std::size_t>(copies)];
  }
  own.ops.resize(own.program->ops.size());
  for (std::size_t i = 0; i < own.ops.size(); ++i) {
    own.ops[i].pending = own.prepared->ops[i].pending;
    own.ops[i].ended = i < own.prepared->first_timed;
  }
  own.next_op = own.prepared->first_timed;
  own.first_meetings.assign(program_.groups.size(), kNone);
  if (setup_.jitter.any()) {
    own.jitter.emplace(setup_.jitter, own.rank->representative, setup_.repetition);
    own.kernel_factors.assign(own.ops.size(), 1.0);
  }
  timeline_.ranks.push_back({own.rank->program, own.rank->representative, own.rank->multiplicity});
}

void Execution::check_copies(const RankState& rank) const {
  if (rank.program->copies.empty()) return;
  if (rank.copies == nullptr || rank.copies->links.empty()) {
    throw SimulationError("the cluster has no link for copies between host and device");
  }
}

void Execution::prepare_meetings() {
  for (std::size_t g = 0; g < program_.groups.size(); ++g) {
    for (const InstanceClass& instance : folding_.groups[g]) {
      for (const int member : instance.ranks) {
        rank(member).first_meetings[g] = static_cast<std::int32_t>(meetings_.size());
      }
      prepare_instance(g, instance);
    }
  }
}

void Execution::prepare_instance(std::size_t group, const InstanceClass& instance) {
  check_agreement(group, instance);
  for (const PreparedCall& call : rank(instance.ranks[0]).prepared->calls[group]) {
    Meeting& added = meetings_.emplace_back();
    added.call = &call;
    added.instance = &instance;
    added.cost = &costs_.collective(call.call, program_.groups[group], instance.shape);
    if (loads_slots(instance)) added.alone = costs_.transfer_time(*added.cost);
    check_links(instance, *added.cost);
  }
}

bool Execution::loads_slots(const InstanceClass& instance) const {
  return std::any_of(instance.links.begin(), instance.links.end(), [&](const LinkShare& link) {
    return is_slot(folding_.links[static_cast<std::size_t>(link.link)].kind);
  });
}

bool alike(const Collective& a, const Collective& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.root == b.root &&
         collective_size(a) == collective_size(b);
}

/// All rank classes that meet call the same.
void Execution::check_agreement(std::size_t group, const InstanceClass& instance) {
  const int first = instance.ranks[0];
  const std::vector<PreparedCall>& expected = rank(first).prepared->calls[group];
  for (const int member : instance.ranks) {
    const bool known =
        rank(member).prepared == rank(first).prepared ||
        !agreed_.insert({rank(first).rank->program, rank(member).rank->program, group}).second;
    if (known) continue;
    const std::vector<PreparedCall>& calls = rank(member).prepared->calls[group];
    for (std::size_t i = 0; i < std::max(calls.size(), expected.size()); ++i) {
      const bool both = i < calls.size() && i < expected.size();
      if (!both || !alike(calls[i].call, expected[i].call)) {
        fail_mismatch(group, first, member, i);
      }
    }
  }
}

void Execution::check_links(const InstanceClass& instance, const CollectiveCost& cost) const {
  const auto has_shared = [&](LinkClass::Kind kind) {
    return std::any_of(instance.links.begin(), instance.links.end(), [&](const LinkShare& link) {
      return folding_.links[static_cast<std::size_t>(link.link)].kind == kind;
    });
  };
  for (const LinkLoad& load : cost.loads) {
    bool there = true;
    if (load.kind == LinkClass::Kind::IntraNode) {
      there = std::all_of(instance.ranks.begin(), instance.ranks.end(),
                          [&](int member) { return rank(member).links.intra != kNone; });
    } else if (load.kind == LinkClass::Kind::Network) {
      there = has_shared(load.kind);
    }
    if (!there) throw SimulationError("the cluster has no link for what a collective loads");
  }
}

void Execution::prepare_bursts() {
  for (const LinkBursts& burst : folding_.bursts) {
    const CompetingJob& job = (*setup_.jobs)[static_cast<std::size_t>(burst.job)];
    if (job.bytes <= Bytes(0)) continue;
    bursts_.push_back({machine_links_[static_cast<std::size_t>(burst.link)], &job, job.offset});
  }
}

// ---- Host threads ------------------------------------------------------------------------------

Timeline Execution::run() {
  std::vector<int> kinds;
  kinds.reserve(ranks_.size());
  for (const RankClass& rank : folding_.ranks) kinds.push_back(rank.gpu);
  machine_.begin(capacities_, kinds);
  start_hosts();
  for (std::size_t i = 0; i < bursts_.size() && !over_; ++i) {
    machine_.at(bursts_[i].due, event(EventKind::BeginBurst, 0, static_cast<std::int32_t>(i)));
  }
  machine_.run(*this);
  for (const RankState& rank : ranks_) {
    const auto open = [](const OpState& op) { return !op.ended; };
    if (rank.host_state != HostState::Done || std::any_of(rank.ops.begin(), rank.ops.end(), open)) {
      fail_stopped();
    }
  }
  sort(timeline_);
  timeline_.links = meter_->traffic(folding_, machine_links_, capacities_, setup_.ranks_of_a_node);
  return std::move(timeline_);
}

void Execution::start_hosts() {
  for (int r = 0; r < classes(); ++r) {
    warm_up(r);
    runnable_hosts_.push_back(r);
  }
  work_off();
  note_end_of_program();
}

void Execution::warm_up(int rank_class) {
  if (observer_ == nullptr) return;
  const RankState& own = rank(rank_class);
  for (std::size_t i = 0; i < own.prepared->first_timed; ++i) {
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
  const auto kind = static_cast<EventKind>(event.kind);
  if (kind == EventKind::BeginBurst) return begin_burst(event.index);
  if (kind == EventKind::EndBurst) return end_burst(event.index);
  --outstanding_;
  switch (kind) {
    case EventKind::StartKernel:
      start_kernel(rank_class, event.index);
      break;
    case EventKind::StartCopy:
      start_copy(rank_class, event.index);
      break;
    case EventKind::EndOp:
      end_op(rank_class, event.index);
      break;
    case EventKind::HoldSms:
      hold(rank_class, event.index);
      break;
    case EventKind::StartMeeting:
      start_meeting(event.index);
      break;
    case EventKind::EndMeeting:
      end_fluid(event.index);
      break;
    case EventKind::StartSend:
      start_send(rank_class, event.index);
      break;
    case EventKind::EndSend:
      end_send(rank_class, event.index);
      break;
    case EventKind::ResumeHost:
      runnable_hosts_.push_back(rank_class);
      break;
    case EventKind::BeginBurst:
    case EventKind::EndBurst:
      break;  // not the program's own: above
  }
  work_off();
  note_end_of_program();
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
    spend(rank_class, index, host_time_of(own, op));
    draw_kernel(own, op, index);
  }
  if (runs_on_device(op.kind)) {
    if (own.unready >= setup_.launch_queue_depth) {
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
      at(own.host_now, event(EventKind::ResumeHost, rank_class, index));
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

Seconds Execution::host_time_of(RankState& rank, const Op& op) const {
  Seconds work = costs_.host(op);
  if (op.kind == OpKind::Host && op.payload >= 0) {
    const HostPass& pass = rank.program->host_passes[static_cast<std::size_t>(op.payload)];
    work += costs_.host_pass(pass, setup_.ranks_of_a_node);
  }
  const double factor = rank.jitter ? rank.jitter->host() : 1.0;
  return work * (factor / rank.rank->host_speed);
}

/// In the order of the host thread, so that what is drawn does not depend on what runs when.
void Execution::draw_kernel(RankState& rank, const Op& op, std::int32_t index) {
  if (!rank.jitter || op.kind != OpKind::Kernel) return;
  rank.kernel_factors[static_cast<std::size_t>(index)] = rank.jitter->kernel();
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
  arrive(rank_class, prepared(rank_class, op).leader, own.issued);
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
  for (std::int32_t member = op; member != kNone;
       member = prepared(rank_class, member).next_member) {
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
        at(ready, event(EventKind::StartCopy, rank_class, op));
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

double Execution::kernel_factor(int rank_class, std::int32_t op) const {
  const RankState& owner = rank(rank_class);
  return owner.jitter ? owner.kernel_factors[static_cast<std::size_t>(op)] : 1.0;
}

void Execution::launch_kernel(int rank_class, std::int32_t op) {
  OpState& own = state(rank_class, op);
  const auto payload = static_cast<std::size_t>(op_of(rank_class, op).payload);
  const KernelTime& time = *(*rank(rank_class).kernels)[payload];
  own.start = own.ready + time.launch_gap * kernel_factor(rank_class, op);
  if (own.start > machine_.now()) {
    at(own.start, event(EventKind::StartKernel, rank_class, op));
  } else {
    start_kernel(rank_class, op);
  }
}

void Execution::start_kernel(int rank_class, std::int32_t op) {
  const auto payload = static_cast<std::size_t>(op_of(rank_class, op).payload);
  const RankState& owner = rank(rank_class);
  const KernelTime& time = *(*owner.kernels)[payload];
  if (time.sm_time.count() <= 0 && time.memory_bytes <= Bytes(0)) {
    finish(rank_class, op, state(rank_class, op).start);
    return;
  }
  find_op_loads(rank_class, op);
  const LinkBytes memory = loads_.front();
  meter_begin(rank_class, op, loads_);
  ++outstanding_;
  machine_.start_kernel(rank_class,
                        time.sm_time * (kernel_factor(rank_class, op) / owner.rank->gpu_speed),
                        memory.link, memory.bytes, event(EventKind::EndOp, rank_class, op));
}

void Execution::start_copy(int rank_class, std::int32_t op) {
  const RankProgram& program = *rank(rank_class).program;
  if (program.copies[static_cast<std::size_t>(op_of(rank_class, op).payload)].bytes <= Bytes(0)) {
    finish(rank_class, op, state(rank_class, op).start);
    return;
  }
  find_op_loads(rank_class, op);
  start_transfer(rank_class, op, loads_, event(EventKind::EndOp, rank_class, op));
}

/// A kernel or copy whose activity has ended.
void Execution::end_op(int rank_class, std::int32_t op) {
  find_op_loads(rank_class, op);
  meter_end(rank_class, op, loads_);
  finish(rank_class, op, machine_.now());
}

/// What a kernel puts on device memory, or a copy on slots and uplinks of its direction.
void Execution::find_op_loads(int rank_class, std::int32_t op) {
  const RankState& owner = rank(rank_class);
  const Op& own = op_of(rank_class, op);
  const auto payload = static_cast<std::size_t>(own.payload);
  loads_.clear();
  if (own.kind == OpKind::Kernel) {
    const auto bytes = static_cast<double>((*owner.kernels)[payload]->memory_bytes.count());
    loads_.push_back({owner.links.device_memory, bytes * kernel_factor(rank_class, op)});
    return;
  }
  const Copy& copy = owner.program->copies[payload];
  const auto bytes = static_cast<double>(costs_.copy_load(copy).count());
  for (const LinkShare& link : owner.copies->links) {
    const auto index = static_cast<std::size_t>(link.link);
    if (folding_.links[index].kind != link_of(copy.direction)) continue;
    loads_.push_back({machine_links_[index], bytes * link.share});
  }
}

void Execution::start_transfer(int rank_class, std::int32_t op, std::span<const LinkBytes> loads,
                               const MachineEvent& end) {
  meter_begin(rank_class, op, loads);
  ++outstanding_;
  machine_.start_transfer(loads, end);
}

/// Links are metered in the last step.
void Execution::meter_begin(int rank_class, std::int32_t op, std::span<const LinkBytes> loads) {
  if (is_in_last_step(rank_class, op)) meter_->begin(loads, machine_.now());
}

void Execution::meter_end(int rank_class, std::int32_t op, std::span<const LinkBytes> loads) {
  if (is_in_last_step(rank_class, op)) meter_->end(loads, machine_.now());
}

void Execution::finish(int rank_class, std::int32_t op, Seconds time) {
  add_spans(rank_class, op, time);
  ended_.push_back({rank_class, op, time});
}

void Execution::notify(const Ended& ended) {
  RankState& owner = rank(ended.rank_class);
  const PreparedProgram& known = *owner.prepared;
  for (std::int32_t member = ended.op; member != kNone;
       member = prepared(ended.rank_class, member).next_member) {
    const auto index = static_cast<std::size_t>(member);
    owner.ops[index].ended = true;
    owner.ops[index].end = ended.time;
    --owner.unfinished;
    note_end(owner.program->ops[index], ended.time);
    const std::size_t last = index + 1 < known.ops.size() ? known.ops[index + 1].first_dependent
                                                          : known.dependents.size();
    for (std::size_t i = known.ops[index].first_dependent; i < last; ++i) {
      arrive(ended.rank_class, known.dependents[i], ended.time);
    }
  }
  owner.last_end = std::max(owner.last_end, ended.time);
  if (owner.unfinished == 0 && owner.host_state == HostState::WaitsForIdle) {
    runnable_hosts_.push_back(ended.rank_class);
  }
  const std::int32_t successor = prepared(ended.rank_class, ended.op).successor;
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
  if (prepared(rank_class, op).next_member == kNone) {
    const Seconds ready = first.kind == OpKind::Collective ? leader.start : leader.ready;
    timeline_.spans.push_back(
        {rank_class, first.stream, OpId(op), leader.issued, ready, leader.start, end});
    return;
  }
  const double total = static_cast<double>(
      collective_size(meetings_[static_cast<std::size_t>(meeting_of(rank_class, op))].call->call)
          .count());
  Bytes done;
  Seconds start = leader.start;
  for (std::int32_t member = op; member != kNone;) {
    const OpState& own = state(rank_class, member);
    done += collective_size(call_of(rank_class, member));
    const std::int32_t next = prepared(rank_class, member).next_member;
    const Seconds until =
        next == kNone || total <= 0
            ? end
            : leader.start + (end - leader.start) * (static_cast<double>(done.count()) / total);
    timeline_.spans.push_back(
        {rank_class, first.stream, OpId(member), own.issued, leader.start, start, until});
    start = until;
    member = next;
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
  const std::int32_t index = meeting_of(rank_class, op);
  Meeting& meeting = meetings_[static_cast<std::size_t>(index)];
  ++meeting.arrived;
  meeting.last_arrival = std::max(meeting.last_arrival, own.ready);
  if (meeting.cost->ctas > 0 && !meeting.instant()) {
    if (own.ready > machine_.now()) {
      at(own.ready, event(EventKind::HoldSms, rank_class, index));
    } else {
      hold(rank_class, index);
    }
  }
  if (meeting.arrived < meeting.instance->ranks.size()) {
    return;
  }
  for (const int r : meeting.instance->ranks) {
    state(r, member(r, meeting)).start = meeting.last_arrival;
  }
  const Seconds delay = is_stepped(meeting) ? Seconds(0) : meeting.cost->delay;
  const Seconds transfer = meeting.last_arrival + delay;
  if (transfer > machine_.now()) {
    at(transfer, event(EventKind::StartMeeting, 0, index));
  } else {
    start_meeting(index);
  }
}

void Execution::hold(int rank_class, std::int32_t meeting) {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  if (!own.ended) {
    state(rank_class, member(rank_class, own)).holds_sms = true;
    machine_.hold_sms(rank_class, own.cost->ctas);
  }
}

void Execution::start_meeting(std::int32_t meeting) {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  if (is_stepped(own)) return start_ring(meeting);
  find_loads(own);
  if (loads_.empty()) {
    end_meeting(meeting, own.last_arrival + own.cost->delay);
  } else {
    start_transfer(own.instance->ranks[0], own.call->first, loads_,
                   event(EventKind::EndMeeting, 0, meeting));
  }
}

void Execution::end_fluid(std::int32_t meeting) {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  find_loads(own);
  meter_end(own.instance->ranks[0], own.call->first, loads_);
  end_meeting(meeting, machine_.now());
}

/// What it puts on which links of the machine.
void Execution::find_loads(const Meeting& meeting) {
  using Kind = LinkClass::Kind;
  loads_.clear();
  const CallLoads loads = meeting.loads();
  for (const Kind kind : {Kind::IntraNode, Kind::DeviceMemory}) {
    const double bytes = loads.of(kind);
    if (bytes <= 0) continue;
    for (const int r : meeting.instance->ranks) {
      const OwnLinks& own = rank(r).links;
      loads_.push_back({kind == Kind::IntraNode ? own.intra : own.device_memory, bytes});
    }
  }
  for (const LinkShare& link : meeting.instance->links) {
    const auto index = static_cast<std::size_t>(link.link);
    const double bytes = loads.on(link, folding_.links[index]);
    if (bytes > 0) loads_.push_back({machine_links_[index], bytes});
  }
}

void Execution::end_meeting(std::int32_t meeting, Seconds time) {
  Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  own.ended = true;
  for (const int r : own.instance->ranks) {
    const std::int32_t op = member(r, own);
    if (state(r, op).holds_sms) {
      machine_.hold_sms(r, -own.cost->ctas);
    }
    finish(r, op, time);
  }
}

// ---- Rings step by step ------------------------------------------------------------------------

bool Execution::is_stepped(const Meeting& meeting) const {
  return setup_.form == CollectiveForm::Stepped &&
         has_ring_steps(meeting.call->call, *meeting.cost);
}

void Execution::start_ring(std::int32_t meeting) {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  const LinkNumbers links{folding_, machine_links_, capacities_};
  SteppedRing& ring =
      rings_.try_emplace(meeting, *own.instance, own.call->call, *own.cost, own.loads(), links)
          .first->second;
  senders_.clear();
  ring.begin(senders_);
  start_sends(meeting, machine_.now() + ring.delay());
}

/// Of all of `senders_`.
void Execution::start_sends(std::int32_t meeting, Seconds time) {
  for (const int sender : senders_) at(time, event(EventKind::StartSend, sender, meeting));
}

void Execution::start_send(int rank_class, std::int32_t meeting) {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  loads_.clear();
  rings_.at(meeting).find_loads(rank_class, loads_);
  if (loads_.empty()) return end_send(rank_class, meeting);
  start_transfer(own.instance->ranks[0], own.call->first, loads_,
                 event(EventKind::EndSend, rank_class, meeting));
}

void Execution::end_send(int rank_class, std::int32_t meeting) {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  SteppedRing& ring = rings_.at(meeting);
  loads_.clear();
  ring.find_loads(rank_class, loads_);
  meter_end(own.instance->ranks[0], own.call->first, loads_);
  senders_.clear();
  ring.sent(rank_class, senders_);
  if (ring.done()) {
    rings_.erase(meeting);
    end_meeting(meeting, machine_.now());
  } else {
    start_sends(meeting, machine_.now());
  }
}

// ---- Other jobs --------------------------------------------------------------------------------

/// An event of the program itself.
void Execution::at(Seconds time, const MachineEvent& event) {
  ++outstanding_;
  machine_.at(time, event);
}

/// The program has ended, or stands still for ever: other jobs begin nothing more.
void Execution::note_end_of_program() {
  if (over_ || outstanding_ > 0) return;
  over_ = true;
  over_at_ = machine_.now();
}

void Execution::begin_burst(std::int32_t burst) {
  if (over_) return;
  BurstState& own = bursts_[static_cast<std::size_t>(burst)];
  own.due += own.job->period;
  const LinkBytes load{own.link, static_cast<double>(own.job->bytes.count())};
  machine_.start_transfer({&load, 1}, event(EventKind::EndBurst, 0, burst));
}

void Execution::end_burst(std::int32_t burst) {
  if (over_) return;
  BurstState& own = bursts_[static_cast<std::size_t>(burst)];
  own.due = std::max(own.due, machine_.now());
  machine_.at(own.due, event(EventKind::BeginBurst, 0, burst));
}

// ---- Errors ------------------------------------------------------------------------------------

std::string Execution::describe(int rank_class, std::int32_t op) const {
  return format("{} of rank class {} (rank {})", internal::describe(*rank(rank_class).program, op),
                rank_class, rank(rank_class).rank->representative);
}

void Execution::fail_mismatch(std::size_t group, int first_class, int rank_class,
                              std::size_t call) const {
  const auto what = [&](int of) {
    const std::vector<PreparedCall>& calls = rank(of).prepared->calls[group];
    if (call < calls.size()) return "calls " + describe(of, calls[call].first);
    return format("has no such collective");
  };
  const bool missing = call >= rank(rank_class).prepared->calls[group].size();
  throw SimulationError(
      format("rank classes disagree about a collective on \"{}\": rank class {} {}, rank class {} "
             "{}{}",
             program_.groups[group].name, first_class, what(first_class), rank_class,
             missing ? format("(rank {}) ", rank(rank_class).rank->representative) : "",
             what(rank_class)));
}

/// Why an operation that has not ended has not.
std::string Execution::reason(int rank_class, std::int32_t op) const {
  const RankState& owner = rank(rank_class);
  const OpState& own = state(rank_class, op);
  for (std::int32_t member = op; member != kNone;
       member = prepared(rank_class, member).next_member) {
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
      if (owner.prepared->ops[i].successor == op) {
        return "for " + describe(rank_class, static_cast<std::int32_t>(i));
      }
    }
  }
  if (op_of(rank_class, op).kind == OpKind::Collective) {
    return meeting_reason(meeting_of(rank_class, op));
  }
  return "for room in the launch queue";
}

std::string Execution::meeting_reason(std::int32_t meeting) const {
  const Meeting& own = meetings_[static_cast<std::size_t>(meeting)];
  for (const int r : own.instance->ranks) {
    const std::int32_t op = member(r, own);
    if (state(r, op).pending > 0) {
      const std::string waits =
          state(r, op).issued_yet ? format("waits {}", reason(r, op))
                                  : format("is not launched: its host thread is at {}",
                                           describe(r, static_cast<std::int32_t>(rank(r).next_op)));
      return format("for {}, which {}", describe(r, op), waits);
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
                   to_string(over_at_), describe(r, op), reason(r, op)));
      }
    }
  }
  ZS_CHECK(false, "a run that stops has an operation left");
}

}  // namespace

Timeline execute(const RunSetup& setup, Machine& machine, Costs& costs) {
  return Execution(setup, machine, costs).run();
}

}  // namespace zerosim::internal
