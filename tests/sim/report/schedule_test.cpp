#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/report/report_text.h"
#include "tests/sim/report/reports.h"

namespace zerosim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

void add_op(RankProgram& rank, OpKind kind, Phase phase, std::size_t payload,
            std::string_view rule) {
  Op op;
  op.kind = kind;
  op.phase = phase;
  op.payload = static_cast<std::int32_t>(payload);
  op.stream = kind == OpKind::Collective ? StreamId(std::int32_t{1}) : kComputeStream;
  op.module = ModuleId(std::int32_t{1});
  op.step = 2;
  op.micro_step = 1;
  op.rule = rule;
  rank.ops.push_back(op);
}

void add_collective(RankProgram& rank, const Collective& collective, std::string_view rule) {
  rank.collectives.push_back(collective);
  add_op(rank, OpKind::Collective, Phase::Backward, rank.collectives.size() - 1, rule);
}

/// An allocation, a kernel, a gather, a broadcast from C++, an all-reduce.
Program sample_program() {
  Program program;
  program.strategy = "zero3";
  program.world_size = 4;
  program.first_step = 2;
  program.groups = {{"WORLD", 4}};
  program.module_names = {"", "model.layers.0"};
  RankProgram rank;
  rank.representative = Rank(std::int32_t{0});
  rank.streams = {{"compute", {}}, {"nccl:WORLD", GroupId(std::int32_t{0})}};

  rank.buffers.push_back({Bytes(4096), MemoryClass::LiveParameters, kComputeStream, "gathered"});
  add_op(rank, OpKind::Allocate, Phase::Forward, 0, "C4.3");
  Kernel kernel;
  kernel.name = "gemm_forward";
  kernel.flops = Flops(2e9);
  kernel.bytes = Bytes(3'000'000);
  rank.kernels.push_back(kernel);
  add_op(rank, OpKind::Kernel, Phase::Forward, 0, "");

  Collective gather;
  gather.kind = CollectiveKind::AllGather;
  gather.input_elements = 512;
  gather.output_elements = 2048;
  gather.group = GroupId(std::int32_t{0});
  gather.async = true;
  gather.coalesced = 7;
  add_collective(rank, gather, "C4.3");

  Collective broadcast;
  broadcast.kind = CollectiveKind::Broadcast;
  broadcast.input_elements = broadcast.output_elements = 10;
  broadcast.group = GroupId(std::int32_t{0});
  broadcast.dtype = Dtype::I32;
  broadcast.recorded = false;
  broadcast.root = 0;
  add_collective(rank, broadcast, "D1.2");

  Collective reduce;
  reduce.input_elements = reduce.output_elements = 1;
  reduce.group = GroupId(std::int32_t{0});
  reduce.dtype = Dtype::F32;
  add_collective(rank, reduce, "B5");
  program.ranks.push_back(rank);
  return program;
}

TEST(ScheduleJson, HasTheDocumentedKeysAndTheWordsOfRecordings) {
  const JsonValue json = schedule_json(sample_program());
  ASSERT_EQ(json["collectives"].size(), 2U);
  const JsonValue& gather = json["collectives"][0];
  EXPECT_THAT(gather.getMemberNames(),
              UnorderedElementsAre("step", "micro_step", "phase", "op", "input_elements",
                                   "output_elements", "dtype", "group", "group_size", "async",
                                   "coalesced", "root", "stream", "module", "rule"));
  EXPECT_EQ(gather["op"], "all_gather_into_tensor");
  EXPECT_EQ(gather["phase"], "bwd");
  EXPECT_EQ(gather["step"], 2);
  EXPECT_EQ(gather["micro_step"], 1);
  EXPECT_EQ(gather["input_elements"], 512);
  EXPECT_EQ(gather["output_elements"], 2048);
  EXPECT_EQ(gather["dtype"], "bf16");
  EXPECT_EQ(gather["group"], "WORLD");
  EXPECT_EQ(gather["group_size"], 4);
  EXPECT_EQ(gather["async"], true);
  EXPECT_EQ(gather["coalesced"], 7);
  EXPECT_TRUE(gather["root"].isNull());
  EXPECT_EQ(gather["stream"], "nccl:WORLD");
  EXPECT_EQ(gather["module"], "model.layers.0");
  EXPECT_EQ(gather["rule"], "C4.3");
  EXPECT_EQ(json["collectives"][1]["op"], "all_reduce");
}

