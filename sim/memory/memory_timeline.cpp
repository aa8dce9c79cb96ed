#include "sim/memory/memory_timeline.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "sim/base/error.h"

namespace zerosim {

namespace {

constexpr std::int64_t kMinimumBlock = 512;  // kMinBlockSize of CUDACachingAllocator.cpp (E7.1)

std::size_t checked_index(int rank_class, std::size_t count) {
  ZS_CHECK(rank_class >= 0 && static_cast<std::size_t>(rank_class) < count,
           "the rank class is the program's");
  return static_cast<std::size_t>(rank_class);
}

}  // namespace

std::string request_text(const Program& program, const Buffer& buffer, ModuleId module) {
  std::string text(buffer.owner);
  if (module.valid() && module.index() < program.module_names.size()) {
    const std::string& name = program.module_names[module.index()];
    text += " in " + (name.empty() ? "the root module" : name);
  }
  return text;
}

Bytes rounded_allocation(Bytes request) {
  ZS_CHECK(request >= Bytes(0), "a buffer has no negative size");
  const std::int64_t excess = request.count() % kMinimumBlock;
  return excess == 0 ? request : request + Bytes(kMinimumBlock - excess);
}

Bytes rounded_pinned_allocation(Bytes request) {
  ZS_CHECK(request >= Bytes(0), "a buffer has no negative size");
  if (request == Bytes(0)) return request;
  Bytes power(1);
  while (power < request) power += power;
  return power;
}

std::vector<int> programs_of_classes(const Program& program, std::vector<int> programs) {
  if (programs.empty()) {
    programs.resize(program.ranks.size());
    std::iota(programs.begin(), programs.end(), 0);
  }
  return programs;
}

MemoryLedger::MemoryLedger(const Program& program, bool keep_samples, int ranks_of_a_node,
                           std::vector<int> programs)
    : program_(&program),
      programs_(programs_of_classes(program, std::move(programs))),
      keep_samples_(keep_samples),
      ranks_of_a_node_(ranks_of_a_node),
      ranks_(programs_.size()) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const RankProgram& rank = program.ranks[static_cast<std::size_t>(programs_[i])];
    ranks_[i].states.assign(rank.buffers.size(), BufferState::Unused);
  }
}

Seconds MemoryLedger::on_allocate(int rank_class, BufferId id, const Buffer& buffer, const Op& op,
                                  Seconds now) {
  RankLedger& ledger = ledger_of(rank_class);
  ZS_CHECK(id.valid() && id.index() < ledger.states.size(), "the buffer is the program's");
  ZS_CHECK(ledger.states[id.index()] == BufferState::Unused, "a buffer is allocated once");
  ledger.states[id.index()] = BufferState::Live;
  if (buffer.place != MemoryPlace::Device) {
    ledger.host += host_bytes(buffer);
    ledger.peak.host = std::max(ledger.peak.host, ledger.host);
    return Seconds(0);
  }

  const Bytes bytes = rounded_allocation(buffer.bytes);
  const auto memory_class = static_cast<std::size_t>(buffer.memory_class);
  ledger.allocated += bytes;
  ledger.by_class[memory_class] += bytes;
  Bytes& class_peak = ledger.peak.class_peaks[memory_class];
  class_peak = std::max(class_peak, ledger.by_class[memory_class]);
  if (ledger.allocated > ledger.peak.allocated) {
    ledger.peak.allocated = ledger.allocated;
    ledger.peak.by_class = ledger.by_class;
    ledger.peak.phase = op.phase;
    ledger.peak.at = now;
    ledger.peak_buffer = id;
    ledger.peak_module = op.module;
  }
  sample(ledger, now);
  return Seconds(0);
}

Seconds MemoryLedger::on_free(int rank_class, BufferId id, const Buffer& buffer, const Op& /*op*/,
                              Seconds now) {
  RankLedger& ledger = ledger_of(rank_class);
  ZS_CHECK(id.valid() && id.index() < ledger.states.size(), "the buffer is the program's");
  ZS_CHECK(ledger.states[id.index()] == BufferState::Live,
           "a buffer is freed once, after its allocation");
  ledger.states[id.index()] = BufferState::Freed;
  if (buffer.place != MemoryPlace::Device) {
    ledger.host -= host_bytes(buffer);
    return Seconds(0);
  }

  const Bytes bytes = rounded_allocation(buffer.bytes);
  ledger.allocated -= bytes;
  ledger.by_class[static_cast<std::size_t>(buffer.memory_class)] -= bytes;
  sample(ledger, now);
  return Seconds(0);
}

/// What `buffer` takes of the host.
Bytes MemoryLedger::host_bytes(const Buffer& buffer) const {
  if (buffer.place == MemoryPlace::NodeHost) return buffer.bytes;
  const Bytes own = buffer.place == MemoryPlace::PinnedHost
                        ? rounded_pinned_allocation(buffer.bytes)
                        : buffer.bytes;
  return own * ranks_of_a_node_;
}

MemoryPeak MemoryLedger::peak(int rank_class) const {
  const RankLedger& ledger = ledger_of(rank_class);
  MemoryPeak peak = ledger.peak;
  if (ledger.peak_buffer.valid()) {
    const int run = programs_[static_cast<std::size_t>(rank_class)];
    const RankProgram& rank = program_->ranks[static_cast<std::size_t>(run)];
    peak.op = request_text(*program_, rank.buffers[ledger.peak_buffer.index()], ledger.peak_module);
  }
  return peak;
}

const MemoryByClass& MemoryLedger::current(int rank_class) const {
  return ledger_of(rank_class).by_class;
}

Bytes MemoryLedger::current_host(int rank_class) const {
  return ledger_of(rank_class).host;
}

const std::vector<MemorySample>& MemoryLedger::samples(int rank_class) const {
  return ledger_of(rank_class).samples;
}

MemoryLedger::RankLedger& MemoryLedger::ledger_of(int rank_class) {
  return ranks_[checked_index(rank_class, ranks_.size())];
}

const MemoryLedger::RankLedger& MemoryLedger::ledger_of(int rank_class) const {
  return ranks_[checked_index(rank_class, ranks_.size())];
}

void MemoryLedger::sample(RankLedger& ledger, Seconds now) const {
  if (keep_samples_) ledger.samples.push_back({now, ledger.allocated});
}

namespace {

class DeviceThatIsDone final : public DeviceProgress {
 public:
  [[nodiscard]] State state(OpId /*op*/) const override { return State::Ended; }
};

}  // namespace

void replay(const Program& program, AllocationObserver& observer, int rank_class) {
  const RankProgram& rank = program.ranks[checked_index(rank_class, program.ranks.size())];
  for (const Op& op : rank.ops) {
    if (op.kind == OpKind::EmptyCache) observer.on_empty_cache(rank_class, op, Seconds(0));
    if (op.kind != OpKind::Allocate && op.kind != OpKind::Free) continue;
    const BufferId id(op.payload);
    const Buffer& buffer = rank.buffers[id.index()];
    if (op.kind == OpKind::Allocate) {
      observer.poll_device(rank_class, DeviceThatIsDone());
      observer.on_allocate(rank_class, id, buffer, op, Seconds(0));
    } else {
      observer.on_free(rank_class, id, buffer, op, Seconds(0));
    }
  }
}

MemoryPeak replay_memory(const Program& program, int rank_class) {
  MemoryLedger ledger(program);
  replay(program, ledger, rank_class);
  return ledger.peak(rank_class);
}

}  // namespace zerosim
