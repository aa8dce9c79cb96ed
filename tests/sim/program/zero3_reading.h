/// \file
/// Reads a stage-3 Program back without asking its builder: which parameter each gathered buffer
/// is, what each request gathers, what has ended before an operation starts.
///
/// A Program does not say which parameter a buffer is. Here it is told by its padded size, which
/// `give_distinct_sizes` makes different for every parameter.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "sim/model/model.h"
#include "sim/program/program.h"

namespace zerosim::test {

/// ceil(n / N) N (C1.1).
inline std::int64_t padded(std::int64_t elements, int world_size) {
  return (elements + world_size - 1) / world_size * world_size;
}

/// One collective that makes parameters whole.
struct ReadGather {
  OpId collective;
  std::vector<ParameterId> members;
  bool waited_in_its_hook = false;  ///< by the compute stream's module; a prefetch is not
  std::int64_t elements = 0;        ///< of its result, padding included
};

/// For each operation on a stream, the last operation of every stream that ends before it starts:
/// the order of streams, waits and the host's waits, nothing else.
class DeviceOrder {
 public:
  explicit DeviceOrder(const RankProgram& rank) : rank_(rank), before_(rank.ops.size()) {
    Ends host = nothing();
    std::vector<Ends> last(rank.streams.size(), nothing());
    for (std::size_t i = 0; i < rank.ops.size(); ++i) {
      const Op& op = rank.ops[i];
      Ends ends = host;
      for (const OpId dependency : rank.dependencies_of(op)) {
        merge(ends, through(dependency));
      }
      if (op.kind == OpKind::HostWait) {
        host = ends;
      } else if (runs_on_device(op.kind)) {
        merge(ends, last[op.stream.index()]);
        before_[i] = ends;
        last[op.stream.index()] = through(OpId(i));
      }
    }
  }

  /// Whether `first` has ended when `second` starts.
  [[nodiscard]] bool ordered(OpId first, OpId second) const {
    const StreamId stream = rank_.ops[first.index()].stream;
    return before_[second.index()][stream.index()] >= first.value();
  }

 private:
  static constexpr std::size_t kStreams = 8;
  using Ends = std::array<std::int32_t, kStreams>;

  static Ends nothing() {
    Ends ends{};
    ends.fill(-1);
    return ends;
  }
  static void merge(Ends& ends, const Ends& other) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      ends[s] = std::max(ends[s], other[s]);
    }
  }
  [[nodiscard]] Ends through(OpId id) const {
    Ends ends = before_[id.index()];
    const Op& op = rank_.ops[id.index()];
    if (runs_on_device(op.kind)) {
      std::int32_t& end = ends[op.stream.index()];
      end = std::max(end, id.value());
    }
    return ends;
  }

  const RankProgram& rank_;
  std::vector<Ends> before_;
};

