#include "sim/program/program.h"

#include <algorithm>
#include <array>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

std::size_t payloads(const RankProgram& rank, OpKind kind) {
  switch (kind) {
    case OpKind::Kernel:
      return rank.kernels.size();
    case OpKind::Copy:
      return rank.copies.size();
    case OpKind::Collective:
      return rank.collectives.size();
    case OpKind::Allocate:
    case OpKind::Free:
      return rank.buffers.size();
    case OpKind::Host:
      return rank.host_passes.size();
    case OpKind::StreamWait:
    case OpKind::HostWait:
    case OpKind::EmptyCache:
      return 0;
  }
  return 0;
}

void check_op(const RankProgram& rank, std::size_t index) {
  const Op& op = rank.ops[index];
  ZS_CHECK(runs_on_device(op.kind) == op.stream.valid(),
           "device operations and only they have a stream");
  ZS_CHECK(!op.stream.valid() || op.stream.index() < rank.streams.size(), "stream exists");
  const std::size_t limit = payloads(rank, op.kind);
  const bool optional = op.kind == OpKind::Host && op.payload < 0;
  ZS_CHECK(
      limit == 0 || optional || (op.payload >= 0 && static_cast<std::size_t>(op.payload) < limit),
      "payload exists");
  for (const OpId dependency : rank.dependencies_of(op)) {
    ZS_CHECK(dependency.valid() && dependency.index() < index, "dependencies point backwards");
    ZS_CHECK(runs_on_device(rank.ops[dependency.index()].kind),
             "only device operations are waited for");
  }
}

void check_buffers(const RankProgram& rank) {
  enum class State : char { Unused, Live, Freed };
  std::vector<State> states(rank.buffers.size(), State::Unused);
  for (const Op& op : rank.ops) {
    if (op.kind == OpKind::Allocate) {
      State& state = states[static_cast<std::size_t>(op.payload)];
      ZS_CHECK(state == State::Unused, "a buffer is allocated once");
      state = State::Live;
    } else if (op.kind == OpKind::Free) {
      State& state = states[static_cast<std::size_t>(op.payload)];
      ZS_CHECK(state == State::Live, "a buffer is freed once, after its allocation");
      state = State::Freed;
    }
  }
}

}  // namespace

bool runs_on_device(OpKind kind) {
  return kind == OpKind::Kernel || kind == OpKind::Copy || kind == OpKind::Collective ||
         kind == OpKind::StreamWait;
}

std::string_view to_string(OpKind kind) {
  constexpr std::array<std::string_view, 9> kNames = {"host",       "kernel",      "copy",
                                                      "collective", "stream_wait", "host_wait",
                                                      "allocate",   "free",        "empty_cache"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(HostWork work) {
  constexpr std::array<std::string_view, 12> kNames = {
      "host",        "kernel_launch", "backward_launch", "optimizer_launch", "collective_launch",
      "module_hook", "gradient_hook", "deepspeed_hook",  "event_record",     "module_call",
      "checkpoint",  "step_overhead"};
  return kNames[static_cast<std::size_t>(work)];
}

std::string_view to_string(Phase phase) {
  constexpr std::array<std::string_view, 4> kNames = {"init", "fwd", "bwd", "step"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view to_string(MemoryClass memory_class) {
  constexpr std::array<std::string_view, kMemoryClasses> kNames = {
      "parameters", "gradients",         "optimizer_states", "activations",
      "logits",     "temporary_buffers", "live_parameters"};
  return kNames[static_cast<std::size_t>(memory_class)];
}

std::string_view to_string(ReduceOp reduction) {
  switch (reduction) {
    case ReduceOp::Sum:
      return "SUM";
    case ReduceOp::Max:
      return "MAX";
    case ReduceOp::Average:
      return "AVG";
  }
  return "";
}

std::string_view to_string(AnnotationKind kind) {
  switch (kind) {
    case AnnotationKind::FlushBucket:
      return "flush_bucket";
    case AnnotationKind::Bucket:
      return "bucket";
    case AnnotationKind::FetchSubModule:
      return "fetch_sub_module";
    case AnnotationKind::GatherParams:
      return "gather_params";
    case AnnotationKind::Release:
      return "release";
  }
  return "";
}

std::string_view to_string(CollectiveKind kind) {
  constexpr std::array<std::string_view, 6> kNames = {
      "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast",
      "reduce",     "all_to_all_single"};
  return kNames[static_cast<std::size_t>(kind)];
}

Bytes collective_size(const Collective& collective) {
  const std::int64_t elements = collective.kind == CollectiveKind::AllGather
                                    ? collective.output_elements
                                    : collective.input_elements;
  return Bytes(elements) * dtype_bytes(collective.dtype);
}

bool uses_host_memory(const Program& program) {
  return std::any_of(program.ranks.begin(), program.ranks.end(),
                     [](const RankProgram& rank) { return !rank.host_passes.empty(); });
}

void check_program(const Program& program) {
  ZS_CHECK(!program.ranks.empty(), "a program has a rank class");
  for (const RankProgram& rank : program.ranks) {
    ZS_CHECK(!rank.streams.empty(), "the first stream is the compute stream");
    for (std::size_t i = 0; i < rank.ops.size(); ++i) {
      check_op(rank, i);
    }
    check_buffers(rank);
    for (const Collective& collective : rank.collectives) {
      ZS_CHECK(collective.group.valid() && collective.group.index() < program.groups.size(),
               "group exists");
    }
  }
}

namespace {

/// The collectives of one communicator, in order.
std::vector<const Collective*> calls_on(const RankProgram& rank, GroupId group) {
  std::vector<const Collective*> calls;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Collective) continue;
    const Collective& call = rank.collectives[static_cast<std::size_t>(op.payload)];
    if (call.group == group) calls.push_back(&call);
  }
  return calls;
}

bool agree(const Collective& a, const Collective& b) {
  return a.kind == b.kind && a.input_elements == b.input_elements &&
         a.output_elements == b.output_elements && a.dtype == b.dtype &&
         a.reduction == b.reduction && a.root == b.root && a.coalesced == b.coalesced;
}

std::string in_words(const std::vector<const Collective*>& calls, std::size_t index) {
  if (index >= calls.size()) return "nothing";
  const Collective& call = *calls[index];
  return format("{} of {} elements", to_string(call.kind),
                std::max(call.input_elements, call.output_elements));
}

}  // namespace

std::optional<std::string> disagreement(const Program& program) {
  const RankProgram& first = program.ranks.front();
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const std::vector<const Collective*> expected = calls_on(first, GroupId(g));
    for (const RankProgram& rank : program.ranks) {
      const std::vector<const Collective*> found = calls_on(rank, GroupId(g));
      const auto [mine, other] =
          std::mismatch(expected.begin(), expected.end(), found.begin(), found.end(),
                        [](const Collective* a, const Collective* b) { return agree(*a, *b); });
      if (mine == expected.end() && other == found.end()) continue;
      const auto index = static_cast<std::size_t>(mine - expected.begin());
      return format("collective {} of {}: rank {} issues {}, rank {} {}", index,
                    program.groups[g].name, first.representative.value(), in_words(expected, index),
                    rank.representative.value(), in_words(found, index));
    }
  }
  return std::nullopt;
}

}  // namespace zerosim
