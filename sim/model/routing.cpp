#include "sim/model/routing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <system_error>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/random.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

constexpr const char* kFormat = "zerosim.routing";
constexpr double kLargestExponent = 10;
constexpr std::int64_t kMostDrawn = 1 << 17;  ///< tokens of a block

using Generator = std::mt19937_64;

/// Draws experts by weight, without putting back within one token.
class ExpertDraw {
 public:
  explicit ExpertDraw(const std::vector<double>& weights)
      : weights_(weights), cumulative_(weights.size()), taken_(weights.size(), false) {
    std::partial_sum(weights.begin(), weights.end(), cumulative_.begin());
    uniform_ =
        std::adjacent_find(weights.begin(), weights.end(), std::not_equal_to<>()) == weights.end();
  }

  /// Adds one to the count of each expert that a token goes to.
  void add_token(std::int64_t experts_per_token, Generator& generator,
                 std::vector<std::int64_t>& counts) {
    chosen_.clear();
    while (static_cast<std::int64_t>(chosen_.size()) < experts_per_token) {
      const std::size_t expert = draw(generator);
      taken_[expert] = true;
      chosen_.push_back(expert);
      ++counts[expert];
    }
    for (const std::size_t expert : chosen_) taken_[expert] = false;
  }

 private:
  /// An expert that is not taken: by rejection, which is exact, and where a few heavy ones are
  /// taken and most tries fail, by a walk over the others.
  std::size_t draw(Generator& generator) {
    constexpr int kTries = 32;
    for (int i = 0; i < kTries; ++i) {
      const std::size_t expert = draw_any(generator);
      if (!taken_[expert]) return expert;
    }
    double total = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) total += taken_[i] ? 0 : weights_[i];
    double left = draw_unit(generator) * total;
    std::size_t last = weights_.size();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (taken_[i]) continue;
      last = i;
      left -= weights_[i];
      if (left < 0) break;
    }
    return last;
  }

  std::size_t draw_any(Generator& generator) const {
    if (uniform_) return draw_below(generator, weights_.size());
    const double place = draw_unit(generator) * cumulative_.back();
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), place);
    return std::min(static_cast<std::size_t>(found - cumulative_.begin()), weights_.size() - 1);
  }

  const std::vector<double>& weights_;
  std::vector<double> cumulative_;
  std::vector<bool> taken_;
  std::vector<std::size_t> chosen_;
  bool uniform_ = false;
};

/// Weights of one block; under Zipf which expert is the popular one is drawn.
std::vector<double> weights_of(const Routing& routing, std::size_t experts, Generator& generator) {
  std::vector<double> weights(experts, 1.0);
  if (routing.kind != Routing::Kind::Zipf) return weights;
  for (std::size_t i = 0; i < experts; ++i) {
    weights[i] = std::pow(static_cast<double>(i + 1), -routing.exponent);
  }
  for (std::size_t i = experts - 1; i > 0; --i) {  // Fisher-Yates
    std::swap(weights[i], weights[draw_below(generator, i + 1)]);
  }
  return weights;
}

/// `total` split by the shares of `parts`; no expert gets more than `most`, as a token goes to
/// each at most once.
std::vector<std::int64_t> scaled(const std::vector<std::int64_t>& parts, std::int64_t total,
                                 std::int64_t most) {
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  std::vector<std::int64_t> result;
  std::vector<std::pair<double, std::size_t>> remainders;
  std::int64_t left = total;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double share = static_cast<double>(parts[i]) / sum * static_cast<double>(total);
    result.push_back(std::min(static_cast<std::int64_t>(share), most));
    remainders.emplace_back(-(share - std::floor(share)), i);
    left -= result.back();
  }
  // What rounding and `most` leave over goes to the others alike, largest remainders first.
  std::sort(remainders.begin(), remainders.end());
  while (left > 0) {
    const std::int64_t open = std::count_if(
        remainders.begin(), remainders.end(),
        [&](const auto& r) { return result[r.second] < most && parts[r.second] > 0; });
    const std::int64_t each = std::max<std::int64_t>(left / open, 1);
    for (const auto& [remainder, i] : remainders) {
      if (parts[i] == 0) continue;
      const std::int64_t more = std::min({each, most - result[i], left});
      result[i] += more;
      left -= more;
    }
  }
  return result;
}

void use_measured(const MeasuredRouting& measured, const Model& model, MoeBlock& block,
                  std::int64_t tokens) {
  const auto experts = static_cast<std::int64_t>(measured.tokens.size());
  if (experts != block.experts) {
    throw ConfigError(measured.where,
                      format("routing of \"{}\": found {} experts, expected {}",
                             model.modules[block.module.index()].name, experts, block.experts));
  }
  const auto used = std::count_if(measured.tokens.begin(), measured.tokens.end(),
                                  [](std::int64_t count) { return count > 0; });
  if (used < block.experts_per_token) {
    throw ConfigError(
        format("routing of \"{}\": {} experts see tokens, expected at least the {} "
               "that each token goes to",
               measured.module, used, block.experts_per_token));
  }
  block.tokens = scaled(measured.tokens, tokens * block.experts_per_token, tokens);
}

/// The entry of this micro batch alone, else the one of all.
const MeasuredRouting* find_measured(const Routing& routing, const std::string& module,
                                     MicroStep when) {
  const MeasuredRouting* general = nullptr;
  for (const MeasuredRouting& entry : routing.measured) {
    if (entry.module != module) continue;
    if (!entry.when) {
      general = &entry;
    } else if (entry.when->step == when.step && entry.when->micro_step == when.micro_step) {
      return &entry;
    }
  }
  return general;
}

