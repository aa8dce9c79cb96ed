#include "validate/run_row.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "sim/base/text.h"
#include "sim/model/model.h"
#include "validate/run_habits.h"
#include "validate/run_machine.h"

namespace zerosim {

namespace {

constexpr double kLargestCount = 1e9;
constexpr double kBillion = 1e9;
constexpr std::int64_t kMostRanks = 131'072;  // more is a slip

/// Why a row is no run; caught by `read_run`.
struct NoRun {
  std::string why;
};

bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return has(text, word); });
}

/// "yes" of "Yes (SDPA)": without what is in brackets, in small letters.
std::string word_of(const std::string& cell) {
  return lower_case(cell.substr(0, cell.find(" (")));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

/// The cells of one row by name.
class Cells {
 public:
  Cells(const CsvTable& table, const std::vector<CsvCell>& row) : table_(table), row_(row) {}

  [[nodiscard]] const std::string& text(std::string_view column) const {
    return cell_or_blank(table_, row_, column);
  }
  /// A blank cell counts as none.
  [[nodiscard]] std::optional<double> number(const std::string& column, double minimum = 0) const {
    return text(column).empty() ? std::nullopt : number_in(column, {minimum, kLargestCount});
  }
  [[nodiscard]] std::optional<std::int64_t> count(const std::string& column) const {
    if (text(column).empty()) return std::nullopt;
    const std::optional<double> value = number_in(column, {1, kLargestCount, true});
    return value ? std::optional<std::int64_t>(static_cast<std::int64_t>(*value)) : std::nullopt;
  }
  /// \param yes  words for yes, beside "yes".
  /// \returns nothing for a blank cell.
  [[nodiscard]] std::optional<bool> yes_or_no(const std::string& column,
                                              const std::vector<std::string>& yes = {}) const {
    const std::string word = word_of(text(column));
    if (word.empty()) return std::nullopt;
    if (word == "no") return false;
    if (word == "yes" || std::find(yes.begin(), yes.end(), word) != yes.end()) return true;
    throw NoRun{format("{} \"{}\" is not known", column, text(column))};
  }
  /// "runs.csv:12"
  [[nodiscard]] std::string location() const {
    return format("{}:{}", table_.file, row_.front().line);
  }
  [[nodiscard]] std::int64_t needed(const std::string& column) const {
    const std::optional<std::int64_t> value = count(column);
    if (!value) throw NoRun{format("{} is empty", column)};
    return *value;
  }

 private:
  [[nodiscard]] std::optional<double> number_in(const std::string& column, CsvRange range) const {
    return csv_number(table_, row_, table_.column(column), range);
  }

  const CsvTable& table_;
  const std::vector<CsvCell>& row_;
};

// ---- the model ------------------------------------------------------------------------------

std::optional<std::string> preset_named(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const std::vector<std::string> names = model_preset_names();
  const bool known = std::find(names.begin(), names.end(), lower) != names.end();
  return known ? std::optional<std::string>(lower) : std::nullopt;
}

std::string file_stem(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return name.substr(0, name.rfind('.'));
}

/// Widths that the columns give.
struct ShapeColumns {
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, positions = 0;
  std::string mlp;

  explicit ShapeColumns(const Cells& cells)
      : layers(cells.needed("layers")),
        hidden(cells.needed("hidden")),
        heads(cells.needed("heads")),
        kv_heads(cells.count("kv_heads").value_or(heads)),
        ffn(cells.needed("ffn")),
        positions(cells.needed("seq_len")),
        mlp(cells.text("mlp_type")) {}

  [[nodiscard]] std::string config(std::int64_t vocab, bool tied) const {
    if (mlp == "swiglu3") {
      return format(R"({{"model_type": "llama", "hidden_size": {}, "num_hidden_layers": {}, )"
                    R"("num_attention_heads": {}, "num_key_value_heads": {}, )"
                    R"("intermediate_size": {}, "vocab_size": {}, )"
                    R"("max_position_embeddings": {}, "tie_word_embeddings": {}}})",
                    hidden, layers, heads, kv_heads, ffn, vocab, positions, tied);
    }
    if (mlp != "gelu2" && mlp != "relu2") throw NoRun{format("mlp_type \"{}\" is not known", mlp)};
    if (kv_heads != heads && kv_heads != 1) {
      throw NoRun{format("a {} model with {} heads of keys and values is none of our families", mlp,
                         kv_heads)};
    }
    return format(R"({{"model_type": "{}", "n_embd": {}, "n_layer": {}, "n_head": {}, )"
                  R"("n_inner": {}, "vocab_size": {}, "n_positions": {}, )"
                  R"("activation_function": "{}", "tie_word_embeddings": {}}})",
                  kv_heads == 1 && heads > 1 ? "gpt_bigcode" : "gpt2", hidden, layers, heads, ffn,
                  vocab, positions, mlp == "relu2" ? "relu" : "gelu", tied);
  }
};

/// Rows of the table of tokens that a framework adds so that `multiple` divides them.
std::int64_t padded(std::int64_t vocab, std::int64_t multiple,
                    std::vector<std::string>& assumptions) {
  const std::int64_t rows = (vocab + multiple - 1) / multiple * multiple;
  if (rows != vocab) {
    assumptions.push_back(
        format("the vocabulary is padded to {}, a multiple of {}, as by default "
               "there",
               rows, multiple));
  }
  return rows;
}

Model model_of_columns(const Cells& cells, const FrameworkHabits& habits,
                       std::vector<std::string>& assumptions) {
  const ShapeColumns shape(cells);
  const auto build = [&](std::int64_t vocab, bool tied) {
    return parse_model(shape.config(vocab, tied), cells.text("model"));
  };
  const std::optional<double> billions = cells.number("params_b");
  std::optional<std::int64_t> vocab = cells.count("vocab");
  if (!vocab) {
    if (!billions) throw NoRun{"vocab and params_b are empty"};
    // One row of the table, and no more, comes with each entry of a tied vocabulary.
    const auto others = static_cast<double>(parameter_count(build(1, true)) - shape.hidden);
    vocab = std::llround((*billions * kBillion - others) / static_cast<double>(shape.hidden));
    if (*vocab < 1) throw NoRun{"vocab is empty, and params_b leaves nothing for it"};
    assumptions.push_back(format("vocabulary {}: what params_b leaves for a tied table", *vocab));
    return build(*vocab, true);
  }
  vocab = padded(*vocab, habits.vocabulary_multiple, assumptions);
  if (!billions) return build(*vocab, true);
  Model tied = build(*vocab, true);
  Model untied = build(*vocab, false);
  const auto distance = [&](const Model& model) {
    return std::abs(static_cast<double>(parameter_count(model)) - *billions * kBillion);
  };
  return distance(tied) <= distance(untied) ? std::move(tied) : std::move(untied);
}

Model model_of(const Cells& cells, const FrameworkHabits& habits,
               std::vector<std::string>& assumptions) {
  for (const std::string& name : {file_stem(cells.text("model_json")), cells.text("model")}) {
    if (const std::optional<std::string> preset = preset_named(name)) return load_model(*preset);
  }
  if (cells.text("layers").empty()) {
    throw NoRun{format("model \"{}\" is no preset, and the row does not give its shape",
                       cells.text("model"))};
  }
  return model_of_columns(cells, habits, assumptions);
}

// ---- the machine ----------------------------------------------------------------------------

Cluster cluster_of(const Cells& cells, std::vector<std::string>& assumptions) {
  const std::int64_t world = cells.needed("world_size");
  if (world > kMostRanks) throw NoRun{format("{} ranks are more than {}", world, kMostRanks)};
  const std::int64_t nodes = cells.count("nodes").value_or(1);
  const auto each = cells.count("gpus_per_node").value_or(world / nodes);
  if (nodes * each != world) {
    throw NoRun{format("{} nodes of {} GPUs are not {} ranks", nodes, each, world)};
  }
  RunPlace place;
  place.gpu = cells.text("gpu");
  place.intra_node = cells.text("intra_node");
  place.inter_node = cells.text("inter_node");
  place.cloud = cells.text("source");
  place.nodes = static_cast<int>(nodes);
  place.gpus_per_node = static_cast<int>(each);
  place.location = cells.location();
  RunMachine machine = machine_of_run(place);
  if (!machine.cluster) throw NoRun{machine.why};
  assumptions.insert(assumptions.end(), machine.assumptions.begin(), machine.assumptions.end());
  return *std::move(machine.cluster);
}

// ---- how it is trained ----------------------------------------------------------------------

/// What the words on precision say.
struct Types {
  Precision compute = Precision::Bf16;
  Dtype weights = Dtype::F32;      ///< of weights and optimizer states
  bool bf16_states = false;        ///< of DeepSpeed: master weights, their gradients, moments
  std::optional<Dtype> reduction;  ///< of gradients, where stated
};

/// \param unsaid  what the framework takes by default
Types types_of(const std::string& words, Precision unsaid, const GpuSpec& gpu,
               std::vector<std::string>& assumptions) {
  Types types;
  if (words.empty()) {
    const bool has_it = unsaid != Precision::Bf16 || gpu.compute_capability >= 80;
    types.compute = has_it ? unsaid : Precision::Fp16;
    assumptions.push_back(format("precision is not said: taken as {}{}", to_string(types.compute),
                                 types.compute == Precision::Fp32 ? ", the framework's default"
                                                                  : " with fp32 master weights"));
    return types;
  }
  types.bf16_states = words.starts_with("bf16 master");
  if (has(words, "fp32 reduce")) types.reduction = Dtype::F32;
  if (words.starts_with("pure bf16")) {
    types.weights = Dtype::Bf16;
  } else if (words.starts_with("fp16")) {
    types.compute = Precision::Fp16;
  } else if (words.starts_with("fp32") && !has(words, "bf16")) {
    types.compute = Precision::Fp32;
  } else if (!has_any(words, {"bf16", "FP8", "fp8"})) {
    throw NoRun{format("precision \"{}\" is not known", words)};
  }
  return types;
}

OptimizerKind optimizer_of(const std::string& words, bool fused,
                           std::vector<std::string>& assumptions) {
  if (has_any(words, {"LoRA"})) throw NoRun{"adapters: their rank and places are not given"};
  if (has(words, "8-bit")) return OptimizerKind::Adam8bit;
  if (words == "SGD") {
    assumptions.emplace_back("SGD is simulated as Adam");
  } else if (!words.empty() && !has(words, "Adam")) {
    throw NoRun{format("optimizer \"{}\" is not simulated", words)};
  }
  return fused || has(words, "fused") ? OptimizerKind::AdamFused : OptimizerKind::AdamTorchForeach;
}

struct Checkpointing {
  ActivationCheckpointing kind = ActivationCheckpointing::None;
  double share = 1;  ///< of the blocks
};

/// Where "selective" is all that is said: the hardware's FLOPs have a second forward, a third of
/// the model's, of those blocks that are recomputed.
double share_by_flops(const Cells& cells) {
  const std::optional<double> model = cells.number("mfu");
  const std::optional<double> hardware = cells.number("hfu");
  if (!model || !hardware || *model <= 0 || *hardware <= *model) {
    throw NoRun{"activation checkpointing is selective, and mfu and hfu do not tell how much"};
  }
  return std::min(1.0, 3 * (*hardware / *model - 1));
}

Checkpointing checkpointing_of(const Cells& cells, std::vector<std::string>& assumptions) {
  constexpr std::string_view kEvery = "selective (every ";
  const std::string& words = cells.text("activation_checkpointing");
  if (words.empty()) {
    assumptions.emplace_back("activation checkpointing is not said: taken as none");
  }
  if (words.empty() || words == "none") return {};
  if (words == "full") return {ActivationCheckpointing::Full};
  if (words.starts_with("selective (per-op")) return {ActivationCheckpointing::PerOperator};
  if (words == "selective") {
    const double share = share_by_flops(cells);
    assumptions.push_back(
        format("selective checkpointing: {:.0f} % of the blocks, by hfu / mfu", share * 100));
    return {ActivationCheckpointing::Full, share};
  }
  const int every = words.starts_with(kEvery) ? std::atoi(words.c_str() + kEvery.size()) : 0;
  if (every >= 1) return {ActivationCheckpointing::Full, 1.0 / every};
  throw NoRun{format("activation checkpointing \"{}\" is not simulated", words)};
}

struct Offload {
  bool optimizer = false;
  bool parameters = false;
};

/// \param words  "optimizer_cpu+params_cpu"; "optimizer" alone: on the CPU, as what follows it
Offload offload_of(const std::string& words) {
  Offload offload;
  const std::string joined = word_of(words);
  if (joined.empty() || joined == "none") return offload;
  for (const std::string& part : split(joined, '+')) {
    if (part == "activation_cpu") throw NoRun{"offload of activations is not simulated"};
    const bool optimizer = part == "optimizer_cpu" || part == "optimizer";
    if (!optimizer && part != "params_cpu") {
      throw NoRun{format("offload \"{}\" is not known or not simulated", part)};
    }
    (optimizer ? offload.optimizer : offload.parameters) = true;
  }
  return offload;
}

/// What DeepSpeed does with the optimizer's states.
struct StateWords {
  Offload offload;
  bool bf16_states = false;
};
constexpr std::string_view kBf16States =
    R"(, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true)";

/// Kernels and loss that the notes, or the words on the peak, name.
void read_kernels(const std::string& notes, BatchShape& batch) {
  const bool liger_loss = has_any(notes, {"Liger fused linear cross-entropy", "kernels-liger"});
  if (has_any(notes, {"fused Triton cross-entropy", "foak-fast-kernels"}) || liger_loss) {
    batch.loss = liger_loss ? LossKind::Chunked : LossKind::Fused;
    batch.kernels = ElementwiseKernels::FusedNorms;
  } else if (has(notes, "Liger kernels")) {
    batch.loss = LossKind::Chunked;
    batch.kernels = ElementwiseKernels::Liger;
  }
}

/// The number that follows `words`, if the text has them.
std::optional<int> number_after(const std::string& text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string::npos) return std::nullopt;
  return std::atoi(text.c_str() + at + words.size());
}

