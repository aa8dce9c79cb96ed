// Cases as they are read: the fields of each kind of check, and closed lists.

#include "validate/case_file.h"

#include <algorithm>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "validate/case_words.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The check is on line 3, from column 24 on.
std::string case_with(const std::string& check, const std::string& more = "") {
  return R"({"quality": "A", "inputs": {"model": {"n_params": 7}, "cluster": {"gpus_per_node": 1,
"nodes": 1}, "training": {"framework": "ddp"}, "variants": {"a": {}, "b": {}}},
"expect": {"checks": [)" +
         check + "]}" + more + "}";
}

std::string check_with(const std::string& fields) {
  return R"({"strength": "must", "needs": ["memory"], )" + fields + "}";
}

CaseCheck read(const std::string& fields) {
  return parse_case(case_with(check_with(fields)), "c/case.json", "data").checks.at(0);
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_case(text, "c/case.json", "data"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CaseFile, ARateHasItsUnit) {
  const auto rate = [](const std::string& metric, const std::string& unit) {
    return check_with(
        format(R"("kind": "rate", "variant": "a", "metric": "{}", "unit": "{}", "at_least": 1)",
               metric, unit));
  };
  for (const auto& [metric, unit] :
       std::vector<std::pair<std::string, std::string>>{{"throughput.tokens_per_s", "1/s"},
                                                        {"throughput.tokens_per_s_per_gpu", "1/s"},
                                                        {"throughput.tflops_per_gpu", "TFLOP/s"},
                                                        {"throughput.mfu", "1"},
                                                        {"implied.bandwidth", "GB/s"}}) {
    EXPECT_EQ(error_of(case_with(rate(metric, unit))), "no error") << metric;
  }
  EXPECT_THAT(error_of(case_with(rate("throughput.tflops_per_gpu", "1/s"))),
              HasSubstr(R"(unit: found "1/s", expected "TFLOP/s", the unit of )"
                        "throughput.tflops_per_gpu"));
}

TEST(CaseFile, AListAmongValues) {
  const CaseCheck check =
      read(R"("kind": "config_resolved", "variant": "a", "values": {"x": [0.5, "a"]})");
  EXPECT_EQ(check.values[0].second, R"([0.5, "a"])");
}

TEST(CaseFile, CodesOfConfigurationsHaveTheirOwnPage) {
  EXPECT_THAT(error_of(case_with(check_with(
                  R"("kind": "config_error", "variant": "a", "code": "no_such_thing")"))),
              HasSubstr("which is not in the list of data/ds_configs/README.md"));
  EXPECT_THAT(
      error_of(case_with(check_with(R"("kind": "cause", "variant": "a", "any_of": ["zzz"])"))),
      HasSubstr("which is not in the list of data/cases/README.md"));
}

TEST(CaseFile, TheFieldsOfEachKind) {
  EXPECT_FALSE(read(R"("kind": "fits", "variant": "a", "value": false)").fits);
  EXPECT_THAT(read(R"("kind": "verdict", "variant": "a", "one_of": ["tight", "fits"])").one_of,
              ElementsAre("tight", "fits"));
  const CaseCheck bytes = read(
      R"("kind": "bytes", "variant": "b", "metric": "memory.host", "value": 3, "tol": 0.5,
         "unit": "GiB", "why": "w")");
  EXPECT_EQ(bytes.variant, "b");
  EXPECT_EQ(bytes.metric, "memory.host");
  EXPECT_EQ(to_string(bytes.figure), "3 +- 0.5 GiB");
  const CaseCheck single = read(
      R"("kind": "single_allocation", "variant": "a", "value": 1, "tol": 0, "unit": "GB",
         "what": "w", "allocated_before": 2, "allocated_before_tol": 0.1, "live_at_once": 2)");
  EXPECT_EQ(single.allocated_before, 2);
  EXPECT_EQ(single.live_at_once, 2);
  const CaseCheck count = read(
      R"("kind": "count", "variant": "a", "metric": "communication.collectives", "op": "reduce",
         "phase": "bwd", "at_most": 10)");
  EXPECT_EQ(count.op, "reduce");
  EXPECT_EQ(count.phase, Phase::Backward);
  const CaseCheck ratio = read(
      R"("kind": "ratio", "variant": "a", "metric": "time.step", "ratio_of": "b", "at_least": 1)");
  EXPECT_EQ(ratio.ratio_of, "b");
  const CaseCheck order =
      read(R"("kind": "order", "metric": "time.step", "variants": ["a", "b"], "tol": 0.1)");
  EXPECT_THAT(order.variants, ElementsAre("a", "b"));
  EXPECT_EQ(order.order_tolerance, 0.1);
  EXPECT_EQ(
      read(R"("kind": "order", "metric": "time.step", "variants": ["a", "b"])").order_tolerance,
      0.005);
  EXPECT_EQ(read(R"("kind": "config_error", "variant": "a", "code": "bad_stage")").code,
            "bad_stage");
  const CaseCheck resolved =
      read(R"("kind": "config_resolved", "variant": "a", "values": {"x.y": 5e8, "z": "on"})");
  ASSERT_EQ(resolved.values.size(), 2U);
  EXPECT_EQ(resolved.values[1], (std::pair<std::string, std::string>{"z", "on"}));
  const CaseCheck cause =
      read(R"("kind": "cause", "variant": "a", "base": "b", "any_of": ["volume"])");
  EXPECT_EQ(cause.base, "b");
  EXPECT_THAT(read(R"("kind": "advice", "variant": "a", "any_of": ["lora"])").one_of,
              ElementsAre("lora"));
  EXPECT_EQ(read(R"("kind": "min_gpus", "variant": "a", "at_most": 4)").figure.at_most, 4);
}

TEST(CaseFile, FiguresHold) {
  const ExpectedFigure near{3.0, 0.5, {}, {}, "s"};
  EXPECT_TRUE(near.holds(3.5));
  EXPECT_TRUE(near.holds(2.5));
  EXPECT_FALSE(near.holds(3.51));
  const ExpectedFigure between{{}, 0, 1.0, 2.0, "1"};
  EXPECT_TRUE(between.holds(1));
  EXPECT_TRUE(between.holds(2));
  EXPECT_FALSE(between.holds(0.999));
  EXPECT_FALSE(between.holds(2.001));
  EXPECT_EQ(to_string(between), "at least 1, at most 2");
  EXPECT_EQ(to_string(ExpectedFigure{8.0, 0, {}, {}, ""}), "8");
}

struct BadCase {
  std::string text;
  std::string message;
};

void PrintTo(const BadCase& bad, std::ostream* out) {
  *out << bad.message;
}

BadCase bad_check(const std::string& fields, const std::string& message) {
  return {case_with(check_with(fields)), message};
}

class BadCases : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadCases, AreRefusedWithTheirPlace) {
  EXPECT_THAT(error_of(GetParam().text), HasSubstr(GetParam().message));
}

