#include "sim/cli/experiment_flags.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <unistd.h>
#include <utility>

#include "sim/analysis/calibration_notes.h"
#include "sim/analysis/nccl_environment.h"
#include "sim/base/text.h"
#include "sim/cli/numbers.h"
#include "sim/engine/engine.h"
#include "sim/model/trainable.h"

namespace zerosim {

namespace {

/// Tokens of a sequence if `--seq` does not say.
constexpr std::int64_t kDefaultSequence = 2048;

std::optional<std::int64_t> optional_integer(const std::string& text, std::string_view flag,
                                             const IntegerRange& range) {
  if (text.empty()) return std::nullopt;
  return parse_integer(text, flag, range);
}

/// Fills in what the flags leave open from the first file. \returns what it filled in, as
/// sentences.
std::vector<std::string> follow_file(TrainingFlags& training, const Strategy& file) {
  std::vector<std::string> sentences;
  const auto follow = [&](const char* what, auto& value, const auto& from, const auto& shown) {
    if (value) return;
    value = from;
    sentences.push_back(format("{} {}: as in {}", what, shown, file.name));
  };
  follow("micro batch", training.micro_batch, file.micro_batch, file.micro_batch);
  follow("gradient accumulation", training.grad_accum, file.grad_accum, file.grad_accum);
  follow("precision", training.precision, file.precision, to_string(file.precision));
  return sentences;
}

ZeroInit parse_zero_init(const std::string& text) {
  if (text == "zero") return ZeroInit::Zero;
  if (text == "mics") return ZeroInit::Mics;
  if (text == "none") return ZeroInit::None;
  throw ConfigError(format("--zero-init: found \"{}\", expected zero, mics or none", text));
}

bool issues_paper_communication(const ExperimentFlags& flags) {
  if (flags.accounting != "deepspeed" && flags.accounting != "paper") {
    throw ConfigError(
        format("--accounting: found \"{}\", expected deepspeed or paper", flags.accounting));
  }
  return flags.accounting == "paper";
}

template <typename T>
void prepend(std::vector<T>& all, const std::vector<T>& first) {
  all.insert(all.begin(), first.begin(), first.end());
}

/// 64-bit FNV-1a (offset basis and prime of the FNV reference).
std::string fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3U;
  }
  return format("{:016x}", hash);
}

bool has_dropout(const Model& model) {
  return std::any_of(model.operators.begin(), model.operators.end(),
                     [](const Operator& op) { return op.kind == OperatorKind::Dropout; });
}

void add_ddp_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--ddp-weights", flags.ddp_weights,
                 "DDP, single: type of weights, gradients and messages: fp32 (default; autocast), "
                 "or bf16 or fp16 if the model itself was cast");
  app.add_option("--ddp-bucket-cap-mb", flags.ddp_bucket_cap,
                 "DDP: bucket_cap_mb, MiB (default: 25, the first bucket 1)");
  app.add_flag("--ddp-find-unused-parameters", flags.ddp_find_unused,
               "DDP: find_unused_parameters");
  app.add_flag("--ddp-static-graph", flags.ddp_static_graph, "DDP: static_graph");
  app.add_flag("--ddp-gradient-as-bucket-view", flags.ddp_bucket_view,
               "DDP: gradient_as_bucket_view");
  app.add_flag("--ddp-no-broadcast-buffers", flags.ddp_no_broadcast_buffers,
               "DDP: broadcast_buffers=False");
}

DdpFlags ddp_flags(const ExperimentFlags& flags) {
  DdpFlags ddp;
  if (!flags.ddp_weights.empty()) {
    ddp.parameter_dtype = parse_weights(flags.ddp_weights, "--ddp-weights");
  }
  if (!flags.ddp_bucket_cap.empty()) {
    ddp.bucket_cap_mib = parse_non_negative(flags.ddp_bucket_cap, "--ddp-bucket-cap-mb");
  }
  if (flags.ddp_find_unused) ddp.find_unused_parameters = true;
  if (flags.ddp_static_graph) ddp.static_graph = true;
  if (flags.ddp_bucket_view) ddp.gradient_as_bucket_view = true;
  if (flags.ddp_no_broadcast_buffers) ddp.broadcast_buffers = false;
  return ddp;
}

