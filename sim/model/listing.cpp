// Reads a module listing; model.h has the schema.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/json.h"
#include "sim/base/text.h"
#include "sim/model/assembler.h"
#include "sim/model/readers.h"

namespace zerosim::internal {
namespace {

constexpr const char* kFormat = "zerosim.module_listing";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kLargestExpertCount = 200'000;  ///< of a block

/// Classes of torch.nn and transformers that are one element-wise function.
constexpr std::array<std::string_view, 20> kActivations = {"SiLU",
                                                           "SiLUActivation",
                                                           "Swish",
                                                           "GELU",
                                                           "GELUActivation",
                                                           "NewGELUActivation",
                                                           "FastGELUActivation",
                                                           "QuickGELUActivation",
                                                           "PytorchGELUTanh",
                                                           "BloomGelu",
                                                           "ReLU",
                                                           "ReLU6",
                                                           "ReLUSquaredActivation",
                                                           "LeakyReLU",
                                                           "ELU",
                                                           "Mish",
                                                           "MishActivation",
                                                           "Tanh",
                                                           "Sigmoid",
                                                           "Hardswish"};

struct AttentionEntry {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  friend bool operator==(const AttentionEntry&, const AttentionEntry&) = default;
};

struct ParameterEntry {
  std::string name;
  std::vector<std::int64_t> shape;
  bool trainable = true;
  SourceLocation where;
};

struct ModuleEntry {
  std::string name;
  std::string class_name;
  std::vector<ParameterEntry> parameters;
  std::optional<AttentionEntry> attention;
  std::vector<std::string> uses;
  std::optional<std::int64_t> experts_per_token;
  std::optional<std::int64_t> expert;
  std::optional<std::int64_t> block;
  std::optional<bool> positional_gradient_input;
  std::optional<bool> gradient_output;
  SourceLocation where;
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_matrix_product(std::string_view class_name) {
  return class_name == "Linear" || class_name == "Conv1D";
}

bool is_activation(std::string_view class_name) {
  return std::find(kActivations.begin(), kActivations.end(), class_name) != kActivations.end();
}

/// "a.b" is below "a", everything but the root is below "".
bool is_below(std::string_view name, std::string_view ancestor) {
  if (ancestor.empty()) return !name.empty();
  return name.size() > ancestor.size() && name.substr(0, ancestor.size()) == ancestor &&
         name[ancestor.size()] == '.';
}

bool ends_with_index(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return !last.empty() &&
         std::all_of(last.begin(), last.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::int64_t size(JsonObject& object, const std::string& key) {
  const std::int64_t value = object.integer_at_least(key, 1);
  if (value <= kLargestSize) return value;
  object.fail(key, format("found {}, expected 1 to {}", value, kLargestSize));
}

std::optional<std::int64_t> optional_size(JsonObject& object, const std::string& key) {
  if (object.raw(key).isNull()) return std::nullopt;
  return size(object, key);
}

ParameterEntry read_parameter(JsonObject object) {
  ParameterEntry entry;
  entry.name = object.string("name");
  entry.where = object.document().location(object.value());
  entry.shape = object.integers("shape");
  for (const std::int64_t extent : entry.shape) {
    if (extent < 1 || extent > kLargestSize) {
      object.fail("shape", format("found {}, expected sizes of 1 to {}", extent, kLargestSize));
    }
  }
  entry.trainable = object.optional_boolean("trainable").value_or(true);
  static_cast<void>(object.raw("dtype"));
  object.reject_unknown_keys();
  return entry;
}

AttentionEntry read_attention(JsonObject object) {
  AttentionEntry entry;
  entry.heads = size(object, "heads");
  entry.kv_heads = optional_size(object, "kv_heads").value_or(entry.heads);
  entry.head_dim = size(object, "head_dim");
  if (entry.heads % entry.kv_heads != 0) {
    object.fail("kv_heads", format("{} does not divide heads = {}", entry.kv_heads, entry.heads));
  }
  if (entry.head_dim > kLargestSize / entry.heads) {
    object.fail("head_dim", format("{} x {} heads is wider than {}", entry.head_dim, entry.heads,
                                   kLargestSize));
  }
  object.reject_unknown_keys();
  return entry;
}

ModuleEntry read_module(JsonObject object) {
  ModuleEntry entry;
  entry.where = object.document().location(object.value());
  entry.name = object.string("name");
  entry.class_name = object.string("class");
  if (!object.raw("parameters").isNull()) {
    for (JsonObject& parameter : object.objects("parameters")) {
      entry.parameters.push_back(read_parameter(std::move(parameter)));
    }
  }
  if (std::optional<JsonObject> attention = object.optional_object("attention")) {
    entry.attention = read_attention(std::move(*attention));
  }
  entry.block = object.optional_integer("block");
  if (entry.block && (*entry.block < 0 || *entry.block > 1'000'000)) {
    object.fail("block", format("found {}, expected 0 to 1000000", *entry.block));
  }
  if (!object.raw("uses").isNull()) entry.uses = object.strings("uses");
  entry.experts_per_token = optional_size(object, "experts_per_token");
  entry.expert = object.optional_integer("expert");
  if (entry.expert && (*entry.expert < 0 || *entry.expert >= kLargestExpertCount)) {
    object.fail("expert",
                format("found {}, expected 0 to {}", *entry.expert, kLargestExpertCount - 1));
  }
  if (entry.expert && entry.block) {
    object.fail("block", "an expert is no checkpointed unit of its own: expected it on the layer");
  }
  if (entry.expert && entry.experts_per_token) {
    object.fail("expert", "found on a mixture of experts, expected one of the two");
  }
  entry.positional_gradient_input = object.optional_boolean("positional_gradient_input");
  entry.gradient_output = object.optional_boolean("gradient_output");
  object.reject_unknown_keys();
  return entry;
}

/// Turns the entries into a Model: parameters first, then one pass over the modules.
class ListingReader {
 public:
  explicit ListingReader(const JsonDocument& document) : root_(document, document.root(), "") {}

  Model read() {
    read_header();
    for (JsonObject& module : root_.objects("modules")) {
      modules_.push_back(read_module(std::move(module)));
    }
    const bool has_registration = !root_.raw("registration").isNull();
    root_.reject_unknown_keys();
    check_modules();
    register_parameters(has_registration);
    read_shape();
    find_blocks();
    find_experts();
    run();
    Model model = assembler_.finish();
    model.family = "listing";
    return model;
  }

 private:
  Model& model() { return assembler_.model(); }
  void assume(std::string sentence) { model().assumptions.push_back(std::move(sentence)); }

  void read_header() {
    const std::string found = root_.string("format");
    if (found != kFormat) {
      root_.fail("format", format(R"(found "{}", expected "{}")", found, kFormat));
    }
    const std::int64_t version = root_.integer("version");
    if (version != kVersion) {
      root_.fail("version", format("found {}, expected {}", version, kVersion));
    }
    model().name = root_.optional_string("name").value_or("");
    hidden_ = optional_size(root_, "hidden");
    vocab_ = optional_size(root_, "vocab");
    model().shape.max_positions = optional_size(root_, "max_positions").value_or(0);
  }

  void check_modules() {
    if (modules_.empty()) root_.fail("modules", "found none, expected the root first");
    if (!modules_.front().name.empty()) {
      throw ConfigError(modules_.front().where,
                        format(R"(the first module is "{}", expected the root, named "")",
                               modules_.front().name));
    }
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      const ModuleEntry& module = modules_[i];
      if (index_by_name_.emplace(module.name, i).second) continue;
      throw ConfigError(module.where,
                        format("module \"{}\" is listed twice, expected each once, where "
                               "it first executes",
                               module.name));
    }
  }

  // --- parameters

  /// All parameters by first mention; a later mention must agree.
  [[nodiscard]] std::vector<const ParameterEntry*> mentioned_parameters() const {
    std::map<std::string, const ParameterEntry*> first;
    std::vector<const ParameterEntry*> order;
    for (const ModuleEntry& module : modules_) {
      for (const ParameterEntry& entry : module.parameters) {
        const auto [known, is_new] = first.emplace(entry.name, &entry);
        if (is_new) {
          order.push_back(&entry);
        } else if (known->second->shape != entry.shape ||
                   known->second->trainable != entry.trainable) {
          throw ConfigError(entry.where,
                            format("parameter \"{}\" differs from its first mention at {}, "
                                   "expected the same shape and trainable",
                                   entry.name, to_string(known->second->where)));
        }
      }
    }
    return order;
  }

  void register_parameters(bool has_registration) {
    std::vector<const ParameterEntry*> order = mentioned_parameters();
    if (has_registration) {
      order = in_registration_order(order);
    } else {
      assume(
          "parameters are registered in the order of the modules: the listing has no "
          "\"registration\"");
    }
    for (const ParameterEntry* entry : order) {
      assembler_.register_parameter(entry->name, entry->shape, entry->trainable);
    }
  }

  [[nodiscard]] std::vector<const ParameterEntry*> in_registration_order(
      const std::vector<const ParameterEntry*>& mentioned) {
    std::map<std::string, const ParameterEntry*> left;
    std::vector<std::string> names;
    for (const ParameterEntry* entry : mentioned) {
      left.emplace(entry->name, entry);
      names.push_back(entry->name);
    }
    std::vector<const ParameterEntry*> order;
    const std::vector<std::string> registration = root_.strings("registration");
    for (std::size_t i = 0; i < registration.size(); ++i) {
      const auto found = left.find(registration[i]);
      if (found == left.end()) registration_error(registration[i], i, names);
      order.push_back(found->second);
      left.erase(found);
    }
    if (!left.empty()) {
      root_.fail("registration",
                 format("parameter \"{}\" is missing, expected every parameter of the "
                        "modules",
                        left.begin()->first));
    }
    return order;
  }

  [[noreturn]] void registration_error(const std::string& name, std::size_t index,
                                       const std::vector<std::string>& names) {
    const JsonValue& value = root_.raw("registration")[static_cast<Json::ArrayIndex>(index)];
    const bool again = std::find(names.begin(), names.end(), name) != names.end();
    throw ConfigError(root_.document().location(value),
                      again ? format("registration: \"{}\" is listed twice", name)
                            : format("registration: \"{}\" is a parameter of no module{}", name,
                                     did_you_mean(name, names)));
  }

  // --- shape and blocks

  void read_shape() {
    ModelShape& shape = model().shape;
    const AttentionEntry* attention = nullptr;
    for (const ModuleEntry& module : modules_) {
      if (!module.attention) continue;
      if (attention == nullptr) attention = &*module.attention;
      if (!(*attention == *module.attention)) {
        throw ConfigError(module.where,
                          format("attention of \"{}\" differs from the first one, expected "
                                 "the same heads, kv_heads and head_dim",
                                 module.name));
      }
    }
    if (attention != nullptr) {
      shape.heads = attention->heads;
      shape.kv_heads = attention->kv_heads;
      shape.head_dim = attention->head_dim;
    }
    shape.vocab = vocab_.value_or(0);
    if (!vocab_) assume("no loss is computed: the listing has no \"vocab\"");
    shape.hidden = hidden_.value_or(first_embedding_width());
    if (!hidden_ && shape.hidden > 0) {
      assume(
          format("hidden = {}: the width of the first embedding, as the listing has no \"hidden\"",
                 shape.hidden));
    }
  }

  [[nodiscard]] std::int64_t first_embedding_width() const {
    for (const ModuleEntry& module : modules_) {
      if (module.class_name != "Embedding" || module.parameters.empty()) continue;
      if (module.parameters.front().shape.size() == 2) return module.parameters.front().shape[1];
    }
    return 0;
  }

  [[nodiscard]] bool has_children(std::size_t index) const {
    return index + 1 < modules_.size() && is_below(modules_[index + 1].name, modules_[index].name);
  }

  /// Fills in `block` of modules that look like one, unless the listing states blocks itself.
  void find_blocks() {
    std::int64_t count = 0;
    for (const ModuleEntry& module : modules_) {
      if (module.block) count = std::max(count, *module.block + 1);
    }
    if (count == 0) {
      const std::string* outer = nullptr;
      for (std::size_t i = 0; i < modules_.size(); ++i) {
        ModuleEntry& module = modules_[i];
        if (outer != nullptr && is_below(module.name, *outer)) continue;
        if (!ends_with_index(module.name) || !has_children(i)) continue;
        module.block = count++;
        outer = &module.name;
      }
      if (count > 0)
        assume(format("{} blocks: modules with children whose name ends with an integer", count));
    }
    model().shape.layers = count;
  }

  // --- mixtures of experts

  /// The nearest module around this one that `has` something; `modules_.size()`: none.
  template <typename Has>
  [[nodiscard]] std::size_t nearest_around(std::size_t index, Has has) const {
    std::string name = modules_[index].name;
    while (!name.empty()) {
      const std::size_t dot = name.rfind('.');
      name.resize(dot == std::string::npos ? 0 : dot);
      const auto found = index_by_name_.find(name);
      if (found != index_by_name_.end() && has(modules_[found->second])) return found->second;
    }
    return modules_.size();
  }

  /// Counts the experts of each block: they are numbered from 0 in the order of the list.
  void find_experts() {
    const auto is_expert = [](const ModuleEntry& module) { return module.expert.has_value(); };
    const auto is_moe_block = [](const ModuleEntry& module) {
      return module.experts_per_token.has_value();
    };
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      const ModuleEntry& module = modules_[i];
      if (!is_expert(module) && !is_moe_block(module)) continue;
      if (const std::size_t outer = nearest_around(i, is_expert); outer < modules_.size()) {
        throw ConfigError(module.where, format("\"{}\" is inside the expert \"{}\", expected it "
                                               "outside of experts",
                                               module.name, modules_[outer].name));
      }
      if (is_expert(module)) count_expert(module, nearest_around(i, is_moe_block));
    }
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      if (is_moe_block(modules_[i])) check_moe_block(modules_[i], expert_counts_[i]);
    }
  }

