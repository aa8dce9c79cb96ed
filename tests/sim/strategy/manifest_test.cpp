// Every file of tests/data/ds_configs against the outcome, code, values and warnings of
// manifest.csv.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/strategy/config_codes.h"
#include "sim/strategy/strategy.h"

namespace zerosim {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kFolder = std::string(ZEROSIM_TEST_DATA) + "/ds_configs/";

/// RFC 4180: commas inside quotes, doubled quotes.
std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    if (end > start) parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

struct Row {
  std::string file;
  int world_size = 0;
  std::string outcome[2];  ///< deepspeed, hf
  std::string code[2];
  std::string resolved;
  std::vector<std::string> lints;  ///< "code" or "code:detail"
};

std::vector<Row> manifest() {
  std::vector<Row> rows;
  const std::vector<std::string> lines = split(read_file(kFolder + "manifest.csv"), '\n');
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::string line = lines[i];
    if (line.ends_with('\r')) line.pop_back();
    const std::vector<std::string> fields = csv_fields(line);
    Row row;
    row.file = fields.at(0);
    row.world_size = std::stoi(fields.at(1));
    row.outcome[0] = fields.at(2);
    row.outcome[1] = fields.at(3);
    const std::vector<std::string> codes = split(fields.at(4), '|');
    if (!codes.empty()) {
      row.code[0] = codes.front();
      row.code[1] = codes.back();
    }
    row.resolved = fields.at(5);
    row.lints = split(fields.at(6), ';');
    rows.push_back(row);
  }
  return rows;
}

/// What the strategy has for a key of the manifest.
std::string resolved_value(const Strategy& s, const std::string& key, int world_size) {
  for (const std::string prefix :
       {"", "zero_optimization.", "zero_optimization.stage3_", "data_types."}) {
    if (const Setting* setting = find_setting(s, prefix + key)) return setting->value;
  }
  if (key == "precision") return std::string(to_string(s.precision));
  if (key == "optimizer") return s.optimizer_name;
  if (key == "states_bytes_per_param") return std::to_string(s.optimizer_state_bytes);
  if (key == "hpz") return std::to_string(s.zero.hpz_partition_size);
  if (key == "replicas") return std::to_string(world_size / s.zero.mics_shard_size);
  const Setting* device = find_setting(s, "zero_optimization." + key + ".device");
  if (device == nullptr) return "no such key: " + key;
  return device->origin == Origin::Derived ? "ignored" : device->value;
}

/// The part of the column `resolved_values` that is about `mode`.
std::string resolved_in(const Row& row, ConfigMode mode) {
  std::string text = row.resolved;
  const bool hf = mode == ConfigMode::HuggingFace;
  for (const std::string& note : {std::string("(hidden=4096, HF) "), std::string("hf: ")}) {
    if (!text.starts_with(note)) continue;
    return hf ? text.substr(note.size()) : "";
  }
  if (!text.starts_with("raw: ")) return text;
  return hf ? "" : text.substr(5);
}

void check_resolved(const Row& row, const Strategy& strategy, ConfigMode mode) {
  for (std::string item : split(resolved_in(row, mode), ';')) {
    item = item.substr(0, item.find(" ("));
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    EXPECT_EQ(resolved_value(strategy, key, row.world_size), item.substr(equals + 1)) << item;
  }
}

TrainingFlags flags_for(const std::string& text, ConfigMode mode) {
  TrainingFlags flags;
  flags.config_as = mode;
  if (mode != ConfigMode::HuggingFace) return flags;
  const auto leaves_auto = [&](const std::string& key) {
    return text.find("\"" + key + "\": \"auto\"") != std::string::npos;
  };
  if (leaves_auto("train_micro_batch_size_per_gpu")) flags.micro_batch = 1;
  if (leaves_auto("gradient_accumulation_steps")) flags.grad_accum = 1;
  if (leaves_auto("enabled")) flags.precision = Precision::Bf16;
  return flags;
}

void check_error(const Row& row, int column, const ConfigError& error) {
  EXPECT_THAT(error.what(), HasSubstr(row.file + ":"));
  EXPECT_GE(error.location().line, 1) << error.what();
  EXPECT_EQ(row.outcome[column], "error") << error.what();
  EXPECT_EQ(error.code(), row.code[column]) << error.what();
  // "derived gradient_accumulation_steps=4 -> 96": the message has the numbers
  if (!row.resolved.starts_with("derived ")) return;
  std::string words = row.resolved.substr(8, row.resolved.find(" -> ") - 8);
  words[words.find('=')] = ' ';
  EXPECT_THAT(error.what(), HasSubstr(words));
  EXPECT_THAT(error.what(), HasSubstr("= " + row.resolved.substr(row.resolved.find("> ") + 2)));
}

