#include "sim/analysis/size_formula.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/analysis/memory_report.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

/// Something that is so many elements.
struct Quantity {
  double elements = 0;
  std::string words;
};

/// Whether anything of the job that may have this size has elements of one byte: the states of an
/// 8-bit optimizer, quantized weights, masks of a buffer that is known.
bool has_one_byte_elements(const SizeQuestion& question, const Strategy& strategy) {
  return question.memory_class || strategy.optimizer == OptimizerKind::Adam8bit ||
         (strategy.framework == Framework::DeepSpeed && strategy.zero.quantized_weights);
}

/// Bytes that one element takes, the likeliest first; sums are of what is kept together.
std::vector<int> element_bytes(const SizeQuestion& question, const Strategy& strategy) {
  std::vector<int> bytes = {4, 2, 8, 1, 6, 10, 12, 14, 16};
  if (!has_one_byte_elements(question, strategy)) std::erase(bytes, 1);
  if (!question.memory_class || strategy.precision == Precision::Fp32) return bytes;
  switch (*question.memory_class) {
    case MemoryClass::OptimizerStates:
    case MemoryClass::TemporaryBuffers:
    case MemoryClass::Logits:
      break;
    case MemoryClass::Parameters:
    case MemoryClass::Gradients:
    case MemoryClass::Activations:
    case MemoryClass::LiveParameters:
      std::swap(bytes[0], bytes[1]);
      break;
  }
  return bytes;
}

void add(std::vector<Quantity>& all, double elements, std::string words) {
  if (elements >= 1) all.push_back({elements, std::move(words)});
}

void add_shared(std::vector<Quantity>& all, double elements, const std::string& words, int ranks) {
  add(all, elements, words);
  if (ranks > 1) add(all, elements / ranks, format("{} / {} ranks", words, ranks));
}

/// The module and all below it; tied parameters count once.
double subtree_elements(const Model& model, ModuleId root) {
  std::vector<bool> below(model.modules.size(), false);
  std::vector<bool> counted(model.parameters.size(), false);
  double elements = 0;
  for (std::size_t i = root.index(); i < model.modules.size(); ++i) {
    const Module& module = model.modules[i];
    below[i] = i == root.index() || (module.parent.valid() && below[module.parent.index()]);
    if (!below[i]) continue;
    for (const ParameterId id : module.parameters) {
      if (!counted[id.index()])
        elements += static_cast<double>(model.parameters[id.index()].elements);
      counted[id.index()] = true;
    }
  }
  return elements;
}

std::string tensor_words(const Parameter& parameter) {
  std::vector<std::string> sides;
  sides.reserve(parameter.shape.size());
  for (const std::int64_t side : parameter.shape) sides.push_back(std::to_string(side));
  return format("{} elements of {}", join(sides, " x "), parameter.name);
}

void add_model(std::vector<Quantity>& all, const Model& model, int ranks) {
  const auto total = static_cast<double>(parameter_count(model));
  const auto trainable = static_cast<double>(trainable_parameter_count(model));
  add_shared(all, total, count_text(total) + " parameters", ranks);
  if (trainable < total) {
    add_shared(all, trainable, count_text(trainable) + " trainable parameters", ranks);
  }
}

void add_settings(std::vector<Quantity>& all, const Strategy& strategy) {
  if (strategy.framework != Framework::DeepSpeed) return;
  const ZeroOptions& zero = strategy.zero;
  const auto setting = [&](std::int64_t elements, const char* key) {
    const auto count = static_cast<double>(elements);
    add(all, count, format("{} elements of {}", count_text(count), key));
  };
  setting(zero.reduce_bucket_size, "reduce_bucket_size");
  if (zero.stage == 3) setting(zero.sub_group_size, "sub_group_size");
}

void add_module(std::vector<Quantity>& all, const Model& model, ModuleId module, int ranks) {
  if (!module.valid() || module.index() >= model.modules.size()) return;
  const Module& own = model.modules[module.index()];
  const double elements = subtree_elements(model, module);
  add_shared(all, elements,
             format("{} parameters of {}", count_text(elements),
                    own.name.empty() ? "the root module" : own.name),
             ranks);
  for (const ParameterId id : own.parameters) {
    const Parameter& parameter = model.parameters[id.index()];
    add_shared(all, static_cast<double>(parameter.elements), tensor_words(parameter), ranks);
  }
}

/// One of each size.
void add_tensors(std::vector<Quantity>& all, const Model& model, int ranks) {
  std::vector<std::int64_t> seen;
  for (const Parameter& parameter : model.parameters) {
    if (std::find(seen.begin(), seen.end(), parameter.elements) != seen.end()) continue;
    seen.push_back(parameter.elements);
    add_shared(all, static_cast<double>(parameter.elements), tensor_words(parameter), ranks);
  }
}

