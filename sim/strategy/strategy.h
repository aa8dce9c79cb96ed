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
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/error.h"
#include "sim/model/model.h"

namespace zerosim {

enum class Framework { Single, Ddp, DeepSpeed };

/// Fp16, Bf16: mixed precision with fp32 master weights.
enum class Precision { Fp32, Fp16, Bf16 };

enum class ActivationCheckpointing { None, Full, Selective };

/// Names and temporaries as in data/cases/README.md.
enum class OptimizerKind { AdamFused, AdamTorchForeach, AdamTorch };

/// How a DeepSpeed file is read (design.md section 5).
enum class ConfigMode { Auto, DeepSpeed, HuggingFace };

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
  /// No DeepSpeed key: stages 1 and 2 reduce-scatter each bucket, as the ZeRO paper has it (B7).
  bool true_reduce_scatter = false;
};

/// PyTorch DistributedDataParallel (spec D1).
struct DdpOptions {
  double bucket_cap_mib = 25;
  double first_bucket_mib = 1;
  bool gradient_as_bucket_view = false;
};

struct Strategy {
  std::string name;  ///< "zero2", or the file's name
  Framework framework = Framework::Single;
  ZeroOptions zero;
  DdpOptions ddp;
  std::int64_t micro_batch = 1;
  std::int64_t grad_accum = 1;
  std::int64_t train_batch = 1;  ///< micro_batch x grad_accum x data-parallel size (A4.1)
  Precision precision = Precision::Bf16;
  Dtype communication_dtype = Dtype::Bf16;  ///< of gradients
  Dtype grad_accum_dtype = Dtype::Bf16;
  double gradient_clipping = 1.0;   ///< 0: off; the norm is still computed under ZeRO
  bool check_grad_overflow = true;  ///< bf16 at stages 1 and 2 (B5); fp16 always
  OptimizerKind optimizer = OptimizerKind::AdamFused;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::None;
  bool throughput_timer = true;  ///< timers.throughput: device synchronise each micro batch (0.7)
  bool comms_logger = false;     ///< device synchronise after each collective (0.7)
  bool wall_clock_breakdown = false;
  bool zero_init = true;                 ///< stage 3: built inside zero.Init
  std::string version = "0.19";          ///< DeepSpeed's: "0.14" or "0.19"
  std::vector<std::string> assumptions;  ///< each default and each resolved "auto"
  std::vector<Warning> warnings;
};

/// What the command line says about training; unset: taken from the file, else a listed default.
struct TrainingFlags {
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> grad_accum;
  std::optional<Precision> precision;
  std::optional<OptimizerKind> optimizer;
  std::optional<ActivationCheckpointing> checkpointing;
  ConfigMode config_as = ConfigMode::Auto;
  std::string deepspeed_version = "0.19";
};

/// Reads the file that is given to `deepspeed`, for a world of `world_size` ranks.
/// \throws ConfigError  with file, line, column and a code of data/ds_configs/README.md: negative
///                      size, unknown key in a typed section, T != M*G*D, stage outside 0 to 3, ...
[[nodiscard]] Strategy load_deepspeed_config(const std::string& path, const TrainingFlags& flags,
                                             const Model& model, int world_size);
/// The same for text; `name` stands for the file in messages.
[[nodiscard]] Strategy parse_deepspeed_config(const std::string& text, const std::string& name,
                                              const TrainingFlags& flags, const Model& model,
                                              int world_size);

/// "single", "ddp", "zero0" .. "zero3" with the framework's defaults.
/// \throws ConfigError  for another name, with the nearest known one.
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
[[nodiscard]] ConfigMode parse_config_mode(const std::string& text, const std::string& flag);
[[nodiscard]] std::string_view to_string(Precision precision);
[[nodiscard]] std::string_view to_string(ActivationCheckpointing checkpointing);
[[nodiscard]] std::string_view to_string(OptimizerKind optimizer);

/// Type of weights and activations in the forward pass.
[[nodiscard]] Dtype model_dtype(Precision precision);

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
