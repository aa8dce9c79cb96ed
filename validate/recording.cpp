#include "validate/recording.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr int kLargestWorld = 1'000'000;
constexpr Json::ArrayIndex kCollectiveCells = 12;
constexpr Json::ArrayIndex kMarkerCells = 7;

constexpr std::array<Dtype, 7> kDtypes = {Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::F64,
                                          Dtype::U8,   Dtype::I64, Dtype::I32};
constexpr std::array<Phase, 4> kPhases = {Phase::Init, Phase::Forward, Phase::Backward,
                                          Phase::Step};
/// What most recordings were made with.
constexpr const char* kDefaultDeepSpeed = "0.19";
constexpr const char* kDefaultTorch = "1.13";

std::string plain_module(const std::string& name) {
  return name == kRecordedRoot ? "" : name;
}

/// What a cell holds, for messages.
std::string found(const JsonValue& value) {
  std::string text = to_text(value, /*indented=*/false);
  constexpr std::size_t kLongest = 40;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

[[noreturn]] void fail(const JsonDocument& document, const JsonValue& value,
                       const std::string& path, const std::string& message) {
  throw ConfigError(document.location(value), format("{}: {}", path, message));
}

/// One of a list of words.
std::size_t word_index(const JsonDocument& document, const JsonValue& value,
                       const std::string& path, const std::vector<std::string>& words) {
  if (value.isString()) {
    const auto word = std::find(words.begin(), words.end(), value.asString());
    if (word != words.end()) return static_cast<std::size_t>(word - words.begin());
  }
  const std::string hint = value.isString() ? did_you_mean(value.asString(), words) : "";
  fail(document, value, path,
       format("found {}, expected one of {}{}", found(value), join(words, ", "), hint));
}

template <typename Value, std::size_t N>
std::vector<std::string> words_of(const std::array<Value, N>& values) {
  std::vector<std::string> words;
  words.reserve(N);
  for (const Value& value : values) words.emplace_back(to_string(value));
  return words;
}

/// The cells of one row, each with its place.
class Cells {
 public:
  Cells(const JsonDocument& document, const JsonValue& row, std::string path)
      : document_(document), row_(row), path_(std::move(path)) {
    if (!row.isArray()) fail(document, row, path_, "found no array, expected a row");
  }

  void expect(Json::ArrayIndex count, std::string_view columns) const {
    if (row_.size() == count) return;
    fail(document_, row_, path_,
         format("found {} cells, expected {}: {}", row_.size(), count, columns));
  }
  [[nodiscard]] Json::ArrayIndex size() const { return row_.size(); }
  [[nodiscard]] std::string text(Json::ArrayIndex i, std::string_view what) const {
    if (row_[i].isString()) return row_[i].asString();
    reject(i, format("expected text: {}", what));
  }
  [[nodiscard]] std::int64_t integer(Json::ArrayIndex i, std::string_view what,
                                     std::int64_t largest) const {
    if (row_[i].isInt64()) {
      const std::int64_t value = row_[i].asInt64();
      if (value >= 0 && value <= largest) return value;
    }
    reject(i, format("expected an integer from 0 to {}: {}", largest, what));
  }
  [[nodiscard]] std::vector<std::int64_t> integers(Json::ArrayIndex i,
                                                   std::string_view what) const {
    if (!row_[i].isArray()) reject(i, format("expected an array of integers: {}", what));
    const Cells cells(document_, row_[i], path_of(i));
    std::vector<std::int64_t> result;
    for (Json::ArrayIndex k = 0; k < row_[i].size(); ++k) {
      result.push_back(cells.integer(k, what, std::numeric_limits<std::int64_t>::max()));
    }
    return result;
  }
  [[nodiscard]] std::vector<std::string> texts(Json::ArrayIndex i, std::string_view what) const {
    if (!row_[i].isArray()) reject(i, format("expected an array of texts: {}", what));
    const Cells cells(document_, row_[i], path_of(i));
    std::vector<std::string> result;
    for (Json::ArrayIndex k = 0; k < row_[i].size(); ++k) result.push_back(cells.text(k, what));
    return result;
  }
  [[nodiscard]] std::size_t word(Json::ArrayIndex i, const std::vector<std::string>& words) const {
    return word_index(document_, row_[i], path_of(i), words);
  }
  /// The extra cell of a row: an object or null.
  [[nodiscard]] JsonObject object(Json::ArrayIndex i) const {
    static const JsonValue kEmpty(Json::objectValue);
    return {document_, row_[i].isNull() ? kEmpty : row_[i], path_of(i)};
  }
  [[nodiscard]] SourceLocation where() const { return document_.location(row_); }
  [[noreturn]] void reject(Json::ArrayIndex i, const std::string& expected) const {
    fail(document_, row_[i], path_of(i), format("found {}, {}", found(row_[i]), expected));
  }

 private:
  [[nodiscard]] std::string path_of(Json::ArrayIndex i) const { return format("{}[{}]", path_, i); }

  const JsonDocument& document_;
  const JsonValue& row_;
  std::string path_;
};

/// Whether a key says "none": absent, null, false or in words.
bool is_none(const JsonValue& value) {
  return value.isNull() || (value.isBool() && !value.asBool()) ||
         (value.isString() && value.asString() == "none");
}

/// A truth value, or 0 or 1.
std::optional<bool> optional_switch(JsonObject& object, const std::string& key) {
  const JsonValue& value = object.raw(key);
  if (value.isInt64() && (value.asInt64() == 0 || value.asInt64() == 1)) {
    return value.asInt64() == 1;
  }
  return object.optional_boolean(key);
}

/// The rows of an array, or nothing if the key is absent.
std::vector<Cells> rows_of(JsonObject& object, const std::string& key, bool required) {
  const JsonValue& value = object.raw(key);
  if (value.isNull() && !required) return {};
  if (!value.isArray()) {
    object.fail(key, value.isNull() ? "missing, expected an array"
                                    : format("found {}, expected an array", found(value)));
  }
  std::vector<Cells> rows;
  for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
    rows.emplace_back(object.document(), value[i], format("{}[{}]", object.path_of(key), i));
  }
  return rows;
}

