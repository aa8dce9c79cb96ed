#include "validate/memory_rows.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using ::testing::HasSubstr;

const std::string kFolder = std::string(ZEROSIM_TEST_DATA) + "/measured/";
const std::string kHeader =
    "kind,model,params_b,strategy,world_size,gpu_memory_gb,precision,offload,per_gpu_gb,per_cpu_gb,"
    "what,notes\n";

Validation validate(const std::string& rows) {
  return validate_memory_rows(parse_csv(kHeader + rows, "rows.csv"));
}

/// The only row of a table of one row.
ValidationRow single(const std::string& row) {
  const Validation validation = validate(row);
  EXPECT_EQ(validation.rows.size(), 1U);
  return validation.rows.front();
}

TEST(MemoryRows, EveryFigureOfTheZeroPaperAsPrinted) {
  const Validation validation = validate_memory_rows(kFolder + "zero_paper.csv");
  // Figure 1: 4; Table 1: 6 world sizes x 3 models x 3 stages.
  ASSERT_EQ(validation.rows.size(), 58U);
  for (const ValidationRow& row : validation.rows) {
    ASSERT_FALSE(row.skipped) << row.id << ": " << row.why;
    EXPECT_EQ(*row.predicted, *row.measured) << row.id << ": " << row.what;
  }
  EXPECT_TRUE(validation.assumptions.empty());
}

TEST(MemoryRows, LargestModelsOfThePapersTable2) {
  // 32 GB / (4 + 12/64) = 7.64 -> 7.6, as printed.
  EXPECT_EQ(*single("formula_max_model,model parallel 1,7.6,zero1,64,32,fp16,,,,,\n").predicted,
            7.6);
  // Two halves, 64 ranks each: 2 x 32 / (2 + 14/64) = 28.845 -> 28.8.
  EXPECT_EQ(*single("formula_max_model,model parallel 2,28.8,zero2,128,32,fp16,,,,,\n").predicted,
            28.8);
  // Of 16 parts 16 times what is printed of one: 16 x 7.6 = 121.6, not 16 x 7.6418 = 122.3.
  const ValidationRow sixteen =
      single("formula_max_model,model parallel 16,121.6,zero1,1024,32,fp16,,,,,\n");
  EXPECT_DOUBLE_EQ(*sixteen.predicted, 121.6);
  EXPECT_EQ(sixteen.unit, "billion");
  // From half a trillion on to a decimal of a trillion: 8 x 128 = 1024 -> "1T"; 512 -> "0.5T".
  EXPECT_EQ(*single("formula_max_model,model parallel 8,1000,zero3,512,32,fp16,,,,,\n").predicted,
            1000);
  EXPECT_EQ(*single("formula_max_model,model parallel 4,500,zero3,256,32,fp16,,,,,\n").predicted,
            500);
  // A wrong figure is found: 7.7 for 7.6.
  EXPECT_NEAR(
      *single("formula_max_model,model parallel 1,7.7,zero1,64,32,fp16,,,,,\n").relative_error,
      -0.1 / 7.7, 1e-12);
}

TEST(MemoryRows, AdamStates) {
  // 12 x 1.5 = 18; 18 / 8 = 2.25.
  const Validation validation = validate(
      "estimate,GPT-2,1.5,ddp,8,,,,18.0,,Adam states,\n"
      "estimate,GPT-2,1.5,zero1,8,,,,2.25,,Adam states,\n");
  EXPECT_EQ(*validation.rows[0].predicted, 18);
  EXPECT_EQ(*validation.rows[1].predicted, 2.25);
  EXPECT_THAT(validation.assumptions,
              ::testing::ElementsAre(
                  "line 2: no precision is given; taken as 16-bit training with fp32 Adam states",
                  "line 3: no precision is given; taken as 16-bit training with fp32 Adam states"));
}

