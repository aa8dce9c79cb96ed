#include "traces/perfetto.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/engine/engine.h"
#include "sim/model/model.h"
#include "sim/program/build.h"
#include "sim/strategy/strategy.h"
#include "topology/cluster.h"
#include "traces/proto/perfetto.pb.h"

namespace zerosim {
namespace {

using perfetto::TracePacket;
using perfetto::TrackEvent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- what is written -------------------------------------------------------------------------

/// Two rank classes, each with a GEMM (operation 0), an all-gather (1), a copy (2) and a host wait
/// (3).
Program small_program() {
  Program program;
  program.groups.push_back({"WORLD", 4});
  program.module_names = {"", "model.layers.0.mlp"};
  program.ranks.resize(2);
  int representative = 0;
  for (RankProgram& rank : program.ranks) {
    rank.representative = Rank(std::int32_t{representative});
    representative += 3;
    rank.streams = {{"compute", GroupId()}, {"nccl:WORLD", GroupId(std::int32_t{0})}};
    Kernel gemm;
    gemm.kernel_class = KernelClass::Gemm;
    gemm.name = "gemm_forward";
    gemm.flops = Flops(2e9);
    gemm.bytes = Bytes(4096);
    rank.kernels = {gemm};
    Collective gather;
    gather.kind = CollectiveKind::AllGather;
    gather.input_elements = 100;
    gather.output_elements = 400;
    gather.group = GroupId(std::int32_t{0});
    rank.collectives = {gather};
    rank.copies = {{Copy::Direction::DeviceToHost, Bytes(64)}};
    const auto add = [&](OpKind kind, HostWork work, StreamId stream) {
      Op op;
      op.kind = kind;
      op.host_work = work;
      op.stream = stream;
      op.payload = kind == OpKind::HostWait ? -1 : 0;
      op.phase = Phase::Forward;
      op.step = 2;
      rank.ops.push_back(op);
    };
    add(OpKind::Kernel, HostWork::KernelLaunch, kComputeStream);
    add(OpKind::Collective, HostWork::CollectiveLaunch, StreamId(std::int32_t{1}));
    add(OpKind::Copy, HostWork::None, kComputeStream);
    add(OpKind::HostWait, HostWork::None, StreamId());
    rank.ops[0].module = ModuleId(std::int32_t{1});
    rank.ops[1].rule = "C4.3";
  }
  program.ranks[0].multiplicity = 3;
  return program;
}

Span span(int rank_class, int stream, int op, double start, double end) {
  Span made;
  made.rank_class = rank_class;
  made.stream = StreamId(std::int32_t{stream});
  made.op = OpId(std::int32_t{op});
  made.start = Seconds(start);
  made.end = Seconds(end);
  return made;
}

HostSpan host_span(int rank_class, int op, double start, double end, bool waiting = false) {
  return {rank_class, OpId(std::int32_t{op}), Seconds(start), Seconds(end), waiting};
}

/// Times that are no whole nanoseconds, spans that touch, one that is shorter than a nanosecond.
Timeline small_timeline() {
  Timeline timeline;
  constexpr double kThird = 1e-3 / 3;
  for (int rank = 0; rank < 2; ++rank) {
    timeline.host_spans.push_back(host_span(rank, 0, 0, 5.2e-6));
    timeline.host_spans.push_back(host_span(rank, 1, 5.2e-6, 9.1e-6));
    timeline.host_spans.push_back(host_span(rank, 2, 9.1e-6, 9.9e-6));
    timeline.host_spans.push_back(host_span(rank, 3, 9.9e-6, 2 * kThird, true));
    timeline.spans.push_back(span(rank, 0, 0, 6.4999e-6, kThird));
    timeline.spans.push_back(span(rank, 1, 1, 1e-5 / 7, 2 * kThird));
    timeline.spans.push_back(span(rank, 0, 2, kThird, kThird + 1e-10));
  }
  sort(timeline);
  timeline.end = Seconds(2 * kThird);
  return timeline;
}

// ---- what is read back -----------------------------------------------------------------------

struct Slice {
  std::string name;
  std::string category;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::map<std::string, std::string> annotations;
};

struct Track {
  std::string name;    ///< of a process, of a thread or its own
  std::string parent;  ///< name of the process
  int order = -1;
  std::vector<Slice> slices;
  std::vector<std::int64_t> counts;
  std::vector<std::uint64_t> count_times;
};

/// Reads as Perfetto's trace processor does: interned names hold from the packet that brings them
/// on.
class Reader {
 public:
  explicit Reader(const std::string& bytes) {
    perfetto::Trace trace;
    EXPECT_TRUE(trace.ParseFromString(bytes));
    packets_ = trace.packet_size();
    for (int i = 0; i < trace.packet_size(); ++i) read(trace.packet(i), i == 0);
    for (const auto& [uuid, begun] : open_)
      EXPECT_EQ(begun, 0) << "a slice of " << uuid << " is open";
  }