  void count_expert(const ModuleEntry& module, std::size_t block) {
    if (block == modules_.size()) {
      throw ConfigError(module.where, format("expert \"{}\" is outside of every module with "
                                             "\"experts_per_token\", expected it below one",
                                             module.name));
    }
    const std::int64_t next = expert_counts_[block]++;
    if (*module.expert == next) return;
    throw ConfigError(module.where,
                      format("\"{}\" is expert {} of \"{}\", expected {}: they are numbered from "
                             "0 in the order of the list, without gaps",
                             module.name, *module.expert, modules_[block].name, next));
  }

  void check_moe_block(const ModuleEntry& module, std::int64_t experts) const {
    if (*module.experts_per_token <= experts) return;
    throw ConfigError(module.where,
                      format("\"{}\" has {} experts, expected at least experts_per_token = {}",
                             module.name, experts, *module.experts_per_token));
  }

  /// The module that has just been entered takes the stream `last_` apart.
  void open_moe_block(std::size_t index) {
    const ModuleEntry& module = modules_[index];
    MoeBlock block;
    block.experts = expert_counts_.at(index);
    block.experts_per_token = *module.experts_per_token;
    moe_ = {
        .experts = block.experts, .width = width_ > 0 ? width_ : model().shape.hidden, .x = last_};
    if (moe_.width == 0) {
      throw ConfigError(module.where, format("\"{}\": no width is known before it, expected "
                                             "\"hidden\" or an embedding",
                                             module.name));
    }
    assembler_.open_moe_block(std::move(block));
  }