/// Flags that fill in what a file leaves open, or say how it is read.
void add_file_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--grad-accum", flags.grad_accum, "Micro steps per optimizer step");
  app.add_option("--activation-checkpointing", flags.checkpointing,
                 "none, full (reentrant), nonreentrant, selective (the attention core), or "
                 "per_operator (torchtitan's selective \"op\")");
  app.add_option("--optimizer", flags.optimizer, "adamw_fused, adamw_torch_foreach or adamw_torch");
  app.add_option("--optimizer-groups", flags.optimizer_groups,
                 "Param groups of the optimizer: one, or by_dimension (matrices, then vectors)");
  app.add_option("--overflow-steps", flags.overflow_steps,
                 "fp16: the first K steps overflow and update nothing (default: 0)");
  app.add_option("--zero-init", flags.zero_init,
                 "Stage 3: where the model is built: zero (default; zero.Init), mics or none");
  app.add_flag("--no-sync", flags.no_sync,
               "The loop enters no_sync() between boundaries (default for DDP, not for DeepSpeed)");
  app.add_flag("--sync-each-batch", flags.sync_each_batch,
               "DDP: the loop does not; gradients are reduced in each micro step");
  add_ddp_flags(app, flags);
  app.add_option("--config-as", flags.config_as, "How files are read: auto, deepspeed or hf");
  app.add_option("--deepspeed-version", flags.deepspeed_version, "0.3, 0.4, 0.5, 0.14 or 0.19");
  app.add_option("--torch-version", flags.torch_version, "1.13 or 2 (default)");
}

/// The place of a flag's word among those that it may be.
std::size_t parse_word(const char* flag, const std::string& text,
                       const std::vector<std::string>& words) {
  const auto found = std::find(words.begin(), words.end(), text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  const std::vector<std::string> first(words.begin(), words.end() - 1);
  throw ConfigError(format("{}: found \"{}\", expected {} or {}{}", flag, text, join(first, ", "),
                           words.back(), did_you_mean(text, words)));
}

FoldMode parse_fold(const std::string& text) {
  return static_cast<FoldMode>(parse_word("--fold", text, {"on", "exact", "off"}));
}

CollectiveForm parse_collectives(const std::string& text) {
  return static_cast<CollectiveForm>(parse_word("--collectives", text, {"fluid", "stepped"}));
}

bool is_file(const std::string& name) {
  std::error_code error;
  return std::filesystem::is_regular_file(name, error);
}

}  // namespace

void add_model_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--model", flags.model,
                 "Preset's name, Hugging Face config.json, or module listing");
  app.add_option("--lora", flags.lora,
                 "Train adapters only, as PEFT adds them: rank=8,targets=q_proj,v_proj");
  app.add_option("--freeze", flags.freeze,
                 "Parameters or modules that do not train: names with * and ?")
      ->delimiter(',');
  app.add_option("--train-only", flags.train_only, "Parameters or modules that alone train")
      ->delimiter(',');
  app.add_flag("--input-require-grads", flags.input_require_grads,
               "The embedding's output requires a gradient (PEFT's enable_input_require_grads)");
}

void add_routing_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--routing", flags.routing,
                 "Tokens of experts: uniform (default), zipf:EXPONENT or a file of counts");
  app.add_option("--seed", flags.seed, "Of what is drawn (default: 0)");
}

void add_cluster_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--cluster", flags.cluster, "Preset's name or cluster file");
  app.add_option("--nodes,--num_nodes,--num-nodes", flags.nodes, "Nodes");
  app.add_option("--gpus-per-node,--num_gpus,--num-gpus", flags.gpus_per_node,
                 "GPUs used in each node");
}

void add_world_flag(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--world", flags.world, "Ranks, where no cluster is given");
}

void add_batch_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--micro-batch", flags.micro_batch, "Sequences per GPU and micro step");
  app.add_option("--seq", flags.sequence,
                 "Tokens of a sequence (default: 2048, or the model's positions if fewer)");
  app.add_option("--precision", flags.precision, "fp32, fp16 or bf16");
  app.add_flag("--no-flash-attention", flags.no_flash_attention,
               "Attention that stores its score matrix");
  app.add_option(
      "--loss", flags.loss,
      "plain (default; F.cross_entropy), fused (one kernel, gradient over the logits) or "
      "chunked (Liger's, without logits)");
  app.add_option("--kernels", flags.kernels,
                 "Norms, rotary, SwiGLU: eager (default), fused_norms, liger, compiled "
                 "(torch.compile) or megatron; decides what backward keeps");
  app.add_option(
      "--flash-version", flags.flash_version,
      "Fused attention: FlashAttention 1, 2 (default, as PyTorch's) or 3 (also 4, cuDNN)");
  app.add_option("--matmul", flags.matmul,
                 "Products: default (of the type), tf32 (of fp32 on tensor cores) or fp8 (Linears "
                 "but for the head)");
  app.add_option("--transformers-version", flags.transformers_version,
                 "Whose loss code: 4.57 (default), or one before 4.46, which copies the logits");
  app.add_flag("--dropout", flags.dropout, "The model's dropouts are active, as in training GPT-2");
}