void apply_measured(const Routing& routing, Model& model, std::int64_t tokens, MicroStep when) {
  std::vector<std::string> names;
  for (MoeBlock& block : model.moe_blocks) {
    const std::string& name = model.modules[block.module.index()].name;
    names.push_back(name);
    const MeasuredRouting* found = find_measured(routing, name, when);
    if (found == nullptr) {
      throw ConfigError(
          {routing.file, 0, 0},
          format("routing: block \"{}\" is missing{}, expected every MoE block", name,
                 varies(routing) ? format(" for step {}, micro step {}", when.step, when.micro_step)
                                 : ""));
    }
    use_measured(*found, model, block, tokens);
  }
  for (const MeasuredRouting& entry : routing.measured) {
    if (std::find(names.begin(), names.end(), entry.module) != names.end()) continue;
    throw ConfigError(entry.where, format("routing: the model has no MoE block \"{}\"{}",
                                          entry.module, did_you_mean(entry.module, names)));
  }
}

/// Draws for `tokens` tokens; of very many, for a sample that is then scaled.
void draw_routing(const Routing& routing, Model& model, std::int64_t tokens) {
  Generator generator(routing.seed);
  const std::int64_t sample = std::min(tokens, kMostDrawn);
  for (MoeBlock& block : model.moe_blocks) {
    const auto experts = static_cast<std::size_t>(block.experts);
    const std::vector<double> weights = weights_of(routing, experts, generator);
    ExpertDraw draw(weights);
    block.tokens.assign(experts, 0);
    for (std::int64_t i = 0; i < sample; ++i) {
      draw.add_token(block.experts_per_token, generator, block.tokens);
    }
    if (sample < tokens) {
      block.tokens = scaled(block.tokens, tokens * block.experts_per_token, tokens);
    }
  }
}

/// An expert without tokens is not called.
bool is_idle(const Model& model, const ExecutionStep& step) {
  const Module& module = model.modules[step.module.index()];
  const int expert = step.kind == ExecutionStep::Kind::Compute
                         ? model.operators[static_cast<std::size_t>(step.operation)].expert
                         : module.expert;
  if (expert < 0) return false;
  const MoeBlock& block = model.moe_blocks[static_cast<std::size_t>(module.moe_block)];
  return !block.calls_idle_experts && block.tokens[static_cast<std::size_t>(expert)] == 0;
}

std::vector<std::int64_t> read_counts(JsonObject& block) {
  std::vector<std::int64_t> counts = block.integers("tokens");
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  for (const std::int64_t count : counts) {
    if (count < 0 || count > kMost) {
      block.fail("tokens", format("found {}, expected counts of 0 to {}", count, kMost));
    }
  }
  return counts;
}

std::optional<MicroStep> read_micro_step(JsonObject& block) {
  constexpr std::int64_t kMost = 1'000'000;
  if (block.raw("step").isNull() && block.raw("micro_step").isNull()) return std::nullopt;
  std::array<int, 2> values{};
  for (const auto& [value, key] : {std::pair{&values[0], "step"}, {&values[1], "micro_step"}}) {
    const std::int64_t found = block.integer_at_least(key, 0);
    if (found > kMost) block.fail(key, format("found {}, expected 0 to {}", found, kMost));
    *value = static_cast<int>(found);
  }
  return MicroStep{values[0], values[1]};
}

Routing read_routing_file(const std::string& path) {
  const JsonDocument document = JsonDocument::from_file(path);
  JsonObject root(document, document.root(), "");
  if (const std::string found = root.string("format"); found != kFormat) {
    root.fail("format", format(R"(found "{}", expected "{}")", found, kFormat));
  }
  if (const std::int64_t version = root.integer("version"); version != 1) {
    root.fail("version", format("found {}, expected 1", version));
  }
  Routing routing;
  routing.kind = Routing::Kind::Measured;
  routing.file = path;
  for (JsonObject& block : root.objects("blocks")) {
    routing.measured.push_back({block.string("module"), read_counts(block),
                                document.location(block.value()), read_micro_step(block)});
    block.reject_unknown_keys();
  }
  root.reject_unknown_keys();
  return routing;
}

}  // namespace

Routing parse_routing(const std::string& text, const std::string& flag) {
  if (text == "uniform") return {};
  if (text != "zipf" && !text.starts_with("zipf:")) {
    if (text.find('.') == std::string::npos && text.find('/') == std::string::npos) {
      throw ConfigError(format("{}: found \"{}\", expected uniform, zipf:EXPONENT or a file{}",
                               flag, text,
                               did_you_mean(text, std::vector<std::string>{"uniform", "zipf"})));
    }
    return read_routing_file(text);
  }
  Routing routing;
  routing.kind = Routing::Kind::Zipf;
  const std::string exponent = text.starts_with("zipf:") ? text.substr(5) : "";
  const char* end = exponent.data() + exponent.size();
  const std::from_chars_result read = std::from_chars(exponent.data(), end, routing.exponent);
  const bool in_range = routing.exponent >= 0 && routing.exponent <= kLargestExponent;
  if (read.ec != std::errc() || read.ptr != end || !in_range) {
    throw ConfigError(format("{}: found \"{}\", expected zipf: and an exponent of 0 to {}", flag,
                             text, kLargestExponent));
  }
  return routing;
}

Model route_tokens(Model model, const Routing& routing, std::int64_t tokens, MicroStep when) {
  if (routing.kind == Routing::Kind::Measured) {
    apply_measured(routing, model, tokens, when);
  } else {
    draw_routing(routing, model, tokens);
  }
  std::erase_if(model.forward, [&](const ExecutionStep& step) { return is_idle(model, step); });
  return model;
}

bool varies(const Routing& routing) {
  return std::any_of(routing.measured.begin(), routing.measured.end(),
                     [](const MeasuredRouting& entry) { return entry.when.has_value(); });
}

}  // namespace zerosim
