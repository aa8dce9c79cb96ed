/// \file
/// Flags that say what is trained, how and where, and what they resolve to.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "sim/analysis/environment_settings.h"
#include "sim/analysis/report.h"
#include "sim/base/json.h"
#include "sim/model/model.h"
#include "sim/model/operators.h"
#include "sim/model/routing.h"
#include "sim/strategy/strategy.h"
#include "topology/cluster.h"

namespace zerosim {

/// The flags as written; empty: not given. Numbers are read by the functions below, so that every
/// message names its flag.
struct ExperimentFlags {
  std::string model;
  std::string lora, routing, seed;
  std::vector<std::string> freeze, train_only;
  bool input_require_grads = false;
  std::string cluster, nodes, gpus_per_node, world;
  std::vector<std::string> ds_configs, strategies;
  std::string micro_batch, sequence, grad_accum;
  std::string precision, checkpointing, optimizer;
  std::string zero_init;
  bool no_sync = false, sync_each_batch = false;
  std::string optimizer_groups, overflow_steps;
  std::string ddp_weights, ddp_bucket_cap;
  bool ddp_find_unused = false, ddp_static_graph = false, ddp_bucket_view = false;
  bool ddp_no_broadcast_buffers = false;
  std::string config_as = "auto", deepspeed_version = "0.19", torch_version = "2",
              accounting = "deepspeed", transformers_version = "4.57";
  std::string loss, kernels, flash_version, matmul, environment;
  std::string fold, collectives, calibration;
  bool no_flash_attention = false;
  bool dropout = false;
};

/// `--model` and which of its parameters train.
void add_model_flags(CLI::App& app, ExperimentFlags& flags);
/// `--routing` and `--seed`, for commands that know a batch.
void add_routing_flags(CLI::App& app, ExperimentFlags& flags);
void add_cluster_flags(CLI::App& app, ExperimentFlags& flags);
/// `--world`, for commands that need no cluster.
void add_world_flag(CLI::App& app, ExperimentFlags& flags);
void add_batch_flags(CLI::App& app, ExperimentFlags& flags);
void add_strategy_flags(CLI::App& app, ExperimentFlags& flags);
/// How one file is read and what it leaves open, for commands that read one.
void add_training_flags(CLI::App& app, ExperimentFlags& flags);
/// `--accounting`, for commands that issue communication.
void add_accounting_flag(CLI::App& app, ExperimentFlags& flags);
/// `--env`, for commands that know a GPU.
void add_environment_flag(CLI::App& app, ExperimentFlags& flags);

/// `--calibration`, for commands that tell time.
void add_calibration_flag(CLI::App& app, ExperimentFlags& flags);

/// `--fold` and `--collectives`, for commands that simulate.
void add_simulation_flags(CLI::App& app, ExperimentFlags& flags);
/// How the flags say that it is simulated; told on stderr, if that is a terminal, where it takes
/// long. \throws ConfigError  for another word than on, exact and off, fluid and stepped; for rings
/// step by step that are to be folded.
[[nodiscard]] SimulationOptions simulation_options(const ExperimentFlags& flags);

/// For commands that go several ways, of which each reads some of the flags.
/// \param read  the long names of those that are read, "json" among them
/// \param why   what the message says after the flag: "needs --model and --cluster"
/// \throws ConfigError  naming the first other flag that is given.
void refuse_other_flags(const CLI::App& app, const std::set<std::string>& read,
                        const std::string& why);

/// What the flags say about training, for the readers of files.
[[nodiscard]] TrainingFlags training_flags(const ExperimentFlags& flags);

/// The model with adapters and frozen parameters as the flags say.
/// \throws ConfigError  if `--model` is missing, or as load_model and with_trainable.
[[nodiscard]] Model required_model(const ExperimentFlags& flags);
/// \throws ConfigError  if `--cluster` is missing, or as load_cluster.
[[nodiscard]] Cluster required_cluster(const ExperimentFlags& flags);
/// As above, and machines that are not simulated (`load_topology`).
[[nodiscard]] Cluster required_topology(const ExperimentFlags& flags);
/// Nothing without `--cluster`. \throws ConfigError  if both it and `--world` are given.
[[nodiscard]] std::optional<Cluster> optional_cluster(const ExperimentFlags& flags);
/// Ranks of the cluster, else `--world`. \throws ConfigError  if neither is given.
[[nodiscard]] int required_world_size(const ExperimentFlags& flags,
                                      const std::optional<Cluster>& cluster);

/// Which experts see how many tokens. \param assumptions  gets a sentence if a model with experts
/// is routed by default.
[[nodiscard]] Routing routing_of(const ExperimentFlags& flags, const Model& model,
                                 std::vector<std::string>& assumptions);

/// Sequence length and attention; the micro batch is the strategies'.
/// \param assumptions  gets a sentence for each default.
[[nodiscard]] BatchShape batch_shape(const ExperimentFlags& flags, const Model& model,
                                     std::vector<std::string>& assumptions);

/// The `--strategies`, then the `--ds-config` files. Where flags say nothing, named strategies take
/// micro batch, accumulation and precision from the first file, so that all train alike. \param
/// defaults      names that are used if neither flag is given. \param assumptions   are put in
/// front of each strategy's own.
[[nodiscard]] std::vector<Strategy> load_strategies(const ExperimentFlags& flags,
                                                    const Model& model, int world_size,
                                                    const std::vector<std::string>& defaults,
                                                    const std::vector<std::string>& assumptions);

/// What `--env` says, and what it does to the cluster; nothing without it. \throws ConfigError  as
/// read_environment, environment_settings and follow_nccl_variables.
[[nodiscard]] EnvironmentSettings environment_of(const ExperimentFlags& flags, Cluster& cluster);

/// The question that the flags ask, and what is to be known about it.
struct GivenExperiment {
  Experiment experiment;
  std::vector<std::string> assumptions;
  std::vector<Warning> warnings;
};
/// Model, cluster, batch, routing, environment and calibration. \throws ConfigError  as their
/// readers.
[[nodiscard]] GivenExperiment required_experiment(const ExperimentFlags& flags);
/// The same as above for its model and its ranks; its assumptions and warnings are in front of each
/// strategy's own.
[[nodiscard]] std::vector<Strategy> load_strategies(const ExperimentFlags& flags,
                                                    const GivenExperiment& given,
                                                    const std::vector<std::string>& defaults);

/// `batch` as `strategy` trains with it.
[[nodiscard]] BatchShape batch_of(const BatchShape& batch, const Strategy& strategy);

/// Each sentence once, in this order.
[[nodiscard]] std::vector<std::string> merged(
    const std::vector<std::vector<std::string>>& sentences);

/// What the command was given, for `inputs` of its JSON: flags, and files with a hash of their
/// bytes (64-bit FNV-1a).
void add_inputs(JsonValue& json, const ExperimentFlags& flags);

}  // namespace zerosim
