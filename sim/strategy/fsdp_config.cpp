#include "sim/strategy/fsdp_config.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/base/text.h"

namespace zerosim::internal {
namespace {

constexpr const char* kPrefix = "fsdp_";

/// accelerate/utils/constants.py: FSDP_AUTO_WRAP_POLICY, in the order of FsdpWrap.
const std::vector<std::string>& wrap_names() {
  static const std::vector<std::string> kNames = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP",
                                                  "NO_WRAP"};
  return kNames;
}

/// accelerate/utils/constants.py: FSDP_BACKWARD_PREFETCH, in the order of BackwardPrefetch.
const std::vector<std::string>& prefetch_names() {
  static const std::vector<std::string> kNames = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
  return kNames;
}

std::string joined_classes(const std::vector<std::string>& classes) {
  return join(classes, ",");
}

class FsdpReader {
 public:
  enum class Source { Accelerate, Trainer };

  FsdpReader(TrainingReading& reading, ConfigSection& section, Source source)
      : reading_(reading),
        section_(section),
        options_(reading.strategy.fsdp),
        source_(source),
        default_reason_(source == Source::Accelerate ? "accelerate's default"
                                                     : "the Trainer's default") {
    refuse_auto();
  }

  void read_accelerate() {
    read_version();
    read_sharding_strategy();
    read_reshard(/*fallback=*/true);
    read_wrap_policy();
    read_classes();
    read_min_num_params(100'000'000);  // commands/launch.py: --fsdp_min_num_params
    read_prefetch();
    options_.cpu_offload = boolean("offload_params", false);
    read_switches(/*cpu_ram_efficient_loading=*/true);
    read_activation_checkpointing();
    read_the_rest();
  }

  void read_trainer(const FsdpArgument& argument) {
    read_version();
    options_.sharding = argument.sharding;
    options_.cpu_offload = argument.offload;
    read_reshard(/*fallback=*/false);
    read_classes();
    read_min_num_params(0);
    choose_wrap(argument);
    read_prefetch();
    options_.limit_all_gathers = boolean("limit_all_gathers", true);
    read_switches(/*cpu_ram_efficient_loading=*/false);
    read_activation_checkpointing();
    read_xla();
    read_the_rest();
  }

 private:
  /// The name of `key` in this file, with or without prefix.
  [[nodiscard]] std::string in_file(const std::string& key) {
    const std::string prefixed = kPrefix + key;
    const bool has_prefixed = section_.has(prefixed);
    const bool has_plain = section_.has(key);
    if (has_prefixed && has_plain) {
      section_.warn(key, "duplicate_keys",
                    format("given with and without the prefix {}: {} counts", kPrefix, prefixed));
    }
    if (has_prefixed || has_plain) return has_prefixed ? prefixed : key;
    return source_ == Source::Accelerate ? prefixed : key;
  }

  /// How the key is listed.
  [[nodiscard]] Listing listing(const std::string& key, const std::string& unit = "") const {
    return {.unit = unit,
            .reason = default_reason_,
            .name = source_ == Source::Accelerate ? kPrefix + key : key};
  }

  void refuse_auto() {
    for (const std::string& key : section_.object().keys()) {
      const JsonValue& value = section_.object().value()[key];
      if (!value.isString() || value.asString() != "auto") continue;
      section_.fail(key, "found \"auto\", which nothing fills in here, expected a value",
                    "auto_unresolved");
    }
  }

  bool boolean(const std::string& key, bool fallback) {
    return section_.boolean_or(in_file(key), fallback, listing(key));
  }

  /// Place in `names` of a word in any case, or of a number from 1; nothing if absent.
  std::optional<std::size_t> choice(const std::string& name, const std::vector<std::string>& names,
                                    bool numbers) {
    if (!section_.is_set(name)) return std::nullopt;
    const JsonValue& value = section_.object().raw(name);
    const std::string text =
        value.isString() ? upper_case(value.asString()) : to_text(value, false);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (text == names[i] || (numbers && text == std::to_string(i + 1))) return i;
    }
    section_.fail(
        name,
        format("found {}, expected one of {}{}{}", section_.shown(name), join(names, ", "),
               numbers ? ", or its number from 1" : "", did_you_mean(text, names)),
        "unknown_value");
  }

  template <typename Choice>
  Choice listed_choice(const std::string& key, const std::vector<std::string>& names, bool numbers,
                       Choice fallback) {
    const std::string name = in_file(key);
    const std::optional<std::size_t> found = choice(name, names, numbers);
    const std::size_t value = found.value_or(static_cast<std::size_t>(fallback));
    section_.list(name, names[value], found ? Origin::File : Origin::Default, listing(key));
    return static_cast<Choice>(value);
  }

