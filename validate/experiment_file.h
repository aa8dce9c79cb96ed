/// \file
/// An experiment file: one JSON that says what is trained, how and where, and variants of it
/// (design.md section 5). User cases hold one under `inputs` (data/cases/README.md).
///
/// | key | meaning |
/// |---|---|
/// | `model` | `ref` (a file below the data folder), `config` (keys of a Hugging Face config.json)
/// or `n_params`, alone or with `layers`, `hidden`, `vocab` (null: no model); `trainable`,
/// `largest_layer_params`, `load_dtype`, `fused_experts`, `note` |
/// | `cluster` | `gpu`, `gpu_memory_gib`, `gpus_per_node`, `nodes`, `intra_node` and `inter_node`
/// {`kind`, `gbps`}, `host_memory_gib`, `host_cpu_cores`, `nvme_gbps` |
/// | `training` | `micro_batch`, `grad_accum`, `seq`, `precision`, `activation_checkpointing`,
/// `flash_attention`, `optimizer`, `framework`, `fsdp_wrap`, `zero_init`, `no_sync`, `bind_cores`,
/// `note` |
/// | `environment` | variables and their texts (or numbers); null: not set |
/// | `config_as`, `deepspeed_version` | as the flags of these names |
/// | `ds_config` | a DeepSpeed file beside this one; read if the framework is deepspeed |
/// | `measured` | `step_s`, `forward_s`, `oom_request_gib`, `oom_allocated_gib`,
/// `oom_reserved_gib`, `oom_free_gib` |
/// | `variants` | name -> overrides. A dotted key replaces one value, a plain key all of it, a key
/// that begins with `ds.` patches the DeepSpeed file once read (null removes) |
/// | `assumed`, `unknown`, `ds_config_origin` | for the reader |
///
/// null stands for what is not known. What it all means: experiment.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/environment.h"
#include "sim/base/json.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

/// `trainable`: which parameters train, if not all.
struct TrainableInputs {
  bool lora = false;      ///< else frozen
  std::int64_t rank = 0;  ///< of lora
  std::vector<std::string> targets;
  std::optional<std::int64_t> parameters;  ///< `trainable_params`
};

struct ModelInputs {
  std::string ref;                                                ///< as written; empty: not given
  JsonValue config;                                               ///< null: not given
  std::optional<std::int64_t> parameters, layers, hidden, vocab;  ///< `n_params`, ...
  std::optional<TrainableInputs> trainable;
  std::optional<std::int64_t> largest_layer;  ///< `largest_layer_params`
  std::optional<Dtype> load_dtype;
  bool fused_experts = false;
  std::string key;  ///< the same for equal models
  SourceLocation where;
};

/// `intra_node`, `inter_node`.
struct LinkInputs {
  std::string kind;            ///< any word (cluster_of knows some); empty: not known
  std::optional<double> gbps;  ///< gigabits a second, one direction
  SourceLocation where;        ///< of the kind
};

struct ClusterInputs {
  std::string gpu;  ///< empty: not known
  std::optional<double> gpu_memory_gib;
  int gpus_per_node = 1;
  int nodes = 1;
  LinkInputs intra_node, inter_node;
  std::optional<double> host_memory_gib;  ///< per node
  std::optional<int> host_cpu_cores;      ///< per node
  std::optional<double> nvme_gbps;        ///< per node
  SourceLocation where;

  [[nodiscard]] int world_size() const { return nodes * gpus_per_node; }
};

struct TrainingInputs {
  std::optional<std::int64_t> micro_batch, grad_accum, sequence;
  std::optional<Precision> precision;
  std::optional<ActivationCheckpointing> checkpointing;
  std::optional<bool> flash_attention;
  std::string optimizer;  ///< one of `experiment_optimizers`; empty: not known
  std::string framework;  ///< one of `experiment_frameworks`
  std::string fsdp_wrap;  ///< "decoder_layer", "none" or a class; empty: decoder_layer
  bool zero_init = true;
  bool no_sync = false;
  bool bind_cores = false;
  SourceLocation where;
};

/// What the user measured.
struct MeasuredInputs {
  std::optional<double> step_s, forward_s;
  std::optional<double> oom_request_gib, oom_allocated_gib, oom_reserved_gib, oom_free_gib;

  [[nodiscard]] bool has_out_of_memory() const {
    return oom_request_gib || oom_allocated_gib || oom_reserved_gib || oom_free_gib;
  }
};

/// A change of the DeepSpeed file.
struct ConfigPatch {
  std::string key;  ///< dotted: "zero_optimization.stage"
  JsonValue value;  ///< null: remove
  SourceLocation where;
};

/// An experiment with the overrides of one variant.
struct ExperimentInputs {
  std::string variant;  ///< empty: the inputs as they stand
  ModelInputs model;
  ClusterInputs cluster;
  TrainingInputs training;
  Environment environment;
  ConfigMode config_as = ConfigMode::Auto;
  std::string deepspeed_version = "0.19";
  SourceLocation deepspeed_version_where;
  std::string ds_config;  ///< path, the folder of the file in front; empty: none
  SourceLocation ds_config_where;
  std::vector<ConfigPatch> ds_patches;
  MeasuredInputs measured;
  std::string data_folder;  ///< `ref` is below it
};

[[nodiscard]] const std::vector<std::string>& experiment_frameworks();
/// `adamw_fused`, `adamw_torch_foreach`, `adamw_torch`, `adamw_8bit`.
[[nodiscard]] const std::vector<std::string>& experiment_optimizers();

class ExperimentFile {
 public:
  /// \param inputs       a part of `document`
  /// \param folder       that `ds_config` is in
  /// \param data_folder  that `ref` is below
  /// \throws ConfigError  with file, line, column and the nearest name, if the inputs or one of
  ///                      the variants do not follow the schema.
  ExperimentFile(const JsonDocument& document, const JsonValue& inputs, const std::string& folder,
                 const std::string& data_folder);
  /// \throws ConfigError  as above, and if the file cannot be read. `data_folder` is that of the
  ///                      file.
  [[nodiscard]] static ExperimentFile load(const std::string& path);

  /// The inputs as they stand.
  [[nodiscard]] const ExperimentInputs& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<ExperimentInputs>& variants() const { return variants_; }
  /// Null if there is none of this name.
  [[nodiscard]] const ExperimentInputs* find(const std::string& variant) const;
  [[nodiscard]] std::vector<std::string> variant_names() const;

 private:
  ExperimentInputs inputs_;
  std::vector<ExperimentInputs> variants_;  ///< in alphabetical order
};

}  // namespace zerosim