// --------------------------------------------------------------------------------------------
// Description

class DescriptionReader {
 public:
  DescriptionReader(const JsonDocument& document, std::string_view text)
      : document_(document), text_(text), root_(document, document.root(), "") {}

  RecordingDescription read() {
    result_.file = document_.file();
    read_kind();
    read_versions();
    read_spec();
    read_parameters();
    read_groups();
    read_modules();
    read_frozen();
    result_.leaf_modules = optional_strings(root_, "leaf_modules");
    read_routing();
    read_ds_config();
    return std::move(result_);
  }

 private:
  static std::vector<std::string> optional_strings(JsonObject& object, const std::string& key) {
    return object.raw(key).isNull() ? std::vector<std::string>{} : object.strings(key);
  }

  void read_kind() {
    const std::vector<std::string> kinds = {"deepspeed", "ddp", "fsdp"};
    if (!root_.has("kind")) {
      root_.fail("kind", format("missing, expected a recording of the kind {}", join(kinds, ", ")));
    }
    result_.kind =
        static_cast<RecordedKind>(word_index(document_, root_.raw("kind"), "kind", kinds));
  }

  void read_versions() {
    result_.torch_version = version_of("torch", "PyTorch", kDefaultTorch);
    if (result_.kind != RecordedKind::DeepSpeed) return;
    result_.deepspeed_version = version_of("deepspeed", "DeepSpeed", kDefaultDeepSpeed);
    std::string& version = result_.deepspeed_version.text;
    if (version.starts_with("v")) version.erase(0, 1);
  }

  RecordedText version_of(const std::string& key, const char* name, const char* fallback) {
    std::optional<JsonObject> versions = root_.optional_object("versions");
    if (versions) {
      if (const auto version = versions->optional_string(key)) {
        return {*version, document_.location(versions->raw(key))};
      }
    }
    note(format("{} {}, since versions.{} is missing", name, fallback, key));
    return {fallback, {document_.file()}};
  }

  void note(const std::string& what) {
    result_.notes.push_back(format("{}: {}", document_.file(), what));
  }

  void note_unknown_keys(const JsonObject& object) {
    for (const std::string& key : object.unknown_keys()) {
      note(format("{} is not known and not followed", object.path_of(key)));
    }
  }