  void no_effect(const std::string& name, const std::string& why) {
    if (section_.is_set(name)) section_.warn(name, "fsdp_no_effect", "no effect " + why);
  }

  void read_version() {
    const std::string name = in_file("version");
    const std::int64_t version = section_.integer_or(name, 1, 1, listing("version"));
    if (version > 2) {
      section_.fail(name, format("found {}, expected 1 or 2", version), "out_of_range");
    }
    options_.version = static_cast<int>(version);
  }

  /// Read by version 1 only (FullyShardedDataParallelPlugin.__post_init__).
  void read_sharding_strategy() {
    const std::string name = in_file("sharding_strategy");
    if (options_.version == 2) {
      static_cast<void>(choice(name, fsdp_sharding_names(), true));
      no_effect(name, "in version 2, which fsdp_reshard_after_forward governs");
      return;
    }
    options_.sharding =
        listed_choice("sharding_strategy", fsdp_sharding_names(), true, FsdpSharding::FullShard);
  }

  /// A switch in version 2; version 1 ignores it where it has a sharding strategy, which it always
  /// has by default.
  void read_reshard(bool fallback) {
    const std::string name = in_file("reshard_after_forward");
    if (options_.version == 1) {
      no_effect(name, "in version 1, which the sharding strategy governs");
      return;
    }
    options_.reshard_after_forward = boolean("reshard_after_forward", fallback);
    // fully_shard keeps parameters between forward and backward as SHARD_GRAD_OP does (D3.7).
    options_.sharding =
        options_.reshard_after_forward ? FsdpSharding::FullShard : FsdpSharding::ShardGradOp;
  }

  void read_wrap_policy() {
    options_.wrap = listed_choice("auto_wrap_policy", wrap_names(), false, FsdpWrap::None);
  }

  /// The Trainer: `auto_wrap`, then min_num_params, then class names
  /// (transformers/training_args.py, __post_init__).
  void choose_wrap(const FsdpArgument& argument) {
    const bool by_size = options_.min_num_params > 0;
    const std::string classes = in_file("transformer_layer_cls_to_wrap");
    if (by_size && section_.is_set(classes)) {
      section_.fail(in_file("min_num_params"),
                    "found together with transformer_layer_cls_to_wrap, expected at most one of "
                    "them",
                    "fsdp_bad_combination");
    }
    options_.wrap = !argument.auto_wrap ? FsdpWrap::None
                    : by_size           ? FsdpWrap::Size
                                        : FsdpWrap::TransformerLayer;
    list_absent(reading_, "fsdp_config.auto_wrap_policy",
                wrap_names()[static_cast<std::size_t>(options_.wrap)], Origin::Derived,
                argument.auto_wrap ? "auto_wrap in fsdp" : "fsdp without auto_wrap");
    if (argument.auto_wrap) {
      if (options_.wrap == FsdpWrap::TransformerLayer) settle_classes();
      return;
    }
    no_effect(classes, "without auto_wrap in fsdp");
    no_effect(in_file("min_num_params"), "without auto_wrap in fsdp");
  }

  /// Text with commas, or a list.
  void read_classes() {
    const std::string name = in_file("transformer_layer_cls_to_wrap");
    if (section_.is_set(name)) {
      options_.transformer_layer_classes = section_.object().raw(name).isArray()
                                               ? *section_.strings(name)
                                               : split(*section_.string(name), ',');
    }
    if (source_ == Source::Trainer) return;  // `auto_wrap` decides, later
    if (options_.wrap == FsdpWrap::TransformerLayer) {
      settle_classes();
    } else {
      no_effect(name, format("with {}", wrap_names()[static_cast<std::size_t>(options_.wrap)]));
    }
  }

  /// The given class names, checked; else the model's blocks, which Hugging Face lists in
  /// `_no_split_modules` (FullyShardedDataParallelPlugin.set_auto_wrap_policy).
  void settle_classes() {
    const std::string name = in_file("transformer_layer_cls_to_wrap");
    Listing how = listing("transformer_layer_cls_to_wrap");
    if (section_.is_set(name)) {
      check_classes(name);
      section_.list(name, joined_classes(options_.transformer_layer_classes), Origin::File, how);
      return;
    }
    options_.transformer_layer_classes = block_classes();
    how.reason = "the model's own blocks";
    section_.list(name, joined_classes(options_.transformer_layer_classes), Origin::Derived, how);
  }

