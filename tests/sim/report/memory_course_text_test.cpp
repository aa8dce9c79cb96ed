#include "sim/report/memory_course_text.h"

#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "tests/sim/report/reports.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::lines_of;
using ::testing::Not;
using ::testing::StartsWith;
Program program() {
  Program made;
  made.strategy = "zero2";
  made.module_names = {"", "layer", "with,comma"};
  made.ranks.emplace_back();
  made.ranks.front().streams.push_back({"compute", GroupId()});
  return made;
}

MemoryEvent event(Phase phase, int step, Bytes parameters, Bytes activations, Bytes reserved) {
  MemoryEvent made;
  made.phase = phase;
  made.step = step;
  made.module = ModuleId(1);
  made.owner = "saved_activation";
  made.memory_class = MemoryClass::Activations;
  made.stream = kComputeStream;
  made.bytes = activations;
  made.allocated = made.active = parameters + activations;
  made.reserved = reserved;
  made.by_class[static_cast<std::size_t>(MemoryClass::Parameters)] = parameters;
  made.by_class[static_cast<std::size_t>(MemoryClass::Activations)] = activations;
  return made;
}

/// 4 GiB of parameters; 8 GiB more in forward, 4 in backward; 14 GiB reserved from the forward on.
/// Twelve events of each, so that 4 + 12 + 12 events are shown by as many columns.
std::vector<MemoryEvent> course() {
  std::vector<MemoryEvent> events(8, event(Phase::Init, 0, 4_GiB, Bytes(), 4_GiB));
  for (int i = 0; i < 12; ++i) events.push_back(event(Phase::Forward, 0, 4_GiB, 8_GiB, 14_GiB));
  for (int i = 0; i < 12; ++i) events.push_back(event(Phase::Backward, 0, 4_GiB, 4_GiB, 14_GiB));
  return events;
}

constexpr MemoryPlotOptions kSmall{40, 8};  // 32 columns for 32 events

TEST(MemoryPlot, StacksClassesBelowWhatIsReservedAndTheLimit) {
  // 15.2 GiB x 1.05 = 16 GiB at the top: 2 GiB a row.
  const Bytes limit(static_cast<std::int64_t>(16.0 / 1.05 * (1 << 30)));
  const std::vector<std::string> lines = lines_of(memory_plot(program(), course(), limit, kSmall));
  const std::vector<std::string> plot(lines.begin() + 2, lines.begin() + 13);
  EXPECT_THAT(
      plot,
      ElementsAre(
          "  15.2 |================================", "       |        *.......................",
          "       |        AAAAAAAAAAAA............", "   8.0 |        AAAAAAAAAAAA............",
          "       |        AAAAAAAAAAAAAAAAAAAAAAAA", "       |        AAAAAAAAAAAAAAAAAAAAAAAA",
          "       |PPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPP", "   0.0 |PPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPP",
          "       +--------+-----------------------", "        init    first step",
          "  phase iiiiiiiiffffffffffffbbbbbbbbbbbb"));
}

TEST(MemoryPlot, SaysWhatThePeakIs) {
  EXPECT_THAT(memory_plot(program(), course(), 16_GiB),
              HasSubstr("* peak: 12.00 GiB allocated, 14.00 GiB reserved then, at event 8 of 32: "
                        "saved_activation in layer\n(first step, phase \"fwd\")\n"));
}

TEST(MemoryPlot, StaysPlainAndWithinItsColumns) {
  for (const std::size_t columns : {40U, 80U, 100U}) {
    const std::string plot =
        memory_plot(program(), course(), 16_GiB, {static_cast<int>(columns), 20});
    EXPECT_TRUE(testing::is_plain_ascii(plot));
    EXPECT_LE(testing::widest_line(plot), 100U);
    const std::vector<std::string> lines = lines_of(plot);
    const auto axis = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.find("+--") != std::string::npos;
    });
    ASSERT_NE(axis, lines.end());
    EXPECT_EQ(axis->size(), columns);
  }
}

