/// \file
/// How a model is trained: framework, ZeRO stage, sizes, batch. The result of reading a
/// ds_config.json or a strategy's name; all "auto" values and defaults are resolved here and
/// listed.
///
/// Sizes named *_size, *_threshold, max_* are in ELEMENTS, as DeepSpeed counts them (spec A2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/error.h"
#include "sim/model/model.h"
#include "sim/model/operators.h"

namespace zerosim {

enum class Framework { Single, Ddp, DeepSpeed, Fsdp };

/// Fp16, Bf16: mixed precision with fp32 master weights.
enum class Precision { Fp32, Fp16, Bf16 };

/// Full: each block is recomputed as a whole, by PyTorch's reentrant variant (C12.1). NonReentrant:
/// by the other, `use_reentrant=False` (C12.3). Selective: the attention core alone. PerOperator:
/// as NonReentrant, but the results of attention and of every second product of a block are kept
/// (torchtitan's selective checkpointing "op").
enum class ActivationCheckpointing { None, Full, Selective, NonReentrant, PerOperator };
/// Whether each block keeps its input for the backward and computes again what it does not keep.
[[nodiscard]] constexpr bool recomputes_blocks(ActivationCheckpointing checkpointing) {
  return checkpointing == ActivationCheckpointing::Full ||
         checkpointing == ActivationCheckpointing::NonReentrant ||
         checkpointing == ActivationCheckpointing::PerOperator;
}

/// Names and temporaries as in data/cases/README.md.
enum class OptimizerKind { AdamFused, AdamTorchForeach, AdamTorch, Adam8bit };

/// The param groups that the optimizer is given: each has a flat buffer, a norm and a gather of its
/// own at stages 1 and 2 (B2.1, rule 14 of deepspeed_recorded.md).
enum class OptimizerGroups {
  One,
  /// Matrices and embeddings, then vectors (norms, biases): with and without weight decay, as the
  /// HF Trainer and most training scripts make them. A group without members is left out.
  ByDimension,
};

/// How a DeepSpeed file is read (design.md section 5).
enum class ConfigMode { Auto, DeepSpeed, HuggingFace };

/// Where a resolved value comes from.
enum class Origin {
  File,     ///< stated in the file
  Flag,     ///< the command line
  Auto,     ///< "auto", filled in as Hugging Face does (A6)
  Derived,  ///< follows from other values (A4.1)
  Default,  ///< the framework's own default
};

/// One resolved key of a configuration.
struct Setting {
  std::string key;    ///< dotted, under its current name: "zero_optimization.reduce_bucket_size"
  std::string value;  ///< as JSON prints it, text without quotes: "16777216", "true", "bf16"
  Origin origin = Origin::Default;
  std::string reason{};    ///< "hidden^2 with hidden 4096", "DeepSpeed's default"; or empty
  std::string unit{};      ///< "elements"; or empty
  SourceLocation where{};  ///< of the value in the file, if it is there
};

enum class OffloadDevice { None, Cpu, Nvme };

/// `offload_param` or `offload_optimizer` (spec A3).
struct OffloadOptions {
  OffloadDevice device = OffloadDevice::None;
  std::string nvme_path{};
  std::int64_t buffer_count = 0;                       ///< 5 for parameters, 4 for the optimizer
  std::int64_t buffer_size = 100'000'000;              ///< elements of a buffer; parameters only
  std::int64_t max_in_cpu = 1'000'000'000;             ///< elements; parameters on NVMe only
  bool pin_memory = true;                              ///< false in 0.14
  bool pipeline_read = false, pipeline_write = false;  ///< optimizer on NVMe only
  double ratio = 1;  ///< of sub-groups whose step runs on the CPU; optimizer only
  bool super_offload = false;
  double cpuadam_cores_perc = 0.8;
};

/// `zenflow` (spec A5). Intervals: 0 stands for "auto".
struct ZenFlowOptions {
  double topk_ratio = 0.1;
  std::string select_strategy = "auto";
  std::int64_t select_interval = 0, update_interval = 0;
  bool overlap_step = false, offload = false;
  double auto_ratio = 0.99;
  std::int64_t full_warm_up_rounds = 0;
  double pt_reserved_cores_perc = 0.5;
};

/// `aio`: how NVMe is read and written (spec A3).
struct AioOptions {
  std::int64_t block_size = 1'048'576;  ///< bytes
  std::int64_t queue_depth = 8;
  std::int64_t intra_op_parallelism = 1;
  bool single_submit = false, overlap_events = true, use_gds = false;
};

/// DeepSpeed's `zero_optimization` section, stages 0 to 3, defaults of 0.19 (spec A2).
struct ZeroOptions {
  int stage = 0;
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  bool use_multi_rank_bucket_allreduce = true;
  bool overlap_comm = false;  ///< null in the file: true at stage 3, else false
  bool round_robin_gradients = false;
  std::int64_t reduce_bucket_size = 500'000'000;
  std::int64_t allgather_bucket_size = 500'000'000;  ///< without effect on current PyTorch (B5.2)
  std::int64_t sub_group_size = 1'000'000'000;
  std::int64_t prefetch_bucket_size = 50'000'000;
  std::int64_t param_persistence_threshold = 100'000;
  std::int64_t model_persistence_threshold = INT64_MAX;
  std::int64_t max_live_parameters = 1'000'000'000;
  std::int64_t max_reuse_distance = 1'000'000'000;
  bool allgather_sequential = false;
  bool use_all_reduce_for_fetch_params = false;
  bool memory_efficient_linear = true;
  bool enable_sanity_checks = false;
  bool gather_16bit_weights_on_model_save = false;
  std::int64_t module_granularity_threshold = 0;  ///< elements a module; 0: off (C2.5b)
  /// Classes of modules that are fetched as one unit (rule 89 of deepspeed_recorded.md).
  std::vector<std::string> leaf_module_classes;
  std::vector<std::string> leaf_module_names;          ///< full dotted names of modules
  std::vector<std::string> leaf_module_name_suffixes;  ///< ends of dotted names
  OffloadOptions offload_param{.buffer_count = 5};
  OffloadOptions offload_optimizer{.buffer_count = 4};
  std::int64_t hpz_partition_size = 1;  ///< ranks of the secondary partition; 1: off (C9)
  bool quantized_weights = false;       ///< qwZ (C10.1)
  bool quantized_nontrainable_weights = false;
  bool quantized_gradients = false;   ///< qgZ (C10.2)
  std::int64_t mics_shard_size = -1;  ///< ranks; -1: off (C11)
  bool mics_hierarchical_params_gather = false;
  std::optional<ZenFlowOptions> zenflow;
  /// No DeepSpeed key: stages 1 and 2 reduce-scatter each bucket, as the ZeRO paper has it (B7).
  bool true_reduce_scatter = false;
};

enum class FsdpSharding {
  FullShard,         ///< parameters, gradients and optimizer states
  ShardGradOp,       ///< parameters stay gathered from forward to backward (D2.11)
  NoShard,           ///< as DDP
  HybridShard,       ///< FullShard within a node, replicated over nodes (D2.10)
  HybridShardZero2,  ///< ShardGradOp within a node, replicated over nodes
};

/// Shards within nodes, replicas over them.
[[nodiscard]] constexpr bool is_hybrid(FsdpSharding sharding) {
  return sharding == FsdpSharding::HybridShard || sharding == FsdpSharding::HybridShardZero2;
}

enum class BackwardPrefetch { Pre, Post, None };

/// What becomes a unit of FSDP (D2.1).
enum class FsdpWrap {
  TransformerLayer,  ///< modules of the named classes
  Size,              ///< modules of at least `min_num_params` elements
  None,              ///< the root alone
};

/// PyTorch FullyShardedDataParallel (spec D2) or fully_shard (D3), as Hugging Face sets it up.
struct FsdpOptions {
  int version = 1;  ///< 1: FullyShardedDataParallel; 2: fully_shard
  FsdpSharding sharding = FsdpSharding::FullShard;
  FsdpWrap wrap = FsdpWrap::TransformerLayer;
  /// Class names; empty: the model's blocks (`_no_split_modules`).
  std::vector<std::string> transformer_layer_classes;
  std::int64_t min_num_params = 0;  ///< elements
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;
  bool forward_prefetch = false;
  bool limit_all_gathers = true;
  bool use_orig_params = true;
  bool cpu_offload = false;
  bool reshard_after_forward = true;  ///< version 2
  /// Version 2: an integer `reshard_after_forward`, ranks that share what is kept; 0: the switch
  /// above decides (D3.7).
  std::int64_t reshard_ranks = 0;
  bool sync_module_states = true;
  bool cpu_ram_efficient_loading = true;
  bool no_sync = true;  ///< gradients are reduced in the last micro batch of a step only (D2.12)
  /// Version 2: the last unit of the forward stays gathered, as recipes have it (D3.7).
  bool keeps_last_unit = false;
  /// Version 2, hybrid: reduce-scatter each micro batch, all-reduce in the last
  /// (`set_requires_all_reduce`); without effect under `no_sync`.
  bool delays_all_reduce = false;
  /// Ranks of a shard group of the hybrid strategies, consecutive ones: the GPUs of a node; 0: all.
  std::int64_t shard_group = 0;
  /// Type of shards and optimizer states. Forward, backward and gathers have that of
  /// `Strategy::precision`, reductions `Strategy::communication_dtype` (D2.13).
  Dtype parameter_dtype = Dtype::F32;
  std::optional<Dtype> reduce_dtype;  ///< as stated; unset: as gathers
  Dtype buffer_dtype = Dtype::F32;    ///< of module buffers
  /// Full checkpointing is reentrant and wraps units from outside (rule 68), as the Trainer's
  /// gradient_checkpointing does; else it is within them and finds them gathered (D3.11).
  bool checkpoints_around_units = false;
};

/// Megatron: that of Megatron-LM itself, without a distributed optimizer: one all-reduce of a
/// buffer of all gradients after the last backward of a step; 16-bit weights with fp32 copies
/// (program/megatron_ddp.cpp). Of the options below only `parameter_dtype` is its.
enum class DdpKind { PyTorch, Megatron };

/// PyTorch DistributedDataParallel (spec D1), or Megatron-LM's.
struct DdpOptions {
  DdpKind kind = DdpKind::PyTorch;
  double bucket_cap_mib = 25;
  double first_bucket_mib = 1;
  /// The loop enters no_sync() but for the last micro batch of a step: one reduction a step (D1.7).
  bool no_sync = true;
  /// Type of the weights, hence of gradients and messages (D1.8): F32 also under autocast; the
  /// low-precision type if the model itself was cast (`model.bfloat16()`).
  Dtype parameter_dtype = Dtype::F32;
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
};

struct Strategy {
  std::string name;  ///< "zero2", or the file's name
  Framework framework = Framework::Single;
  ZeroOptions zero;
  DdpOptions ddp;
  FsdpOptions fsdp;
  AioOptions aio;
  std::int64_t micro_batch = 1;
  std::int64_t grad_accum = 1;
  std::int64_t train_batch = 1;  ///< micro_batch x grad_accum x data-parallel size (A4.1)
  Precision precision = Precision::Bf16;
  Dtype communication_dtype = Dtype::Bf16;  ///< of gradients
  Dtype grad_accum_dtype = Dtype::Bf16;
  double gradient_clipping = 1.0;   ///< 0: off; the norm is still computed under ZeRO
  bool check_grad_overflow = true;  ///< bf16 at stages 1 and 2 (B5); fp16 always
  OptimizerKind optimizer = OptimizerKind::AdamFused;  ///< if it is one of Adam's kind
  std::string optimizer_name = "adamw";  ///< lower case: "adamw", "lamb", "lion", "sgd", ...
  OptimizerGroups optimizer_groups = OptimizerGroups::One;
  int overflow_steps = 0;  ///< fp16: steps before this one overflow and update nothing (B5)
  /// fp32 master weight and moments, bytes a trained element: 12 for Adam and LAMB.
  int optimizer_state_bytes = 12;
  /// Master weights, their gradients and Adam's moments in bf16 (bf16_master_weights_and_grads with
  /// bf16_optimizer_states). Simulated at stage 3 with the optimizer on the device.
  bool bf16_states = false;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::None;
  /// Share of the blocks that are recomputed, where blocks are: `recomputes_block`.
  double checkpointed_share = 1;
  bool compiled = false;         ///< torch.compile: see `trained_batch`
  bool tf32 = false;             ///< the Trainer's tf32: likewise
  bool liger_kernel = false;     ///< the Trainer's use_liger_kernel: see `trained_batch`
  bool throughput_timer = true;  ///< timers.throughput: device synchronise each micro batch (0.7)
  bool comms_logger = false;     ///< device synchronise after each collective (0.7)
  bool wall_clock_breakdown = false;
  bool zero_init = true;            ///< stage 3: built inside zero.Init
  std::string version = "0.19";     ///< DeepSpeed's: "0.3", "0.4", "0.5", "0.14" or "0.19"
  std::string torch_version = "2";  ///< PyTorch's: "1.13" or "2" (D1.3)
  std::int64_t sequence_parallel_size = 1;
  /// GPUs of a node, where hierarchical MiCS and qgZ ask for it (C10.2, C11); 0: all on one node.
  std::int64_t gpus_per_node = 0;
  std::vector<Setting> settings;         ///< every resolved key, in the order of spec A
  std::vector<std::string> assumptions;  ///< each default and each resolved "auto"
  std::vector<Warning> warnings;
  /// The first setting that is read and checked, but that `build_program` cannot simulate yet.
  std::optional<ConfigError> not_simulated;
};

/// Megatron-LM's own DDP.
[[nodiscard]] constexpr bool is_megatron(const Strategy& strategy) {
  return strategy.framework == Framework::Ddp && strategy.ddp.kind == DdpKind::Megatron;
}

/// Whether activation checkpointing recomputes block `block`, from 0: where whole blocks are, a
/// `share` of them, spread evenly; the i-th, from 1, if floor(i share + 1/2) is more than that of
/// the one before (fms-fsdp's `selective_checkpointing`; a half is torchtitan's "every second
/// layer", which begins one block later). None of a negative number, which stands for no block.
[[nodiscard]] bool recomputes_block(double share, int block);
[[nodiscard]] bool recomputes_block(const Strategy& strategy, int block);

/// Where the model is built before DeepSpeed gets it.
enum class ZeroInit { None, Zero, Mics };

/// What the command line says about DistributedDataParallel; unset: the file's, else the default.
struct DdpFlags {
  std::optional<Dtype> parameter_dtype;  ///< also of training on one GPU
  std::optional<double> bucket_cap_mib;  ///< at least 0
  std::optional<bool> find_unused_parameters, static_graph, gradient_as_bucket_view,
      broadcast_buffers;
};

/// What the command line says about training; unset: taken from the file, else a listed default.
struct TrainingFlags {
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> grad_accum;
  std::optional<Precision> precision;
  std::optional<OptimizerKind> optimizer;
  std::optional<ActivationCheckpointing> checkpointing;
  std::optional<OptimizerGroups> optimizer_groups;
  std::optional<int> overflow_steps;
  /// The loop enters no_sync() between boundaries; unset: it does under DDP and FSDP, and not under
  /// DeepSpeed.
  std::optional<bool> no_sync;
  std::optional<ZeroInit> zero_init;
  std::optional<int> gpus_per_node;
  DdpFlags ddp{};
  ConfigMode config_as = ConfigMode::Auto;
  std::string deepspeed_version = "0.19";
  std::string torch_version = "2";
};

/// A setting as assumptions put it: "zero_optimization.stage3_prefetch_bucket_size: \"auto\"
/// becomes 15099494 elements, 0.9 hidden^2 with hidden 4096."
[[nodiscard]] std::string sentence(const Setting& setting);
/// Modules that stage 3 fetches as one unit, by id: those that `leaf_module` names and those of
/// `stage3_module_granularity_threshold` (C2.5b). To be given to `with_leaf_modules`.
[[nodiscard]] std::vector<ModuleId> leaf_modules(const ZeroOptions& options, const Model& model);
/// The setting of a dotted key; null if it is not listed.
[[nodiscard]] const Setting* find_setting(const Strategy& strategy, std::string_view key);

/// Reads the file that is given to `deepspeed`, for a world of `world_size` ranks.
/// \throws ConfigError  with file, line, column and a code of data/ds_configs/README.md: negative
///                      size, unknown key in a typed section, T != M*G*D, stage outside 0 to 3, ...
[[nodiscard]] Strategy load_deepspeed_config(const std::string& path, const TrainingFlags& flags,
                                             const Model& model, int world_size);
/// The same for text; `name` stands for the file in messages.
[[nodiscard]] Strategy parse_deepspeed_config(const std::string& text, const std::string& name,
                                              const TrainingFlags& flags, const Model& model,
                                              int world_size);

/// Reads whatever file says how training is set up, told apart by its content: a DeepSpeed file;
/// the YAML (or JSON) that `accelerate config` writes (accelerate_config.h); the Trainer's
/// `fsdp_config` or a file of TrainingArguments (trainer_config.h).
/// \throws ConfigError  as the reader of that kind does.
[[nodiscard]] Strategy load_training_config(const std::string& path, const TrainingFlags& flags,
                                            const Model& model, int world_size);
/// The same for text; `name` stands for the file in messages.
[[nodiscard]] Strategy parse_training_config(const std::string& text, const std::string& name,
                                             const TrainingFlags& flags, const Model& model,
                                             int world_size);

/// "single", "ddp", "megatron_ddp", "zero0" .. "zero3" and FSDP's (`fsdp_full`, also "fsdp",
/// `hsdp`, `fsdp2`, ...) with the framework's defaults. \throws ConfigError  for another name, with
/// the nearest known one.
[[nodiscard]] Strategy named_strategy(const std::string& name, const TrainingFlags& flags,
                                      int world_size);

[[nodiscard]] std::vector<std::string> strategy_names();

/// The same strategy with the communication of the ZeRO paper instead of DeepSpeed's (B7, F2):
/// stages 1 and 2 send 2 Psi (reduce-scatter, all-gather); stage 3 sends 3 Psi (each parameter
/// gathered in forward and in backward: no persistence, prefetch or reuse). Other frameworks and
/// stage 0 stay as they are.
[[nodiscard]] Strategy as_in_paper(Strategy strategy);

/// "bf16" etc.; \throws ConfigError naming `flag` and the known names.
[[nodiscard]] Precision parse_precision(const std::string& text, const std::string& flag);
[[nodiscard]] ActivationCheckpointing parse_checkpointing(const std::string& text,
                                                          const std::string& flag);
[[nodiscard]] OptimizerKind parse_optimizer(const std::string& text, const std::string& flag);
[[nodiscard]] OptimizerGroups parse_optimizer_groups(const std::string& text,
                                                     const std::string& flag);
/// "plain", "fused" or "chunked".
[[nodiscard]] LossKind parse_loss(const std::string& text, const std::string& flag);
/// "eager", "fused_norms", "liger", "compiled" or "megatron".
[[nodiscard]] ElementwiseKernels parse_kernels(const std::string& text, const std::string& flag);
/// "1", "2" or "3".
[[nodiscard]] FlashVersion parse_flash_version(const std::string& text, const std::string& flag);
/// "default", "tf32" or "fp8".
[[nodiscard]] MatrixUnits parse_matrix_units(const std::string& text, const std::string& flag);
/// Of transformers: "4.57" or "4.45" and their like.
[[nodiscard]] ModelCode parse_transformers_version(const std::string& text,
                                                   const std::string& flag);
[[nodiscard]] ConfigMode parse_config_mode(const std::string& text, const std::string& flag);
/// Type of weights: "fp32", "bf16" or "fp16".
[[nodiscard]] Dtype parse_weights(const std::string& text, const std::string& flag);
/// "1.13" of "1.13" or "1.13.1", "2" of "2" or "2.4".
[[nodiscard]] std::string parse_torch_version(const std::string& text, const std::string& flag);
[[nodiscard]] std::string_view to_string(Precision precision);
[[nodiscard]] std::string_view to_string(ActivationCheckpointing checkpointing);
[[nodiscard]] std::string_view to_string(OptimizerKind optimizer);
[[nodiscard]] std::string_view to_string(OffloadDevice device);
[[nodiscard]] std::string_view to_string(Origin origin);

/// Type of weights and activations in the forward pass.
[[nodiscard]] Dtype model_dtype(Precision precision);

/// `batch` as `strategy` trains with it: micro batch, type, and kernels if it names some.
[[nodiscard]] BatchShape trained_batch(BatchShape batch, const Strategy& strategy);

/// M, G and T from those that are given (A4.1), checked: T == M * G * data_parallel_size.
/// \throws ConfigError  code "batch_missing" or "batch_triple_mismatch", naming what would fit.
struct BatchTriple {
  std::int64_t train_batch = 0;
  std::int64_t micro_batch = 0;
  std::int64_t grad_accum = 0;
};
[[nodiscard]] BatchTriple resolve_batch(std::optional<std::int64_t> train_batch,
                                        std::optional<std::int64_t> micro_batch,
                                        std::optional<std::int64_t> grad_accum,
                                        std::int64_t data_parallel_size,
                                        const SourceLocation& where);

}  // namespace zerosim