/// The simulated release that is nearest to the one that is named, or that the Trainer of that time
/// was used with: transformers 4.16 is of January 2022, DeepSpeed 0.6 of March.
std::string deepspeed_version_of(const std::string& framework) {
  constexpr int kLastWithLists = 5;
  constexpr int kLastOldMinor = 16;
  constexpr int kLastTrainerOf2021 = 15;
  if (const std::optional<int> minor = number_after(framework, "DeepSpeed 0.")) {
    if (*minor <= kLastWithLists) return "0.5";
    return *minor > kLastOldMinor ? "0.19" : "0.14";
  }
  if (const std::optional<int> minor = number_after(framework, "HF Trainer 4.")) {
    return *minor <= kLastTrainerOf2021 ? "0.5" : "0.14";
  }
  return "0.19";
}

class RunReader {
 public:
  explicit RunReader(const Cells& cells)
      : cells_(cells), framework_(cells.text("framework")), habits_(habits_of(framework_)) {}

  TrainingRun read() {
    if (!cells_.yes_or_no("pure_dp").value_or(true)) {
      throw NoRun{"tensor or pipeline parallelism is not simulated"};
    }
    Experiment& experiment = run_.experiment;
    experiment.model = model_of(cells_, habits_, run_.assumptions);
    experiment.cluster = cluster_of(cells_, run_.assumptions);
    read_batch();
    checkpointing_ = checkpointing_of(cells_, run_.assumptions);
    run_.strategy = strategy();
    run_.strategy.checkpointed_share = checkpointing_.share;
    return std::move(run_);
  }