  /// Routes before the first expert; then copies the tokens of this one.
  void gather_tokens(int expert) {
    if (expert == 0) {
      moe_.weights = assembler_.compute(OperatorKind::Router, 0, moe_.experts, {last_});
    }
    last_ = assembler_.compute_routed(expert, OperatorKind::ExpertGather, 0, moe_.width,
                                      {moe_.x, moe_.weights});
    width_ = moe_.width;
  }

  /// Adds what the expert returned to what those before it did.
  void scatter_tokens(int expert) {
    moe_.sum = assembler_.compute_routed(expert, OperatorKind::ExpertScatter, 0, moe_.width,
                                         {moe_.sum, last_, moe_.weights});
    last_ = moe_.sum;
    width_ = moe_.width;
  }

  // --- execution

  void run() {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      while (!open.empty() && !is_below(modules_[i].name, modules_[open.back()].name)) {
        leave(open);
      }
      check_parent(i, open);
      enter(i, open);
      open.push_back(i);
    }
    while (!open.empty()) leave(open);
  }

  /// The nearest listed prefix must be the module that is open.
  void check_parent(std::size_t index, const std::vector<std::size_t>& open) const {
    const ModuleEntry& module = modules_[index];
    const std::string open_name = open.empty() ? "" : modules_[open.back()].name;
    std::string prefix = module.name;
    while (prefix.rfind('.') != std::string::npos) {
      prefix.resize(prefix.rfind('.'));
      if (prefix == open_name) return;
      const auto found = index_by_name_.find(prefix);
      if (found == index_by_name_.end()) continue;
      throw ConfigError(
          module.where,
          format("module \"{}\" stands {} its parent \"{}\", expected it while the parent "
                 "executes",
                 module.name, found->second > index ? "before" : "after the end of", prefix));
    }
  }

