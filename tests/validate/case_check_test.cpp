// What checks of cases answer: passed, failed, skipped, and why.

#include "validate/case_check.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"

namespace zerosim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kData = ZEROSIM_TEST_DATA;

/// 1,363,584 parameters on two ranks; `check` is one check without needs and strength.
CheckOutcome answer(const std::string& check, const std::string& needs = R"(["memory"])") {
  const std::string text = R"({"quality": "A",
"inputs": {"model": {"ref": "models/llama_small.json"},
 "cluster": {"gpu": "A100-SXM4-40", "gpus_per_node": 2, "nodes": 1},
 "training": {"micro_batch": 1, "grad_accum": 2, "seq": 32, "precision": "bf16",
  "activation_checkpointing": "none", "flash_attention": true, "optimizer": "adamw_fused",
  "framework": "deepspeed"},
 "ds_config": "ds_config.json",
 "variants": {"z2": {}, "z1": {"ds.zero_optimization.stage": 1},
  "broken": {"ds.zero_optimization.stage": 9},
  "unknown_gpu": {"cluster.gpu": null},
  "counts": {"model": {"n_params": 1000000}},
  "small": {"cluster.gpu_memory_gib": 0.4},
  "small_host": {"cluster.host_memory_gib": 0.004},
  "small_host_unknown_gpu": {"cluster.gpu": null, "cluster.host_memory_gib": 0.004},
  "large_host_unknown_gpu": {"cluster.gpu": null, "cluster.host_memory_gib": 100},
  "amd": {"cluster.gpu": "MI300X-192", "cluster.gpu_memory_gib": 191},
  "odd_link": {"cluster.intra_node": {"kind": "bridge"}},
  "leaves": {"ds.zero_optimization": {"stage": 3, "leaf_module": {"classes": ["A", "b.B"]}}},
  "nvme": {"ds.zero_optimization": {"stage": 3,
           "offload_optimizer": {"device": "nvme", "nvme_path": "/n"}}},
  "no_model": {"model": {"n_params": null}}}},
"expect": {"checks": [{"strength": "must", "needs": )" +
                           needs + ", " + check + "}]}}";
  const CaseFile file = parse_case(text, kData + "/cases/own-small-llama/case.json", kData);
  return check_case(file).checks.at(0);
}

void expect_passed(const CheckOutcome& outcome) {
  EXPECT_EQ(outcome.result, CheckResult::Passed)
      << outcome.expected << "; found " << outcome.found << "; " << outcome.why;
}
void expect_failed(const CheckOutcome& outcome, const std::string& found) {
  EXPECT_EQ(outcome.result, CheckResult::Failed) << outcome.why;
  EXPECT_THAT(outcome.found + outcome.why, HasSubstr(found));
}
void expect_skipped(const CheckOutcome& outcome, const std::string& why) {
  EXPECT_EQ(outcome.result, CheckResult::Skipped) << outcome.found;
  EXPECT_THAT(outcome.why, HasSubstr(why));
}

TEST(CaseCheck, Bytes) {
  // Stage 2 on two ranks: (2 + 14 / 2) x 1,363,584 = 12,272,256 bytes.
  const std::string check =
      R"("kind": "bytes", "variant": "z2", "metric": "memory.model_states", "unit": "MB", )";
  const CheckOutcome outcome = answer(check + R"("value": 12.27, "tol": 0.01)");
  expect_passed(outcome);
  EXPECT_NEAR(*outcome.predicted, 12.272256, 1e-9);
  EXPECT_EQ(outcome.expected, "12.27 +- 0.01 MB");
  expect_failed(answer(check + R"("at_most": 12)"), "12.2723 MB");
}

TEST(CaseCheck, SizesAloneTellModelStates) {
  // 2 bytes of 1e6 weights.
  expect_passed(answer(R"("kind": "bytes", "variant": "counts", "metric": "memory.parameters",
                          "unit": "MB", "value": 2, "tol": 0)"));
  expect_skipped(answer(R"("kind": "bytes", "variant": "counts", "metric": "memory.gradients",
                           "unit": "MB", "value": 2, "tol": 0)"),
                 "the layers of the model are not known");
  expect_skipped(answer(R"("kind": "bytes", "variant": "no_model", "metric": "memory.model_states",
                           "unit": "MB", "value": 2, "tol": 0)"),
                 "the model is not known");
}

TEST(CaseCheck, FitsAndVerdict) {
  expect_passed(answer(R"("kind": "fits", "variant": "z2", "value": true)"));
  expect_failed(answer(R"("kind": "fits", "variant": "z2", "value": false)"), "fits");
  // 0.4 GiB are less than the 0.45 GB of the CUDA context.
  expect_passed(answer(R"("kind": "fits", "variant": "small", "value": false)"));
  expect_passed(answer(R"("kind": "verdict", "variant": "small", "one_of": ["does_not_fit"])"));
  expect_failed(answer(R"("kind": "verdict", "variant": "z2", "one_of": ["tight"])"), "fits");
  expect_skipped(answer(R"("kind": "fits", "variant": "unknown_gpu", "value": true)"),
                 "the memory of the GPU is not known");
}

TEST(CaseCheck, HostMemoryIsRoomToo) {
  // Two ranks each load 1,363,584 parameters: 0.0051 GiB of bf16 in all, and the copies of pages.
  for (const char* variant : {"small_host", "small_host_unknown_gpu"}) {
    const std::string of = format(R"("variant": "{}", )", variant);
    expect_passed(answer(R"("kind": "fits", )" + of + R"("value": false)"));
    expect_failed(answer(R"("kind": "fits", )" + of + R"("value": true)"), " of host memory of ");
    // What lacks room has ways out of it, not savings for nothing.
    const CheckOutcome advice =
        answer(R"("kind": "advice", )" + of + R"("any_of": ["larger_micro_batch"])");
    EXPECT_NE(advice.found, "no change");
  }
  expect_skipped(answer(R"("kind": "fits", "variant": "large_host_unknown_gpu", "value": true)"),
                 "the memory of the GPU is not known");
}

TEST(CaseCheck, WhatFillsMemory) {
  const auto cause = [](const std::string& variant, const std::string& code) {
    return answer(format(R"("kind": "cause", "variant": "{}", "any_of": ["{}"])", variant, code));
  };
  // No figure is measured: the causes of the peak.
  const CheckOutcome gpu = cause("z2", "model_states");
  EXPECT_NE(gpu.result, CheckResult::Skipped) << gpu.why;
  EXPECT_THAT(gpu.found, Not(HasSubstr("host_copies_per_rank")));
  expect_passed(cause("small_host", "host_copies_per_rank"));
  expect_skipped(cause("unknown_gpu", "model_states"), "the memory of the GPU is not known");
}

TEST(CaseCheck, GpusAndLinksThatAreNotSimulated) {
  const std::string time = R"("kind": "time", "metric": "time.step", "unit": "s", "at_most": 1, )";
  expect_passed(answer(R"("kind": "fits", "variant": "amd", "value": true)"));
  expect_skipped(answer(time + R"("variant": "amd")"),
                 "cluster.gpu: MI300X-192 is not simulated: no time can be told");
  expect_passed(answer(R"("kind": "fits", "variant": "odd_link", "value": true)"));
  expect_skipped(answer(time + R"("variant": "odd_link")"),
                 "cluster.intra_node.kind: found \"bridge\", expected one of nvlink, ");
}

TEST(CaseCheck, SingleAllocation) {
  // The gradient bucket of the file: 1e6 elements of 2 bytes; stage 2 has one of them.
  const std::string check = R"("kind": "single_allocation", "variant": "z2", "unit": "MB", )";
  expect_passed(answer(check + R"("value": 2, "tol": 0, "live_at_once": 1)"));
  expect_failed(answer(check + R"("value": 2, "tol": 0, "live_at_once": 2)"), "1 at once");
  expect_failed(answer(check + R"("value": 3, "tol": 0.0001)"), "nearest: 2.7");
  // The flat parameters, 2 x 1,363,584 bytes, are put together while the model is still there.
  expect_passed(answer(check + R"("value": 2.727168, "tol": 0.001, "allocated_before": 2.73,
                                  "allocated_before_tol": 0.01)"));
  expect_failed(answer(check + R"("value": 2.727168, "tol": 0.001, "allocated_before": 900,
                                  "allocated_before_tol": 1)"),
                "with ");
}

TEST(CaseCheck, RatioAndOrder) {
  // 9 over 10 bytes a parameter.
  expect_passed(answer(R"("kind": "ratio", "variant": "z2", "ratio_of": "z1",
                          "metric": "memory.model_states", "at_least": 0.89, "at_most": 0.91)"));
  expect_passed(answer(R"("kind": "order", "metric": "memory.model_states",
                          "variants": ["z2", "z1"])"));
  expect_failed(answer(R"("kind": "order", "metric": "memory.model_states",
                          "variants": ["z1", "z2"])"),
                "0.0127 GiB, 0.01143 GiB");
  expect_passed(answer(R"("kind": "order", "metric": "memory.model_states",
                          "variants": ["z1", "z2"], "tol": 0.11)"));
}

TEST(CaseCheck, Counts) {
  // Stage 2 reduces in each of two micro batches; 1,363,584 elements need two buckets of 1e6.
  expect_passed(answer(R"("kind": "count", "variant": "z2", "op": "all_reduce", "phase": "bwd",
                          "metric": "communication.collectives", "value": 4, "tol": 0)"));
  expect_passed(answer(R"("kind": "count", "variant": "z1", "op": "all_reduce", "phase": "bwd",
                          "metric": "communication.collectives", "value": 2, "tol": 0)"));
  expect_failed(answer(R"("kind": "count", "variant": "z1", "op": "all_to_all_single",
                          "metric": "communication.collectives", "at_least": 1)"),
                "0");
}

TEST(CaseCheck, TimesNeedAKnownGpu) {
  expect_passed(answer(R"("kind": "time", "variant": "z2", "metric": "time.step", "unit": "s",
                          "at_least": 0.0001, "at_most": 1)"));
  expect_skipped(answer(R"("kind": "time", "variant": "unknown_gpu", "metric": "time.step",
                           "unit": "s", "at_most": 1)"),
                 "the GPU is not known");
  // Bytes sent do not: 2 (n-1)/n of 2 x 2 x 1,363,584 bytes reduced, and half of those gathered.
  expect_passed(answer(R"("kind": "bytes", "variant": "unknown_gpu", "unit": "MB",
                          "metric": "communication.bytes_sent_per_rank", "at_least": 6.8,
                          "at_most": 6.9)"));
}

TEST(CaseCheck, Limits) {
  expect_passed(answer(R"("kind": "min_gpus", "variant": "z2", "at_most": 1)"));
  expect_failed(answer(R"("kind": "min_gpus", "variant": "small", "at_most": 1)"),
                "no size that is enough");
  expect_passed(answer(R"("kind": "max_micro_batch", "variant": "z2", "at_least": 2)"));
}

TEST(CaseCheck, Configurations) {
  const std::string needs = R"(["config"])";
  expect_passed(
      answer(R"("kind": "config_error", "variant": "broken", "code": "bad_stage")", needs));
  expect_failed(answer(R"("kind": "config_error", "variant": "z2", "code": "bad_stage")", needs),
                "it is read");
  expect_failed(
      answer(R"("kind": "config_error", "variant": "broken", "code": "bucket_zero")", needs),
      "error bad_stage");
  expect_failed(answer(R"("kind": "config_warning", "variant": "z2", "code": "old_name")", needs),
                "");
  expect_failed(
      answer(R"("kind": "config_warning", "variant": "broken", "code": "old_name")", needs),
      "zero_optimization.stage");
  expect_passed(answer(R"("kind": "config_resolved", "variant": "z2", "values":
                          {"zero_optimization.reduce_bucket_size": 1e6, "train_batch_size": 4,
                           "bf16.enabled": true})",
                       needs));
  expect_failed(answer(R"("kind": "config_resolved", "variant": "z2", "values":
                          {"zero_optimization.reduce_bucket_size": 5, "train_batch": 4})",
                       needs),
                "zero_optimization.reduce_bucket_size = 1000000, train_batch = not listed");
}

TEST(CaseCheck, ListsAmongTheValuesOfAConfiguration) {
  const auto resolved = [](const std::string& value) {
    return answer(R"("kind": "config_resolved", "variant": "leaves", "values":
                     {"zero_optimization.leaf_module.classes": )" +
                      value + "}",
                  R"(["config"])");
  };
  expect_passed(resolved(R"(["A", "b.B"])"));
  expect_failed(resolved(R"(["A"])"), "zero_optimization.leaf_module.classes = A, b.B");
}

TEST(CaseCheck, WhatIsNotImplementedOrSimulatedIsSkipped) {
  expect_skipped(answer(R"("kind": "fits", "variant": "z2", "value": true)",
                        R"(["memory", "explain", "nvme"])"),
                 "needs explain, nvme");
  expect_skipped(answer(R"("kind": "fits", "variant": "nvme", "value": true)"), "not simulated: ");
  expect_skipped(answer(R"("kind": "cause", "variant": "z2", "base": "z1", "any_of": ["volume"])"),
                 "two variants are not explained yet");
  expect_skipped(answer(R"("kind": "rate", "variant": "z2", "metric": "implied.bandwidth",
                           "unit": "GB/s", "at_least": 1)"),
                 "implied.bandwidth is not computed yet");
}

TEST(CaseCheck, WhatIsRefusedFails) {
  expect_failed(answer(R"("kind": "fits", "variant": "broken", "value": true)"),
                "as patched: zero_optimization.stage");
}

TEST(Cases, FoldersOfCases) {
  const CasesValidation validation = validate_cases({kData + "/cases"});
  ASSERT_EQ(validation.cases.size(), 5U);
  EXPECT_EQ(validation.cases.front().id, "C06-estimator-vs-measured-llama7b-4gpu");
  EXPECT_TRUE(musts_hold(validation));
  EXPECT_THROW(static_cast<void>(validate_cases({kData + "/models"})), ConfigError);
}

TEST(Cases, OneThatCannotBeReadFails) {
  const std::string good = kData + "/cases/C45-batch-triple-mismatch";
  const std::string bad = kData + "/models/llama_small.json";
  const CasesValidation validation = validate_cases({good, bad});
  EXPECT_FALSE(musts_hold(validation));
  EXPECT_THAT(validation.cases[1].unreadable, HasSubstr("llama_small.json:1:1: "));
  EXPECT_THAT(cases_text(validation, false), HasSubstr("llama_small.json: not read\n"));
  EXPECT_EQ(cases_json(validation)["unreadable"].size(), 1U);
  EXPECT_THROW(static_cast<void>(validate_cases({bad})), ConfigError);
}

TEST(Cases, JsonHasARowForEachCheck) {
  const CasesValidation validation = validate_cases(
      {kData + "/cases/C45-batch-triple-mismatch", kData + "/cases/own-small-llama"});
  const JsonValue json = cases_json(validation);
  EXPECT_EQ(json["version"].asInt(), 1);
  EXPECT_EQ(json["summary"]["cases"].asInt(), 2);
  EXPECT_EQ(json["summary"]["count"].asUInt(), json["rows"].size());
  EXPECT_EQ(json["summary"]["failed"].asInt(), 0);
  EXPECT_EQ(json["summary"]["skipped"].asInt(), 1);
  EXPECT_EQ(json["summary"]["needs"]["explain"]["skipped"].asInt(), 1);
  EXPECT_EQ(json["rows"][0]["id"].asString(), "C45-batch-triple-mismatch:1");
  EXPECT_EQ(json["rows"][0]["result"].asString(), "passed");
  const JsonValue& bucket = json["rows"][5];  // 2 MB: the fourth check of the second case
  EXPECT_EQ(bucket["kind"].asString(), "single_allocation");
  EXPECT_EQ(bucket["predicted"].asDouble(), 2);
  EXPECT_EQ(bucket["measured"].asDouble(), 2);
  EXPECT_EQ(bucket["relative_error"].asDouble(), 0);
  EXPECT_FALSE(bucket["skipped"].asBool());
}

}  // namespace
}  // namespace zerosim
