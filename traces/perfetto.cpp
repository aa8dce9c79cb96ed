#include "traces/perfetto.h"

#include <cmath>
#include <fstream>
#include <map>
#include <ostream>
#include <string_view>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/output_file.h"
#include "sim/base/text.h"
#include "traces/proto/perfetto.pb.h"

namespace zerosim {

namespace {

constexpr std::uint32_t kSequence = 1;  // all packets come from one writer

std::uint64_t nanoseconds(Seconds time) {
  return static_cast<std::uint64_t>(std::llround(time.count() * 1e9));
}

// ---- names -----------------------------------------------------------------------------------

template <typename Payload>
const Payload& payload_of(const std::vector<Payload>& pool, const Op& op) {
  ZS_CHECK(op.payload >= 0 && static_cast<std::size_t>(op.payload) < pool.size(), "payload exists");
  return pool[static_cast<std::size_t>(op.payload)];
}

std::string_view copy_name(const Copy& copy) {
  return copy.direction == Copy::Direction::HostToDevice ? "copy_host_to_device"
                                                         : "copy_device_to_host";
}

std::string_view device_name(const RankProgram& rank, const Op& op) {
  if (op.kind == OpKind::Kernel) return payload_of(rank.kernels, op).name;
  if (op.kind == OpKind::Collective) return to_string(payload_of(rank.collectives, op).kind);
  if (op.kind == OpKind::Copy) return copy_name(payload_of(rank.copies, op));
  return to_string(op.kind);
}

// ---- interned strings ------------------------------------------------------------------------

/// Numbers the strings of one kind from 1, in the order in which they are met.
class InternedStrings {
 public:
  /// Announces `text` in `entries` when it is new.
  std::uint64_t iid(std::string_view text,
                    google::protobuf::RepeatedPtrField<perfetto::InternedString>& entries) {
    const auto [entry, is_new] = iids_.try_emplace(std::string(text), iids_.size() + 1);
    if (is_new) {
      perfetto::InternedString& announced = *entries.Add();
      announced.set_iid(entry->second);
      announced.set_name(entry->first);
    }
    return entry->second;
  }

 private:
  std::map<std::string, std::uint64_t> iids_;
};

// ---- the writer ------------------------------------------------------------------------------

/// Writes one packet after the other: messages of one field that follow each other are one message.
class PerfettoWriter {
 public:
  PerfettoWriter(const Program& program, const Timeline& timeline, std::ostream& out)
      : program_(&program), ranks_(timeline.ranks), out_(&out) {
    const bool are_those_of_the_program = ranks_.empty();
    for (std::size_t i = 0; are_those_of_the_program && i < program.ranks.size(); ++i) {
      const RankProgram& rank = program.ranks[i];
      ranks_.push_back({static_cast<int>(i), rank.representative.value(), rank.multiplicity});
    }
    std::uint64_t next = 1;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      tracks_.push_back({next, next + 1, next + 2, next + 3});
      next += 3 + rank(static_cast<int>(i)).streams.size();
    }
  }

