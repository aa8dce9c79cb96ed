#include "validate/schedule_check.h"

#include <algorithm>
#include <random>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/validate/recordings.h"
#include "validate/recorded_model.h"

namespace zerosim {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// 17 collectives a step, steps 1 and 2 the same as step 0.
constexpr const char* kName = "ds_s2_bf16_b20k_w2";
// The second all-reduce of a step and the marker before it, on line 68.
constexpr const char* kSecond =
    R"(["c","all_reduce",0,"bwd",16832,16832,"bf16",0,0,"",1,{"redop":"SUM"}])";

ScheduleDifference difference_of(const std::string& text) {
  const Recording recording = parse_recording(text, "run.json");
  const auto difference = schedule_difference(recording, recorded_program(recording.description));
  EXPECT_TRUE(difference.has_value());
  return difference.value_or(ScheduleDifference{});
}

/// With the second collective of step 0 changed.
ScheduleDifference difference_with_second(const std::string& row) {
  return difference_of(test::changed(test::recording_text(kName), kSecond, row));
}

TEST(ScheduleCheck, FindsEachChangedField) {
  const auto fields = [](const std::string& row) {
    const ScheduleDifference difference = difference_with_second(row);
    EXPECT_EQ(difference.step, 0);
    EXPECT_EQ(difference.index, 1U);
    return difference.fields;
  };
  EXPECT_THAT(fields(R"(["c","reduce",0,"bwd",16832,16832,"bf16",0,0,"",1,null])"),
              ElementsAre("operation"));
  EXPECT_THAT(fields(R"(["c","all_reduce",0,"bwd",16832,16832,"bf16",0,0,"",1,{"redop":"AVG"}])"),
              ElementsAre("reduction"));
  EXPECT_THAT(fields(R"(["c","all_reduce",0,"step",16832,16832,"bf16",0,0,"",1,null])"),
              ElementsAre("phase"));
  EXPECT_THAT(fields(R"(["c","all_reduce",1,"bwd",16832,16832,"bf16",0,0,"",1,null])"),
              ElementsAre("micro step"));
  EXPECT_THAT(fields(R"(["c","all_reduce",0,"bwd",16833,16832,"bf16",0,0,"",1,null])"),
              ElementsAre("input elements"));
  EXPECT_THAT(fields(R"(["c","all_reduce",0,"bwd",16832,1,"bf16",0,0,"",1,null])"),
              ElementsAre("output elements"));
  EXPECT_THAT(fields(R"(["c","all_reduce",0,"bwd",16832,16832,"f32",0,0,"",1,null])"),
              ElementsAre("type"));
  EXPECT_THAT(fields(R"(["c","all_reduce",0,"bwd",16832,16832,"bf16",0,1,"",1,null])"),
              ElementsAre("async"));
  EXPECT_THAT(fields(R"(["c","all_reduce",0,"bwd",16832,16832,"bf16",0,0,"h.0",1,null])"),
              ElementsAre("module"));
  EXPECT_THAT(fields(R"(["c","broadcast",2,"fwd",16832,16832,"bf16",0,0,"",1,null])"),
              ElementsAre("operation", "phase", "micro step"));
}

// Infinities are found by the largest flag, not by their sum.
TEST(ScheduleCheck, ReductionsAreComparedWhereARowNamesOne) {
  const auto row = [](const std::string& extra) {
    return R"(["c","all_reduce",0,"step",1,1,"u8",0,0,"",2,)" + extra + "]";
  };
  const std::string text = test::recording_text(kName);
  const std::string maximum = row(R"({"redop":"MAX"})");
  const ScheduleDifference difference =
      difference_of(test::changed(text, maximum, row(R"({"redop":"SUM"})")));
  EXPECT_THAT(difference.fields, ElementsAre("reduction"));
  EXPECT_EQ(difference.recorded,
            "all_reduce SUM 1 -> 1 u8 on ranks 0,1, blocking, step of micro step 0");
  EXPECT_EQ(difference.simulated,
            "all_reduce MAX 1 -> 1 u8 on ranks 0,1, blocking, step of micro step 0");
  const Recording silent = parse_recording(test::changed(text, maximum, row("null")), "run.json");
  EXPECT_FALSE(schedule_difference(silent, recorded_program(silent.description)).has_value());
}

TEST(ScheduleCheck, AnUnknownOperationDiffers) {
  const ScheduleDifference difference = difference_with_second(
      R"(["c","all_reduce_coalesced",0,"bwd",16832,16832,"bf16",0,0,"",1,{"redop":"SUM"}])");
  EXPECT_EQ(difference.index, 1U);
  EXPECT_THAT(difference.fields, ElementsAre("operation"));
  EXPECT_THAT(difference.recorded, StartsWith("all_reduce_coalesced SUM 16832 -> 16832 bf16"));
}

constexpr const char* kFp16 = "ds_s1_fp16_clip_w2";

/// An fp16 run whose step 0, and with it all three steps, ends after the flag of infinities.
std::string overflowing_run() {
  std::string text = test::recording_text(kFp16);
  for (const char* row :
       {R"(["c","all_reduce",0,"step",1,1,"f32",0,0,"",3,{"redop":"SUM"}])",
        R"(["c","all_gather_into_tensor",0,"step",165056,330112,"f16",0,0,"",4,null])"}) {
    text = test::changed(text, std::string(",\n") + row, "");
  }
  return text;
}

TEST(ScheduleCheck, AStepThatMayHaveOverflowedNamesTheFlag) {
  const ScheduleDifference difference = difference_of(overflowing_run());
  EXPECT_EQ(difference.step, 0);
  EXPECT_EQ(difference.recorded, "none: the step ends before it");
  EXPECT_EQ(difference.hint,
            "the recorded step may have overflowed; of fp16, --overflow-steps 1 says that it did");
  // A step that ends elsewhere did not.
  const std::string last =
      R"(["c","all_gather_into_tensor",0,"step",165056,330112,"f16",0,0,"",4,null])";
  EXPECT_EQ(difference_of(test::changed(test::recording_text(kFp16), ",\n" + last, "")).hint, "");
}

TEST(ScheduleCheck, OverflowStepsEndAfterTheirFlag) {
  const Recording recording = parse_recording(overflowing_run(), "run.json");
  std::vector<std::string> assumptions;
  const auto row = [&](std::optional<int> overflow_steps) {
    return check_schedule(recording, assumptions, {overflow_steps});
  };
  EXPECT_EQ(row(3).result, ScheduleResult::Identical);
  ASSERT_EQ(row(2).result, ScheduleResult::Differs);
  EXPECT_EQ(row(2).difference->step, 2);
  EXPECT_THAT(row(2).difference->hint, HasSubstr("--overflow-steps 3"));
  ScheduleValidation validation;
  validation.rows = {row(2)};
  EXPECT_THAT(schedule_validation_text(validation),
              HasSubstr("\n    hint       the recorded step may have overflowed; "));
  EXPECT_EQ(schedule_validation_json(validation)["rows"][0]["difference"]["hint"].asString(),
            row(2).difference->hint);
}

TEST(ScheduleCheck, AFileThatCannotBeReadIsARow) {
  const std::string good = test::recording_path(kName);
  const ScheduleValidation validation = validate_schedules({"no_such.json", good});
  ASSERT_EQ(validation.rows.size(), 2U);
  EXPECT_EQ(validation.rows[0].id, "no_such");
  EXPECT_EQ(validation.rows[0].result, ScheduleResult::Failed);
  EXPECT_THAT(validation.rows[0].reason, HasSubstr("no_such.json"));
  EXPECT_EQ(validation.rows[1].result, ScheduleResult::Identical);
  EXPECT_FALSE(all_identical(validation));
  EXPECT_THAT(schedule_validation_text(validation), HasSubstr("1 of 2 recordings identical"));
  // None: there is no answer at all.
  EXPECT_THAT(test::config_error_of([] {
                static_cast<void>(validate_schedules({"no_such.json", "nor_this.json"}));
              }),
              AllOf(StartsWith("no_such.json"), HasSubstr("; nor_this.json")));
}

TEST(ScheduleCheck, GroupsAreComparedByTheirRanks) {
  // A second number for the same ranks is the same group; other ranks are not.
  const std::string row = R"(["c","all_reduce",0,"bwd",16832,16832,"bf16",1,0,"",1,null])";
  const std::string text = test::changed(test::recording_text(kName), kSecond, row);
  const std::string same = test::changed(text, "\"groups\":[\n", "\"groups\":[\n[0,1],");
  const Recording recording = parse_recording(same, "run.json");
  EXPECT_FALSE(schedule_difference(recording, recorded_program(recording.description)).has_value());
  const std::string other = test::changed(text, "\"groups\":[\n[0,1]", "\"groups\":[\n[0,1],[0]");
  EXPECT_THAT(difference_of(other).fields, ElementsAre("group"));
}

TEST(ScheduleCheck, FindsADroppedRow) {
  const std::string text =
      test::changed(test::recording_text(kName), std::string(kSecond) + ",\n", "");
  const ScheduleDifference difference = difference_of(text);
  // Third in place of second: 16,576 elements against 16,832.
  EXPECT_EQ(difference.index, 1U);
  EXPECT_THAT(difference.fields, ElementsAre("input elements", "output elements"));
}

TEST(ScheduleCheck, FindsAnotherOrder) {
  const std::string norm = R"(["c","all_reduce",0,"step",1,1,"f32",0,0,"",3,{"redop":"SUM"}],)";
  const std::string overflow = R"(["c","all_reduce",0,"step",1,1,"u8",0,0,"",2,{"redop":"MAX"}],)";
  const ScheduleDifference difference = difference_of(
      test::changed(test::recording_text(kName), overflow + "\n" + norm, norm + "\n" + overflow));
  EXPECT_EQ(difference.index, 14U);  // after the 14 buckets of the backward
  EXPECT_THAT(difference.fields, ElementsAre("reduction", "type"));
}

TEST(ScheduleCheck, FindsALaterStep) {
  const std::string row = R"(["c","all_reduce",0,"bwd",7,7,"bf16",0,0,"",1,null])";
  const ScheduleDifference difference = difference_of(
      test::changed(test::recording_text(kName), R"("2":"same as 0")", "\"2\":[" + row + "]"));
  EXPECT_EQ(difference.step, 2);
  EXPECT_EQ(difference.index, 0U);
}

TEST(ScheduleCheck, OneSideEndsEarly) {
  const std::string last =
      R"(["c","all_gather_into_tensor",0,"step",165056,330112,"bf16",0,0,"",4,null])";
  const std::string text = test::recording_text(kName);
  const ScheduleDifference shorter = difference_of(test::changed(text, ",\n" + last, ""));
  EXPECT_EQ(shorter.index, 16U);
  EXPECT_THAT(shorter.fields, IsEmpty());
  EXPECT_EQ(shorter.recorded, "none: the step ends before it");
  EXPECT_EQ(shorter.simulated,
            "all_gather_into_tensor 165056 -> 330112 bf16 on ranks 0,1, blocking, step of micro "
            "step 0");
  const ScheduleDifference longer = difference_of(test::changed(text, last, last + ",\n" + last));
  EXPECT_EQ(longer.index, 17U);
  EXPECT_EQ(longer.simulated, "none: the step ends before it");
  EXPECT_EQ(longer.rule, "");
  EXPECT_EQ(longer.recorded, shorter.simulated);
}

/// A program of collectives of one element, all else equal, in these coalesced groups.
Program coalesced_program(const std::vector<int>& groups) {
  Program program;
  program.world_size = 2;
  program.steps = kRecordedSteps;
  program.groups = {{"WORLD", 2}};
  RankProgram rank;
  for (const int group : groups) {
    Collective collective{.kind = CollectiveKind::AllGather,
                          .input_elements = 1,
                          .output_elements = 2,
                          .dtype = Dtype::Bf16,
                          .group = GroupId(0)};
    collective.coalesced = group;
    Op op;
    op.kind = OpKind::Collective;
    op.phase = Phase::Forward;
    op.payload = static_cast<std::int32_t>(rank.collectives.size());
    rank.collectives.push_back(collective);
    rank.ops.push_back(op);
  }
  program.ranks.push_back(rank);
  return program;
}

Recording coalesced_recording(const std::vector<int>& groups) {
  std::vector<std::string> rows;
  for (const int group : groups) {
    rows.push_back(R"(["c","all_gather_into_tensor",0,"fwd",1,2,"bf16",0,0,"",0,)" +
                   (group < 0 ? std::string("null]") : format("{{\"co\":{}}}]", group)));
  }
  return parse_recording(
      R"({"kind": "ddp", "versions": {"torch": "1.13.0"}, "spec": {"world": 2, "model": "mlp",
      "gas": 1}, "params": [], "groups": [[0, 1]], "events": {"0": [)" +
          join(rows, ",") + R"(], "1": [], "2": []}})",
      "run.json");
}

TEST(ScheduleCheck, CoalescedGroupsAreComparedAsAPartition) {
  const auto index = [](const std::vector<int>& recorded, const std::vector<int>& simulated) {
    const auto difference =
        schedule_difference(coalesced_recording(recorded), coalesced_program(simulated));
    if (!difference) return -1;
    EXPECT_THAT(difference->fields, ElementsAre("coalescing"));
    return static_cast<int>(difference->index);
  };
  EXPECT_EQ(index({7, 7, -1, 9, 9}, {0, 0, -1, 1, 1}), -1);
  EXPECT_EQ(index({7, -1}, {-1, 3}), -1);           // a group of one is none
  EXPECT_EQ(index({7, 7, 7}, {0, 0, -1}), 2);       // the third is alone
  EXPECT_EQ(index({7, 7, 8, 8}, {0, 0, 0, 0}), 2);  // two groups, one group
}

TEST(ScheduleCheck, UnrecordedCollectivesAreLeftOut) {
  Program program = coalesced_program({-1, -1});
  program.ranks.front().collectives.front().recorded = false;
  EXPECT_FALSE(schedule_difference(coalesced_recording({-1}), program).has_value());
}

TEST(ScheduleCheck, RootsAreComparedWhereBothNameOne) {
  const auto fields = [](int simulated) {
    Program program = coalesced_program({-1});
    program.ranks.front().collectives.front().root = simulated;
    std::string row = R"(["c","all_gather_into_tensor",0,"fwd",1,2,"bf16",0,0,"",0,{"dst":1}])";
    Recording recording = parse_recording(
        R"({"kind": "ddp", "versions": {"torch": "2.4.1"}, "spec": {"world": 2, "model": "mlp",
        "gas": 1}, "params": [], "groups": [[0, 1]], "events": {"0": [)" +
            row + R"(], "1": [], "2": []}})",
        "run.json");
    const auto difference = schedule_difference(recording, program);
    return difference ? difference->fields : std::vector<std::string>{};
  };
  EXPECT_THAT(fields(1), IsEmpty());
  EXPECT_THAT(fields(-1), IsEmpty());
  EXPECT_THAT(fields(0), ElementsAre("root"));
}

TEST(ScheduleCheck, TextOfADifference) {
  const std::string text =
      test::changed(test::recording_text(kName), kSecond,
                    R"(["c","all_reduce",0,"bwd",16840,16840,"bf16",0,0,"",1,{"redop":"SUM"}])");
  ScheduleValidation validation;
  validation.rows.push_back(
      check_schedule(parse_recording(text, "runs/changed.json"), validation.assumptions));
  EXPECT_EQ(
      schedule_validation_text(validation),
      "differs    changed\n"
      "    step 0, collective 1: input elements, output elements\n"
      "    recorded   all_reduce SUM 16840 -> 16840 bf16 on ranks 0,1, blocking, bwd of micro step "
      "0\n"
      "               at runs/changed.json:68:1\n"
      "    simulated  all_reduce SUM 16832 -> 16832 bf16 on ranks 0,1, blocking, bwd of micro step "
      "0, module h.3.mlp.fc1\n"
      "               by rule B3.6\n"
      "    before it  flush_bucket of 16832 elements: ln_f.weight, ln_f.bias, h.3.mlp.fc2.bias "
      "and 2 more\n"
      "0 of 1 recordings identical\n");
  EXPECT_FALSE(all_identical(validation));
}

TEST(ScheduleCheck, MarkersAfterItWhereNoneStandsBefore) {
  const std::string marker = R"(["m","flush_bucket",0,"bwd",64000,"",{"params":["head.weight"]}],)";
  const std::string text =
      test::changed(test::recording_text(kName), marker + "\n[\"c\",\"all_reduce\",0,\"bwd\",64000",
                    "[\"c\",\"all_reduce\",0,\"bwd\",64001");
  const ScheduleDifference difference = difference_of(text);
  EXPECT_TRUE(difference.markers_follow);
  EXPECT_THAT(difference.markers, ElementsAre(HasSubstr("flush_bucket of 16832 elements: ln_f")));
}

// Markers are compared on request: kind, place, parameters in any order.
TEST(ScheduleCheck, MarkersDifferOnRequest) {
  const std::string name = "ds_s3_bf16_leaf_w2";
  const std::string text = test::recording_text(name);
  const auto row = [](const std::string& run, bool markers) {
    std::vector<std::string> assumptions;
    return check_schedule(parse_recording(run, "runs/r.json"), assumptions, {{}, markers});
  };
  EXPECT_EQ(row(text, true).result, ScheduleResult::Identical);
  const std::string release = R"(["m","release",0,"fwd",64000,"wte",{"params":["wte.weight"]}])";
  const std::string other = R"(["m","release",0,"fwd",64000,"wte",{"params":["wpe.weight"]}])";
  EXPECT_EQ(row(test::changed(text, release, other), false).result, ScheduleResult::Identical);
  ScheduleValidation validation;
  validation.rows = {row(test::changed(text, release, other), true)};
  ASSERT_EQ(validation.rows[0].result, ScheduleResult::Differs);
  EXPECT_THAT(validation.rows[0].difference->fields, ElementsAre("parameters"));
  EXPECT_THAT(schedule_validation_text(validation),
              HasSubstr("    step 0, marker 3: parameters\n"
                        "    recorded   release of 64000 elements, module wte: wpe.weight, fwd of "
                        "micro step 0, after 3 collectives\n"));
  EXPECT_TRUE(schedule_validation_json(validation)["rows"][0]["difference"]["is_marker"].asBool());
  // Without any, and of FSDP, the row says so.
  EXPECT_EQ(row(test::recording_text("ds_s3_bf16_w2"), true).reason,
            "markers not compared: it has none");
  EXPECT_EQ(row(test::recording_text("fsdp_full_pre_w2"), true).reason,
            "markers not compared: a Program has none of FSDP's");
  // One that is not there.
  const ScheduleRow missing = row(test::changed(text, release + ",\n", ""), true);
  ASSERT_EQ(missing.result, ScheduleResult::Differs);
  EXPECT_THAT(missing.difference->simulated, StartsWith("release of 64000 elements, module wte"));
}

TEST(ScheduleCheck, JsonHoldsTheDifference) {
  const std::string text =
      test::changed(test::recording_text(kName), kSecond,
                    R"(["c","all_reduce",0,"bwd",16832,16832,"f16",0,0,"",1,null])");
  ScheduleValidation validation;
  for (const std::string& run : {test::recording_text(kName), text}) {
    validation.rows.push_back(
        check_schedule(parse_recording(run, "runs/r.json"), validation.assumptions));
  }
  const JsonValue json = schedule_validation_json(validation);
  EXPECT_EQ(json["version"].asInt(), 1);
  EXPECT_EQ(json["rows"][0]["id"].asString(), "r");
  EXPECT_EQ(json["rows"][0]["result"].asString(), "identical");
  EXPECT_EQ(json["rows"][0]["collectives"][2].asInt(), 17);
  EXPECT_TRUE(json["rows"][0]["difference"].isNull());
  EXPECT_EQ(json["rows"][1]["result"].asString(), "differs");
  EXPECT_EQ(json["rows"][1]["difference"]["index"].asInt(), 1);
  EXPECT_EQ(json["rows"][1]["difference"]["fields"][0].asString(), "type");
  EXPECT_EQ(json["rows"][1]["difference"]["where"].asString(), "runs/r.json:68:1");
  EXPECT_EQ(json["summary"]["count"].asInt(), 2);
  EXPECT_EQ(json["summary"]["passed"].asInt(), 1);
  EXPECT_EQ(json["summary"]["failed"].asInt(), 1);
  EXPECT_EQ(json["summary"]["skipped"].asInt(), 0);
  EXPECT_GT(json["assumptions"].size(), 0U);
}

TEST(ScheduleCheck, WhatCannotBeBuiltFailsWithItsReason) {
  const std::string text =
      test::changed(test::recording_text("fsdp_full_pre_w2"), "FULL_SHARD", "HYBRID_SHARD");
  ScheduleValidation validation;
  validation.rows.push_back(
      check_schedule(parse_recording(text, "f.json"), validation.assumptions));
  EXPECT_EQ(schedule_validation_text(validation),
            "failed     f\n    fsdp_full: PyTorch 1.13 has no hybrid sharding, expected 2\n"
            "0 of 1 recordings identical\n");
  EXPECT_FALSE(all_identical(validation));
}

TEST(ScheduleCheck, UnknownKeysOfTheSpecAreAssumptions) {
  const std::string text =
      test::changed(test::recording_text(kName), R"("spec":{)", R"("spec":{"colour":"red",)");
  std::vector<std::string> assumptions;
  EXPECT_EQ(check_schedule(parse_recording(text, "f.json"), assumptions).result,
            ScheduleResult::Identical);
  EXPECT_EQ(assumptions.front(), "f.json: spec.colour is not known and not followed");
}

TEST(ScheduleCheck, NothingIsNotIdentical) {
  EXPECT_FALSE(all_identical(ScheduleValidation{}));
}

/// One thing gone wrong with a file: a character, a line missing, a line twice.
std::string damaged(std::string text, std::mt19937_64& random) {
  constexpr std::string_view kCharacters = "0123456789-.,:[]{}\" abf";
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  const std::size_t place = below(text.size());
  const std::size_t begin = text.rfind('\n', place) + 1;  // npos + 1 == 0
  const std::size_t end = std::min(text.find('\n', place), text.size() - 1) + 1;
  switch (below(4)) {
    case 0:
      return text.erase(begin, end - begin);
    case 1:
      return text.insert(begin, text.substr(begin, end - begin));
    default:
      text[place] = kCharacters[below(kCharacters.size())];
      return text;
  }
}

class DamagedRecording : public testing::TestWithParam<const char*> {};

TEST_P(DamagedRecording, OnlyEndsInErrors) {
  const std::string text = test::recording_text(GetParam());
  std::mt19937_64 random(7);
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    const std::string bad = damaged(damaged(text, random), random);
    std::vector<std::string> assumptions;
    try {
      const ScheduleRow row = check_schedule(parse_recording(bad, "bad.json"), assumptions);
      refused += row.result == ScheduleResult::Failed ? 1 : 0;
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Runs, DamagedRecording,
                         testing::Values("ddp_fp32_large_cap5_gas4_w2", "ds_s1_bf16_tied_b20k_w2",
                                         "ds_s2_bf16_llama_lora_gas4_w2",
                                         "ds_s2_bf16_moe_ranks_b20k_w2"),
                         [](const auto& run) { return std::string(run.param); });

}  // namespace
}  // namespace zerosim