void add_calibration_flag(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--calibration", flags.calibration,
                 "Constants of collectives, kernels and the host as measured (a file of zerosim "
                 "calibrate)");
}

void add_simulation_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--fold", flags.fold,
                 "Ranks that behave alike are simulated once: on (default; ranks that hold pieces "
                 "of other parameters are one, too), exact (those are told apart) or off (every "
                 "rank)");
  app.add_option("--collectives", flags.collectives,
                 "Rings are simulated as one transfer over all of their links, fluid (default), or "
                 "for checking as every rank's sends, stepped (slow; implies --fold off)");
}

SimulationOptions simulation_options(const ExperimentFlags& flags) {
  SimulationOptions options;
  if (!flags.fold.empty()) options.fold = parse_fold(flags.fold);
  if (!flags.collectives.empty()) options.collectives = parse_collectives(flags.collectives);
  if (options.collectives == CollectiveForm::Stepped && !flags.fold.empty() &&
      options.fold != FoldMode::Off) {
    throw ConfigError(format(
        "--fold {}: with --collectives stepped every rank is simulated; expected off", flags.fold));
  }
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [](const std::string& what) { std::cerr << what << " ...\n"; };
  }
  return options;
}

void add_strategy_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--ds-config,--deepspeed,--config_file", flags.ds_configs,
                 "Files as given to `deepspeed`, `accelerate launch` or the HF Trainer");
  app.add_option("--strategies", flags.strategies,
                 "Comma-separated names: " + join(strategy_names(), ", "))
      ->delimiter(',');
  add_file_flags(app, flags);
}

void add_training_flags(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--micro-batch", flags.micro_batch, "Sequences per GPU and micro step");
  app.add_option("--precision", flags.precision, "fp32, fp16 or bf16");
  add_file_flags(app, flags);
}

void add_accounting_flag(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--accounting", flags.accounting,
                 "deepspeed: the communication that DeepSpeed issues; paper: the ZeRO paper's, 2 "
                 "Psi at stages 1 and 2, 3 Psi at stage 3");
}

void add_environment_flag(CLI::App& app, ExperimentFlags& flags) {
  app.add_option("--env", flags.environment,
                 "Environment of the job: a file as `env` prints it, Docker takes it or a shell "
                 "sources it");
}

void refuse_other_flags(const CLI::App& app, const std::set<std::string>& read,
                        const std::string& why) {
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    const bool is_read =
        names.empty() ||
        std::any_of(names.begin(), names.end(), [&](const auto& n) { return read.contains(n); });
    if (option->count() > 0 && !is_read) {
      throw ConfigError(format("--{} {}", names.front(), why));
    }
  }
}

TrainingFlags training_flags(const ExperimentFlags& flags) {
  TrainingFlags training;
  training.micro_batch = optional_integer(flags.micro_batch, "--micro-batch", kMicroBatchRange);
  training.grad_accum = optional_integer(flags.grad_accum, "--grad-accum", kGradAccumRange);
  if (!flags.precision.empty()) {
    training.precision = parse_precision(flags.precision, "--precision");
  }
  if (!flags.optimizer.empty()) {
    training.optimizer = parse_optimizer(flags.optimizer, "--optimizer");
  }
  if (!flags.checkpointing.empty()) {
    training.checkpointing = parse_checkpointing(flags.checkpointing, "--activation-checkpointing");
  }
  if (!flags.optimizer_groups.empty()) {
    training.optimizer_groups =
        parse_optimizer_groups(flags.optimizer_groups, "--optimizer-groups");
  }
  if (!flags.overflow_steps.empty()) {
    training.overflow_steps =
        static_cast<int>(parse_integer(flags.overflow_steps, "--overflow-steps", {0, 1'000'000}));
  }
  if (!flags.zero_init.empty()) training.zero_init = parse_zero_init(flags.zero_init);
  if (flags.no_sync && flags.sync_each_batch) {
    throw ConfigError("--no-sync and --sync-each-batch are both given; expected one of them");
  }
  if (flags.no_sync || flags.sync_each_batch) training.no_sync = flags.no_sync;
  training.ddp = ddp_flags(flags);
  if (!flags.cluster.empty()) training.gpus_per_node = required_cluster(flags).gpus_per_node;
  training.config_as = parse_config_mode(flags.config_as, "--config-as");
  training.deepspeed_version = flags.deepspeed_version;
  training.torch_version = parse_torch_version(flags.torch_version, "--torch-version");
  return training;
}