void add_activations(std::vector<Quantity>& all, const Model& model, const BatchShape& batch) {
  const auto tokens = static_cast<double>(batch.tokens());
  const ModelShape& shape = model.shape;
  const auto width = [&](std::int64_t elements, const char* words) {
    add(all, tokens * static_cast<double>(elements),
        format("{} tokens x {} {}", batch.tokens(), elements, words));
  };
  width(shape.vocab, "words");
  width(shape.hidden, "hidden");
  width(shape.ffn, "of the MLP");
  const auto sequence = static_cast<double>(batch.sequence);
  add(all, tokens * sequence * static_cast<double>(shape.heads),
      format("{} heads x {} tokens x {} tokens", shape.heads, batch.tokens(), batch.sequence));
}

bool is_of_tokens(MemoryClass memory_class) {
  return memory_class == MemoryClass::Activations || memory_class == MemoryClass::Logits;
}

std::vector<Quantity> quantities(const SizeQuestion& question, const Experiment& experiment,
                                 const Strategy& strategy) {
  const Model& model = experiment.model;
  const int ranks = sharing_ranks(experiment, strategy);
  std::vector<Quantity> all;
  if (!question.memory_class || !is_of_tokens(*question.memory_class)) {
    add_model(all, model, ranks);
    add_settings(all, strategy);
    add_module(all, model, question.module, ranks);
    add_tensors(all, model, ranks);
  }
  if (!question.memory_class || is_of_tokens(*question.memory_class)) {
    add_activations(all, model, batch_of(experiment, strategy));
  }
  return all;
}

/// Sub-groups take whole pieces until they have sub_group_size elements or more (C8.2).
std::optional<SizeFormula> sub_group_formula(const SizeQuestion& question,
                                             const Experiment& experiment,
                                             const Strategy& strategy) {
  if (strategy.framework != Framework::DeepSpeed || strategy.zero.stage < 3) return std::nullopt;
  if (question.memory_class && is_of_tokens(*question.memory_class)) return std::nullopt;
  std::int64_t largest = 0;
  for (const Parameter& parameter : experiment.model.parameters) {
    largest = std::max(largest, parameter.elements);
  }
  const std::int64_t least = strategy.zero.sub_group_size;
  const std::int64_t most = least + largest / sharing_ranks(experiment, strategy);
  for (const int bytes : {4, 2, 8}) {
    const std::int64_t elements = question.bytes.count() / bytes;
    if (elements < least || elements > most) continue;
    return SizeFormula{format("{} bytes x {} elements of a sub-group (sub_group_size {}, filled up "
                              "with whole pieces)",
                              bytes, count_text(static_cast<double>(elements)),
                              count_text(static_cast<double>(least))),
                       Bytes(elements * bytes)};
  }
  return std::nullopt;
}

}  // namespace

int sharing_ranks(const Experiment& experiment, const Strategy& strategy) {
  const int world_size = experiment.cluster.world_size();
  switch (strategy.framework) {
    case Framework::DeepSpeed:
      if (strategy.zero.stage == 0) return 1;
      return strategy.zero.mics_shard_size > 0 ? static_cast<int>(strategy.zero.mics_shard_size)
                                               : world_size;
    case Framework::Fsdp:
      if (strategy.fsdp.sharding == FsdpSharding::NoShard) return 1;
      return is_hybrid(strategy.fsdp.sharding) && strategy.fsdp.shard_group > 0
                 ? static_cast<int>(strategy.fsdp.shard_group)
                 : world_size;
    case Framework::Single:
    case Framework::Ddp:
      break;
  }
  return 1;
}

std::optional<SizeFormula> size_formula(const SizeQuestion& question, const Experiment& experiment,
                                        const Strategy& strategy) {
  constexpr double kPadding = 1e-4;  // shards are padded to whole multiples of a few elements
  const auto wanted = static_cast<double>(question.bytes.count());
  const double granted =
      std::max(kPadding * wanted, static_cast<double>(question.tolerance.count()));
  std::optional<SizeFormula> best;
  double nearest = granted;
  for (const int bytes : element_bytes(question, strategy)) {
    for (const Quantity& quantity : quantities(question, experiment, strategy)) {
      const double product = bytes * quantity.elements;
      // What is no nearer than padding explains does not replace what was found before.
      const double distance = std::max(std::abs(product - wanted) - kPadding * wanted, 0.0);
      if (distance > granted || (best && distance >= nearest)) continue;
      nearest = distance;
      best = {format("{} {} x {}", bytes, bytes == 1 ? "byte" : "bytes", quantity.words),
              Bytes(std::llround(product))};
    }
  }
  return best ? best : sub_group_formula(question, experiment, strategy);
}

std::string count_text(double count) {
  constexpr double kPlainBelow = 1e6;
  if (count >= 1e9) return format("{:.4g}e9", count / 1e9);
  if (count >= kPlainBelow) return format("{:.4g}e6", count / 1e6);
  return format("{:.0f}", count);
}

std::string size_in_elements(Bytes bytes) {
  const auto count = static_cast<double>(bytes.count());
  return format("{} elements of 4 bytes, or {} of 2", count_text(count / 4), count_text(count / 2));
}

}  // namespace zerosim