 private:
  void tell(std::string sentence) { run_.assumptions.push_back(std::move(sentence)); }

  void read_batch() {
    BatchShape& batch = run_.experiment.batch;
    batch.micro_batch = cells_.needed("micro_batch");
    batch.sequence = cells_.needed("seq_len");
    batch.kernels = habits_.kernels;
    batch.loss = habits_.loss;
    batch.dropout = has_dropout();
    if (batch.dropout) tell("dropout is on, as by default there");
    read_attention(batch);
    read_matrix_units(batch);
    if (has_any(cells_.text("notes"), {"power limited", "power-limited"})) {
      tell("the source says that power was limited, not to what: the limit of the board as sold");
    }
    read_kernels(cells_.text("notes") + "; " + cells_.text("peak_memory_kind"), batch);
    if (compiles()) {
      batch.kernels = ElementwiseKernels::Compiled;
      tell("torch.compile: of blocks, not of the loss");
    }
    // accelerate names its FSDP "1" since it has a second one; transformers was at 4.40 then.
    if (habits_.library == TrainingLibrary::HuggingFace && !has(framework_, "DeepSpeed")) {
      batch.code = ModelCode::TransformersOld;
      tell("the release of transformers is not said: taken as one before 4.46");
    }
  }

  /// Configurations of GPT-2, GPT-BigCode and BERT in transformers have 0.1.
  [[nodiscard]] bool has_dropout() const {
    const std::string& name = run_.experiment.model.name;
    const bool by_config = name.starts_with("gpt2") || name.starts_with("bert") ||
                           run_.experiment.model.family == "gpt_bigcode";
    return habits_.dropout || (habits_.library == TrainingLibrary::HuggingFace && by_config);
  }