TEST(MemoryRows, DeepSpeedEstimatesHaveTwoFigures) {
  const Validation validation = validate(
      "estimator_cold,t5-3b,2.851,zero3,8,,fp16,optimizer_cpu,0.78,63.72,states,"
      "\"zero_init=1; total_params=2851e6, largest_layer_params=32e6\"\n");
  ASSERT_EQ(validation.rows.size(), 2U);
  EXPECT_EQ(validation.rows[0].id, "2:per_gpu_gb");
  EXPECT_EQ(validation.rows[0].what, "t5-3b, zero3, 8 ranks: states");
  EXPECT_EQ(validation.rows[0].unit, "GiB");
  EXPECT_EQ(*validation.rows[0].predicted, 0.78);
  EXPECT_EQ(validation.rows[1].id, "2:per_cpu_gb");
  EXPECT_EQ(*validation.rows[1].predicted, 63.72);
  EXPECT_THAT(validation.assumptions,
              ::testing::ElementsAre("line 2: notes name no nodes; taken as one node"));
}

TEST(MemoryRows, NotesGiveNodesAndLargestLayer) {
  // F4: P = 7.5e9, 8 nodes of 8, no offload: 4 L + floor(18 P / 64) = 2.45 GiB; CPU 4 L g 1.5
  // = 5.86.
  const Validation validation = validate(
      "estimator_live,m,7.5,zero3,64,,fp16,none,2.45,5.86,states,"
      "zero_init=1; 8 nodes of 8; 131.072M largest layer\n");
  ASSERT_EQ(validation.rows.size(), 2U);
  EXPECT_EQ(*validation.rows[0].predicted, 2.45);
  EXPECT_EQ(*validation.rows[1].predicted, 5.86);
  EXPECT_TRUE(validation.assumptions.empty());
}

TEST(MemoryRows, SkipsWithAReason) {
  const auto why = [](const std::string& row) {
    const ValidationRow skipped = single(row);
    EXPECT_TRUE(skipped.skipped);
    EXPECT_FALSE(skipped.predicted.has_value());
    return skipped.why;
  };
  EXPECT_EQ(why("measured,m,7,zero3,8,80,bf16,none,60,,peak,\n"),
            "\"peak\" does not say whose figure it is: of tensors, allocator or process");
  EXPECT_EQ(why("measured_max_model,m,7,ddp,8,32,bf16,none,,,largest,\n"),
            "the largest model that ran: neither its shape nor its batch is given");
  EXPECT_EQ(why("measured,m,7,zero3,8,80,bf16,none,60,,peak allocated,\n"),
            "activation_checkpointing is empty: the peak depends on it");
  EXPECT_EQ(why("estimator,m,7,single,1,,fp16,,60,,states,\n"),
            "the estimator is not DeepSpeed's: its formula is not modelled");
  EXPECT_EQ(why("estimate,m,7,ddp,8,,,,60,,activations,\n"),
            "an estimate of activations needs the model's shape, which the row does not give");
  EXPECT_EQ(why("formula,m,,ddp,8,,fp16,,60,,states,\n"),
            "params_b is empty: the formula needs it");
  EXPECT_EQ(why("formula,m,0,ddp,8,,fp16,,60,,states,\n"), "params_b is 0: the formula needs more");
  EXPECT_EQ(why("formula,m,7,fsdp_full,8,,fp16,,60,,states,\n"),
            "strategy \"fsdp_full\" is none of the ZeRO paper's (ddp, zero1, zero2, zero3)");
  EXPECT_EQ(why("formula,m,7,ddp,8,,int8,,60,,states,\n"), "precision \"int8\" is not known");
  EXPECT_EQ(why("formula_max_model,model parallel 3,7,ddp,8,32,fp16,,,,,\n"),
            "8 ranks are not a multiple of model parallel 3");
  EXPECT_EQ(why("estimator_cold,m,7,zero1,8,,,none,1,,states,\n"),
            "DeepSpeed has no estimator for strategy \"zero1\"");
  EXPECT_EQ(why("estimator_cold,m,7,zero2,8,,,params_cpu,1,,states,\n"),
            "DeepSpeed does not estimate offload \"params_cpu\" at stage 2");
  EXPECT_EQ(why("estimator_cold,m,7,zero3,8,,,none,1,,states,zero_init=1\n"),
            "notes do not name the largest layer: the estimator needs it");
  EXPECT_EQ(why("estimator_cold,m,7,zero2,8,,,none,1,,states,3 nodes of 8\n"),
            "8 ranks are not a multiple of 3 nodes");
}