  [[nodiscard]] bool is_rotary(const ModuleEntry& module) const {
    return module.class_name.find("Rotary") != std::string::npos;
  }

  void enter(std::size_t index, const std::vector<std::size_t>& open) {
    const ModuleEntry& module = modules_[index];
    for (const std::size_t ancestor : open) compute_attention_before(ancestor, index);
    const bool takes_ids = module.name.empty() || module.class_name == "Embedding";
    if (module.expert) gather_tokens(static_cast<int>(*module.expert));
    const std::vector<Value> inputs = {takes_ids ? kNoValue : last_};
    const ModuleId id = module.expert
                            ? assembler_.enter_expert(static_cast<int>(*module.expert), module.name,
                                                      module.class_name, inputs)
                            : assembler_.enter(module.name, module.class_name, inputs,
                                               static_cast<int>(module.block.value_or(-1)));
    if (module.experts_per_token) open_moe_block(index);
    if (module.positional_gradient_input || module.gradient_output || is_rotary(module)) {
      Module& built = model().modules[id.index()];
      built.hooks_stated = true;
      built.positional_gradient_input =
          module.positional_gradient_input.value_or(!takes_ids && !is_rotary(module));
      built.gradient_output = module.gradient_output.value_or(!is_rotary(module));
    }
    for (const ParameterEntry& parameter : module.parameters) assembler_.own(parameter.name);
    compute_class(module);
  }