  /// "rank 0: compute"
  [[nodiscard]] std::map<std::string, Track> tracks() const {
    std::map<std::string, Track> named;
    for (const auto& [uuid, track] : tracks_) {
      const bool is_new = named.emplace(track.parent + ": " + track.name, track).second;
      EXPECT_TRUE(is_new) << track.name;
    }
    return named;
  }
  [[nodiscard]] int packets() const { return packets_; }
  [[nodiscard]] int interned() const { return interned_; }

 private:
  void read(const TracePacket& packet, bool first) {
    EXPECT_EQ(packet.trusted_packet_sequence_id(), 1U);
    EXPECT_EQ(packet.sequence_flags(), first ? 1U : 2U);
    EXPECT_EQ(packet.first_packet_on_sequence(), first);
    learn(packet.interned_data().event_names(), names_);
    learn(packet.interned_data().event_categories(), categories_);
    learn(packet.interned_data().debug_annotation_names(), annotations_);
    if (packet.has_track_descriptor()) describe(packet.track_descriptor());
    if (packet.has_track_event()) happen(packet.track_event(), packet.timestamp());
  }

  template <typename Entries>
  void learn(const Entries& entries, std::map<std::uint64_t, std::string>& known) {
    for (const perfetto::InternedString& entry : entries) {
      EXPECT_TRUE(known.emplace(entry.iid(), entry.name()).second) << entry.name() << " came twice";
      ++interned_;
    }
  }

  void describe(const perfetto::TrackDescriptor& descriptor) {
    Track track;
    track.name = descriptor.name();
    if (descriptor.has_process()) {
      track.name = descriptor.process().process_name();
      processes_[descriptor.process().pid()] = track.name;
    } else if (descriptor.has_thread()) {
      track.name = descriptor.thread().thread_name();
      track.parent = processes_.at(descriptor.thread().pid());
    } else {
      track.parent = tracks_.at(descriptor.parent_uuid()).name;
      track.order = descriptor.sibling_order_rank();
    }
    EXPECT_TRUE(tracks_.emplace(descriptor.uuid(), track).second) << "two tracks with one id";
  }

  void happen(const TrackEvent& event, std::uint64_t time) {
    Track& track = tracks_.at(event.track_uuid());
    if (event.type() == TrackEvent::TYPE_COUNTER) {
      track.counts.push_back(event.counter_value());
      track.count_times.push_back(time);
    } else if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) {
      begin(event, time, track);
    } else {
      ASSERT_EQ(event.type(), TrackEvent::TYPE_SLICE_END);
      ASSERT_EQ(open_[event.track_uuid()]--, 1) << "an end without begin";
      track.slices.back().end = time;
      EXPECT_GE(time, track.slices.back().begin);
    }
  }