  void check_classes(const std::string& name) {
    std::set<std::string> classes;
    for (const Module& module : reading_.model.modules) classes.insert(module.class_name);
    if (classes.empty()) return;
    for (const std::string& layer : options_.transformer_layer_classes) {
      if (!classes.contains(layer)) fail_at_class(name, layer, {classes.begin(), classes.end()});
    }
  }

  [[noreturn]] void fail_at_class(const std::string& name, const std::string& layer,
                                  const std::vector<std::string>& known) {
    const std::string hint = did_you_mean(layer, known);
    const std::vector<std::string> blocks = block_classes();
    section_.fail(
        name,
        format("found \"{}\", but no module of {} has this class{}", layer,
               reading_.model.name.empty() ? "the model" : reading_.model.name,
               !hint.empty() || blocks.empty() ? hint
                                               : format("; its blocks are {}", join(blocks, ", "))),
        "fsdp_layer_class_not_found");
  }

  /// Classes of the outermost modules of each block.
  [[nodiscard]] std::vector<std::string> block_classes() const {
    std::vector<std::string> classes;
    const std::vector<Module>& modules = reading_.model.modules;
    for (const Module& module : modules) {
      if (module.block < 0) continue;
      const bool inside = module.parent.valid() && modules[module.parent.index()].block >= 0;
      const bool known =
          std::find(classes.begin(), classes.end(), module.class_name) != classes.end();
      if (!inside && !known) classes.push_back(module.class_name);
    }
    return classes;
  }

  void read_min_num_params(std::int64_t fallback) {
    const std::string name = in_file("min_num_params");
    const bool matters = source_ == Source::Trainer || options_.wrap == FsdpWrap::Size;
    Listing how = listing("min_num_params", "elements");
    how.matters = matters;
    options_.min_num_params = section_.integer_or(name, fallback, 0, how);
    if (!matters) no_effect(name, "without SIZE_BASED_WRAP");
    if (options_.wrap == FsdpWrap::Size && options_.min_num_params == 0) {
      options_.wrap = FsdpWrap::None;  // set_auto_wrap_policy
      reading_.notes.assumptions.push_back(
          format("{}: 0 parameters: accelerate then wraps nothing.", section_.listed_name(name)));
    }
  }

  void read_prefetch() {
    const std::string name = in_file("backward_prefetch");
    const std::string old_name = in_file("backward_prefetch_policy");
    if (options_.version == 2) {
      no_effect(name, "in version 2, which always prefetches one group ahead (D3.6)");
      no_effect(in_file("forward_prefetch"), "in version 2");
      static_cast<void>(section_.boolean(in_file("forward_prefetch")));
      static_cast<void>(choice(name, prefetch_names(), true));
      options_.backward_prefetch = BackwardPrefetch::Pre;
      return;
    }
    if (section_.is_set(old_name) && !section_.is_set(name)) {
      section_.warn(old_name, "old_name",
                    "an older name, which accelerate reads until 0.26; the name is "
                    "fsdp_backward_prefetch");
      const std::size_t found = *choice(old_name, prefetch_names(), true);
      options_.backward_prefetch = static_cast<BackwardPrefetch>(found);
      section_.list(old_name, prefetch_names()[found], Origin::File, listing("backward_prefetch"));
    } else {
      options_.backward_prefetch =
          listed_choice("backward_prefetch", prefetch_names(), true, BackwardPrefetch::None);
    }
    options_.forward_prefetch = boolean("forward_prefetch", false);
  }

  void read_switches(bool cpu_ram_efficient_loading) {
    options_.sync_module_states = boolean("sync_module_states", true);
    options_.cpu_ram_efficient_loading =
        boolean("cpu_ram_efficient_loading", cpu_ram_efficient_loading);
    if (options_.cpu_ram_efficient_loading && !options_.sync_module_states) {
      section_.fail(in_file("sync_module_states"),
                    "found false, but cpu_ram_efficient_loading is true: all ranks but the first "
                    "would keep random weights",
                    "fsdp_bad_combination");
    }
    if (options_.version == 2) {
      no_effect(in_file("use_orig_params"), "in version 2, which always keeps them");
      static_cast<void>(section_.boolean(in_file("use_orig_params")));
      return;
    }
    options_.use_orig_params = boolean("use_orig_params", true);
  }

  void read_activation_checkpointing() {
    const std::string name = in_file("activation_checkpointing");
    const std::optional<bool> given = section_.boolean(name);
    // In the Trainer gradient_checkpointing decides, unless this is on.
    if (!given.value_or(false) && source_ == Source::Trainer) return section_.list_if_set(name);
    set_checkpointing(reading_, section_, name, given, default_reason_);
  }