  void read_attention(BatchShape& batch) {
    const std::optional<bool> flash =
        cells_.yes_or_no("flash_attention", {"fa1", "fa2", "fa3", "fa4", "cudnn", "sdpa"});
    const bool has_flash = run_.experiment.cluster.gpu().compute_capability >= 80;
    batch.flash_attention = flash.value_or(habits_.flash_attention && has_flash);
    batch.flash = flash_version();
    const std::string& named = cells_.text("flash_attention");
    batch.repeats_keys =
        habits_.repeats_keys && word_of(named).substr(0, 2) != "fa" && word_of(named) != "cudnn";
    if (!flash) {
      tell(format("attention is not said: taken as {}",
                  batch.flash_attention ? "flash attention" : "that of matrix products"));
    }
  }

  /// Which code it is: what the cell names, else the framework's own.
  [[nodiscard]] FlashVersion flash_version() const {
    const std::string word = word_of(cells_.text("flash_attention"));
    if (word == "fa1") return FlashVersion::V1;
    if (word == "fa2") return FlashVersion::V2;
    if (word == "fa3" || word == "fa4" || word == "cudnn") return FlashVersion::V3;
    return habits_.flash;
  }

  void read_matrix_units(BatchShape& batch) {
    const std::string& words = cells_.text("precision");
    if (!has_any(words, {"fp8", "FP8", "float8"})) return;
    batch.units = MatrixUnits::Fp8;
    if (has_any(words, {"fp8 all-gather", "float8 all-gather"})) {
      tell("all-gathers in fp8 are simulated as bf16's");
    }
  }