  void read_spec() {
    JsonObject spec = root_.object("spec");
    RecordedSpec& result = result_.spec;
    const std::int64_t world = spec.integer_at_least("world", 1);
    if (world > kLargestWorld) {
      spec.fail("world", format("found {}, expected 1 to {}", world, kLargestWorld));
    }
    result.world = static_cast<int>(world);
    result.model.text = spec.string("model");
    result.model.where = document_.location(spec.raw("model"));
    read_accumulation(spec);
    read_checkpointing(spec);
    result.two_groups = optional_switch(spec, "two_groups").value_or(false);
    if (const auto word = optional_word(spec, "zero_init", {"zero", "mics"})) {
      result.zero_init = *word == 0 ? ZeroInit::Zero : ZeroInit::Mics;
    }
    result.input_gradients = optional_switch(spec, "input_grads").value_or(false);
    result.leaf_classes = optional_strings(spec, "leaf_classes");
    result.ddp.parameter_dtype = optional_type(spec, "dtype");
    read_options(spec);
    read_environment(spec);
    // Said in words here, in full elsewhere in the file, or of no consequence.
    for (const char* key : {"kind", "name", "note", "frozen", "routing"}) {
      static_cast<void>(spec.has(key));
    }
    note_unknown_keys(spec);
  }

  void read_accumulation(JsonObject& spec) {
    if (spec.raw("gas").isNull()) {
      if (result_.kind != RecordedKind::DeepSpeed) note("spec.gas 1, since it is missing");
      return;
    }
    result_.spec.grad_accum =
        RecordedNumber{spec.integer_at_least("gas", 1), document_.location(spec.raw("gas"))};
  }

  [[nodiscard]] std::optional<std::size_t> optional_word(
      JsonObject& object, const std::string& key, const std::vector<std::string>& words) const {
    const JsonValue& value = object.raw(key);
    if (is_none(value)) return std::nullopt;
    return word_index(document_, value, object.path_of(key), words);
  }

  void read_checkpointing(JsonObject& object) {
    const auto word = optional_word(object, "ckpt", {"reentrant", "nonreentrant"});
    if (!word) return;
    result_.spec.checkpointing =
        *word == 0 ? ActivationCheckpointing::Full : ActivationCheckpointing::NonReentrant;
  }

  /// Arguments under torch's names; and whether the loop enters `no_sync()`.
  void read_options(JsonObject& spec) {
    std::optional<JsonObject> opts = spec.optional_object("opts");
    if (!opts || result_.kind == RecordedKind::DeepSpeed) return;
    result_.spec.no_sync = optional_switch(*opts, "no_sync").value_or(false);
    if (result_.kind == RecordedKind::Ddp) {
      read_ddp_options(*opts);
    } else {
      read_fsdp_options(*opts);
    }
    note_unknown_keys(*opts);
  }

  void read_fsdp_options(JsonObject& opts) {
    RecordedFsdp& fsdp = result_.spec.fsdp;
    if (const auto word = optional_word(
            opts, "strategy",
            {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})) {
      fsdp.sharding = static_cast<FsdpSharding>(*word);
    }
    if (opts.has("backward_prefetch")) {
      const auto word = optional_word(opts, "backward_prefetch", {"BACKWARD_PRE", "BACKWARD_POST"});
      fsdp.backward_prefetch = word ? static_cast<BackwardPrefetch>(*word) : BackwardPrefetch::None;
    }
    read_wrap(opts);
    fsdp.forward_prefetch = optional_switch(opts, "forward_prefetch");
    fsdp.limit_all_gathers = optional_switch(opts, "limit_all_gathers");
    fsdp.use_orig_params = optional_switch(opts, "use_orig_params");
    fsdp.cpu_offload = optional_switch(opts, "cpu_offload");
    read_mixed_precision(opts);
    read_checkpointing(opts);
  }

  /// "block", "size" (with `min_num_params`), "root" or nothing, or a list of class names.
  void read_wrap(JsonObject& opts) {
    RecordedFsdp& fsdp = result_.spec.fsdp;
    if (!opts.raw("min_num_params").isNull()) {
      fsdp.min_num_params = opts.integer_at_least("min_num_params", 0);
      fsdp.wrap = FsdpWrap::Size;
    }
    if (!opts.has("wrap")) return;
    if (opts.raw("wrap").isArray()) {
      fsdp.wrap = FsdpWrap::TransformerLayer;
      fsdp.classes = opts.strings("wrap");
      return;
    }
    const auto word = optional_word(opts, "wrap", {"block", "size", "root"});
    fsdp.wrap = word ? static_cast<FsdpWrap>(*word) : FsdpWrap::None;
  }

