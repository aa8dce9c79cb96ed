#include "validate/validation.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using ::testing::HasSubstr;

ValidationRow with_error(double error) {
  return compared_row("1:per_gpu_gb", "a row", "GB", 1 + error, 1);
}

TEST(Validation, RelativeErrorIsOfThePublishedFigure) {
  EXPECT_DOUBLE_EQ(*compared_row("", "", "GB", 11, 10).relative_error, 0.1);
  EXPECT_DOUBLE_EQ(*compared_row("", "", "GB", 9, 10).relative_error, -0.1);
  const ValidationRow zero = compared_row("", "", "GB", 9, 0);
  EXPECT_TRUE(zero.skipped);
  EXPECT_EQ(zero.why, "the published figure is 0: it has no relative error");
}

TEST(Validation, SummaryIsOfAbsoluteErrors) {
  std::vector<ValidationRow> rows = {skipped_row("9:row", "x", "measured")};
  for (const double error : {0.25, -0.5, 0.125, 0.0}) rows.push_back(with_error(error));
  ValidationSummary summary = summary_of(rows);
  EXPECT_EQ(summary.count, 5);
  EXPECT_EQ(summary.skipped, 1);
  EXPECT_DOUBLE_EQ(*summary.median, (0.125 + 0.25) / 2);  // of 0, 0.125, 0.25, 0.5
  EXPECT_DOUBLE_EQ(*summary.p90, 0.5);                    // ceil(0.9 x 4) = 4th
  EXPECT_DOUBLE_EQ(*summary.worst, 0.5);

  rows.clear();
  for (int i = 1; i <= 10; ++i) rows.push_back(with_error(i / 16.0));
  summary = summary_of(rows);
  EXPECT_DOUBLE_EQ(*summary.median, 5.5 / 16);
  EXPECT_DOUBLE_EQ(*summary.p90, 9 / 16.0);  // 0.9 x 10 = 9th
  EXPECT_DOUBLE_EQ(*summary.worst, 10 / 16.0);
  EXPECT_TRUE(is_within(summary, 0.625));
  EXPECT_FALSE(is_within(summary, 0.62));
}

TEST(Validation, NothingComparedIsNotWithinAnyTolerance) {
  const ValidationSummary summary = summary_of({skipped_row("9:row", "x", "measured")});
  EXPECT_FALSE(summary.median.has_value());
  EXPECT_FALSE(is_within(summary, 1));
}

Validation example() {
  Validation validation;
  validation.input = "rows.csv";
  validation.rows = {compared_row("2:per_gpu_gb", std::string(60, 'm'), "GB", 31.4, 31.4),
                     compared_row("3:params_b", "largest", "billion", 122.3, 121.6),
                     skipped_row("4:row", "x", "measured"), skipped_row("5:row", "y", "measured")};
  validation.assumptions = {"line 3: something"};
  return validation;
}

TEST(ValidationText, ShowsRowsReasonsAndSummary) {
  const std::string text = validation_text(example());
  EXPECT_THAT(text, HasSubstr("3:params_b       largest                                            "
                              "122.3     121.6 billion   +0.58%\n"));
  EXPECT_THAT(text, HasSubstr("\nskipped 2: measured\n"));
  EXPECT_THAT(text, HasSubstr("assumed: line 3: something\n"));
  EXPECT_THAT(text, HasSubstr("2 figures compared, 2 skipped; absolute error: median 0.29 %, p90 "
                              "0.58 %, worst 0.58 %\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST(ValidationText, GroupsBySourceTheWorstFirst) {
  Validation validation;
  for (const auto& [id, predicted] : {std::pair{"near", 101.0}, std::pair{"far", 90.0}}) {
    validation.rows.push_back(compared_row(id, "peak", "GB", predicted, 100));
    validation.rows.back().source = "Report";
  }
  const std::string text = validation_text(validation);
  // errors 1 and 10 %: median 5.5 %
  const std::size_t heading = text.find("Report: 2 compared, median 5.50 %, worst 10.00 %\nfar ");
  ASSERT_NE(heading, std::string::npos) << text;
  EXPECT_LT(heading, text.find("\nnear "));
  const JsonValue json = validation_json(validation);
  EXPECT_EQ(json["rows"][0]["id"], "near");
  EXPECT_EQ(json["rows"][0]["source"], "Report");
  EXPECT_EQ(json["sources"][0]["source"], "Report");
  EXPECT_EQ(json["sources"][0]["count"], 2);
  EXPECT_DOUBLE_EQ(json["sources"][0]["worst"].asDouble(), 0.1);
}

TEST(ValidationJson, HoldsRowsAndSummary) {
  const JsonValue json = validation_json(example());
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["input"], "rows.csv");
  ASSERT_EQ(json["rows"].size(), 4U);
  EXPECT_EQ(json["rows"][1]["id"], "3:params_b");
  EXPECT_EQ(json["rows"][1]["predicted"], 122.3);
  EXPECT_EQ(json["rows"][1]["measured"], 121.6);
  EXPECT_EQ(json["rows"][1]["skipped"], false);
  EXPECT_TRUE(json["rows"][1]["why"].isNull());
  EXPECT_DOUBLE_EQ(json["rows"][1]["relative_error"].asDouble(), (122.3 - 121.6) / 121.6);
  EXPECT_EQ(json["rows"][2]["skipped"], true);
  EXPECT_EQ(json["rows"][2]["why"], "measured");
  EXPECT_TRUE(json["rows"][2]["predicted"].isNull());
  EXPECT_EQ(json["summary"]["count"], 4);
  EXPECT_EQ(json["summary"]["skipped"], 2);
  EXPECT_DOUBLE_EQ(json["summary"]["worst"].asDouble(), (122.3 - 121.6) / 121.6);
  EXPECT_EQ(json["assumptions"][0], "line 3: something");
}

}  // namespace
}  // namespace zerosim