Model required_model(const ExperimentFlags& flags) {
  if (flags.model.empty()) {
    throw ConfigError(
        "--model is missing; expected a preset's name (`zerosim model --list`), a Hugging Face "
        "config.json or a module listing");
  }
  Model model = load_model(flags.model);
  TrainableOptions options;
  options.has_lora = !flags.lora.empty();
  if (options.has_lora) options.lora = parse_lora(flags.lora, "--lora");
  options.freeze = flags.freeze;
  options.train_only = flags.train_only;
  // PEFT and the Trainer do so: blocks that are recomputed need an input with a gradient.
  const bool implied =
      options.has_lora && (flags.checkpointing == "full" || flags.checkpointing == "nonreentrant");
  options.input_requires_gradient = flags.input_require_grads || implied;
  if (implied && !flags.input_require_grads) {
    model.assumptions.emplace_back(
        "the embedding's output requires a gradient: PEFT makes it so under activation "
        "checkpointing");
  }
  const bool all = !options.has_lora && options.freeze.empty() && options.train_only.empty() &&
                   !options.input_requires_gradient;
  return all ? model : with_trainable(model, options);
}

Routing routing_of(const ExperimentFlags& flags, const Model& model,
                   std::vector<std::string>& assumptions) {
  Routing routing;
  if (!flags.routing.empty()) routing = parse_routing(flags.routing, "--routing");
  routing.seed = static_cast<std::uint64_t>(
      optional_integer(flags.seed, "--seed", {0, INT64_MAX}).value_or(0));
  if (model.moe_blocks.empty()) {
    if (!flags.routing.empty()) {
      throw ConfigError(format("--routing: the model \"{}\" has no experts", model.name));
    }
  } else if (flags.routing.empty()) {
    assumptions.push_back(
        format("routing uniform, drawn with seed {}, since --routing is not given", routing.seed));
  }
  return routing;
}

namespace {

/// \param load  `load_cluster` or its like
template <typename Load>
Cluster loaded_cluster(const ExperimentFlags& flags, const Load& load) {
  if (flags.cluster.empty()) {
    throw ConfigError(
        "--cluster is missing; expected a preset's name (`zerosim topo presets`) or a cluster "
        "file");
  }
  const auto nodes = optional_integer(flags.nodes, "--nodes", kNodeRange);
  const auto gpus = optional_integer(flags.gpus_per_node, "--gpus-per-node", kGpusPerNodeRange);
  return load(flags.cluster, static_cast<int>(nodes.value_or(-1)),
              static_cast<int>(gpus.value_or(-1)));
}

}  // namespace

Cluster required_cluster(const ExperimentFlags& flags) {
  return loaded_cluster(flags, load_cluster);
}

Cluster required_topology(const ExperimentFlags& flags) {
  return loaded_cluster(flags, load_topology);
}

std::optional<Cluster> optional_cluster(const ExperimentFlags& flags) {
  if (!flags.cluster.empty()) {
    if (!flags.world.empty()) {
      throw ConfigError("--world and --cluster are both given; expected one of them");
    }
    return required_cluster(flags);
  }
  if (!flags.nodes.empty() || !flags.gpus_per_node.empty()) {
    throw ConfigError("--nodes and --gpus-per-node need --cluster; without one, give --world");
  }
  return std::nullopt;
}

int required_world_size(const ExperimentFlags& flags, const std::optional<Cluster>& cluster) {
  if (cluster) return cluster->world_size();
  if (flags.world.empty()) {
    throw ConfigError("--world is missing; expected the number of ranks, or --cluster");
  }
  return static_cast<int>(parse_integer(flags.world, "--world", kWorldRange));
}