  void read_mixed_precision(JsonObject& opts) {
    RecordedFsdp& fsdp = result_.spec.fsdp;
    if (!opts.raw("mixed").isObject()) {
      fsdp.param_dtype = fsdp.reduce_dtype = fsdp.buffer_dtype = optional_type(opts, "mixed");
      return;
    }
    JsonObject mixed = opts.object("mixed");
    const auto type = [&](const std::string& name) {
      const std::string torch_name = name + "_dtype";
      return optional_type(mixed, mixed.has(torch_name) ? torch_name : name);
    };
    fsdp.param_dtype = type("param");
    fsdp.reduce_dtype = type("reduce");
    fsdp.buffer_dtype = type("buffer");
    note_unknown_keys(mixed);
  }

  [[nodiscard]] std::optional<Dtype> optional_type(JsonObject& object,
                                                   const std::string& key) const {
    const auto word = optional_word(object, key, {"fp32", "bf16", "fp16"});
    if (!word) return std::nullopt;
    return std::array{Dtype::F32, Dtype::Bf16, Dtype::F16}[*word];
  }

  void read_ddp_options(JsonObject& opts) {
    DdpFlags& ddp = result_.spec.ddp;
    ddp.bucket_cap_mib = opts.optional_number("bucket_cap_mb");
    if (ddp.bucket_cap_mib && *ddp.bucket_cap_mib < 0) {
      opts.fail("bucket_cap_mb", format("found {}, expected 0 or more", *ddp.bucket_cap_mib));
    }
    ddp.gradient_as_bucket_view = optional_switch(opts, "gradient_as_bucket_view");
    ddp.find_unused_parameters = optional_switch(opts, "find_unused_parameters");
    ddp.static_graph = optional_switch(opts, "static_graph");
    ddp.broadcast_buffers = optional_switch(opts, "broadcast_buffers");
  }

  void read_environment(JsonObject& spec) {
    std::optional<JsonObject> environment = spec.optional_object("env");
    if (!environment) return;
    if (const auto text = environment->optional_string("NDEV_PER_NODE")) {
      const bool digits = !text->empty() && text->size() <= 4 &&
                          text->find_first_not_of("0123456789") == std::string::npos;
      if (!digits || std::stoi(*text) == 0) {
        environment->fail("NDEV_PER_NODE",
                          format("found \"{}\", expected a number of GPUs", *text));
      }
      result_.spec.gpus_per_node = std::stoi(*text);
    }
  }

  void read_parameters() {
    result_.parameters_where = document_.location(root_.raw("params"));
    for (const Cells& cells : rows_of(root_, "params", /*required=*/true)) {
      cells.expect(4, "name, shape, elements, owning module");
      RecordedParameter parameter;
      parameter.where = cells.where();
      parameter.name = cells.text(0, "the parameter's name");
      parameter.shape = cells.integers(1, "the parameter's shape");
      std::int64_t elements = 1;
      for (const std::int64_t extent : parameter.shape) {
        if (__builtin_mul_overflow(elements, extent, &elements)) {
          cells.reject(1, "expected a shape whose product fits 64 bits");
        }
      }
      if (cells.integer(2, "the elements", std::numeric_limits<std::int64_t>::max()) != elements) {
        cells.reject(2, format("expected {}, the product of the shape", elements));
      }
      parameters_.insert(parameter.name);
      result_.parameters.push_back(std::move(parameter));
    }
  }

  void read_groups() {
    for (const Cells& cells : rows_of(root_, "groups", /*required=*/true)) {
      std::vector<int>& ranks = result_.groups.emplace_back();
      for (Json::ArrayIndex i = 0; i < cells.size(); ++i) {
        ranks.push_back(static_cast<int>(cells.integer(i, "a rank", result_.spec.world - 1)));
      }
    }
    check_world();
  }

  /// Some group is the world, if any is listed.
  void check_world() {
    const auto world = static_cast<std::size_t>(result_.spec.world);
    const auto is_world = [&](const std::vector<int>& ranks) { return ranks.size() == world; };
    const auto& groups = result_.groups;
    if (groups.empty() || std::any_of(groups.begin(), groups.end(), is_world)) return;
    root_.fail("groups", format("found none of {} ranks, but spec.world says {}", world, world));
  }

