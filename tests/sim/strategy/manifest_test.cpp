// Every file of tests/data/ds_configs against the outcome, code, values and warnings of
// manifest.csv.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "sim/strategy/strategy.h"

namespace zerosim {
namespace {

using testing::HasSubstr;

const std::string kFolder = std::string(ZEROSIM_TEST_DATA) + "/ds_configs/";

/// Files whose features are not simulated yet: reading them must end in an error that says so.
const std::map<std::string, std::string>& not_simulated() {
  static const std::map<std::string, std::string> kFiles = {
      {"12_deprecated_cpu_offload.json", "offload of the optimizer"},
      {"14_deprecated_fp16_gather.json", "offload of parameters"},
      {"26_onecycle_lamb.json", "optimizers other than Adam and AdamW"},
      {"28_nvme_infinity.json", "offload of parameters"},
      {"31_zeropp.json", "quantised weight gathers (qwZ)"},
      {"32_mics.json", "MiCS"},
      {"36_tiny_buckets.json", "offload of parameters"},
  };
  return kFiles;
}

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

std::string resolved_value(const Strategy& s, const std::string& key) {
  const auto truth = [](bool value) { return std::string(value ? "true" : "false"); };
  const ZeroOptions& z = s.zero;
  const std::map<std::string, std::string> values = {
      {"stage", std::to_string(z.stage)},
      {"train_batch_size", std::to_string(s.train_batch)},
      {"train_micro_batch_size_per_gpu", std::to_string(s.micro_batch)},
      {"gradient_accumulation_steps", std::to_string(s.grad_accum)},
      {"reduce_bucket_size", std::to_string(z.reduce_bucket_size)},
      {"allgather_bucket_size", std::to_string(z.allgather_bucket_size)},
      {"sub_group_size", std::to_string(z.sub_group_size)},
      {"stage3_prefetch_bucket_size", std::to_string(z.prefetch_bucket_size)},
      {"stage3_param_persistence_threshold", std::to_string(z.param_persistence_threshold)},
      {"stage3_max_live_parameters", std::to_string(z.max_live_parameters)},
      {"overlap_comm", truth(z.overlap_comm)},
      {"contiguous_gradients", truth(z.contiguous_gradients)},
      {"precision", std::string(to_string(s.precision))},
      {"gradient_clipping", format("{:.1f}", s.gradient_clipping)},
      {"communication_data_type", s.communication_dtype == Dtype::F32 ? "fp32" : "16 bit"},
      // Stage 2 accumulates in the model dtype whatever the file says: the Strategy holds what is
      // so.
      {"grad_accum_dtype", z.stage == 2 ? "fp32" : std::string(to_string(s.grad_accum_dtype))},
      // That the file was read at all means that nothing is offloaded.
      {"offload_optimizer", "none"},
      {"offload_param", z.stage == 3 || s.name.starts_with("29") ? "none" : "ignored"},
  };
  const auto found = values.find(key);
  return found == values.end() ? "no such key: " + key : found->second;
}

void check_resolved(const Row& row, const Strategy& strategy, ConfigMode mode) {
  std::string text = row.resolved;
  const bool hf = mode == ConfigMode::HuggingFace;
  for (const std::string& note : {std::string("(hidden=4096, HF) "), std::string("hf: ")}) {
    if (!text.starts_with(note)) continue;
    if (!hf) return;
    text.erase(0, note.size());
  }
  if (text.starts_with("raw: ")) {
    if (hf) return;
    text.erase(0, 5);
  }
  for (std::string item : split(text, ';')) {
    item = item.substr(0, item.find(" ("));
    const std::size_t equals = item.find('=');
    EXPECT_EQ(resolved_value(strategy, item.substr(0, equals)), item.substr(equals + 1)) << item;
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

void check_row(const Row& row, ConfigMode mode) {
  const int column = mode == ConfigMode::DeepSpeed ? 0 : 1;
  Model model;
  model.shape.hidden = 4096;
  const TrainingFlags flags = flags_for(read_file(kFolder + row.file), mode);
  std::optional<Strategy> strategy;
  try {
    strategy = load_deepspeed_config(kFolder + row.file, flags, model, row.world_size);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(row.file + ":"));
    EXPECT_GE(error.location().line, 1) << error.what();
    const auto skipped = not_simulated().find(row.file);
    if (skipped != not_simulated().end()) {
      EXPECT_THAT(error.what(), HasSubstr("does not simulate " + skipped->second + " yet"));
      return;
    }
    EXPECT_EQ(row.outcome[column], "error") << error.what();
    EXPECT_EQ(error.code(), row.code[column]) << error.what();
    return;
  }
  ASSERT_NE(row.outcome[column], "error") << "it was read";
  EXPECT_FALSE(not_simulated().contains(row.file)) << "it was read";
  std::set<std::string> found;
  for (const Warning& warning : strategy->warnings) found.insert(warning.code);
  std::set<std::string> allowed;
  for (const std::string& lint : row.lints) {
    const std::string code = lint.substr(0, lint.find(':'));
    allowed.insert(code);
    // "auto" is filled in mode hf, and hpZ and the like do not come here.
    if (mode == ConfigMode::DeepSpeed) {
      EXPECT_TRUE(found.contains(code)) << lint;
    }
  }
  if (row.outcome[column] == "warn") {
    allowed.insert(row.code[column]);
    EXPECT_TRUE(found.contains(row.code[column])) << row.code[column];
  }
  for (const std::string& code : found) EXPECT_TRUE(allowed.contains(code)) << code;
  check_resolved(row, *strategy, mode);
}

TEST(Manifest, AsDeepSpeedAlone) {
  const std::vector<Row> rows = manifest();
  ASSERT_EQ(rows.size(), 39U);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.file);
    check_row(row, ConfigMode::DeepSpeed);
  }
}

TEST(Manifest, AsHuggingFace) {
  for (const Row& row : manifest()) {
    SCOPED_TRACE(row.file);
    check_row(row, ConfigMode::HuggingFace);
  }
}

/// Mode auto reads what either of the two reads, except duplicate keys, once the flags are given.
TEST(Manifest, AutoReadsWhatEitherReads) {
  for (const Row& row : manifest()) {
    SCOPED_TRACE(row.file);
    const bool either =
        row.outcome[0] != "error" || (row.outcome[1] != "error" && row.code[0] != "duplicate_keys");
    if (!either || not_simulated().contains(row.file)) continue;
    Model model;
    model.shape.hidden = 4096;
    TrainingFlags flags = flags_for(read_file(kFolder + row.file), ConfigMode::HuggingFace);
    flags.config_as = ConfigMode::Auto;
    EXPECT_NO_THROW(
        static_cast<void>(load_deepspeed_config(kFolder + row.file, flags, model, row.world_size)));
  }
}

}  // namespace
}  // namespace zerosim
