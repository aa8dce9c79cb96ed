// Ratios of step times that say why a stage or a network is slow (zero_schedule.md G), against the
// published ones: constants of kernels cancel in them, mechanisms do not. Within 25 % where a ratio
// is published; each as it comes out where one is known to miss.

#include <map>

#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "validate/published_runs.h"

namespace zerosim {
namespace {

using Steps = std::map<std::string, double>;

Steps predicted(const CsvTable& table) {
  Steps steps;
  for (const RunCheck& run : validate_runs(table).runs) {
    EXPECT_EQ(run.why, "") << run.id;
    if (run.predicted) steps[run.id] = run.predicted->step.count();
  }
  return steps;
}

/// \param share  of the published ratio
void expect_near_published(const std::string& what, double ratio, double published, double share) {
  ::testing::Test::RecordProperty(what, format("{:.2f}, published {:.2f}", ratio, published));
  EXPECT_NEAR(ratio, published, share * published) << what;
}

const Steps& published_rows() {
  static const Steps kSteps =
      predicted(read_csv(std::string(ZEROSIM_TEST_DATA) + "/measured/signature_runs.csv"));
  return kSteps;
}

// 0.3983, 0.4842 and 1.2441 s: gathers of 3.1 GB over NVSwitch are 30 ms; what stage 3 adds is its
// hooks.
TEST(Signatures, Gpt2XlOnSixteenV100) {
  const Steps& step = published_rows();
  const double z3 = step.at("dsat-gpt2-xl-z3-b1-ds");
  expect_near_published("ZeRO-3 over ZeRO-2", z3 / step.at("dsat-gpt2-xl-z2-b1-ds"),
                        1.2441 / 0.4842, kRatioTolerance);
  // A known miss, 2.07 of 3.12: stage 2 measured 22 % slower than stage 1, here alike.
  EXPECT_GT(z3 / step.at("dsat-gpt2-xl-z1-b1-ds"), 1.8);
}

// 144, 88 and 44 TFLOPS a GPU: 1536 sequences on 384, 768, 1536 GPUs, 4, 2, 1 of them each. What
// one GPU computes halves, what it gathers does not.
TEST(Signatures, Gpt175BOnThreeWorlds) {
  const Steps& step = published_rows();
  const auto per_sequence = [&](const std::string& world, int sequences) {
    return step.at("ptdp-z3-175b-w" + world) / sequences;
  };
  const double least = per_sequence("384", 4);
  expect_near_published("768 over 384", per_sequence("768", 2) / least, 144.0 / 88,
                        kRatioTolerance);
  expect_near_published("1536 over 384", per_sequence("1536", 1) / least, 144.0 / 44,
                        kRatioTolerance);
}

/// A job that no table of published runs holds.
struct Job {
  std::string id, model;
  int sequence = 1024;
  std::string gpu;
  int gpus_per_node = 4, nodes = 1;
  std::string intra{}, inter{}, framework{}, strategy{};
  int micro_batch = 1, micro_batches = 1;
  std::string checkpointing = "none";
};

Steps predicted(const std::vector<Job>& jobs) {
  std::string text =
      "id,group,source,trust,model,seq_len,gpu,gpus_per_node,nodes,world_size,intra_node,"
      "inter_node,framework,strategy,precision,optimizer,micro_batch,grad_accum,"
      "activation_checkpointing,flash_attention,step_time_s\n";
  for (const Job& job : jobs) {
    text += format("{},g,s,A,{},{},{},{},{},{},{},{},{},{},bf16,AdamW,{},{},{},yes,1\n", job.id,
                   job.model, job.sequence, job.gpu, job.gpus_per_node, job.nodes,
                   job.gpus_per_node * job.nodes, job.intra, job.inter, job.framework, job.strategy,
                   job.micro_batch, job.micro_batches, job.checkpointing);
  }
  return predicted(parse_csv(text, "jobs.csv"));
}

// On four H100 with 32 sequences each the kernels outlast the hooks: ZeRO-3 costs a few percent.
TEST(Signatures, Gpt2XlOnFourH100) {
  Job job{"z2", "gpt2-xl", 1024, "H100-80GB", 4, 1, "NVSwitch", "", "HF Trainer + DeepSpeed"};
  job.strategy = "zero2";
  job.micro_batch = 32;
  job.checkpointing = "full";
  Job z3 = job;
  z3.id = z3.strategy = "zero3";
  const Steps step = predicted(std::vector<Job>{job, z3});
  const double ratio = step.at("zero3") / step.at("z2");
  RecordProperty("ZeRO-3 over ZeRO-2", format("{:.3f}", ratio));
  EXPECT_GT(ratio, 0.95);
  EXPECT_LT(ratio, 1.10);
}

// The host decides 125M: a step takes as long with twice the tokens and on a GPU that is three
// times as fast.
TEST(Signatures, The125MModelIsBoundByItsHost) {
  Job job{"a100", "gpt2", 1024, "A100-80GB", 8, 1, "NVSwitch", "", "HF Trainer", "ddp"};
  Job twice = job;
  twice.id = "twice";
  twice.micro_batch = 2;
  Job h100 = job;
  h100.id = "h100";
  h100.gpu = "H100-80GB";
  const Steps step = predicted(std::vector<Job>{job, twice, h100});
  EXPECT_NEAR(step.at("twice") / step.at("a100"), 1, 0.02);
  EXPECT_NEAR(step.at("h100") / step.at("a100"), 1, 0.02);
}

// A second node of two A10 behind 18 Gb/s: 2.46 s become 8.68 (Qwen3 issue 773, ZeRO-3, two micro
// batches). What crosses the network, 3 x 3.1 GB a micro batch, does not depend on the length of
// the sequences, which is not told; what one node takes does. With 1024 tokens, as the public case
// assumes, the node alone is too fast here (1.5 s): 4.6, a known miss.
TEST(Signatures, ASecondNodeOfA10) {
  Job one{"one", "qwen2-1.5b", 2048, "A10-24GB", 2, 1, "PCIe4", "", "HF Trainer + DeepSpeed"};
  one.strategy = "zero3";
  one.micro_batches = 2;
  one.checkpointing = "full";
  Job two = one;
  two.id = "two";
  two.nodes = 2;
  two.inter = "18 Gb/s Ethernet";
  Job one_short = one;
  one_short.id = "one short";
  one_short.sequence = 1024;
  Job two_short = two;
  two_short.id = "two short";
  two_short.sequence = 1024;
  const Steps step = predicted(std::vector<Job>{one, two, one_short, two_short});
  expect_near_published("two nodes over one", step.at("two") / step.at("one"), 8.68 / 2.46,
                        kRatioTolerance);
  const double ratio = step.at("two short") / step.at("one short");
  RecordProperty("two nodes over one, 1024 tokens", format("{:.2f}", ratio));
  EXPECT_GT(ratio, 3);
  EXPECT_LT(ratio, 6);
  // Most of the measured 8.68 s are the network's.
  EXPECT_NEAR(step.at("two"), 8.68, 0.25 * 8.68);
}

}  // namespace
}  // namespace zerosim