  void read_frozen() {
    const JsonValue& names = root_.raw("frozen");
    Json::ArrayIndex i = 0;
    for (const std::string& name : optional_strings(root_, "frozen")) {
      result_.frozen.push_back({name, document_.location(names[i++])});
    }
    JsonObject spec = root_.object("spec");
    const JsonValue& what = spec.raw("frozen");
    if (is_none(what) || !result_.frozen.empty()) return;
    spec.fail("frozen",
              format("found {}, but the list \"frozen\" names no parameter", found(what)));
  }

  void read_modules() {
    if (root_.has("modules")) result_.modules_where = document_.location(root_.raw("modules"));
    for (const Cells& cells : rows_of(root_, "modules", /*required=*/false)) {
      cells.expect(3, "name, class, own parameters");
      RecordedModule module;
      module.where = cells.where();
      module.name = plain_module(cells.text(0, "the module's name"));
      module.class_name = cells.text(1, "its class");
      module.parameters = cells.texts(2, "its own parameters");
      for (const std::string& name : module.parameters) {
        if (parameters_.contains(name)) continue;
        cells.reject(2, format("expected names of params: \"{}\" is none", name));
      }
      result_.modules.push_back(std::move(module));
    }
  }

  void read_routing() {
    const JsonValue& rows = root_.raw("routing");
    Json::ArrayIndex i = 0;
    for (const Cells& cells : rows_of(root_, "routing", /*required=*/false)) {
      cells.expect(4, "step, micro step, module, tokens for each expert");
      MeasuredRouting routing;
      routing.when = {static_cast<int>(cells.integer(0, "the step", kLargestWorld)),
                      static_cast<int>(cells.integer(1, "the micro step", kLargestWorld))};
      routing.module = cells.text(2, "the module");
      routing.tokens = cells.integers(3, "tokens of each expert");
      routing.where = document_.location(rows[i++]);
      result_.routing.push_back(std::move(routing));
    }
    if (!root_.raw("routing_other_ranks").empty()) {
      note("routing_other_ranks is not followed: each rank is routed as rank 0 was");
    }
  }

  static std::optional<std::int64_t> positive_number(const JsonValue& value) {
    if (!value.isInt64() || value.asInt64() < 1) return std::nullopt;
    return value.asInt64();
  }

  void read_ds_config() {
    if (result_.kind != RecordedKind::DeepSpeed) return;
    JsonObject config = root_.object("ds_config");
    result_.train_batch = positive_number(config.raw("train_batch_size"));
    result_.micro_batch = positive_number(config.raw("train_micro_batch_size_per_gpu"));
    result_.grad_accum = positive_number(config.raw("gradient_accumulation_steps"));
    const JsonValue& value = config.value();
    const SourceLocation where = document_.location(value);
    const auto begin = static_cast<std::size_t>(value.getOffsetStart());
    const auto end = static_cast<std::size_t>(value.getOffsetLimit());
    result_.ds_config = std::string(static_cast<std::size_t>(where.line - 1), '\n') +
                        std::string(static_cast<std::size_t>(where.column - 1), ' ') +
                        std::string(text_.substr(begin, end - begin));
  }

  const JsonDocument& document_;
  std::string_view text_;
  JsonObject root_;
  RecordingDescription result_;
  std::set<std::string> parameters_;
};

// --------------------------------------------------------------------------------------------
// Events

class EventReader {
 public:
  EventReader(const JsonDocument& document, const RecordingDescription& description)
      : document_(document), description_(description) {}

  std::array<std::vector<RecordedRow>, kRecordedSteps> read() {
    JsonObject root(document_, document_.root(), "");
    JsonObject events = root.object("events");
    static_cast<void>(events.has("init"));
    for (int step = 0; step < kRecordedSteps; ++step) read_step(events, step);
    events.reject_unknown_keys();
    return std::move(steps_);
  }

