#include <algorithm>
#include <array>
#include <optional>

#include <gtest/gtest.h>

#include "tests/sim/model/test_support.h"

namespace zerosim {
namespace {

/// A row of param_counts.csv; an empty column is a thing that the source does not say.
struct Row {
  std::string name;
  std::int64_t parameters = 0;
  std::optional<std::int64_t> active;
  std::optional<bool> tied;
};

/// Columns: name, hub_id, params_total_unique, params_active_per_token, tied_embeddings, then text.
std::vector<Row> rows() {
  std::vector<Row> result;
  for (const std::string& line : test::lines_of("param_counts.csv")) {
    std::array<std::string, 5> columns;
    std::size_t begin = 0;
    for (std::string& column : columns) {
      const std::size_t end = line.find(',', begin);
      column = line.substr(begin, end - begin);
      begin = end + 1;
    }
    if (columns[0] == "name") continue;
    Row row;
    row.name = columns[0];
    row.parameters = std::stoll(columns[2]);
    if (!columns[3].empty()) row.active = std::stoll(columns[3]);
    if (!columns[4].empty()) row.tied = columns[4] == "true";
    result.push_back(row);
  }
  return result;
}

class ParameterCounts : public testing::TestWithParam<Row> {};

TEST_P(ParameterCounts, EqualPublishedCheckpoints) {
  const Model model = load_model(GetParam().name);
  EXPECT_EQ(parameter_count(model), GetParam().parameters);
  EXPECT_EQ(trainable_parameter_count(model), GetParam().parameters);
  // Without experts all act on every token.
  EXPECT_EQ(active_parameter_count(model), GetParam().active.value_or(GetParam().parameters));
  if (GetParam().tied) {
    EXPECT_EQ(model.tied_embeddings, *GetParam().tied);
  }
  EXPECT_EQ(model.name, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Presets, ParameterCounts, testing::ValuesIn(rows()),
                         [](const testing::TestParamInfo<Row>& row) {
                           std::string name = row.param.name;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(ParameterCounts, EveryPresetHasARow) {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(model_preset_names(), names);
}

TEST(ParameterCounts, WithoutPositions) {
  // wpe of GPT-2: 1024 x 768 = 786,432.
  EXPECT_EQ(parameter_count_without_positions(load_model("gpt2")), 124'439'808 - 786'432);
  EXPECT_EQ(parameter_count_without_positions(load_model("llama-2-7b")), 6'738'415'616);
}

TEST(ParameterCounts, LargestModuleIsTheEmbedding) {
  // 32,000 x 4,096 = 131,072,000, larger than the MLP's 11,008 x 4,096: F4's worked values use it.
  EXPECT_EQ(largest_module_parameters(load_model("llama-2-7b")), 131'072'000);
  // 8,192 x 128,256 = 1,050,673,152: F4's column for 70e9 parameters.
  EXPECT_EQ(largest_module_parameters(load_model("llama-3-70b")), 1'050'673'152);
}

}  // namespace
}  // namespace zerosim