  void leave(std::vector<std::size_t>& open) {
    const ModuleEntry& module = modules_[open.back()];
    if (module.attention && last_product_below(open.back()) == 0) compute_attention();
    for (const std::string& name : module.uses) compute_use(module, name);
    if (module.name.empty() && vocab_) compute(OperatorKind::CrossEntropy, 0, *vocab_, {});
    assembler_.exit(last_);
    open.pop_back();
    if (module.expert) scatter_tokens(static_cast<int>(*module.expert));
  }

  /// A product with a matrix of another module, as `F.linear(x, self.wte.weight)`.
  void compute_use(const ModuleEntry& module, const std::string& name) {
    const std::vector<std::int64_t>* shape = nullptr;
    std::vector<std::string> known;
    for (const Parameter& parameter : model().parameters) {
      known.push_back(parameter.name);
      if (parameter.name == name) shape = &parameter.shape;
    }
    if (shape == nullptr) {
      throw ConfigError(module.where, format("uses: \"{}\" is a parameter of no module{}", name,
                                             did_you_mean(name, known)));
    }
    if (shape->size() != 2) {
      throw ConfigError(module.where,
                        format("uses: \"{}\" has {} dimensions, expected the 2 of a matrix", name,
                               shape->size()));
    }
    compute(OperatorKind::Linear, (*shape)[1], (*shape)[0], {name});
  }

  /// Index of the last Linear below a module: the output projection of an attention; 0: none.
  [[nodiscard]] std::size_t last_product_below(std::size_t index) const {
    std::size_t last = 0;
    for (std::size_t i = index + 1; i < modules_.size(); ++i) {
      if (!is_below(modules_[i].name, modules_[index].name)) break;
      if (is_matrix_product(modules_[i].class_name)) last = i;
    }
    return last;
  }

  void compute_attention_before(std::size_t ancestor, std::size_t index) {
    if (!modules_[ancestor].attention || last_product_below(ancestor) != index) return;
    compute_attention();
  }

  void compute_attention() {
    const ModelShape& shape = model().shape;
    last_ = assembler_.attend({.heads = shape.heads,
                               .kv_heads = shape.kv_heads,
                               .head_dim = shape.head_dim,
                               .value_dim = shape.head_dim},
                              {last_});
    width_ = shape.heads * shape.head_dim;
  }

  void compute(OperatorKind kind, std::int64_t inputs, std::int64_t outputs,
               const std::vector<std::string>& parameters) {
    last_ = assembler_.compute(kind, inputs, outputs, {last_}, parameters);
    width_ = outputs;
  }

  void compute_class(const ModuleEntry& module) {
    const std::string& name = module.class_name;
    if (is_matrix_product(name) || name == "Embedding") {
      compute_matrix_class(module);
    } else if (ends_with(name, "RMSNorm") || ends_with(name, "LayerNorm")) {
      compute_norm(module);
    } else if (is_activation(name) || name == "Dropout") {
      compute_elementwise(module,
                          name == "Dropout" ? OperatorKind::Dropout : OperatorKind::Activation);
    } else {
      compute_unknown_class(module);
    }
  }

