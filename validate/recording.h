/// \file
/// A recorded training run of three steps (data/deepspeed_golden/README.md): what was run, and what
/// rank 0 asked of torch.distributed.
///
/// The two halves are kept apart. `RecordingDescription` says what was run: configuration, network,
/// routing. The events are what came out of it. The other results of a file (`init` events,
/// `live_bytes`, `inventory`, `losses`, `module_calls`, `external_params`, ...) are not read at
/// all: they are for the simulator to predict.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/model/routing.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"

namespace zerosim {

enum class RecordedKind { DeepSpeed, Ddp, Fsdp };

/// How recordings name the root module.
inline constexpr std::string_view kRecordedRoot = "(root)";

/// A text and where it stands in the file; without a line if the file does not hold it.
struct RecordedText {
  std::string text;
  SourceLocation where;
};

/// A whole number and where it stands.
struct RecordedNumber {
  std::int64_t value = 0;
  SourceLocation where;
};

/// FSDP: key `opts`, arguments of FullyShardedDataParallel. What is unset has the default of the
/// recorded release of PyTorch.
struct RecordedFsdp {
  FsdpSharding sharding = FsdpSharding::FullShard;    ///< `strategy`
  std::optional<BackwardPrefetch> backward_prefetch;  ///< null: none; unset: the release's default
  /// `wrap`: "block" (default), "size", "root" or none, or class names.
  FsdpWrap wrap = FsdpWrap::TransformerLayer;
  std::vector<std::string> classes;
  std::int64_t min_num_params = 0;  ///< alone: wrapping by size
  std::optional<bool> forward_prefetch, limit_all_gathers, use_orig_params, cpu_offload;
  /// `mixed`: a word for all types, or an object with `param`, `reduce` and `buffer`; unset: the
  /// model's, of reductions that of parameters.
  std::optional<Dtype> param_dtype, reduce_dtype, buffer_dtype;
};

/// Key `spec`: what the recording script was asked for. For none, null, false and "none" are the
/// same as an absent key; true and false may be 1 and 0.
struct RecordedSpec {
  int world = 1;
  RecordedText model;                        ///< "gpt_small"
  std::optional<RecordedNumber> grad_accum;  ///< key `gas`; none: DeepSpeed's file's, DDP 1
  /// Key `ckpt`, of FSDP also `opts.ckpt`: "reentrant" or "nonreentrant", by block.
  ActivationCheckpointing checkpointing = ActivationCheckpointing::None;
  bool two_groups = false;  ///< optimizer groups: matrices and embeddings, then vectors
  ZeroInit zero_init = ZeroInit::None;
  bool input_gradients = false;           ///< key `input_grads`
  std::vector<std::string> leaf_classes;  ///< given to `set_z3_leaf_modules`
  DdpFlags ddp;                           ///< DDP: keys `opts` and `dtype`; FSDP: `dtype`
  RecordedFsdp fsdp;
  bool no_sync = false;              ///< DDP, FSDP: key `opts.no_sync`
  std::optional<int> gpus_per_node;  ///< `env.NDEV_PER_NODE`
};

struct RecordedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  SourceLocation where{};
};

struct RecordedModule {
  std::string name;  ///< "" is the root
  std::string class_name;
  std::vector<std::string> parameters;  ///< own ones, each under its first name
  SourceLocation where{};
};

/// What was run.
struct RecordingDescription {
  std::string file;  ///< for messages
  RecordedKind kind = RecordedKind::DeepSpeed;
  RecordedText deepspeed_version;  ///< "0.19.5"; "0.19" if not told; empty unless DeepSpeed's
  RecordedText torch_version;      ///< "1.13.0a0"; "1.13" if not told
  RecordedSpec spec;
  /// Text of the configuration behind as much white space as puts it where it is in the file;
  /// empty unless DeepSpeed's.
  std::string ds_config;
  /// Its keys `train_batch_size`, `train_micro_batch_size_per_gpu` and
  /// `gradient_accumulation_steps` where they are numbers.
  std::optional<std::int64_t> train_batch, micro_batch, grad_accum;
  std::vector<RecordedParameter> parameters;  ///< in order of registration
  SourceLocation parameters_where;
  std::vector<std::vector<int>> groups;  ///< ranks of each process group, rank 0's view
  std::vector<RecordedModule> modules;   ///< in order of `named_modules()`; may be empty
  SourceLocation modules_where;
  std::vector<RecordedText> frozen;
  std::vector<std::string> leaf_modules;
  std::vector<MeasuredRouting> routing;  ///< rank 0's, by step and micro step
  /// What is not followed (unknown keys of `spec`, other ranks' routing) and what was not told, as
  /// sentences with the file's name.
  std::vector<std::string> notes;
};

/// One collective that rank 0 asked for.
struct RecordedCollective {
  std::string op;         ///< "all_gather_into_tensor"; any word
  std::string reduction;  ///< key `redop`: "SUM"; any word, "" if none is named
  int micro_step = 0;
  Phase phase = Phase::Forward;
  std::int64_t input_elements = 0;
  std::int64_t output_elements = 0;
  Dtype dtype = Dtype::F32;
  std::size_t group = 0;  ///< index into `RecordingDescription::groups`
  bool async = false;
  std::string module;  ///< `kRecordedRoot` is the root, "" none
  std::optional<int> root;
  std::optional<std::int64_t> coalesced;
};

/// Why something happened; no traffic.
struct RecordedMarker {
  std::string what;  ///< "flush_bucket"
  int micro_step = 0;
  Phase phase = Phase::Forward;
  std::int64_t elements = 0;
  std::string module;
  std::vector<std::string> names;  ///< parameters or units
};

/// Either of the two.
struct RecordedRow {
  std::optional<RecordedCollective> collective;
  std::optional<RecordedMarker> marker;
  const JsonValue* source = nullptr;  ///< in `Recording::document`
};

inline constexpr int kRecordedSteps = 3;

struct Recording {
  RecordingDescription description;
  std::array<std::vector<RecordedRow>, kRecordedSteps> steps;
  JsonDocument document;  ///< keeps what `RecordedRow::source` points to

  [[nodiscard]] SourceLocation location(const RecordedRow& row) const {
    return document.location(*row.source);
  }
};

/// \throws ConfigError  with file, line, column, what was found and what was expected; also if two
///                      keys contradict each other: `spec.frozen` without a list `frozen`, groups
///                      of which none is the world of `spec.world` ranks.
[[nodiscard]] Recording load_recording(const std::string& path);
/// The same for text; `name` stands for the file in messages.
[[nodiscard]] Recording parse_recording(std::string text, const std::string& name);
/// Only what was run; the text needs no `events`.
[[nodiscard]] RecordingDescription parse_recording_description(std::string text,
                                                               const std::string& name);

}  // namespace zerosim