  void write(const Timeline& timeline, const std::vector<MemorySample>* samples) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      describe_rank(i, samples != nullptr && i == 0);
    }
    for (const HostSpan& span : timeline.host_spans) write_host_span(span);
    for (const Span& span : timeline.spans) write_span(span);
    if (samples != nullptr && !ranks_.empty()) {
      for (const MemorySample& sample : *samples) write_sample(sample);
    }
  }

 private:
  /// Ids of the tracks of a rank class; stream i has stream + i.
  struct Tracks {
    std::uint64_t process;
    std::uint64_t host;
    std::uint64_t memory;
    std::uint64_t stream;
  };

  [[nodiscard]] const RankProgram& rank(int rank_class) const {
    ZS_CHECK(rank_class >= 0 && static_cast<std::size_t>(rank_class) < ranks_.size(),
             "the timeline is the program's");
    const int program = ranks_[static_cast<std::size_t>(rank_class)].program;
    return program_->ranks[static_cast<std::size_t>(program)];
  }

  [[nodiscard]] const Op& op_of(int rank_class, OpId id) const {
    const std::vector<Op>& ops = rank(rank_class).ops;
    ZS_CHECK(id.valid() && id.index() < ops.size(), "the timeline is the program's");
    return ops[id.index()];
  }

  [[nodiscard]] const Tracks& tracks(int rank_class) const {
    return tracks_[static_cast<std::size_t>(rank_class)];
  }

  /// A fresh packet; `emit` sends it.
  perfetto::TracePacket& packet() {
    trace_.Clear();
    perfetto::TracePacket& packet = *trace_.add_packet();
    packet.set_trusted_packet_sequence_id(kSequence);
    packet.set_sequence_flags(is_first_ ? perfetto::TracePacket::SEQ_INCREMENTAL_STATE_CLEARED
                                        : perfetto::TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
    if (is_first_) packet.set_first_packet_on_sequence(true);
    is_first_ = false;
    return packet;
  }

  void emit() {
    if (!trace_.SerializeToOstream(out_) || !*out_) {
      throw BackendError(
          "the trace cannot be written: the output takes no more; is the disk full?");
    }
  }

  // Tracks.

  void describe_rank(std::size_t rank_class, bool has_memory) {
    const RankProgram& rank = this->rank(static_cast<int>(rank_class));
    const TimelineRank& stands_for = ranks_[rank_class];
    const auto pid = static_cast<int>(rank_class) + 1;  // 0 is the kernel's
    std::string name = format("rank {}", stands_for.representative);
    if (stands_for.multiplicity > 1) name += format(" ({} ranks alike)", stands_for.multiplicity);

    perfetto::TrackDescriptor& process = *packet().mutable_track_descriptor();
    process.set_uuid(tracks_[rank_class].process);
    process.set_child_ordering(perfetto::TrackDescriptor::EXPLICIT);
    process.mutable_process()->set_pid(pid);
    process.mutable_process()->set_process_name(name);
    emit();

    perfetto::TrackDescriptor& host = *packet().mutable_track_descriptor();
    host.set_uuid(tracks_[rank_class].host);
    host.mutable_thread()->set_pid(pid);
    host.mutable_thread()->set_tid(pid);  // the main thread
    host.mutable_thread()->set_thread_name("host thread");
    emit();

    for (std::size_t i = 0; i < rank.streams.size(); ++i) {
      describe_child(tracks_[rank_class], tracks_[rank_class].stream + i, rank.streams[i].name,
                     static_cast<int>(i));
      emit();
    }
    if (has_memory) {
      describe_child(tracks_[rank_class], tracks_[rank_class].memory, "allocated memory",
                     static_cast<int>(rank.streams.size()))
          .mutable_counter()
          ->set_unit(perfetto::CounterDescriptor::UNIT_SIZE_BYTES);
      emit();
    }
  }

  perfetto::TrackDescriptor& describe_child(const Tracks& tracks, std::uint64_t uuid,
                                            const std::string& name, int order) {
    perfetto::TrackDescriptor& track = *packet().mutable_track_descriptor();
    track.set_uuid(uuid);
    track.set_parent_uuid(tracks.process);
    track.set_name(name);
    track.set_sibling_order_rank(order);
    return track;
  }

  // Slices.

  void write_span(const Span& span) {
    const RankProgram& rank = this->rank(span.rank_class);
    const Op& op = op_of(span.rank_class, span.op);
    ZS_CHECK(span.stream.valid() && span.stream.index() < rank.streams.size(), "stream exists");
    const std::uint64_t track = tracks(span.rank_class).stream + span.stream.index();
    begin_slice(track, span.start, device_name(rank, op), to_string(op.kind));
    annotate_payload(rank, op);
    annotate_origin(op);
    emit();
    end_slice(track, span.end);
  }

  void write_host_span(const HostSpan& span) {
    const Op& op = op_of(span.rank_class, span.op);
    const std::uint64_t track = tracks(span.rank_class).host;
    const std::string_view working = host_name(rank(span.rank_class), op);
    begin_slice(track, span.start, span.waiting ? "wait_for_device" : working,
                span.waiting ? "host_wait" : "host");
    annotate_origin(op);
    emit();
    end_slice(track, span.end);
  }

  static std::string_view host_name(const RankProgram& rank, const Op& op) {
    if (op.kind == OpKind::Host && op.payload >= 0) {
      return rank.host_passes[static_cast<std::size_t>(op.payload)].name;
    }
    return op.host_work == HostWork::None ? to_string(op.kind) : to_string(op.host_work);
  }

  void begin_slice(std::uint64_t track, Seconds time, std::string_view name,
                   std::string_view category) {
    perfetto::TracePacket& packet = this->packet();
    packet.set_timestamp(nanoseconds(time));
    perfetto::TrackEvent& event = *packet.mutable_track_event();
    event.set_type(perfetto::TrackEvent::TYPE_SLICE_BEGIN);
    event.set_track_uuid(track);
    event.set_name_iid(names_.iid(name, *packet.mutable_interned_data()->mutable_event_names()));
    event.add_category_iids(
        categories_.iid(category, *packet.mutable_interned_data()->mutable_event_categories()));
  }

  void end_slice(std::uint64_t track, Seconds time) {
    perfetto::TracePacket& packet = this->packet();
    packet.set_timestamp(nanoseconds(time));
    packet.mutable_track_event()->set_type(perfetto::TrackEvent::TYPE_SLICE_END);
    packet.mutable_track_event()->set_track_uuid(track);
    emit();
  }

  void write_sample(const MemorySample& sample) {
    perfetto::TracePacket& packet = this->packet();
    packet.set_timestamp(nanoseconds(sample.at));
    packet.mutable_track_event()->set_type(perfetto::TrackEvent::TYPE_COUNTER);
    packet.mutable_track_event()->set_track_uuid(tracks_.front().memory);
    packet.mutable_track_event()->set_counter_value(sample.allocated.count());
    emit();
  }

  // Annotations of the slice that was begun last.

  perfetto::DebugAnnotation& annotation(std::string_view name) {
    perfetto::TracePacket& packet = *trace_.mutable_packet(0);
    perfetto::DebugAnnotation& added = *packet.mutable_track_event()->add_debug_annotations();
    added.set_name_iid(
        annotations_.iid(name, *packet.mutable_interned_data()->mutable_debug_annotation_names()));
    return added;
  }

  void annotate(std::string_view name, std::string_view text) {
    annotation(name).set_string_value(std::string(text));
  }
  void annotate(std::string_view name, std::int64_t number) {
    annotation(name).set_int_value(number);
  }

  void annotate_payload(const RankProgram& rank, const Op& op) {
    if (op.kind == OpKind::Kernel) {
      const Kernel& kernel = payload_of(rank.kernels, op);
      annotation("flops").set_double_value(kernel.flops.count());
      annotate("bytes", kernel.bytes.count());
      annotate("dtype", to_string(kernel.dtype));
    } else if (op.kind == OpKind::Collective) {
      const Collective& collective = payload_of(rank.collectives, op);
      const ProcessGroup& group = program_->groups[collective.group.index()];
      annotate("input_elements", collective.input_elements);
      annotate("output_elements", collective.output_elements);
      annotate("dtype", to_string(collective.dtype));
      annotate("group", group.name);
      annotate("group_size", group.size);
    } else if (op.kind == OpKind::Copy) {
      annotate("bytes", payload_of(rank.copies, op).bytes.count());
    }
  }

  void annotate_origin(const Op& op) {
    if (op.module.valid() && op.module.index() < program_->module_names.size()) {
      annotate("module", program_->module_names[op.module.index()]);
    }
    annotate("phase", to_string(op.phase));
    annotate("step", op.step);
    annotate("micro_step", op.micro_step);
    if (!op.rule.empty()) annotate("rule", op.rule);
  }

  const Program* program_;
  std::vector<TimelineRank> ranks_;  ///< by rank class
  std::ostream* out_;
  std::vector<Tracks> tracks_;  ///< by rank class
  perfetto::Trace trace_;       ///< holds the packet that is being made
  bool is_first_ = true;
  InternedStrings names_;
  InternedStrings categories_;
  InternedStrings annotations_;
};

}  // namespace

void write_perfetto(const Program& program, const Timeline& timeline,
                    const std::vector<MemorySample>* samples, std::ostream& out) {
  PerfettoWriter(program, timeline, out).write(timeline, samples);
  if (!out.flush()) {
    throw BackendError("the trace cannot be written: the output takes no more; is the disk full?");
  }
}

void write_perfetto(const std::string& path, const Program& program, const Timeline& timeline,
                    const std::vector<MemorySample>* samples) {
  std::ofstream out = open_for_writing(path);
  try {
    write_perfetto(program, timeline, samples, out);
  } catch (const BackendError& error) {
    throw BackendError(format("{}: {}", path, error.what()));
  }
}

}  // namespace zerosim