/// Gathers and parameters of a Program.
class Zero3Reading {
 public:
  Zero3Reading(const Program& program, const Model& model, int element_bytes)
      : rank_(program.ranks[0]), parameter_of_(rank_.buffers.size()), gather_at_(rank_.ops.size()) {
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      by_size_[padded(model.parameters[i].elements, program.world_size) * element_bytes] =
          ParameterId(i);
    }
    for (std::size_t i = 0; i < rank_.ops.size(); ++i) {
      read(OpId(i));
    }
  }

  [[nodiscard]] const std::vector<ReadGather>& gathers() const { return gathers_; }
  /// The gather that this operation is; null if it is none.
  [[nodiscard]] const ReadGather* gather(OpId id) const {
    const int index = gather_at_[id.index()];
    return index < 0 ? nullptr : &gathers_[static_cast<std::size_t>(index)];
  }
  /// The parameter that an Allocate or Free is of, if it is of one.
  [[nodiscard]] ParameterId parameter(const Op& op) const {
    const bool memory = op.kind == OpKind::Allocate || op.kind == OpKind::Free;
    return memory ? parameter_of_[static_cast<std::size_t>(op.payload)] : ParameterId();
  }
  /// The operation after which an allocated parameter has its elements: its gather, or the copy out
  /// of its flat buffer (C3.2); not valid: there from the start.
  [[nodiscard]] OpId filled_by(OpId allocation) const {
    const auto found = filled_by_.find(allocation);
    return found == filled_by_.end() ? OpId() : found->second;
  }

 private:
  void read(OpId id) {
    gather_at_[id.index()] = -1;
    const Op& op = rank_.ops[id.index()];
    switch (op.kind) {
      case OpKind::Host:
        if (op.host_work == HostWork::DeepSpeedHook) {
          since_hook_ = gathers_.size();
        }
        break;
      case OpKind::Allocate:
        read_allocation(id, op);
        break;
      case OpKind::Collective:
        read_collective(id, op);
        break;
      case OpKind::Kernel:
        copied_out(id, op);
        break;
      case OpKind::StreamWait:
        read_wait(op);
        break;
      default:
        break;
    }
  }

  void read_allocation(OpId id, const Op& op) {
    const Buffer& buffer = rank_.buffers[static_cast<std::size_t>(op.payload)];
    if (buffer.owner == "gather_flat_buffer") {
      flat_ = true;
      return;
    }
    if (buffer.owner != "gathered_parameter") {
      return;
    }
    const ParameterId parameter = by_size_.at(buffer.bytes.count());
    parameter_of_[static_cast<std::size_t>(op.payload)] = parameter;
    if (open_ && missing_ > 0) {  // out of a flat buffer
      ReadGather& gather = gathers_[*open_];
      gather.members.push_back(parameter);
      missing_ -= buffer.bytes.count();
      filled_by_[id] = gather.collective;
      copied_ = id;
    } else if (op.phase !=
               Phase::Init) {  // there is no collective for what is there from the start
      single_ = parameter;
      allocation_ = id;
      flat_ = false;
    }
  }

  void copied_out(OpId id, const Op& op) {
    if (copied_.valid() && rank_.kernels[static_cast<std::size_t>(op.payload)].name == "copy_out") {
      filled_by_[copied_] = id;
      copied_ = OpId();
    }
  }

  void read_collective(OpId id, const Op& op) {
    const Collective& call = rank_.collectives[static_cast<std::size_t>(op.payload)];
    if (!flat_ && !single_) {
      return;  // a reduction, a broadcast
    }
    gather_at_[id.index()] = static_cast<int>(gathers_.size());
    ReadGather& gather = gathers_.emplace_back();
    gather.collective = id;
    gather.elements = call.output_elements;
    if (!flat_) {
      gather.members = {*single_};
      filled_by_[allocation_] = id;
    }
    flat_ = false;
    single_.reset();
  }

  void read_wait(const Op& op) {
    for (const OpId dependency : rank_.dependencies_of(op)) {
      const int index = gather_at_[dependency.index()];
      if (index < 0) {
        continue;
      }
      ReadGather& gather = gathers_[static_cast<std::size_t>(index)];
      gather.waited_in_its_hook |= static_cast<std::size_t>(index) >= since_hook_;
      if (gather.members.empty()) {
        open_ = static_cast<std::size_t>(index);
        missing_ =
            collective_size(
                rank_.collectives[static_cast<std::size_t>(rank_.ops[dependency.index()].payload)])
                .count();
      }
    }
  }

  const RankProgram& rank_;
  std::map<std::int64_t, ParameterId> by_size_;  ///< bytes of the padded parameter
  std::vector<ParameterId> parameter_of_;        ///< by buffer
  std::vector<int> gather_at_;                   ///< by operation: index into gathers_, or -1
  std::vector<ReadGather> gathers_;
  std::map<OpId, OpId> filled_by_;
  bool flat_ = false;                  ///< a flat buffer waits for its collective
  std::optional<ParameterId> single_;  ///< so does a parameter's buffer
  OpId allocation_;                    ///< of `single_`
  std::optional<std::size_t> open_;    ///< the gather that is being copied out
  std::int64_t missing_ = 0;           ///< bytes of it that are not allocated yet
  OpId copied_;                        ///< allocation that the next kernel fills
  std::size_t since_hook_ = 0;         ///< gathers issued since the last module hook
};

}  // namespace zerosim::test