  /// Names of the module's parameters: with matrices last (nn.Linear: bias before weight) or first.
  [[nodiscard]] static std::vector<std::string> names(const ModuleEntry& module,
                                                      bool matrices_last) {
    std::vector<std::string> result;
    for (const bool matrices : {!matrices_last, matrices_last}) {
      for (const ParameterEntry& parameter : module.parameters) {
        if ((parameter.shape.size() >= 2) == matrices) result.push_back(parameter.name);
      }
    }
    return result;
  }

  void compute_matrix_class(const ModuleEntry& module) {
    const auto matrix = std::find_if(module.parameters.begin(), module.parameters.end(),
                                     [](const ParameterEntry& p) { return p.shape.size() == 2; });
    if (matrix == module.parameters.end()) {
      throw ConfigError(module.where,
                        format("{} \"{}\" has no parameter of two dimensions, expected its weight",
                               module.class_name, module.name));
    }
    const std::int64_t first = matrix->shape[0];
    const std::int64_t second = matrix->shape[1];
    if (module.class_name == "Embedding") {
      compute(OperatorKind::Embedding, first, second, names(module, true));
    } else if (module.class_name == "Conv1D") {  // {in, out}
      compute(OperatorKind::Linear, first, second, names(module, true));
    } else {
      compute(OperatorKind::Linear, second, first, names(module, true));
    }
  }

  void compute_norm(const ModuleEntry& module) {
    const OperatorKind kind =
        ends_with(module.class_name, "RMSNorm") ? OperatorKind::RmsNorm : OperatorKind::LayerNorm;
    const std::int64_t own = module.parameters.empty() ? 0 : elements(module.parameters.front());
    // A norm over each head (Qwen3's q_norm) has a short weight and a wide input.
    const bool per_head = own > 0 && own == model().shape.head_dim && width_ % own == 0;
    const std::int64_t width = per_head ? std::max(width_, own) : (own > 0 ? own : width_);
    if (width > 0) compute(kind, 0, width, names(module, false));
  }

  void compute_elementwise(const ModuleEntry& module, OperatorKind kind) {
    if (width_ > 0) {
      compute(kind, 0, width_, names(module, false));
    } else if (!module.parameters.empty()) {
      compute_unknown_class(module);
    } else {
      assume(format("\"{}\" ({}) costs nothing: no width is known before it", module.name,
                    module.class_name));
    }
  }

  /// Matrices count as products, other parameters as element-wise products; without any: a
  /// container.
  void compute_unknown_class(const ModuleEntry& module) {
    if (module.parameters.empty()) return;
    assume(
        format("\"{}\" ({}): its matrices count as products of all tokens, its vectors as "
               "element-wise products",
               module.name, module.class_name));
    for (const ParameterEntry& parameter : module.parameters) {
      if (parameter.shape.size() >= 2) {
        const std::int64_t outputs = parameter.shape[0];
        compute(OperatorKind::Linear, elements(parameter) / outputs, outputs, {parameter.name});
      } else {
        compute(OperatorKind::Multiply, 0, std::max(width_, elements(parameter)), {parameter.name});
      }
    }
  }

  [[nodiscard]] std::int64_t elements(const ParameterEntry& entry) const {
    const Model& built = assembler_.model();
    return built.parameters[assembler_.parameter(entry.name).index()].elements;
  }

  JsonObject root_;
  std::vector<ModuleEntry> modules_;
  std::map<std::string, std::size_t> index_by_name_;
  std::optional<std::int64_t> hidden_;
  std::optional<std::int64_t> vocab_;
  ModelAssembler assembler_;
  std::map<std::size_t, std::int64_t> expert_counts_;  ///< by index of the block's entry

  /// The block whose experts run: they all read `x`.
  struct OpenMoe {
    std::int64_t experts = 0;
    std::int64_t width = 0;
    Value x = kNoValue;
    Value weights = kNoValue;
    Value sum = kNoValue;
  };
  OpenMoe moe_;
  /// Result of the last operator: modules are taken to follow each other as one chain.
  Value last_ = kNoValue;
  std::int64_t width_ = 0;  ///< elements a token that the last operator put out
};

}  // namespace

Model read_listing(const JsonDocument& document) {
  return ListingReader(document).read();
}

}  // namespace zerosim::internal