TEST(MemoryPlot, EndsAboveWhatIsUsedIfThatIsLittle) {
  // 14 of 80 GiB: the top is at 14.7, and no limit is drawn.
  const std::string plot = memory_plot(program(), course(), 80_GiB, kSmall);
  EXPECT_THAT(plot,
              StartsWith("zero2: memory of the job, GiB; about 1 events a column; the GPU has "
                         "80.0 GiB for it, above the plot\n"));
  EXPECT_THAT(plot, Not(HasSubstr("=")));
}

TEST(MemoryPlot, ALimitBelowThePeakIsDrawnAcross) {
  // 14 x 1.05 = 14.7 at the top, 1.84 a row: 9 GiB are in row 4, whose middle, 8.27, activations
  // reach in forward only.
  const std::vector<std::string> lines = lines_of(memory_plot(program(), course(), 9_GiB, kSmall));
  EXPECT_THAT(lines, ::testing::Contains("   9.0 |========AAAAAAAAAAAA============"));
}

TEST(MemoryPlot, MarksFlushesAndTheFailureOnTheGpu) {
  std::vector<MemoryEvent> events = course();
  events[10].flushed = true;
  events[20].failed = events[20].flushed = true;
  const std::string plot = memory_plot(program(), events, 16_GiB, kSmall);
  EXPECT_THAT(plot, HasSubstr("\n    GPU           !         X\n"));
  EXPECT_THAT(plot, EndsWith("s step; GPU: ! cache flushed, X out of memory\n"));
  EXPECT_THAT(memory_plot(program(), course(), 16_GiB, kSmall), Not(HasSubstr("GPU:")));
}

TEST(MemoryPlot, FewEventsAreRepeated) {
  const std::vector<MemoryEvent> one = {event(Phase::Init, 0, 1_GiB, Bytes(), 1_GiB)};
  EXPECT_THAT(lines_of(memory_plot(program(), one, 1_GiB, kSmall)),
              ::testing::Contains("   0.0 |" + std::string(32, 'P')));
  const std::string plot = memory_plot(program(), course(), 16_GiB);  // 92 columns for 32 events
  EXPECT_EQ(std::count(plot.begin(), plot.end(), '*'), 2);            // the mark and its legend
  EXPECT_EQ(memory_plot(program(), {}, 1_GiB), "nothing is allocated on the device\n");
}

TEST(MemoryCsv, HasARowForEachChange) {
  std::vector<MemoryEvent> events = {
      event(Phase::Init, 0, Bytes(512), Bytes(), Bytes(2048)),
      event(Phase::Backward, 2, Bytes(512), Bytes(1024), Bytes(4096))};
  events[1].micro_step = 3;
  events[1].module = ModuleId(2);
  events[1].bytes = Bytes(-700);
  events[1].active = Bytes(1600);
  events[1].flushed = true;
  MemoryEvent emptied;
  emptied.emptied = true;
  emptied.phase = Phase::Init;
  emptied.reserved = Bytes(2048);
  events.push_back(emptied);
  std::ostringstream out;
  write_memory_csv(program(), events, out);
  EXPECT_EQ(
      out.str(),
      "event,step,micro_step,phase,module,owner,class,stream,bytes,allocated,active,reserved,"
      "parameters,gradients,optimizer_states,activations,logits,temporary_buffers,"
      "live_parameters,on_gpu\n"
      "0,0,0,init,layer,saved_activation,activations,compute,0,512,512,2048,512,0,0,0,0,0,0,\n"
      "1,2,3,bwd,\"with,comma\",saved_activation,activations,compute,-700,1536,1600,4096,512,"
      "0,0,1024,0,0,0,flush\n2,0,0,init,,,,,0,0,0,2048,0,0,0,0,0,0,0,empty_cache\n");
}

TEST(MemoryCsv, SaysWhatCannotBeWritten) {
  try {
    write_memory_csv("/no_such_folder/timeline.csv", program(), course());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("/no_such_folder/timeline.csv: cannot be opened for writing: No such"));
  }
  std::ostringstream broken;
  broken.setstate(std::ios::badbit);
  EXPECT_THROW(write_memory_csv(program(), course(), broken), BackendError);
}

}  // namespace
}  // namespace zerosim