 private:
  void read_step(JsonObject& events, int step) {
    const std::string key = std::to_string(step);
    const JsonValue& value = events.raw(key);
    auto& rows = steps_[static_cast<std::size_t>(step)];
    if (value.isString()) {
      rows = steps_[same_step(value, events.path_of(key), step)];
      return;
    }
    const std::string path = events.path_of(key);
    if (!value.isArray()) {
      const std::string was = value.isNull() ? "missing" : "found " + found(value);
      events.fail(key, was + R"(, expected an array of rows or "same as N")");
    }
    for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
      rows.push_back(read_row(value[i], format("{}[{}]", path, i)));
    }
  }

  /// The earlier step that "same as N" names.
  [[nodiscard]] std::size_t same_step(const JsonValue& value, const std::string& path,
                                      int step) const {
    for (int earlier = 0; earlier < step; ++earlier) {
      if (value.asString() == format("same as {}", earlier)) {
        return static_cast<std::size_t>(earlier);
      }
    }
    fail(document_, value, path,
         format("found {}, expected an array of rows{}", found(value),
                step == 0 ? "" : R"( or "same as" an earlier step)"));
  }

  [[nodiscard]] RecordedRow read_row(const JsonValue& value, const std::string& path) const {
    const Cells cells(document_, value, path);
    RecordedRow row;
    row.source = &value;
    if (value.empty()) fail(document_, value, path, R"(found an empty row, expected "c" or "m")");
    if (cells.word(0, {"c", "m"}) == 0) {
      row.collective = read_collective(cells);
    } else {
      row.marker = read_marker(cells);
    }
    return row;
  }

  static int read_int(const Cells& cells, Json::ArrayIndex i, std::string_view what) {
    return static_cast<int>(cells.integer(i, what, std::numeric_limits<int>::max()));
  }
  static std::int64_t read_elements(const Cells& cells, Json::ArrayIndex i, std::string_view what) {
    return cells.integer(i, what, std::numeric_limits<std::int64_t>::max());
  }

  [[nodiscard]] RecordedCollective read_collective(const Cells& cells) const {
    cells.expect(kCollectiveCells,
                 "\"c\", op, micro step, phase, input and output elements, type, group, async, "
                 "module, site, extra");
    RecordedCollective result;
    result.op = cells.text(1, "the operation");
    result.micro_step = read_int(cells, 2, "the micro step");
    result.phase = kPhases[cells.word(3, words_of(kPhases))];
    result.input_elements = read_elements(cells, 4, "elements of the input");
    result.output_elements = read_elements(cells, 5, "elements of the output");
    result.dtype = kDtypes[cells.word(6, words_of(kDtypes))];
    result.group = read_group(cells);
    result.async = cells.integer(8, "1 if the caller waits later", 1) == 1;
    result.module = cells.text(9, "the module");
    JsonObject extra = cells.object(11);
    for (const char* key : {"dst", "src"}) {
      if (!extra.raw(key).isNull()) result.root = static_cast<int>(extra.integer_at_least(key, 0));
    }
    result.coalesced = extra.optional_integer("co");
    result.reduction = extra.optional_string("redop").value_or("");
    return result;
  }

  [[nodiscard]] std::size_t read_group(const Cells& cells) const {
    const std::size_t count = description_.groups.size();
    const auto group = static_cast<std::size_t>(read_elements(cells, 7, "an index into groups"));
    if (group >= count) {
      cells.reject(7, format("expected an index into groups, of which there are {}", count));
    }
    return group;
  }

  static RecordedMarker read_marker(const Cells& cells) {
    cells.expect(kMarkerCells, "\"m\", what, micro step, phase, elements, module, extra");
    RecordedMarker result;
    result.what = cells.text(1, "what the marker marks");
    result.micro_step = read_int(cells, 2, "the micro step");
    result.phase = kPhases[cells.word(3, words_of(kPhases))];
    result.elements = read_elements(cells, 4, "elements");
    result.module = cells.text(5, "the module");
    JsonObject extra = cells.object(6);
    for (const char* key : {"params", "units"}) {
      if (!extra.raw(key).isNull()) result.names = extra.strings(key);
    }
    return result;
  }

  const JsonDocument& document_;
  const RecordingDescription& description_;
  std::array<std::vector<RecordedRow>, kRecordedSteps> steps_;
};

/// The text as the document's offsets count it.
std::string without_byte_order_mark(std::string text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

}  // namespace

Recording parse_recording(std::string text, const std::string& name) {
  const std::string own = without_byte_order_mark(std::move(text));
  JsonDocument document = JsonDocument::from_text(own, name);
  RecordingDescription description = DescriptionReader(document, own).read();
  auto steps = EventReader(document, description).read();
  return {std::move(description), std::move(steps), std::move(document)};
}

Recording load_recording(const std::string& path) {
  return parse_recording(read_file(path), path);
}

RecordingDescription parse_recording_description(std::string text, const std::string& name) {
  const std::string own = without_byte_order_mark(std::move(text));
  const JsonDocument document = JsonDocument::from_text(own, name);
  return DescriptionReader(document, own).read();
}

}  // namespace zerosim
