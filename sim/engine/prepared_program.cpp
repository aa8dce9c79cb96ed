#include "sim/engine/prepared_program.h"

#include <algorithm>
#include <span>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim::internal {

namespace {

/// Whether an operation waits for its dependencies; for those of a Free, its memory does.
bool waits(const Op& op) {
  return op.kind != OpKind::Free;
}

class Preparation {
 public:
  Preparation(const Program& program, std::size_t index)
      : program_(program), rank_(program.ranks[index]) {
    result_.program = &rank_;
    result_.ops.resize(rank_.ops.size());
    result_.timed_kernels.resize(rank_.kernels.size());
  }

  PreparedProgram prepare() {
    skip_warm_up();
    find_calls();
    count_waits();
    find_dependents();
    return std::move(result_);
  }

 private:
  void skip_warm_up() {
    const int first_timed_step = program_.first_step + program_.warm_up_steps;
    const auto in_warm_up = [&](const Op& op) {
      return op.step >= program_.first_step && op.step < first_timed_step;
    };
    std::size_t& first = result_.first_timed;
    while (first < rank_.ops.size() && in_warm_up(rank_.ops[first])) ++first;
  }

  [[nodiscard]] const Collective& collective(std::int32_t op) const {
    const Op& own = rank_.ops[static_cast<std::size_t>(op)];
    return rank_.collectives[static_cast<std::size_t>(own.payload)];
  }
  PreparedOp& op(std::int32_t index) { return result_.ops[static_cast<std::size_t>(index)]; }

  void find_calls() {
    std::vector<std::vector<std::int32_t>> by_group(program_.groups.size());
    for (std::size_t i = result_.first_timed; i < rank_.ops.size(); ++i) {
      if (rank_.ops[i].kind != OpKind::Collective) continue;
      const auto index = static_cast<std::int32_t>(i);
      const GroupId group = collective(index).group;
      const Stream& stream = rank_.streams[rank_.ops[i].stream.index()];
      if (stream.communicator != group) {
        throw SimulationError(
            format(R"({} is on stream "{}", which is not the one of its communicator "{}")",
                   describe(rank_, index), stream.name, program_.groups[group.index()].name));
      }
      by_group[group.index()].push_back(index);
    }
    for (const std::vector<std::int32_t>& calls : by_group) {
      std::vector<PreparedCall>& found = result_.calls.emplace_back();
      for (std::size_t i = 0; i < calls.size();) {
        i += add_call(std::span(calls).subspan(i), found);
      }
    }
  }

  /// \returns how many of `calls` run as one with the first.
  std::size_t add_call(std::span<const std::int32_t> calls, std::vector<PreparedCall>& found) {
    PreparedCall sum{calls[0], collective(calls[0])};
    std::size_t count = 0;
    do {
      PreparedOp& member = op(calls[count]);
      member.leader = sum.first;
      member.call = static_cast<std::int32_t>(found.size());
      if (count > 0) {
        op(calls[count - 1]).next_member = calls[count];
        sum.call.input_elements += collective(calls[count]).input_elements;
        sum.call.output_elements += collective(calls[count]).output_elements;
      }
      ++count;
    } while (count < calls.size() && runs_with(sum.call, collective(calls[count])));
    found.push_back(sum);
    return count;
  }

  static bool runs_with(const Collective& first, const Collective& call) {
    return call.coalesced >= 0 && call.coalesced == first.coalesced && call.kind == first.kind &&
           call.dtype == first.dtype;
  }

  /// Those that do not lie in the warm-up.
  [[nodiscard]] std::int32_t open_dependencies(const Op& op) const {
    std::int32_t open = 0;
    for (const OpId dependency : rank_.dependencies_of(op)) {
      if (dependency.index() >= result_.first_timed) ++open;
    }
    return open;
  }

  /// Counts what each operation waits for and links streams.
  void count_waits() {
    std::vector<std::int32_t> last(rank_.streams.size(), kNone);
    for (std::size_t i = result_.first_timed; i < rank_.ops.size(); ++i) {
      const Op& own = rank_.ops[i];
      const auto index = static_cast<std::int32_t>(i);
      check_step(own, i);
      if (own.kind == OpKind::Kernel) {
        result_.timed_kernels[static_cast<std::size_t>(own.payload)] = true;
      }
      PreparedOp& prepared = result_.ops[i];
      if (prepared.leader == kNone) prepared.leader = index;
      PreparedOp& leader = op(prepared.leader);
      if (waits(own)) leader.pending += open_dependencies(own);
      if (!runs_on_device(own.kind)) continue;
      ++leader.pending;  // its issue
      if (prepared.leader != index) continue;
      std::int32_t& previous = last[own.stream.index()];
      if (previous != kNone) {
        op(previous).successor = index;
        ++prepared.pending;
      }
      previous = index;
    }
  }

  void check_step(const Op& own, std::size_t index) const {
    const int step = own.step - program_.first_step;
    if (step >= 0 && step < program_.steps) return;
    throw SimulationError(format("operation {} belongs to step {}, the program has {} from {} on",
                                 index, own.step, program_.steps, program_.first_step));
  }

  void find_dependents() {
    std::vector<std::uint32_t> counts(rank_.ops.size() + 1, 0);
    for_dependencies([&](std::size_t dependency, std::size_t) { ++counts[dependency + 1]; });
    for (std::size_t i = 0; i < rank_.ops.size(); ++i) {
      counts[i + 1] += counts[i];
      result_.ops[i].first_dependent = counts[i];
    }
    result_.dependents.resize(counts.back());
    std::vector<std::uint32_t>& next = counts;  // where the next dependent of op i goes
    for_dependencies([&](std::size_t dependency, std::size_t dependent) {
      result_.dependents[next[dependency]++] = result_.ops[dependent].leader;
    });
  }

  template <typename Body>
  void for_dependencies(Body body) const {
    for (std::size_t i = result_.first_timed; i < rank_.ops.size(); ++i) {
      if (!waits(rank_.ops[i])) continue;
      for (const OpId dependency : rank_.dependencies_of(rank_.ops[i])) {
        body(dependency.index(), i);
      }
    }
  }

  const Program& program_;
  const RankProgram& rank_;
  PreparedProgram result_;
};

}  // namespace

std::vector<const KernelTime*> PreparedProgram::kernel_times(Costs& costs,
                                                             const std::string& gpu) const {
  std::vector<const KernelTime*> times(timed_kernels.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (timed_kernels[i]) times[i] = &costs.kernel(program->kernels[i], gpu);
  }
  return times;
}

PreparedProgram prepare(const Program& program, std::size_t index) {
  return Preparation(program, index).prepare();
}

std::string describe(const RankProgram& program, std::int32_t op) {
  const Op& own = program.ops[static_cast<std::size_t>(op)];
  std::string what(to_string(own.kind));
  if (own.kind == OpKind::Collective) {
    const Collective& call = program.collectives[static_cast<std::size_t>(own.payload)];
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
  return result + ")";
}

}  // namespace zerosim::internal