/// Codes that reading must report, and no others. A code of the lint column that is a warning
/// belongs to the mode whose outcome is "warn".
std::set<std::string> expected_codes(const Row& row, int column) {
  std::set<std::string> codes;
  const bool warns = row.outcome[column] == "warn";
  if (warns) codes.insert(row.code[column]);
  for (const std::string& lint : row.lints) {
    const std::string code = lint.substr(0, lint.find(':'));
    const ConfigCode* known = find_config_code(code);
    if (known == nullptr) ADD_FAILURE() << code << " is not in the table";
    if (known != nullptr && (warns || known->kind == CodeKind::Lint)) codes.insert(code);
  }
  return codes;
}

/// "code:old->new": one warning of that code names both.
void check_detail(const std::string& lint, const Strategy& strategy) {
  if (lint.find(':') == std::string::npos) return;
  const std::string code = lint.substr(0, lint.find(':'));
  const std::vector<std::string> words = split(lint.substr(lint.find(':') + 1), '>');
  bool found = false;
  for (const Warning& warning : strategy.warnings) {
    if (warning.code != code) continue;
    bool names_all = true;
    for (std::string word : words) {
      if (word.ends_with('-')) word.pop_back();
      names_all = names_all && warning.message.find(word) != std::string::npos;
    }
    found = found || names_all;
  }
  EXPECT_TRUE(found) << lint;
}

void check_row(const Row& row, ConfigMode mode, const Model& model) {
  const int column = mode == ConfigMode::DeepSpeed ? 0 : 1;
  const TrainingFlags flags = flags_for(read_file(kFolder + row.file), mode);
  std::optional<Strategy> strategy;
  try {
    strategy = load_deepspeed_config(kFolder + row.file, flags, model, row.world_size);
  } catch (const ConfigError& error) {
    check_error(row, column, error);
    return;
  }
  EXPECT_EQ(to_string(config_verdict(strategy->warnings)), row.outcome[column]);
  std::set<std::string> codes;
  for (const Warning& warning : strategy->warnings) {
    codes.insert(warning.code);
    EXPECT_THAT(warning.message, StartsWith(to_string(warning.where) + ": "));
    EXPECT_GE(warning.where.line, 1) << warning.message;
  }
  EXPECT_EQ(codes, expected_codes(row, column));
  if (row.outcome[column] == "warn") {
    for (const std::string& lint : row.lints) check_detail(lint, *strategy);
  }
  check_resolved(row, *strategy, mode);
}

void check_all(ConfigMode mode, const Model& model) {
  const std::vector<Row> rows = manifest();
  ASSERT_EQ(rows.size(), 39U);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.file);
    check_row(row, mode, model);
  }
}

Model model_of_hidden_size() {
  Model model;
  model.shape.hidden = 4096;
  return model;
}

TEST(Manifest, AsDeepSpeedAlone) {
  check_all(ConfigMode::DeepSpeed, model_of_hidden_size());
  check_all(ConfigMode::DeepSpeed, load_model("llama-2-7b"));
}

TEST(Manifest, AsHuggingFace) {
  check_all(ConfigMode::HuggingFace, model_of_hidden_size());
  check_all(ConfigMode::HuggingFace, load_model("llama-2-7b"));
}

/// Mode auto reads what either of the two reads, except duplicate keys, once the flags are given.
TEST(Manifest, AutoReadsWhatEitherReads) {
  for (const Row& row : manifest()) {
    SCOPED_TRACE(row.file);
    const bool either =
        row.outcome[0] != "error" || (row.outcome[1] != "error" && row.code[0] != "duplicate_keys");
    if (!either) continue;
    const Model model = model_of_hidden_size();
    TrainingFlags flags = flags_for(read_file(kFolder + row.file), ConfigMode::HuggingFace);
    flags.config_as = ConfigMode::Auto;
    EXPECT_NO_THROW(
        static_cast<void>(load_deepspeed_config(kFolder + row.file, flags, model, row.world_size)));
  }
}

}  // namespace
}  // namespace zerosim