BatchShape batch_shape(const ExperimentFlags& flags, const Model& model,
                       std::vector<std::string>& assumptions) {
  const std::int64_t positions = model.shape.max_positions;
  BatchShape batch;
  batch.micro_batch =
      optional_integer(flags.micro_batch, "--micro-batch", kMicroBatchRange).value_or(1);
  batch.flash_attention = !flags.no_flash_attention;
  batch.dropout = flags.dropout;
  if (!flags.loss.empty()) batch.loss = parse_loss(flags.loss, "--loss");
  if (!flags.kernels.empty()) batch.kernels = parse_kernels(flags.kernels, "--kernels");
  if (!flags.flash_version.empty()) {
    batch.flash = parse_flash_version(flags.flash_version, "--flash-version");
  }
  if (!flags.matmul.empty()) batch.units = parse_matrix_units(flags.matmul, "--matmul");
  batch.code = parse_transformers_version(flags.transformers_version, "--transformers-version");
  if (!flags.no_flash_attention) {
    assumptions.emplace_back("flash attention, since --no-flash-attention is not given");
  }
  if (!flags.dropout && has_dropout(model)) {
    assumptions.emplace_back("dropout is off, since --dropout is not given");
  }
  if (!flags.precision.empty()) {
    batch.compute = model_dtype(parse_precision(flags.precision, "--precision"));
  }
  if (const auto sequence = optional_integer(flags.sequence, "--seq", kSequenceRange)) {
    batch.sequence = *sequence;
    if (positions > 0 && *sequence > positions) {
      assumptions.push_back(
          format("sequence {} is longer than the model's {} positions", *sequence, positions));
    }
    return batch;
  }
  batch.sequence = positions > 0 ? std::min(positions, kDefaultSequence) : kDefaultSequence;
  assumptions.push_back(
      format("sequence {}: --seq is not given; {}", batch.sequence,
             batch.sequence == kDefaultSequence ? "our default" : "the model's positions"));
  return batch;
}

std::vector<Strategy> load_strategies(const ExperimentFlags& flags, const Model& model,
                                      int world_size, const std::vector<std::string>& defaults,
                                      const std::vector<std::string>& assumptions) {
  TrainingFlags training = training_flags(flags);
  std::vector<Strategy> files;
  for (const std::string& path : flags.ds_configs) {
    files.push_back(load_training_config(path, training, model, world_size));
  }
  std::vector<std::string> followed;
  if (!files.empty()) followed = follow_file(training, files.front());

  std::vector<std::string> names = flags.strategies;
  if (names.empty() && files.empty()) names = defaults;
  std::vector<Strategy> strategies;
  for (const std::string& name : names) {
    strategies.push_back(named_strategy(name, training, world_size));
    prepend(strategies.back().assumptions, followed);
  }
  std::move(files.begin(), files.end(), std::back_inserter(strategies));
  if (issues_paper_communication(flags)) {
    for (Strategy& strategy : strategies) strategy = as_in_paper(std::move(strategy));
  }
  for (Strategy& strategy : strategies) prepend(strategy.assumptions, assumptions);
  return strategies;
}

EnvironmentSettings environment_of(const ExperimentFlags& flags, Cluster& cluster) {
  if (flags.environment.empty()) return {};
  const Environment environment = read_environment(flags.environment);
  EnvironmentSettings settings = environment_settings(environment);
  prepend(settings.assumptions, follow_nccl_variables(environment, cluster));
  return settings;
}

GivenExperiment required_experiment(const ExperimentFlags& flags) {
  GivenExperiment given;
  Experiment& experiment = given.experiment;
  experiment.model = required_model(flags);
  experiment.cluster = required_cluster(flags);
  experiment.batch = batch_shape(flags, experiment.model, given.assumptions);
  experiment.routing = routing_of(flags, experiment.model, given.assumptions);
  const Cluster found = experiment.cluster;
  EnvironmentSettings environment = environment_of(flags, experiment.cluster);
  if (!flags.calibration.empty()) {
    experiment.calibration = read_calibration(flags.calibration);
    find_measured_clusters(experiment.calibration, found, !flags.environment.empty());
  }
  experiment.alloc_conf = std::move(environment.alloc_conf);
  experiment.host_threads = environment.host_threads;
  std::move(environment.assumptions.begin(), environment.assumptions.end(),
            std::back_inserter(given.assumptions));
  given.warnings = std::move(environment.warnings);
  return given;
}

