#include "sim/model/families/config.h"

#include <algorithm>
#include <map>
#include <optional>

#include "sim/base/text.h"

namespace zerosim::internal {
namespace {

/// Keys of `hidden_act` and the class that transformers' ACT2FN makes of them.
const std::map<std::string, std::string>& activation_classes() {
  static const std::map<std::string, std::string> kClasses = {
      {"gelu", "GELUActivation"},
      {"gelu_fast", "FastGELUActivation"},
      {"gelu_new", "NewGELUActivation"},
      {"gelu_pytorch_tanh", "PytorchGELUTanh"},
      {"mish", "MishActivation"},
      {"quick_gelu", "QuickGELUActivation"},
      {"relu", "ReLU"},
      {"relu2", "ReLUSquaredActivation"},
      {"relu6", "ReLU6"},
      {"sigmoid", "Sigmoid"},
      {"silu", "SiLU"},
      {"swish", "SiLU"},
      {"tanh", "Tanh"},
  };
  return kClasses;
}

}  // namespace

std::int64_t Config::required_size(const Names& names, const std::string& meaning,
                                   std::int64_t largest) {
  const std::string* name = stated(names);
  if (name != nullptr) return size(*name, meaning, largest);
  object_.fail(names.front(), format("missing, expected {}{}", meaning,
                                     did_you_mean(names.front(), object_.unknown_keys())));
}

std::int64_t Config::size_or(const Names& names, const std::string& meaning, std::int64_t fallback,
                             const std::string& reason) {
  const std::string* name = stated(names);
  if (name != nullptr) return size(*name, meaning, kLargestSize);
  assume(format("{} = {}: not in the config, {}", names.front(), fallback, reason));
  return fallback;
}

std::int64_t Config::count_or(const std::string& name, const std::string& meaning,
                              std::int64_t fallback) {
  if (!has(name)) {
    assume(format("{} = {}: not in the config, {}", name, fallback, kHuggingFaceDefault));
    return fallback;
  }
  const std::int64_t value = object_.integer(name);
  if (value >= 0 && value <= kLargestSize) return value;
  object_.fail(name, format("found {}, expected 0 to {}: {}", value, kLargestSize, meaning));
}

std::optional<std::int64_t> Config::optional_size(const std::string& name,
                                                  const std::string& meaning) {
  if (!has(name)) return std::nullopt;
  return size(name, meaning, kLargestSize);
}

bool Config::flag_or(const std::string& name, bool fallback) {
  if (const std::optional<bool> value = object_.optional_boolean(name)) return *value;
  assume(format("{} = {}: not in the config, {}", name, fallback, kHuggingFaceDefault));
  return fallback;
}

bool Config::rare_flag(const std::string& name) {
  return object_.optional_boolean(name).value_or(false);
}

std::string Config::word_or(const std::string& name, const std::string& fallback) {
  if (const std::optional<std::string> value = object_.optional_string(name)) return *value;
  assume(format("{} = {}: not in the config, {}", name, fallback, kHuggingFaceDefault));
  return fallback;
}

std::string Config::activation_class(const std::string& name, const std::string& fallback) {
  return activation_class_of(name, word_or(name, fallback));
}

std::string Config::activation_class_of(const std::string& name, const std::string& value) {
  const auto found = activation_classes().find(value);
  if (found != activation_classes().end()) return found->second;
  std::vector<std::string> known;
  for (const auto& entry : activation_classes()) known.push_back(entry.first);
  object_.fail(name, format("found \"{}\", expected one of {}{}", value, join(known, ", "),
                            did_you_mean(value, known)));
}

std::int64_t Config::hidden(const Names& names) {
  return required_size(names, "the width of the residual stream");
}

std::int64_t Config::layers(const Names& names) {
  return required_size(names, "the number of transformer layers", kLargestLayerCount);
}

std::int64_t Config::heads(const Names& names) {
  return required_size(names, "the number of attention heads");
}

std::int64_t Config::vocab(std::int64_t fallback) {
  return size_or({"vocab_size"}, "the number of tokens in the vocabulary", fallback);
}

std::int64_t Config::max_positions(const Names& names, std::int64_t fallback) {
  return size_or(names, "the longest sequence", fallback);
}

std::int64_t Config::divided_head_dim(std::int64_t hidden, std::int64_t heads,
                                      const Names& heads_names) {
  if (hidden % heads != 0) {
    const std::string* name = stated(heads_names);
    object_.fail(name == nullptr ? heads_names.front() : *name,
                 format("{} does not divide the width {}, expected a divisor", heads, hidden));
  }
  return hidden / heads;
}

std::int64_t Config::kv_heads(std::int64_t heads, std::int64_t fallback) {
  const bool all = fallback == 0 || is_null("num_key_value_heads");
  const std::int64_t kv_heads =
      size_or({"num_key_value_heads"}, "the number of key and value heads", all ? heads : fallback,
              all ? "as many as attention heads" : kHuggingFaceDefault);
  if (heads % kv_heads != 0) {
    fail("num_key_value_heads",
         format("{} does not divide num_attention_heads = {}, expected a divisor: each key and "
                "value head serves the same number of query heads",
                kv_heads, heads));
  }
  return kv_heads;
}

std::int64_t Config::head_dim(std::int64_t hidden, std::int64_t heads, std::int64_t fallback) {
  const bool divided = !has("head_dim") && (fallback == 0 || is_null("head_dim"));
  if (divided && hidden % heads != 0) {
    fail("num_attention_heads",
         format("{} does not divide hidden_size = {}, expected a divisor or a key head_dim", heads,
                hidden));
  }
  if (divided) return hidden / heads;  // the definition, not an assumption
  const std::int64_t head_dim = size_or({"head_dim"}, "the width of an attention head", fallback);
  if (head_dim > kLargestSize / heads) {
    fail("head_dim", format("{} x {} heads is wider than {}", head_dim, heads, kLargestSize));
  }
  return head_dim;
}

void Config::note_architecture(const std::string& built) {
  if (!has("architectures")) return;
  for (const std::string& architecture : object_.strings("architectures")) {
    if (architecture == built) return;
  }
  assume(format("built as {}, head and loss included: \"architectures\" says otherwise", built));
}

const std::string* Config::stated(const Names& names) {
  const auto found = std::find_if(names.begin(), names.end(), [this](const std::string& name) {
    return !object_.raw(name).isNull();
  });
  return found == names.end() ? nullptr : &*found;
}

std::int64_t Config::size(const std::string& name, const std::string& meaning,
                          std::int64_t largest) {
  const std::int64_t value = object_.integer(name);
  if (value >= 1 && value <= largest) return value;
  object_.fail(name, format("found {}, expected 1 to {}: {}", value, largest, meaning));
}

}  // namespace zerosim::internal