  /// What is said of frameworks that do not compile is no yes.
  [[nodiscard]] bool compiles() const {
    const std::string word = word_of(cells_.text("compile"));
    if (word == "n/a" || word == "cuda graphs possible") return false;
    return cells_.yes_or_no("compile").value_or(false);
  }

  Strategy strategy() {
    const std::string& name = cells_.text("strategy");
    const Types types = types_of(cells_.text("precision"), habits_.unsaid,
                                 run_.experiment.cluster.gpu(), run_.assumptions);
    const Offload offload = offload_of(cells_.text("offload"));
    const TrainingFlags flags = flags_of(types);
    const int world = run_.experiment.cluster.world_size();
    const StateWords words{offload, types.bf16_states};
    if (is_stage_0(name)) return deepspeed("zero0", flags, words, world);
    if (name.starts_with("zero")) return zero(name, flags, words, world);
    if (types.bf16_states) throw NoRun{format("bf16 states are not simulated with {}", name)};
    const bool fsdp = name.starts_with("fsdp") || name == "hsdp";
    const bool offloads = offload.optimizer || offload.parameters;
    if (offloads && !fsdp) throw NoRun{format("offload is not simulated with {}", name)};
    const bool megatron = name == "ddp" && habits_.library == TrainingLibrary::Megatron;
    if (!fsdp) return named_strategy(megatron ? "megatron_ddp" : name, flags, world);
    if (offload.optimizer && !offload.parameters) {
      throw NoRun{"FSDP does not offload the optimizer alone"};
    }
    return fully_sharded(name, flags, types, offload.parameters);
  }