  void read_xla() {
    if (section_.boolean(in_file("xla")).value_or(false)) {
      set_not_simulated(reading_, section_, in_file("xla"), "FSDP of PyTorch/XLA");
    }
    for (const char* key : {"xla_fsdp_settings", "xla_fsdp_grad_ckpt", "xla_fsdp_v2"}) {
      static_cast<void>(in_file(key));
    }
  }

  void read_the_rest() {
    section_.list_if_set(in_file("state_dict_type"));
    for (const char* key : {"ignored_modules", "mixed_precision", "mixed_precision_policy",
                            "backward_prefetch_policy"}) {
      static_cast<void>(in_file(key));  // known, and without effect here
    }
    section_.warn_unknown("unknown_key_plugin", source_ == Source::Accelerate
                                                    ? "which accelerate ignores"
                                                    : "which the Trainer ignores");
  }

  TrainingReading& reading_;
  ConfigSection& section_;
  FsdpOptions& options_;
  Source source_;
  std::string default_reason_;
};

}  // namespace

const std::vector<std::string>& fsdp_sharding_names() {
  static const std::vector<std::string> kNames = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                                  "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
  return kNames;
}

const std::vector<std::string>& trainer_fsdp_keys() {
  static const std::vector<std::string> kKeys = {
      "version",
      "reshard_after_forward",
      "transformer_layer_cls_to_wrap",
      "min_num_params",
      "backward_prefetch",
      "forward_prefetch",
      "limit_all_gathers",
      "use_orig_params",
      "sync_module_states",
      "state_dict_type",
      "cpu_ram_efficient_loading",
      "activation_checkpointing",
      "xla",
      "xla_fsdp_settings",
      "xla_fsdp_grad_ckpt",
      "xla_fsdp_v2",
  };
  return kKeys;
}

void read_accelerate_fsdp(TrainingReading& reading, ConfigSection& section) {
  FsdpReader(reading, section, FsdpReader::Source::Accelerate).read_accelerate();
}

void read_trainer_fsdp(TrainingReading& reading, ConfigSection& section,
                       const FsdpArgument& argument) {
  FsdpReader(reading, section, FsdpReader::Source::Trainer).read_trainer(argument);
}

void lint_fsdp(TrainingReading& reading, ConfigSection& section, std::int64_t nodes) {
  const Strategy& strategy = reading.strategy;
  const FsdpOptions& fsdp = strategy.fsdp;
  const SourceLocation where = reading.document.location(section.object().value());
  const auto lint = [&](KnownCode code, const std::string& message) {
    reading.notes.warnings.push_back(
        {code.text(), format("{}: {}", to_string(where), message), where});
  };
  const bool hybrid =
      fsdp.sharding == FsdpSharding::HybridShard || fsdp.sharding == FsdpSharding::HybridShardZero2;
  if (fsdp.sharding == FsdpSharding::NoShard) {
    lint("fsdp_no_shard_deprecated", "NO_SHARD is deprecated, DistributedDataParallel does it");
  }
  if (hybrid && nodes == 1) {
    lint("fsdp_hybrid_on_one_node",
         "a hybrid strategy on one node shards over all its GPUs, as the full one does (D2.10)");
  }
  if (fsdp.wrap == FsdpWrap::None) {
    lint("fsdp_wraps_nothing",
         "nothing is wrapped: the whole model is one unit, gathered at once (D2.1)");
  }
  const bool gathers_in_backward =
      fsdp.sharding == FsdpSharding::FullShard || fsdp.sharding == FsdpSharding::HybridShard;
  if (fsdp.version == 1 && gathers_in_backward &&
      fsdp.backward_prefetch == BackwardPrefetch::None && fsdp.wrap != FsdpWrap::None) {
    lint("fsdp_no_backward_prefetch",
         "without backward_prefetch a unit is gathered in backward only when it is needed, after "
         "the reduction before it (D2.7, D2.10)");
  }
  if (strategy.grad_accum > 1 && fsdp.sharding != FsdpSharding::NoShard) {
    lint("fsdp_keeps_full_gradients",
         format("{} micro batches accumulate whole, unsharded gradients (D2.12)",
                strategy.grad_accum));
  }
  if (reading.world_size == 1) {
    lint("dp_degree_1_no_sharding", "FSDP with one rank shards nothing (D2.2)");
  }
}

}  // namespace zerosim::internal