TEST(MemoryRows, CountsEveryRowOfTheExtract) {
  const Validation validation = validate_memory_rows(kFolder + "memory_extract.csv");
  const ValidationSummary summary = summary_of(validation.rows);
  // Skipped: 2 measured largest models, 2 activations, 2 of another estimator.
  EXPECT_EQ(summary.skipped, 6);
  // Compared: 8 formulas, 20 largest models, 2 Adam states, 16 estimates x 2 figures, 4 measured.
  EXPECT_EQ(summary.count - summary.skipped, 8 + 20 + 2 + 32 + 4);
  EXPECT_EQ(*summary.median, 0);
  // Every formula and estimate to its printed digits; measured rows are half a percent off.
  for (const ValidationRow& row : validation.rows) {
    if (!row.relative_error || row.source.starts_with("fms")) continue;
    EXPECT_NEAR(*row.relative_error, 0, 1e-12) << row.id;
  }
  EXPECT_LT(*summary.worst, 0.006);
  // The page's stage-2 figure without offload is of an earlier formula: 4 P + 16 P / 8 = 15.93 GiB
  // of 2.851e9 parameters, where 2 P + 18 P / 8 is 11.28.
  EXPECT_THAT(validation.assumptions,
              testing::Contains("line 43: printed by an older estimator, 4 P + 16 P / N a GPU; "
                                "today's says 11.28 GiB"));
}

const std::string kRuns =
    "id,source,trust,pure_dp,model,model_json,params_b,seq_len,gpu,gpus_per_node,nodes,world_size,"
    "framework,strategy,precision,optimizer,micro_batch,activation_checkpointing,compile,offload,"
    "peak_memory_gb,peak_memory_kind,notes\n";

/// mistral-7b, 7,241,732,096 parameters, on one GPU: everything in bf16.
std::string pure_bf16_run(const std::string& peak, const std::string& kind) {
  return "run,Paper | address,A,yes,mistral-7b,,7.242,4096,A100-SXM4-80GB,1,1,1,HF Trainer,single,"
         "pure bf16,AdamW (torch),4,full,no,none," +
         peak + "," + kind + ",\n";
}

TEST(MemoryRows, RunsAreComparedByTheWordsOfTheirKind) {
  // 10 B a parameter in the optimizer: weights 2, gradients 2, moments 4, for-each temporary 2.
  const double peak = 72.41732096;
  const Validation validation = validate_memory_rows(
      parse_csv(kRuns + pure_bf16_run("72.4", "allocated (max)") +
                    pure_bf16_run("72.4", "reserved") + pure_bf16_run("79", "nvidia-smi") +
                    pure_bf16_run("", "allocated") + pure_bf16_run("72.4", "13.9 GiB in source") +
                    pure_bf16_run("72.4", "peak (reserved; unit GB; probably GiB)"),
                "runs.csv"));
  ASSERT_EQ(validation.rows.size(), 5U);  // one has no peak
  EXPECT_EQ(validation.rows[0].id, "run");
  EXPECT_EQ(validation.rows[0].source, "Paper");
  EXPECT_EQ(validation.rows[0].what, "mistral-7b, single: allocated ");
  EXPECT_NEAR(*validation.rows[0].predicted, peak, 0.01);
  EXPECT_GE(*validation.rows[1].predicted, *validation.rows[0].predicted);
  // and 0.45 GB of context
  EXPECT_NEAR(*validation.rows[2].predicted, *validation.rows[1].predicted + 0.45, 1e-9);
  EXPECT_EQ(validation.rows[3].why,
            "peak_memory_kind \"13.9 GiB in source\" is none of allocated, active, reserved, "
            "nvidia-smi, process");
  EXPECT_NEAR(*validation.rows[4].measured, 72.4 * 1.073741824, 1e-9);
}