  /// DeepSpeed reduces in its own way: once a step, after the last backward, in large buckets.
  [[nodiscard]] bool is_stage_0(const std::string& strategy) const {
    return strategy == "ddp" && (has(cells_.text("strategy_detail"), "stage 0") ||
                                 framework_.starts_with("Megatron-DeepSpeed"));
  }

  TrainingFlags flags_of(const Types& types) {
    TrainingFlags flags;
    flags.micro_batch = run_.experiment.batch.micro_batch;
    const std::optional<std::int64_t> accumulation = cells_.count("grad_accum");
    if (!accumulation) tell("accumulation is not said: one micro batch a step");
    flags.grad_accum = accumulation.value_or(1);
    flags.precision = types.compute;
    flags.optimizer =
        optimizer_of(cells_.text("optimizer"), habits_.fused_optimizer, run_.assumptions);
    flags.checkpointing = checkpointing_.kind;
    if (habits_.library == TrainingLibrary::Torchtitan &&
        flags.checkpointing == ActivationCheckpointing::Full) {
      flags.checkpointing = ActivationCheckpointing::NonReentrant;  // checkpoint_wrapper's default
    }
    flags.gpus_per_node = run_.experiment.cluster.gpus_per_node;
    if (types.weights != Dtype::F32) flags.ddp.parameter_dtype = types.weights;
    return flags;
  }

  Strategy fully_sharded(const std::string& name, const TrainingFlags& flags, const Types& types,
                         bool offload) {
    std::string full_name = name;
    if (habits_.fsdp_version == 2) {
      full_name = name == "hsdp" ? "fsdp2_hsdp" : name == "fsdp_full" ? "fsdp2" : "fsdp2_grad_op";
    }
    if (habits_.library == TrainingLibrary::MegatronBridge) {
      tell("Megatron's FSDP is simulated as PyTorch's fully_shard");
    }
    Strategy strategy = named_strategy(full_name, flags, run_.experiment.cluster.world_size());
    FsdpOptions& fsdp = strategy.fsdp;
    fsdp.parameter_dtype = strategy.grad_accum_dtype = types.weights;
    fsdp.reduce_dtype = types.reduction;
    strategy.communication_dtype = types.reduction.value_or(model_dtype(types.compute));
    fsdp.cpu_offload = offload;
    fsdp.keeps_last_unit = habits_.library == TrainingLibrary::Torchtitan;
    if (fsdp.version == 1) {
      // Defaults of accelerate and Composer.
      fsdp.use_orig_params = habits_.library == TrainingLibrary::HuggingFace ||
                             habits_.library == TrainingLibrary::Composer;
      // gradient_checkpointing of the Trainer calls the wrapped layers.
      fsdp.checkpoints_around_units = habits_.library == TrainingLibrary::HuggingFace;
    }
    return strategy;
  }

