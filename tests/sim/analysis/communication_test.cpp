#include <gtest/gtest.h>

#include "sim/analysis/report.h"
#include "sim/analysis/volume.h"

namespace zerosim {
namespace {

constexpr GroupId kWorld{std::int32_t{0}};
constexpr GroupId kAlone{std::int32_t{1}};

/// One step of `world_size` ranks that issues `calls`; Psi = `parameters` bf16 elements.
Program program_of(int world_size, std::int64_t parameters, const std::vector<Collective>& calls) {
  Program program;
  program.world_size = world_size;
  program.groups = {{"WORLD", world_size}, {"ALONE", 1}};
  program.parameter_elements = parameters;
  program.parameter_bytes = Bytes(2 * parameters);
  RankProgram rank;
  rank.streams = {{"compute", GroupId()}, {"nccl:WORLD", kWorld}, {"nccl:ALONE", kAlone}};
  for (const Collective& call : calls) {
    Op op;
    op.kind = OpKind::Collective;
    op.phase = Phase::Backward;
    op.stream = StreamId(1 + call.group.value());
    op.payload = static_cast<std::int32_t>(rank.collectives.size());
    rank.collectives.push_back(call);
    rank.ops.push_back(op);
  }
  program.ranks = {rank};
  return program;
}

Collective call(CollectiveKind kind, std::int64_t input, std::int64_t output,
                Dtype dtype = Dtype::Bf16, GroupId group = kWorld) {
  Collective collective;
  collective.kind = kind;
  collective.input_elements = input;
  collective.output_elements = output;
  collective.dtype = dtype;
  collective.group = group;
  return collective;
}

TEST(CountCommunication, ClosedFormsOnOneNode) {
  // 4 ranks, P = 1000 elements of 2 B. Ring: all-reduce sends 2 (n-1)/n S, the others (n-1)/n S.
  //   all-reduce of 1000 elements:        2 x 3/4 x 2000 = 3000 B
  //   all-gather of 250 -> 1000:              3/4 x 2000 = 1500 B
  //   reduce-scatter of 1000 -> 250:          3/4 x 2000 = 1500 B
  //   all-reduce of one u8, a control collective: 2 x 3/4 x 1 = 1.5, the largest rank 2 B
  // Psi = (2 x 2000 + 2000 + 2000 + 2 x 1) / 2000 = 4.001
  const Cluster cluster = load_cluster("dgx-a100-80", 1, 4);
  const CommunicationReport report =
      count_communication(program_of(4, 1000,
                                     {call(CollectiveKind::AllReduce, 1000, 1000),
                                      call(CollectiveKind::AllGather, 250, 1000),
                                      call(CollectiveKind::ReduceScatter, 1000, 250),
                                      call(CollectiveKind::AllReduce, 1, 1, Dtype::U8)}),
                          cluster);
  EXPECT_EQ(report.collectives, 4);
  ASSERT_EQ(report.by_operation.size(), 3U);
  EXPECT_EQ(report.by_operation.at("all_reduce").calls, 2);
  EXPECT_EQ(report.by_operation.at("all_reduce").bytes_sent, Bytes(3000 + 2));
  EXPECT_EQ(report.by_operation.at("all_gather_into_tensor").bytes_sent, Bytes(1500));
  EXPECT_EQ(report.by_operation.at("reduce_scatter_tensor").bytes_sent, Bytes(1500));
  EXPECT_EQ(report.bytes_sent_per_rank, Bytes(6002));
  EXPECT_EQ(report.inter_node_bytes, Bytes(0));
  EXPECT_NEAR(report.psi, 4.001, 1e-12);
}

TEST(CountCommunication, ARingCrossesEachNodesBorderOnce) {
  // 2 nodes x 4: n = 8, a gather of 8000 elements sends 7/8 x 16000 = 14000 B a rank, and as much
  // leaves a node.
  const Cluster cluster = load_cluster("dgx-a100-80", 2, 4);
  const CommunicationReport report = count_communication(
      program_of(8, 8000, {call(CollectiveKind::AllGather, 1000, 8000)}), cluster);
  EXPECT_EQ(report.bytes_sent_per_rank, Bytes(14000));
  EXPECT_EQ(report.inter_node_bytes, Bytes(14000));
  EXPECT_NEAR(report.psi, 1, 1e-12);
}

TEST(CountCommunication, AGroupOfOneSendsNothing) {
  const Cluster cluster = load_cluster("dgx-a100-80", 1, 4);
  const CommunicationReport report = count_communication(
      program_of(4, 1000, {call(CollectiveKind::AllReduce, 1000, 1000, Dtype::Bf16, kAlone)}),
      cluster);
  EXPECT_EQ(report.collectives, 1);
  EXPECT_EQ(report.bytes_sent_per_rank, Bytes(0));
  EXPECT_EQ(report.psi, 0);
}

TEST(CountCommunication, OnlyTheLastStepCounts) {
  const Cluster cluster = load_cluster("dgx-a100-80", 1, 4);
  Program program = program_of(
      4, 1000,
      {call(CollectiveKind::AllReduce, 1000, 1000), call(CollectiveKind::AllGather, 250, 1000)});
  program.first_step = 2;
  program.steps = 2;
  program.ranks[0].ops[0].step = 2;
  program.ranks[0].ops[1].step = 3;
  const CommunicationReport report = count_communication(program, cluster);
  EXPECT_EQ(report.collectives, 1);
  EXPECT_NEAR(report.psi, 1, 1e-12);
}

Strategy deepspeed(int stage, std::int64_t grad_accum) {
  Strategy strategy;
  strategy.name = "zero" + std::to_string(stage);
  strategy.framework = Framework::DeepSpeed;
  strategy.zero.stage = stage;
  strategy.grad_accum = grad_accum;
  return strategy;
}

TEST(PaperVolume, CountsPassesOverTheParameters) {
  // F2, with G micro batches: 2; 2; G + 1; 3 G.
  EXPECT_EQ(paper_volume(deepspeed(0, 4)), 2);
  EXPECT_EQ(paper_volume(deepspeed(1, 4)), 2);
  EXPECT_EQ(paper_volume(deepspeed(2, 1)), 2);
  EXPECT_EQ(paper_volume(deepspeed(2, 4)), 5);
  EXPECT_EQ(paper_volume(deepspeed(3, 4)), 12);
  Strategy ddp;
  ddp.framework = Framework::Ddp;
  EXPECT_EQ(paper_volume(ddp), 2);
}

TEST(VolumeNote, TellsStage2FromThePaper) {
  // Gradients all-reduced (2 Psi), parameters gathered (1 Psi): 3; with a reduce-scatter 1 + 1 = 2.
  const Program program = program_of(
      4, 1000,
      {call(CollectiveKind::AllReduce, 1000, 1000), call(CollectiveKind::AllGather, 250, 1000)});
  EXPECT_EQ(
      volume_note(program, deepspeed(2, 1)).value_or(""),
      "communication: 3.00 Psi a step where the ZeRO paper counts 2 Psi: DeepSpeed all-reduces "
      "each "
      "gradient bucket by default (B3.6) and gathers the parameters after the step; with a true "
      "reduce-scatter it would be 2.00 Psi");
}

TEST(VolumeNote, SilentWhereBothAgree) {
  const Program program = program_of(
      4, 1000,
      {call(CollectiveKind::ReduceScatter, 1000, 250), call(CollectiveKind::AllGather, 250, 1000)});
  EXPECT_FALSE(volume_note(program, deepspeed(2, 1)).has_value());
}

TEST(VolumeNote, SaysHowOftenStage3Gathers) {
  const Collective gather = call(CollectiveKind::AllGather, 250, 1000);
  const Collective scatter = call(CollectiveKind::ReduceScatter, 1000, 250);
  EXPECT_EQ(
      volume_note(program_of(4, 1000, {gather, scatter}), deepspeed(3, 1)).value_or(""),
      "communication: 2.00 Psi a step where the ZeRO paper counts 3 Psi: parameters are gathered "
      "1.00 "
      "times a micro batch where the paper has 2, since some stay gathered between forward and "
      "backward (C4.7)");
  EXPECT_FALSE(
      volume_note(program_of(4, 1000, {gather, gather, scatter}), deepspeed(3, 1)).has_value());
}

}  // namespace
}  // namespace zerosim