const std::string kBytes = R"("kind": "bytes", "variant": "a", "metric": "memory.host", )";

INSTANTIATE_TEST_SUITE_P(
    Errors, BadCases,
    ::testing::Values(
        bad_check(
            R"("kind": "fit", "variant": "a", "value": true)",
            R"(c/case.json:3:73: expect.checks[0].kind: found "fit", expected one of fits, verdict, bytes,)"),
        bad_check(R"("kind": "fit", "variant": "a", "value": true)", R"(did you mean "fits"?)"),
        bad_check(R"("kind": "fits", "variant": "c", "value": true)",
                  R"(variant: found "c", expected one of a, b)"),
        bad_check(R"("kind": "fits", "variant": "a", "value": 1)",
                  "value: found 1, expected true or false"),
        bad_check(R"("kind": "fits", "variant": "a", "value": true, "tol": 1)",
                  "c/case.json:3:112: expect.checks[0].tol: unknown key"),
        bad_check(
            R"("kind": "verdict", "variant": "a", "one_of": ["fit"])",
            R"(c/case.json:3:111: expect.checks[0].one_of[0]: found "fit", expected one of fits, tight)"),
        bad_check(R"("kind": "verdict", "variant": "a", "one_of": [])", "found an empty list"),
        bad_check(kBytes + R"("value": 3, "unit": "GiB")", "tol: missing"),
        bad_check(kBytes + R"("unit": "GiB")", "value: missing, expected value and tol"),
        bad_check(kBytes + R"("at_least": 3, "unit": "GBi")",
                  R"(unit: found "GBi", expected one of B, MiB, GiB, MB, GB, s, 1/s)"),
        bad_check(kBytes + R"("at_least": 3, "unit": "s")",
                  R"(unit: found "s", which is no unit of kind bytes)"),
        bad_check(kBytes + R"("at_least": 3, "at_most": 2, "unit": "GB")",
                  "at_most: found 2, which is below at_least 3"),
        bad_check(kBytes + R"("at_least": -3, "unit": "GB")", "at_least: found -3"),
        bad_check(
            R"("kind": "time", "variant": "a", "metric": "memory.host", "at_most": 1, "unit": "s")",
            R"(metric: found "memory.host", which kind bytes checks, not time)"),
        bad_check(
            R"("kind": "bytes", "variant": "a", "metric": "memory.peak", "at_most": 1)",
            R"(metric: found "memory.peak", which is not in the list of data/cases/README.md)"),
        bad_check(
            R"("kind": "count", "variant": "a", "metric": "communication.collectives", "at_most": 1, "op": "gather")",
            R"(op: found "gather", expected one of all_reduce)"),
        bad_check(
            R"("kind": "count", "variant": "a", "metric": "communication.collectives", "at_most": 1, "phase": "init")",
            R"(phase: found "init", expected one of fwd, bwd, step)"),
        bad_check(R"("kind": "ratio", "variant": "a", "metric": "time.step", "ratio_of": "b")",
                  "at_least: missing, expected at_least or at_most"),
        bad_check(R"("kind": "order", "metric": "time.step", "variants": ["a"])",
                  "variants: found one variant, expected at least two"),
        bad_check(R"("kind": "config_error", "variant": "a", "code": "bad_stge")",
                  R"(did you mean "bad_stage"?)"),
        bad_check(
            R"("kind": "cause", "variant": "a", "any_of": ["volumes"])",
            R"(any_of[0]: found "volumes", which is not in the list of data/cases/README.md; did you mean "volume"?)"),
        bad_check(R"("kind": "advice", "variant": "a", "any_of": ["zero_ini"])",
                  R"(did you mean "zero_init"?)"),
        BadCase{case_with(R"({"kind": "fits", "variant": "a", "value": true, "strength": "may",
                             "needs": ["memory"]})"),
                R"(strength: found "may", expected one of must, should)"},
        BadCase{case_with(R"({"kind": "fits", "variant": "a", "value": true, "strength": "must",
                             "needs": ["memry"]})"),
                R"(needs[0]: found "memry", expected one of memory, time)"},
        BadCase{case_with("", R"(, "qality": 1)"),
                R"(c/case.json:3:27: qality: unknown key; did you mean "quality"?)"},
        BadCase{case_with("", R"(, "observed": [{"metric": "step_tim", "value": 1, "unit": "s",
                                 "variant": null}])"),
                R"(did you mean "step_time"?)"},
        BadCase{case_with("", R"(, "observed": [{"metric": "runs", "variant": "c"}])"),
                R"(variant: found "c", expected one of a, b)"},
        BadCase{R"({"quality": "D"})", R"(quality: found "D", expected one of A, B, C)"}));

/// The words of the code are those of the README, where it is at hand.
TEST(CaseWords, NoWordTwice) {
  const auto is_set = [](auto words) {
    std::vector<std::string> names(words.begin(), words.end());
    std::sort(names.begin(), names.end());
    return std::adjacent_find(names.begin(), names.end()) == names.end();
  };
  EXPECT_TRUE(is_set(cause_codes()));
  EXPECT_TRUE(is_set(advice_codes()));
  EXPECT_TRUE(is_set(observed_metrics()));
  EXPECT_EQ(cause_codes().size(), 32U);
  EXPECT_EQ(advice_codes().size(), 35U);
  EXPECT_EQ(case_metrics().size(), 25U);
  EXPECT_EQ(case_needs().size(), 14U);
  EXPECT_EQ(find_metric("memory"), nullptr);
  EXPECT_EQ(find_unit("MB")->factor, 1e6);
}

}  // namespace
}  // namespace zerosim