TEST(ScheduleJson, KeepsWhatRecordingsDoNotSeeApart) {
  const JsonValue json = schedule_json(sample_program());
  ASSERT_EQ(json["unrecorded_collectives"].size(), 1U);
  EXPECT_EQ(json["unrecorded_collectives"][0]["op"], "broadcast");
  EXPECT_EQ(json["unrecorded_collectives"][0]["root"], 0);
  EXPECT_EQ(json["unrecorded_collectives"][0]["after"], 1);
}

TEST(ScheduleText, ListsCollectivesInOrder) {
  const std::string text = schedule_text(sample_program(), false);
  const std::size_t gather = text.find("all_gather_into_tensor");
  const std::size_t broadcast = text.find("broadcast");
  const std::size_t reduce = text.find("all_reduce");
  ASSERT_NE(gather, std::string::npos);
  ASSERT_NE(reduce, std::string::npos);
  EXPECT_LT(gather, broadcast);
  EXPECT_LT(broadcast, reduce);
  EXPECT_THAT(text, HasSubstr("3 collectives;"));
  EXPECT_THAT(text, Not(HasSubstr("gemm_forward")));
}

TEST(ScheduleText, ListsEveryOperationIfAsked) {
  const std::string text = schedule_text(sample_program(), true);
  EXPECT_THAT(text, HasSubstr("gemm_forward 2 GFLOP 3 MB"));
  EXPECT_THAT(text, HasSubstr("gathered 4096 B live_parameters"));
  EXPECT_THAT(text, HasSubstr("all_gather_into_tensor 512 -> 2048 bf16 WORLD"));
  EXPECT_THAT(text, HasSubstr("5 operations"));
}

// What operations are for stands before them, and in JSON by the collectives before it.
TEST(Schedule, ShowsAnnotations) {
  Program program = sample_program();
  program.parameter_names = {"a.weight", "a.bias"};
  RankProgram& rank = program.ranks.front();
  rank.annotated = {ParameterId(std::size_t{0}), ParameterId(std::size_t{1})};
  const OpId end(rank.ops.size());
  rank.annotations = {
      {AnnotationKind::FetchSubModule, OpId(std::size_t{0}), 9, 0, 0, ModuleId(std::size_t{1}),
       Phase::Forward, 2, 0},
      {AnnotationKind::Release, end, 2000, 0, 2, ModuleId(std::size_t{1}), Phase::Forward, 2, 0}};
  const std::string text = schedule_text(program, true);
  const std::size_t fetch = text.find("[fetch_sub_module]");
  const std::size_t release = text.find("[release]");
  ASSERT_NE(fetch, std::string::npos);
  ASSERT_NE(release, std::string::npos);
  EXPECT_LT(fetch, text.find("gemm_forward"));
  EXPECT_GT(release, text.find("all_reduce"));
  EXPECT_THAT(text, HasSubstr("9 elements available"));
  EXPECT_THAT(text, HasSubstr("2000 elements: a.weight a.bias"));
  const JsonValue json = schedule_json(program)["annotations"];
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["what"], "fetch_sub_module");
  EXPECT_EQ(json[0]["after"], 0);
  EXPECT_EQ(json[1]["parameters"][1], "a.bias");
  EXPECT_EQ(json[1]["module"], "model.layers.0");
  EXPECT_EQ(json[1]["after"], 2);
}

}  // namespace
}  // namespace zerosim