TEST(MemoryRows, RunsOfLittleTrustAreSkipped) {
  std::string row = pure_bf16_run("72.4", "allocated");
  row.replace(row.find(",A,"), 3, ",C,");
  const Validation validation = validate_memory_rows(parse_csv(kRuns + row, "runs.csv"));
  EXPECT_EQ(validation.rows.at(0).why, "trust C: settings that the simulation needs are missing");
}

/// The goal of the project: median at most 5 %, at most three rows above 15 %.
TEST(MemoryRows, MeasuredPeaksOfTheExtract) {
  const Validation validation = validate_memory_rows(kFolder + "runs_extract.csv");
  const ValidationSummary summary = summary_of(validation.rows);
  EXPECT_GE(summary.count - summary.skipped, 13);
  // 0.0214, of which the two rows of ds-bf16 are the upper end: their "GB" are as the source
  // prints.
  EXPECT_LE(*summary.median, 0.022);
  std::vector<std::string> off;
  for (const ValidationRow& row : validation.rows) {
    if (row.relative_error && std::abs(*row.relative_error) > 0.15) off.push_back(row.id);
  }
  // Short sequences under ZeRO-3: what is released on another stream waits for the device, which
  // a job without time does not see (E7.8).
  EXPECT_THAT(off, ::testing::ElementsAre("mle-h200-z3off-s8192"));
}

TEST(MemoryRows, SeveralTablesAreOne) {
  const std::vector<std::string> paths = {kFolder + "zero_paper.csv", kFolder + "runs_extract.csv"};
  const Validation both = validate_memory_rows(paths);
  EXPECT_EQ(both.input, paths[0] + ", " + paths[1]);
  EXPECT_EQ(both.rows.size(), validate_memory_rows(paths[0]).rows.size() +
                                  validate_memory_rows(paths[1]).rows.size());
}

std::string message_of(const std::string& text) {
  try {
    (void)validate_memory_rows(parse_csv(text, "rows.csv"));
  } catch (const TraceError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MemoryRows, RefusesWhatIsNoSuchTable) {
  EXPECT_EQ(message_of(kHeader + "formula,m,7x,ddp,8,,fp16,,60,,states,\n"),
            "rows.csv:2:11: params_b: found \"7x\", expected a number from 0 to 1e+09");
  EXPECT_EQ(message_of(kHeader + "formula,m,7,ddp,8.5,,fp16,,60,,states,\n"),
            "rows.csv:2:17: world_size: found \"8.5\", expected a whole number from 1 to 1e+09");
  EXPECT_EQ(message_of(kHeader + "measured,m,7,ddp,8,,fp16,,-60,,peak,\n"),
            "rows.csv:2:27: per_gpu_gb: found \"-60\", expected a number from 0 to 1e+09");
  EXPECT_THAT(message_of(kHeader + "\nformula"),
              HasSubstr("rows.csv:2:1: found 1 cells, expected 12"));
  EXPECT_EQ(
      message_of(kHeader + "formulas,m,7,ddp,8,,fp16,,60,,states,\n"),
      "rows.csv:2:1: kind: found \"formulas\", expected one of formula, formula_max_model, "
      "measured_max_model, estimate, estimator, estimator_cold, estimator_live, measured; did "
      "you mean \"formula\"?");
  EXPECT_EQ(message_of("kind,model,params\n"),
            "rows.csv:1:1: found no column \"params_b\", expected it among the 3 columns; did you "
            "mean \"params\"?");
  EXPECT_EQ(message_of(kHeader + "formula,\"m,7,ddp,8,,fp16,,60,,states,\n"),
            "rows.csv:2:9: found a quote that is never closed, expected a second one");
  // 1e18 parameters x 6 bytes x 8 GPUs do not fit 64 bits.
  EXPECT_THAT(message_of(kHeader + "estimator_cold,m,1e9,zero2,8,,,none,1,,states,1 node of 8\n"),
              HasSubstr("rows.csv:2:1: 1000000000000000000 parameters on 1 nodes of 8 GPUs need "));
}

}  // namespace
}  // namespace zerosim
