/// \file
/// A Hugging Face config.json as the families read it: sizes with errors that say what a key means,
/// and a record of each default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/model/assembler.h"

namespace zerosim::internal {

inline constexpr std::int64_t kLargestLayerCount = 10'000;
inline constexpr const char* kHuggingFaceDefault = "Hugging Face's default";

class Config {
 public:
  explicit Config(const JsonDocument& document) : object_(document, document.root(), "") {}

  /// Names of one key: gpt2 has its own (n_embd) and takes the common ones (hidden_size) too.
  using Names = std::vector<std::string>;

  /// A size without which no model can be known.
  [[nodiscard]] std::int64_t required_size(const Names& names, const std::string& meaning,
                                           std::int64_t largest = kLargestSize);
  [[nodiscard]] std::int64_t size_or(const Names& names, const std::string& meaning,
                                     std::int64_t fallback,
                                     const std::string& reason = kHuggingFaceDefault);
  /// A number that may be 0.
  [[nodiscard]] std::int64_t count_or(const std::string& name, const std::string& meaning,
                                      std::int64_t fallback);
  /// A size whose absence (or null) is the rule and needs no mention.
  [[nodiscard]] std::optional<std::int64_t> optional_size(const std::string& name,
                                                          const std::string& meaning);
  [[nodiscard]] bool flag_or(const std::string& name, bool fallback);
  /// A flag whose absence is the rule and needs no mention.
  [[nodiscard]] bool rare_flag(const std::string& name);
  [[nodiscard]] std::string word_or(const std::string& name, const std::string& fallback);

  /// Class that transformers' ACT2FN makes of the activation that the key names.
  [[nodiscard]] std::string activation_class(const std::string& name, const std::string& fallback);
  /// The same for the activation called `value`, which stands under `name`.
  [[nodiscard]] std::string activation_class_of(const std::string& name, const std::string& value);

  // Sizes that most decoders have, under their common names.
  [[nodiscard]] std::int64_t hidden(const Names& names = {"hidden_size"});
  [[nodiscard]] std::int64_t layers(const Names& names = {"num_hidden_layers"});
  [[nodiscard]] std::int64_t heads(const Names& names = {"num_attention_heads"});
  [[nodiscard]] std::int64_t vocab(std::int64_t fallback);
  [[nodiscard]] std::int64_t max_positions(const Names& names, std::int64_t fallback);
  /// hidden / heads. \throws ConfigError  at the heads if they do not divide.
  [[nodiscard]] std::int64_t divided_head_dim(std::int64_t hidden, std::int64_t heads,
                                              const Names& heads_names = {"num_attention_heads"});
  /// num_key_value_heads. \param fallback  if the key is absent; 0: as many as `heads`, which null
  /// always means. \throws ConfigError  if they do not divide `heads`.
  [[nodiscard]] std::int64_t kv_heads(std::int64_t heads, std::int64_t fallback);
  /// head_dim, which need not be hidden / heads. \param fallback  as above; 0: hidden / heads.
  [[nodiscard]] std::int64_t head_dim(std::int64_t hidden, std::int64_t heads,
                                      std::int64_t fallback);

  [[nodiscard]] bool has(const std::string& name) { return !object_.raw(name).isNull(); }
  [[nodiscard]] bool is_null(const std::string& name) {
    return object_.value().isMember(name) && object_.raw(name).isNull();
  }
  void assume(std::string sentence) { assumptions_.push_back(std::move(sentence)); }
  /// The model is always built with its head and loss: says so where "architectures" has no
  /// `built`.
  void note_architecture(const std::string& built);
  [[noreturn]] void fail(const std::string& key, const std::string& message) const {
    object_.fail(key, message);
  }
  [[nodiscard]] JsonObject& object() { return object_; }
  [[nodiscard]] const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  /// The first of the names that has a value other than null, or none.
  [[nodiscard]] const std::string* stated(const Names& names);
  [[nodiscard]] std::int64_t size(const std::string& name, const std::string& meaning,
                                  std::int64_t largest);

  JsonObject object_;
  std::vector<std::string> assumptions_;
};

}  // namespace zerosim::internal