  void begin(const TrackEvent& event, std::uint64_t time, Track& track) {
    EXPECT_EQ(open_[event.track_uuid()]++, 0) << "slices of one stream overlap";
    EXPECT_GE(time, track.slices.empty() ? 0 : track.slices.back().end);
    ASSERT_EQ(event.category_iids_size(), 1);
    Slice slice{names_.at(event.name_iid()), categories_.at(event.category_iids(0)), time, 0, {}};
    for (const perfetto::DebugAnnotation& annotation : event.debug_annotations()) {
      slice.annotations[annotations_.at(annotation.name_iid())] =
          annotation.has_string_value() ? annotation.string_value()
          : annotation.has_int_value()  ? std::to_string(annotation.int_value())
                                        : std::to_string(annotation.double_value());
    }
    track.slices.push_back(slice);
  }

  std::map<std::uint64_t, std::string> names_, categories_, annotations_;
  std::map<int, std::string> processes_;
  std::map<std::uint64_t, Track> tracks_;
  std::map<std::uint64_t, int> open_;
  int packets_ = 0;
  int interned_ = 0;
};

std::string written(const Program& program, const Timeline& timeline,
                    const std::vector<MemorySample>* samples = nullptr) {
  std::ostringstream out;
  write_perfetto(program, timeline, samples, out);
  return out.str();
}

// ---- tests -----------------------------------------------------------------------------------

TEST(Perfetto, OneProcessARankClassOneTrackAStream) {
  const std::map<std::string, Track> tracks =
      Reader(written(small_program(), small_timeline())).tracks();
  std::vector<std::string> names;
  for (const auto& [name, track] : tracks) names.push_back(name);
  EXPECT_THAT(
      names,
      ElementsAre(": rank 0 (3 ranks alike)", ": rank 3", "rank 0 (3 ranks alike): compute",
                  "rank 0 (3 ranks alike): host thread", "rank 0 (3 ranks alike): nccl:WORLD",
                  "rank 3: compute", "rank 3: host thread", "rank 3: nccl:WORLD"));
  EXPECT_EQ(tracks.at("rank 3: compute").order, 0);
  EXPECT_EQ(tracks.at("rank 3: nccl:WORLD").order, 1);
}

TEST(Perfetto, EverySpanIsOneSliceWithItsTimesInNanoseconds) {
  const Timeline timeline = small_timeline();
  const std::map<std::string, Track> tracks = Reader(written(small_program(), timeline)).tracks();
  std::size_t slices = 0;
  for (const auto& [name, track] : tracks) slices += track.slices.size();
  EXPECT_EQ(slices, timeline.spans.size() + timeline.host_spans.size());

  const std::vector<Slice>& compute = tracks.at("rank 3: compute").slices;
  ASSERT_EQ(compute.size(), 2U);
  EXPECT_EQ(compute[0].begin, 6500U);                                 // 6.4999 us
  EXPECT_EQ(compute[0].end, 333'333U);                                // 1/3 ms
  EXPECT_EQ(compute[1].begin, 333'333U);                              // touches
  EXPECT_EQ(compute[1].end, 333'333U);                                // a tenth of a nanosecond
  EXPECT_EQ(tracks.at("rank 3: nccl:WORLD").slices[0].begin, 1429U);  // 10/7 us = 1428.57 ns

  // All of them, at 1 ns: |written - exact| <= 0.5 ns.
  std::map<std::string, std::size_t> next;
  for (const Span& span : timeline.spans) {
    const std::string track =
        std::string(span.rank_class == 0 ? "rank 0 (3 ranks alike)" : "rank 3") +
        (span.stream == kComputeStream ? ": compute" : ": nccl:WORLD");
    const Slice& slice = tracks.at(track).slices.at(next[track]++);
    EXPECT_NEAR(static_cast<double>(slice.begin), span.start.count() * 1e9, 0.5 + 1e-6);
    EXPECT_NEAR(static_cast<double>(slice.end), span.end.count() * 1e9, 0.5 + 1e-6);
  }
}

TEST(Perfetto, SlicesSayWhatTheyAre) {
  const std::map<std::string, Track> tracks =
      Reader(written(small_program(), small_timeline())).tracks();
  const Slice& gemm = tracks.at("rank 3: compute").slices.at(0);
  EXPECT_EQ(gemm.name, "gemm_forward");
  EXPECT_EQ(gemm.category, "kernel");
  EXPECT_EQ(gemm.annotations, (std::map<std::string, std::string>{{"flops", "2000000000.000000"},
                                                                  {"bytes", "4096"},
                                                                  {"dtype", "bf16"},
                                                                  {"module", "model.layers.0.mlp"},
                                                                  {"phase", "fwd"},
                                                                  {"step", "2"},
                                                                  {"micro_step", "0"}}));
  const Slice& gather = tracks.at("rank 3: nccl:WORLD").slices.at(0);
  EXPECT_EQ(gather.name, "all_gather_into_tensor");
  EXPECT_EQ(gather.category, "collective");
  EXPECT_EQ(gather.annotations, (std::map<std::string, std::string>{{"input_elements", "100"},
                                                                    {"output_elements", "400"},
                                                                    {"dtype", "bf16"},
                                                                    {"group", "WORLD"},
                                                                    {"group_size", "4"},
                                                                    {"phase", "fwd"},
                                                                    {"step", "2"},
                                                                    {"micro_step", "0"},
                                                                    {"rule", "C4.3"}}));
  const Slice& copy = tracks.at("rank 3: compute").slices.at(1);
  EXPECT_EQ(copy.name, "copy_device_to_host");
  EXPECT_EQ(copy.annotations.at("bytes"), "64");

  std::vector<std::string> host;
  for (const Slice& slice : tracks.at("rank 3: host thread").slices) {
    host.push_back(slice.category + " " + slice.name);
  }
  EXPECT_THAT(host, ElementsAre("host kernel_launch", "host collective_launch", "host copy",
                                "host_wait wait_for_device"));
}

TEST(Perfetto, PassesOverHostMemoryHaveTheirNames) {
  Program program = small_program();
  for (RankProgram& rank : program.ranks) {
    rank.host_passes = {{"cpu_adam", Bytes(1)}};
    rank.ops[3].kind = OpKind::Host;
    rank.ops[3].payload = 0;
  }
  Timeline timeline = small_timeline();
  for (HostSpan& host : timeline.host_spans) host.waiting = false;
  const std::map<std::string, Track> tracks = Reader(written(program, timeline)).tracks();
  EXPECT_EQ(tracks.at("rank 3: host thread").slices.back().name, "cpu_adam");
}

TEST(Perfetto, SendsEachNameOnce) {
  const Program program = small_program();
  Timeline timeline = small_timeline();
  const Reader once(written(program, timeline));  // the reader refuses names that come twice
  timeline.spans.push_back(span(1, 0, 0, 1, 2));
  const Reader more(written(program, timeline));
  EXPECT_EQ(more.interned(), once.interned());
  EXPECT_EQ(more.packets(), once.packets() + 2);  // begin and end
}

TEST(Perfetto, CountsMemoryOfTheFirstRankClass) {
  const std::vector<MemorySample> samples = {
      {Seconds(0), Bytes(512)}, {Seconds(1.4e-9), Bytes(5'000'000'000)}, {Seconds(2e-6), Bytes(0)}};
  const std::map<std::string, Track> tracks =
      Reader(written(small_program(), small_timeline(), &samples)).tracks();
  const Track& memory = tracks.at("rank 0 (3 ranks alike): allocated memory");
  EXPECT_THAT(memory.counts, ElementsAre(512, 5'000'000'000, 0));
  EXPECT_THAT(memory.count_times, ElementsAre(0U, 1U, 2000U));
  EXPECT_EQ(tracks.count("rank 3: allocated memory"), 0U);
}

TEST(Perfetto, SameInputSameBytes) {
  EXPECT_EQ(written(small_program(), small_timeline()), written(small_program(), small_timeline()));
}

TEST(Perfetto, AnEmptyTimelineIsATraceOfTracks) {
  const Reader reader(written(small_program(), Timeline{}));
  EXPECT_EQ(reader.packets(), 2 * 4);  // process, host thread, two streams
}

TEST(Perfetto, ASimulatedStepOfStage3) {
  TrainingFlags flags;
  flags.micro_batch = 1;
  constexpr int kRanks = 8;
  BatchShape batch;
  batch.sequence = 512;
  const Program program = build_program(load_model("gpt2"), named_strategy("zero3", flags, kRanks),
                                        batch, {kRanks, 2, 1});
  Engine engine(load_cluster("dgx-a100-80", 1, kRanks));
  MemoryLedger ledger(program, true);
  const Timeline timeline = engine.run(program, &ledger);
  const std::vector<Op>& ops = program.ranks[0].ops;
  const auto device_operations = std::count_if(ops.begin(), ops.end(), [](const Op& op) {
    return op.kind == OpKind::Kernel || op.kind == OpKind::Copy || op.kind == OpKind::Collective;
  });
  ASSERT_EQ(timeline.spans.size(), static_cast<std::size_t>(device_operations));

  // The reader refuses slices that overlap on their track.
  const Reader reader(written(program, timeline, &ledger.samples(0)));
  std::size_t slices = 0;
  for (const auto& [name, track] : reader.tracks()) {
    slices += track.slices.size();
    if (name.ends_with(": allocated memory")) {
      EXPECT_EQ(track.counts.size(), ledger.samples(0).size());
      EXPECT_EQ(*std::max_element(track.counts.begin(), track.counts.end()),
                ledger.peak(0).allocated.count());
    }
  }
  EXPECT_EQ(slices, timeline.spans.size() + timeline.host_spans.size());
}

// ---- outputs that take no more ---------------------------------------------------------------

/// Takes so many bytes and no more, as a full disk.
class FullDisk : public std::streambuf {
 public:
  explicit FullDisk(std::streamsize room) : room_(room) {}

 protected:
  std::streamsize xsputn(const char* /*text*/, std::streamsize count) override {
    const std::streamsize taken = std::min(count, room_);
    room_ -= taken;
    return taken;
  }
  int_type overflow(int_type c) override {
    return room_-- > 0 ? traits_type::not_eof(c) : traits_type::eof();
  }

 private:
  std::streamsize room_;
};

TEST(Perfetto, SaysThatTheOutputTakesNoMore) {
  const Program program = small_program();
  const Timeline timeline = small_timeline();
  const auto size = static_cast<std::streamsize>(written(program, timeline).size());
  for (const std::streamsize room : {std::streamsize{0}, size / 2, size - 1}) {
    FullDisk disk(room);
    std::ostream out(&disk);
    try {
      write_perfetto(program, timeline, nullptr, out);
      ADD_FAILURE() << "no error with room for " << room << " of " << size << " bytes";
    } catch (const BackendError& error) {
      EXPECT_STREQ(error.what(),
                   "the trace cannot be written: the output takes no more; is the disk full?");
    }
  }
  FullDisk disk(size);
  std::ostream out(&disk);
  EXPECT_NO_THROW(write_perfetto(program, timeline, nullptr, out));
}

TEST(Perfetto, NamesTheFileThatCannotBeOpened) {
  try {
    write_perfetto("/no/such/folder/a.pftrace", small_program(), small_timeline());
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "/no/such/folder/a.pftrace: cannot be opened for writing: No such file or "
                 "directory");
  }
}

TEST(Perfetto, NamesTheFileThatTakesNoMore) {
  try {
    write_perfetto("/dev/full", small_program(), small_timeline());
    ADD_FAILURE() << "no error";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/full: the trace cannot be written"));
  }
}

}  // namespace
}  // namespace zerosim
