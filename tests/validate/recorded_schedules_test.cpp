// Every recorded run of tests/data/deepspeed_golden against the Program built from its description.

#include <gtest/gtest.h>

#include "tests/validate/recordings.h"
#include "validate/recorded_model.h"
#include "validate/schedule_check.h"

namespace zerosim {
namespace {

class RecordedSchedules : public testing::TestWithParam<std::string> {};

// Most copies of stage 3 have no markers to compare.
TEST_P(RecordedSchedules, Identical) {
  ScheduleCheck check;
  check.markers = true;
  const ScheduleValidation validation =
      validate_schedules({test::recording_path(GetParam())}, check);
  ASSERT_EQ(validation.rows.size(), 1U);
  EXPECT_EQ(validation.rows.front().id, GetParam());
  EXPECT_TRUE(all_identical(validation)) << schedule_validation_text(validation);
  EXPECT_GT(validation.rows.front().collectives.front(), 0);
}

void expect_equal(const Collective& a, const Collective& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.input_elements, b.input_elements);
  EXPECT_EQ(a.output_elements, b.output_elements);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.async, b.async);
  EXPECT_EQ(a.recorded, b.recorded);
  EXPECT_EQ(a.coalesced, b.coalesced);
  EXPECT_EQ(a.reduction, b.reduction);
  EXPECT_EQ(a.root, b.root);
}

void expect_equal(const Program& a, const Program& b) {
  const RankProgram& x = a.ranks.front();
  const RankProgram& y = b.ranks.front();
  ASSERT_EQ(x.ops.size(), y.ops.size());
  for (std::size_t i = 0; i < x.ops.size(); ++i) {
    SCOPED_TRACE(i);
    const Op& p = x.ops[i];
    const Op& q = y.ops[i];
    EXPECT_EQ(p.kind, q.kind);
    EXPECT_EQ(p.phase, q.phase);
    EXPECT_EQ(p.stream, q.stream);
    EXPECT_EQ(p.payload, q.payload);
    EXPECT_EQ(p.module, q.module);
    EXPECT_EQ(p.step, q.step);
    EXPECT_EQ(p.micro_step, q.micro_step);
    EXPECT_EQ(p.rule, q.rule);
    EXPECT_TRUE(std::ranges::equal(x.dependencies_of(p), y.dependencies_of(q)));
    if (testing::Test::HasFailure()) return;
  }
  ASSERT_EQ(x.collectives.size(), y.collectives.size());
  for (std::size_t i = 0; i < x.collectives.size(); ++i) {
    expect_equal(x.collectives[i], y.collectives[i]);
  }
}

// What is compared with the events must not have seen them.
TEST_P(RecordedSchedules, SameProgramWithoutEvents) {
  const std::string text = test::recording_text(GetParam());
  const std::string bare = test::without_events(text);
  ASSERT_EQ(bare.find("all_reduce\""), std::string::npos);
  expect_equal(recorded_program(parse_recording(text, "r.json").description),
               recorded_program(parse_recording_description(bare, "r.json")));
}

INSTANTIATE_TEST_SUITE_P(Golden, RecordedSchedules, testing::ValuesIn(test::recording_names()),
                         [](const auto& run) { return run.param; });

TEST(RecordedSchedulesFolder, IsNotEmpty) {
  EXPECT_EQ(test::recording_names().size(), 128U);
}

}  // namespace
}  // namespace zerosim