std::vector<Strategy> load_strategies(const ExperimentFlags& flags, const GivenExperiment& given,
                                      const std::vector<std::string>& defaults) {
  std::vector<Strategy> strategies =
      load_strategies(flags, given.experiment.model, given.experiment.cluster.world_size(),
                      defaults, given.assumptions);
  for (Strategy& strategy : strategies) prepend(strategy.warnings, given.warnings);
  return strategies;
}

BatchShape batch_of(const BatchShape& batch, const Strategy& strategy) {
  return trained_batch(batch, strategy);
}

std::vector<std::string> merged(const std::vector<std::vector<std::string>>& sentences) {
  std::vector<std::string> all;
  for (const std::vector<std::string>& part : sentences) {
    for (const std::string& sentence : part) {
      if (std::find(all.begin(), all.end(), sentence) == all.end()) all.push_back(sentence);
    }
  }
  return all;
}

void add_inputs(JsonValue& json, const ExperimentFlags& flags) {
  JsonValue& inputs = json["inputs"];
  JsonValue& given = inputs["flags"] = JsonValue(Json::objectValue);
  const auto flag = [&](const char* name, const std::string& value) {
    if (!value.empty()) given[name] = value;
  };
  flag("model", flags.model);
  flag("lora", flags.lora);
  flag("freeze", join(flags.freeze, ","));
  flag("train_only", join(flags.train_only, ","));
  flag("routing", flags.routing);
  flag("seed", flags.seed);
  flag("cluster", flags.cluster);
  flag("nodes", flags.nodes);
  flag("gpus_per_node", flags.gpus_per_node);
  flag("world", flags.world);
  flag("strategies", join(flags.strategies, ","));
  flag("micro_batch", flags.micro_batch);
  flag("seq", flags.sequence);
  flag("grad_accum", flags.grad_accum);
  flag("precision", flags.precision);
  flag("activation_checkpointing", flags.checkpointing);
  flag("optimizer", flags.optimizer);
  flag("optimizer_groups", flags.optimizer_groups);
  flag("overflow_steps", flags.overflow_steps);
  flag("zero_init", flags.zero_init);
  flag("config_as", flags.config_as);
  flag("accounting", flags.accounting);
  flag("deepspeed_version", flags.deepspeed_version);
  flag("torch_version", flags.torch_version);
  flag("loss", flags.loss);
  flag("kernels", flags.kernels);
  flag("flash_version", flags.flash_version);
  flag("matmul", flags.matmul);
  flag("transformers_version", flags.transformers_version);
  flag("ddp_weights", flags.ddp_weights);
  flag("ddp_bucket_cap_mb", flags.ddp_bucket_cap);
  flag("env", flags.environment);
  flag("calibration", flags.calibration);
  flag("fold", flags.fold);
  flag("collectives", flags.collectives);
  if (flags.no_flash_attention) given["no_flash_attention"] = true;
  if (flags.dropout) given["dropout"] = true;
  if (flags.no_sync) given["no_sync"] = true;
  if (flags.sync_each_batch) given["sync_each_batch"] = true;
  if (flags.ddp_find_unused) given["ddp_find_unused_parameters"] = true;
  if (flags.ddp_static_graph) given["ddp_static_graph"] = true;
  if (flags.ddp_bucket_view) given["ddp_gradient_as_bucket_view"] = true;
  if (flags.ddp_no_broadcast_buffers) given["ddp_no_broadcast_buffers"] = true;
  if (flags.input_require_grads) given["input_require_grads"] = true;

  JsonValue& files = inputs["files"] = JsonValue(Json::arrayValue);
  std::vector<std::string> paths = flags.ds_configs;
  for (const std::string& path :
       {flags.model, flags.cluster, flags.routing, flags.environment, flags.calibration}) {
    if (is_file(path)) paths.push_back(path);
  }
  for (const std::string& path : paths) {
    JsonValue entry(Json::objectValue);
    entry["path"] = path;
    entry["fnv1a"] = fnv1a(read_file(path));
    files.append(entry);
  }
  json["zerosim"] = ZEROSIM_VERSION;
}

}  // namespace zerosim