  /// ZeRO of DeepSpeed, or of those that have the same parts in their own way.
  Strategy zero(const std::string& name, const TrainingFlags& flags, const StateWords& words,
                int world) {
    Strategy strategy = deepspeed(name, flags, words, world);
    switch (habits_.library) {
      case TrainingLibrary::MegatronBridge:
      case TrainingLibrary::LlmC:
        strategy.zero.true_reduce_scatter = true;
        strategy.zero.overlap_comm = true;
        strategy.throughput_timer = false;
        tell(
            "its distributed optimizer is simulated as DeepSpeed's stage 1 with overlapping "
            "reduce-scatters; its gathers of weights do not overlap the next forward");
        break;
      case TrainingLibrary::ColossalAi:
        tell("Gemini is simulated as DeepSpeed's stage 3");
        break;
      default:
        break;
    }
    return strategy;
  }

  Strategy deepspeed(const std::string& name, const TrainingFlags& flags, const StateWords& words,
                     int world) {
    const auto device = [](bool cpu) {
      return cpu ? R"({"device": "cpu", "pin_memory": true})" : R"({"device": "none"})";
    };
    std::string zero = format(R"("stage": {})", name.substr(4));
    if (words.offload.optimizer) zero += format(R"(, "offload_optimizer": {})", device(true));
    if (words.offload.parameters) zero += format(R"(, "offload_param": {})", device(true));
    const std::string text =
        format(R"({{"zero_optimization": {{{}}}, "train_micro_batch_size_per_gpu": {}, )"
               R"("gradient_accumulation_steps": {}, "optimizer": {{"type": "AdamW"}}{}}})",
               zero, *flags.micro_batch, *flags.grad_accum,
               flags.precision == Precision::Fp32
                   ? ""
                   : format(R"(, "{}": {{"enabled": true{}}})", to_string(*flags.precision),
                            words.bf16_states ? kBf16States : ""));
    TrainingFlags own = flags;
    own.optimizer.reset();  // DeepSpeed makes FusedAdam or CPUAdam of it
    own.config_as = ConfigMode::Auto;
    own.deepspeed_version = habits_.deepspeed.empty() ? deepspeed_version_of(framework_)
                                                      : std::string(habits_.deepspeed);
    if (!has(framework_, "DeepSpeed 0.")) {
      tell(format("the release of DeepSpeed is not said: taken as {}", own.deepspeed_version));
    }
    return parse_deepspeed_config(text, name, own, run_.experiment.model, world);
  }

  const Cells& cells_;
  const std::string& framework_;
  const FrameworkHabits& habits_;
  Checkpointing checkpointing_;
  TrainingRun run_;
};

}  // namespace

const std::string& cell_or_blank(const CsvTable& table, const std::vector<CsvCell>& row,
                                 std::string_view name) {
  static const std::string kBlank;
  const auto found = std::find_if(table.header.begin(), table.header.end(),
                                  [&](const CsvCell& cell) { return cell.text == name; });
  return found == table.header.end()
             ? kBlank
             : row[static_cast<std::size_t>(found - table.header.begin())].text;
}

RunReading read_run(const CsvTable& table, const std::vector<CsvCell>& row) {
  const Cells cells(table, row);
  try {
    return {RunReader(cells).read(), ""};
  } catch (const NoRun& none) {
    return {std::nullopt, none.why};
  } catch (const ConfigError& error) {  // a reader of models or strategies refuses what is said
    return {std::nullopt, error.what()};
  }
}

}  // namespace zerosim
