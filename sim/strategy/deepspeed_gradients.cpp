#include <string>
#include <vector>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"
#include "sim/strategy/deepspeed_release.h"

namespace zerosim::internal {
namespace {

constexpr double kNoMaximum = std::numeric_limits<double>::max();

/// Nothing if the file leaves the type to its default.
std::optional<Dtype> read_dtype(ConfigSection& section, const std::string& key,
                                const std::vector<std::string>& words) {
  const std::optional<std::string> word = section.word(key, words);
  if (!word) return std::nullopt;
  section.list(key, *word, Origin::File);
  return dtype_of_word(*word);
}

void read_communication_dtype(DeepSpeedReading& reading) {
  constexpr const char* kKey = "communication_data_type";
  constexpr const char* kSequenceKey = "seq_parallel_communication_data_type";
  const std::vector<std::string> words = {"fp32", "fp16", "bf16"};
  Strategy& strategy = reading.strategy;
  const Dtype own = model_dtype(strategy.precision);
  const bool shares_sequences = strategy.sequence_parallel_size > 1;
  const std::optional<Dtype> given = read_dtype(reading.root, kKey, words);
  const std::optional<Dtype> sequence = read_dtype(reading.root, kSequenceKey, words);
  strategy.communication_dtype = given.value_or(own);
  if (!given) {
    reading.root.list(kKey, config_word(own), Origin::Default, {.reason = "as the model"});
  }
  if (shares_sequences) {
    strategy.communication_dtype = sequence.value_or(Dtype::F32);
    if (!sequence) reading.root.list(kSequenceKey, "fp32", Origin::Default);
    reading.notes.override_setting(kKey, config_word(strategy.communication_dtype),
                                   "seq_parallel_communication_data_type takes its place (A4)");
  }
  if (given && dtype_bytes(strategy.communication_dtype) > dtype_bytes(own)) {
    reading.root.warn(kKey, "communication_data_type_doubles_traffic",
                      format("gradients of {} travel as {}: twice the bytes", to_string(own),
                             to_string(strategy.communication_dtype)));
  }
}

void read_grad_accum_dtype(DeepSpeedReading& reading, ConfigSection& section) {
  constexpr const char* kKey = "grad_accum_dtype";
  Strategy& strategy = reading.strategy;
  const Dtype own = model_dtype(strategy.precision);
  const std::optional<Dtype> given = read_dtype(section, kKey, dtype_words());
  strategy.grad_accum_dtype = given.value_or(own);
  if (!given) {
    section.list(kKey, config_word(own), Origin::Default, {.reason = "as the model"});
    return;
  }
  if (*given == own) return;
  if (strategy.zero.stage == 0) {
    section.fail(kKey,
                 format("found {}, but stage 0 accumulates in the model's {} only",
                        section.shown(kKey), to_string(own)),
                 "grad_accum_dtype_unsupported");
  }
  if (strategy.zero.stage == 2) {
    strategy.grad_accum_dtype = own;
    section.warn(kKey, "grad_accum_dtype_ignored_at_stage_2",
                 format("stage 2 accumulates in the model's {} whatever is asked for (B3.11)",
                        to_string(own)));
  }
}

void read_clipping(DeepSpeedReading& reading) {
  constexpr const char* kKey = "gradient_clipping";
  // The HF Trainer's max_grad_norm is 1.0 unless told otherwise (A6).
  constexpr double kTrainerMaxGradNorm = 1.0;
  Strategy& strategy = reading.strategy;
  if (reading.fills_auto() && reading.root.is_auto(kKey)) {
    strategy.gradient_clipping = kTrainerMaxGradNorm;
    reading.root.list(kKey, "1.0", Origin::Auto, {.reason = "the Trainer's default max_grad_norm"});
    return;
  }
  const double fallback = deepspeed_release(strategy.version).gradient_clipping;
  strategy.gradient_clipping =
      reading.root.number_or(kKey, fallback, 0, kNoMaximum,
                             {.reason = format("the default of DeepSpeed {}", strategy.version)});
}

void read_scaling(DeepSpeedReading& reading) {
  ConfigSection& root = reading.root;
  const ZeroOptions& zero = reading.strategy.zero;
  const bool prescale = root.boolean_or("prescale_gradients", false);
  const double predivide = root.number_or("gradient_predivide_factor", 1, kNoMinimum, kNoMaximum);
  if (!prescale && predivide == 1) return;
  if (zero.stage >= 2 && zero.reduce_scatter) {
    const char* key = prescale ? "prescale_gradients" : "gradient_predivide_factor";
    root.fail(key,
              format("found {}, which stage {} refuses while reduce_scatter is true",
                     root.shown(key), zero.stage),
              "scaling_with_reduce_scatter");
  }
  reading.assume(
      "Scaling before the reduction costs what scaling after it costs: the same collectives, one "
      "multiplication.");
}

/// Who refuses sums instead of means; "" if nobody does.
std::string sum_refused_by(DeepSpeedReading& reading) {
  if (reading.strategy.zero.stage == 3) return "stage 3";
  if (reading.strategy.zero.zenflow) return "ZenFlow";
  std::optional<ConfigSection> compile = reading.root.section("compile");
  const bool deep = compile && compile->boolean("deepcompile").value_or(false);
  return deep ? "DeepCompile" : "";
}

void read_reduction_operation(DeepSpeedReading& reading) {
  constexpr const char* kKey = "gradient_allreduce_op";
  if (reading.root.word_or(kKey, "mean", {"mean", "sum"}) == "mean") return;
  const std::string refused_by = sum_refused_by(reading);
  if (refused_by.empty()) return;
  reading.root.fail(kKey, format(R"(found "sum", which {} refuses, expected "mean")", refused_by),
                    "gradient_sum_unsupported");
}

}  // namespace

Dtype dtype_of_word(const std::string& word) {
  if (word == "fp16" || word == "float16" || word == "half") return Dtype::F16;
  if (word == "bf16" || word == "bfloat16") return Dtype::Bf16;
  return Dtype::F32;
}

const std::vector<std::string>& dtype_words() {
  static const std::vector<std::string> kWords = {"fp32",    "fp16", "bf16",     "float32",
                                                  "float16", "half", "bfloat16", "float"};
  return kWords;
}

std::string config_word(Dtype dtype) {
  if (dtype == Dtype::F16) return "fp16";
  return dtype == Dtype::Bf16 ? "bf16" : "fp32";
}

void read_dtypes(DeepSpeedReading& reading) {
  read_communication_dtype(reading);
  ConfigSection section = reading.root.section_or_empty("data_types");
  const Dtype own = model_dtype(reading.strategy.precision);
  const std::optional<Dtype> parameters = read_dtype(section, "param_dtype", dtype_words());
  if (parameters && *parameters != own) {
    section.fail("param_dtype",
                 format("found {}, expected {}, the enabled precision",
                        section.shown("param_dtype"), config_word(own)),
                 "param_dtype_mismatch");
  }
  static_cast<void>(read_dtype(section, "buffer_dtype", dtype_words()));
  read_grad_accum_dtype(reading, section);
  section.warn_unknown("unknown_key_ignored", "which DeepSpeed ignores");
}

void read_gradients(DeepSpeedReading& reading) {
  read_clipping(reading);
  read_scaling(reading);
  read_reduction_operation(reading);
  const bool sparse =
      reading.root.boolean_or("sparse_gradients", false, {.matters = reading.at_stage(kStage0)});
  if (sparse) note_no_effect(reading, reading.root, "sparse_gradients", kStage0);
}

}  // namespace zerosim::internal
