#include "validate/memory_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/analysis/memory_report.h"
#include "sim/base/text.h"
#include "sim/memory/model_states.h"
#include "validate/run_figures.h"
#include "validate/run_row.h"

namespace zerosim {

namespace {

constexpr double kBillion = 1e9;        // params_b; bytes of a GB
constexpr double kLargestNumber = 1e9;  // billions of parameters, GB: more is a slip
constexpr double kLargestWorld = 1e9;
constexpr double kLargestInWords = 1e15;
constexpr int kEstimatorDecimals = 2;  // DeepSpeed prints {:.2f}

// ---- one row of the table --------------------------------------------------------------------

/// The cells of one row by name; numbers are checked when the row is made, used or not.
class Row {
 public:
  Row(const CsvTable& table, const std::vector<CsvCell>& cells)
      : table_(&table),
        cells_(&cells),
        parameters_(number("params_b")),
        world_size_(integer("world_size")),
        gpu_memory_(number("gpu_memory_gb")),
        per_gpu_(number("per_gpu_gb")),
        per_cpu_(number("per_cpu_gb")) {}

  [[nodiscard]] const std::string& text(const std::string& column) const {
    return (*cells_)[table_->column(column)].text;
  }
  [[nodiscard]] SourceLocation location(const std::string& column) const {
    return table_->location((*cells_)[table_->column(column)]);
  }
  [[nodiscard]] std::string id(std::string_view figure) const {
    return format("{}:{}", cells_->front().line, figure);
  }
  [[nodiscard]] std::string what() const {
    std::string out = text("model") + ", " + text("strategy");
    if (world_size_) out += format(", {} ranks", *world_size_);
    return out + ": " + text("what");
  }

  [[nodiscard]] const CsvTable& table() const { return *table_; }
  [[nodiscard]] const std::vector<CsvCell>& cells() const { return *cells_; }
  [[nodiscard]] const std::optional<double>& parameters() const { return parameters_; }  ///< 1e9
  [[nodiscard]] const std::optional<int>& world_size() const { return world_size_; }
  [[nodiscard]] const std::optional<double>& gpu_memory() const { return gpu_memory_; }  ///< GB
  [[nodiscard]] const std::optional<double>& per_gpu() const { return per_gpu_; }
  [[nodiscard]] const std::optional<double>& per_cpu() const { return per_cpu_; }

 private:
  [[nodiscard]] std::optional<double> number(const std::string& column) const {
    return csv_number(*table_, *cells_, table_->column(column), {0, kLargestNumber});
  }
  [[nodiscard]] std::optional<int> integer(const std::string& column) const {
    const std::optional<double> value =
        csv_number(*table_, *cells_, table_->column(column), {1, kLargestWorld, true});
    return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
  }

  const CsvTable* table_;
  const std::vector<CsvCell>* cells_;
  std::optional<double> parameters_;
  std::optional<int> world_size_;
  std::optional<double> gpu_memory_;
  std::optional<double> per_gpu_;
  std::optional<double> per_cpu_;
};

/// Why a row cannot be compared; caught by `compare_row`, which makes a skipped row of it.
struct Skip {
  std::string why;
};

template <typename T>
T needed(const std::optional<T>& value, std::string_view column) {
  if (!value) throw Skip{format("{} is empty: the formula needs it", column)};
  return *value;
}

/// \param value  which must be more than 0 to divide by or to take shares of.
double positive(const std::optional<double>& value, std::string_view column) {
  if (needed(value, column) <= 0) throw Skip{format("{} is 0: the formula needs more", column)};
  return *value;
}

// ---- what the words of a row mean ------------------------------------------------------------

/// Rounded half up to as many decimals as `printed`, a number, has; not at all if that has an
/// exponent.
double as_precise_as(double value, std::string_view printed) {
  if (printed.find_first_of("eE") != std::string_view::npos) return value;
  const std::size_t point = printed.find('.');
  const std::size_t decimals = point == std::string_view::npos ? 0 : printed.size() - point - 1;
  const double unit = std::pow(10.0, static_cast<double>(decimals));
  return std::floor(value * unit + 0.5) / unit;
}

const Sharding& sharding_of(const Row& row) {
  const std::string& strategy = row.text("strategy");
  for (const Sharding& sharding : shardings()) {
    if (sharding.strategy == strategy) return sharding;
  }
  throw Skip{
      format("strategy \"{}\" is none of the ZeRO paper's (ddp, zero1, zero2, zero3)", strategy)};
}

void add_once(std::vector<std::string>& sentences, std::string sentence) {
  if (std::find(sentences.begin(), sentences.end(), sentence) == sentences.end()) {
    sentences.push_back(std::move(sentence));
  }
}

/// \param assumptions  told if the row names no precision.
StateBytes states_of(const Row& row, std::vector<std::string>& assumptions) {
  const std::string& precision = row.text("precision");
  if (precision.starts_with("fp16") || precision.starts_with("bf16")) {
    return state_bytes(Precision::Fp16);
  }
  if (precision.starts_with("fp32")) return state_bytes(Precision::Fp32);
  if (!precision.empty()) throw Skip{format("precision \"{}\" is not known", precision)};
  add_once(assumptions,
           format("line {}: no precision is given; taken as 16-bit training with fp32 Adam states",
                  row.location("precision").line));
  return state_bytes(Precision::Fp16);
}

/// The number that follows (or stands before) `words` in `text`, if it is within reason.
std::optional<double> number_after(std::string_view text, std::string_view words) {
  const std::size_t found = text.find(words);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(found + words.size());
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  const bool usable = error == std::errc() && value >= 0 && value <= kLargestInWords;
  return usable ? std::optional<double>(value) : std::nullopt;
}

std::optional<double> number_before(std::string_view text, std::string_view words) {
  const std::size_t found = text.find(words);
  if (found == std::string_view::npos) return std::nullopt;
  const std::size_t other = text.substr(0, found).find_last_not_of("0123456789.");
  const std::size_t begin = other == std::string_view::npos ? 0 : other + 1;
  return number_after(text.substr(begin, found - begin), "");
}

// ---- simulated jobs ---------------------------------------------------------------------------

/// The title of where a row comes from: what stands before its address.
std::string source_of(const CsvTable& table, const std::vector<CsvCell>& cells) {
  const std::string& source = cell_or_blank(table, cells, "source");
  return source.substr(0, source.find(" | "));
}

/// The memory of the training job that a row describes.
MemoryReport simulated(const CsvTable& table, const std::vector<CsvCell>& cells,
                       std::vector<std::string>& assumptions) {
  const std::string& trust = cell_or_blank(table, cells, "trust");
  if (!trust.empty() && trust != "A") {
    throw Skip{format("trust {}: settings that the simulation needs are missing", trust)};
  }
  if (cell_or_blank(table, cells, "activation_checkpointing").empty()) {
    throw Skip{"activation_checkpointing is empty: the peak depends on it"};
  }
  const RunReading reading = read_run(table, cells);
  if (!reading.run) throw Skip{reading.why};
  for (const std::string& sentence : reading.run->assumptions) add_once(assumptions, sentence);
  try {
    return replayed_memory(reading.run->experiment, reading.run->strategy);
  } catch (const ConfigError& error) {
    throw Skip{error.what()};
  }
}

void compare_run(const CsvTable& table, const std::vector<CsvCell>& cells, double printed,
                 Validation& out) {
  const std::string& kind = cell_or_blank(table, cells, "peak_memory_kind");
  const std::string id = cell_or_blank(table, cells, "id");
  const std::string what =
      format("{}, {}: {}", cell_or_blank(table, cells, "model"),
             cell_or_blank(table, cells, "strategy"), kind.substr(0, kind.find_first_of("(;")));
  try {
    const MemoryReport memory = simulated(table, cells, out.assumptions);
    const std::optional<PeakKind> figure = peak_kind_of(kind);
    if (!figure) {
      throw Skip{
          format("peak_memory_kind \"{}\" is none of allocated, active, reserved, "
                 "nvidia-smi, process",
                 kind)};
    }
    out.rows.push_back(compared_row(id, what, "GB", peak_of_kind(memory, *figure).gb(),
                                    printed_peak(printed, kind).gb()));
  } catch (const Skip& skip) {
    out.rows.push_back(skipped_row(id, what, skip.why));
  }
}

/// Rows of training_runs.csv; one without a peak is no memory row.
Validation validate_runs(const CsvTable& table) {
  Validation out;
  out.input = table.file;
  const std::size_t peak = table.column("peak_memory_gb");
  for (const std::vector<CsvCell>& cells : table.rows) {
    const std::optional<double> printed = csv_number(table, cells, peak, {0, kLargestNumber});
    if (!printed) continue;
    compare_run(table, cells, *printed, out);
    out.rows.back().source = source_of(table, cells);
  }
  return out;
}

bool is_table_of_runs(const CsvTable& table) {
  return std::any_of(table.header.begin(), table.header.end(),
                     [](const CsvCell& cell) { return cell.text == "peak_memory_gb"; });
}

// ---- one function a kind ---------------------------------------------------------------------

void compare_formula(const Row& row, Validation& out) {
  const double states =
      paper_model_states(positive(row.parameters(), "params_b") * kBillion, sharding_of(row),
                         needed(row.world_size(), "world_size"), states_of(row, out.assumptions));
  const double printed = std::stod(paper_figure(states / kBillion));
  out.rows.push_back(compared_row(row.id("per_gpu_gb"), row.what(), "GB", printed,
                                  needed(row.per_gpu(), "per_gpu_gb")));
}

/// As Table 2 of the ZeRO paper prints sizes: of one part to a decimal of a billion, of K parts K
/// times that; from half a trillion on to a decimal of a trillion ("0.5T", "1T").
double paper_model_size(double billions_of_a_part, double parts) {
  const auto to_a_decimal = [](double value) { return std::floor(value * 10 + 0.5) / 10; };
  const double size = to_a_decimal(billions_of_a_part) * parts;
  constexpr double kTrillion = 1000;
  return size < kTrillion / 2 ? size : to_a_decimal(size / kTrillion) * kTrillion;
}

/// Largest P with P x (bytes per parameter) = capacity, on each of K model-parallel parts.
void compare_largest_model(const Row& row, Validation& out) {
  const double parts = number_after(row.text("model"), "model parallel ").value_or(1);
  const int world_size = needed(row.world_size(), "world_size");
  if (parts < 1 || std::fmod(world_size, parts) != 0) {
    throw Skip{format("{} ranks are not a multiple of model parallel {}", world_size, parts)};
  }
  const auto data_parallel = static_cast<int>(world_size / parts);
  const double bytes_per_parameter =
      paper_model_states(1, sharding_of(row), data_parallel, states_of(row, out.assumptions));
  const double largest =
      paper_model_size(positive(row.gpu_memory(), "gpu_memory_gb") / bytes_per_parameter, parts);
  const double published = needed(row.parameters(), "params_b");
  out.rows.push_back(compared_row(row.id("params_b"), row.what(), "billion",
                                  as_precise_as(largest, row.text("params_b")), published));
}

void compare_estimate(const Row& row, Validation& out) {
  if (row.text("what") != "Adam states") {
    throw Skip{"an estimate of activations needs the model's shape, which the row does not give"};
  }
  StateBytes bytes = states_of(row, out.assumptions);
  bytes.parameters = 0;
  bytes.gradients = 0;
  const double states =
      paper_model_states(positive(row.parameters(), "params_b") * kBillion, sharding_of(row),
                         needed(row.world_size(), "world_size"), bytes);
  const double published = needed(row.per_gpu(), "per_gpu_gb");
  out.rows.push_back(compared_row(row.id("per_gpu_gb"), row.what(), "GB",
                                  as_precise_as(states / kBillion, row.text("per_gpu_gb")),
                                  published));
}

/// The model that a "live" estimate counted, if its name is a preset's: params_b rounds its size.
std::optional<Model> measured_model(const Row& row) {
  if (row.text("kind") != "estimator_live") return std::nullopt;
  const std::vector<std::string> names = model_preset_names();
  if (std::find(names.begin(), names.end(), row.text("model")) == names.end()) return std::nullopt;
  return load_model(row.text("model"));
}

EstimatorInput estimator_input(const Row& row, int stage, std::vector<std::string>& assumptions) {
  const std::string& notes = row.text("notes");
  const int world_size = needed(row.world_size(), "world_size");
  EstimatorInput input;
  input.parameters = std::llround(positive(row.parameters(), "params_b") * kBillion);
  std::optional<double> largest = number_after(notes, "largest_layer_params=");
  if (!largest) {
    const std::optional<double> millions = number_before(notes, "M largest layer");
    if (millions) largest = *millions * 1e6;
  }
  if (const std::optional<Model> model = measured_model(row)) {
    input.parameters = parameter_count(*model);
    largest = static_cast<double>(largest_module_parameters(*model));
  }
  if (stage == 3 && !largest)
    throw Skip{"notes do not name the largest layer: the estimator needs it"};
  input.largest_layer = std::llround(largest.value_or(0));
  const std::optional<double> nodes = number_before(notes, " node");
  if (!nodes) {
    assumptions.push_back(
        format("line {}: notes name no nodes; taken as one node", row.location("notes").line));
  }
  if (nodes.value_or(1) < 1 || std::fmod(world_size, nodes.value_or(1)) != 0) {
    throw Skip{format("{} ranks are not a multiple of {} nodes", world_size, *nodes)};
  }
  input.nodes = static_cast<int>(nodes.value_or(1));
  input.gpus_per_node = world_size / input.nodes;
  return input;
}

EstimatorRow estimate_of(const Row& row, std::vector<std::string>& assumptions) {
  const std::string& strategy = row.text("strategy");
  if (strategy != "zero2" && strategy != "zero3") {
    throw Skip{format("DeepSpeed has no estimator for strategy \"{}\"", strategy)};
  }
  const int stage = strategy == "zero2" ? 2 : 3;
  const std::string& offload = row.text("offload");
  const bool optimizer = offload.find("optimizer_cpu") != std::string::npos;
  const bool parameters = offload.find("params_cpu") != std::string::npos;
  const std::optional<double> zero_init = number_after(row.text("notes"), "zero_init=");
  if (stage == 3 && !zero_init) throw Skip{"notes do not name zero_init: the estimator needs it"};
  for (const EstimatorRow& estimate :
       deepspeed_estimates(stage, estimator_input(row, stage, assumptions))) {
    if (estimate.offload_optimizer == optimizer && estimate.offload_param == parameters &&
        (stage == 2 || estimate.zero_init == (*zero_init != 0))) {
      return estimate;
    }
  }
  throw Skip{format("DeepSpeed does not estimate offload \"{}\" at stage {}", offload, stage)};
}

/// A row does not say which release printed it; it is an older one's if that gives its digits.
bool is_older_estimate(const Row& row, const EstimatorRow& estimate,
                       std::vector<std::string>& assumptions) {
  if (estimate.stage != 2 || estimate.offload_optimizer || !row.per_gpu()) return false;
  std::vector<std::string> known;  // told already
  const Bytes older = older_stage_2_estimate(estimator_input(row, estimate.stage, known));
  if (std::stod(format("{:.{}f}", older.gib(), kEstimatorDecimals)) != *row.per_gpu()) return false;
  add_once(
      assumptions,
      format("line {}: printed by an older estimator, 4 P + 16 P / N a GPU; today's says {:.2f} "
             "GiB",
             row.location("per_gpu_gb").line, estimate.gpu.gib()));
  return true;
}

void compare_estimator(const Row& row, Validation& out) {
  EstimatorRow estimate = estimate_of(row, out.assumptions);
  if (is_older_estimate(row, estimate, out.assumptions)) {
    estimate.gpu = older_stage_2_estimate(estimator_input(row, estimate.stage, out.assumptions));
  }
  const auto compare = [&](std::string_view figure, Bytes bytes, std::optional<double> published) {
    if (!published) return;
    const double printed = std::stod(format("{:.{}f}", bytes.gib(), kEstimatorDecimals));
    out.rows.push_back(compared_row(row.id(figure), row.what(), "GiB", printed, *published));
  };
  if (!row.per_gpu() && !row.per_cpu()) throw Skip{"per_gpu_gb and per_cpu_gb are empty"};
  compare("per_gpu_gb", estimate.gpu, row.per_gpu());
  compare("per_cpu_gb", estimate.cpu, row.per_cpu());
}

void skip_other_estimator(const Row& /*row*/, Validation& /*out*/) {
  throw Skip{"the estimator is not DeepSpeed's: its formula is not modelled"};
}

void skip_largest(const Row& /*row*/, Validation& /*out*/) {
  throw Skip{"the largest model that ran: neither its shape nor its batch is given"};
}

void compare_measured(const Row& row, Validation& out) {
  const std::string& what = row.text("what");
  const bool after_step = what.starts_with("steady allocated after the step");
  if (!after_step && what != "peak allocated") {
    throw Skip{
        format("\"{}\" does not say whose figure it is: of tensors, allocator or process", what)};
  }
  const MemoryReport memory = simulated(row.table(), row.cells(), out.assumptions);
  const Bytes predicted = after_step ? memory.after_step : memory.peak_allocated;
  out.rows.push_back(compared_row(row.id("per_gpu_gb"), row.what(), "GB", predicted.gb(),
                                  needed(row.per_gpu(), "per_gpu_gb")));
}

struct Kind {
  std::string_view name;
  void (*compare)(const Row& row, Validation& out);
};

constexpr std::array kKinds = {
    Kind{"formula", compare_formula},          Kind{"formula_max_model", compare_largest_model},
    Kind{"measured_max_model", skip_largest},  Kind{"estimate", compare_estimate},
    Kind{"estimator", skip_other_estimator},   Kind{"estimator_cold", compare_estimator},
    Kind{"estimator_live", compare_estimator}, Kind{"measured", compare_measured},
};

void compare_row(const Row& row, Validation& out) {
  const std::string& name = row.text("kind");
  const auto* kind = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const Kind& candidate) { return candidate.name == name; });
  if (kind == kKinds.end()) {
    std::vector<std::string> names;
    names.reserve(kKinds.size());
    for (const Kind& known : kKinds) names.emplace_back(known.name);
    throw TraceError(row.location("kind"), format("kind: found \"{}\", expected one of {}{}", name,
                                                  join(names, ", "), did_you_mean(name, names)));
  }
  try {
    kind->compare(row, out);
  } catch (const Skip& skip) {
    out.rows.push_back(skipped_row(row.id("row"), row.what(), skip.why));
  } catch (const ConfigError& error) {  // a formula refuses the numbers of this row
    throw TraceError(row.location("kind"), error.what());
  }
}

}  // namespace

Validation validate_memory_rows(std::span<const std::string> paths) {
  Validation all;
  for (const std::string& path : paths) {
    Validation own = validate_memory_rows(read_csv(path));
    all.input += (all.input.empty() ? "" : ", ") + own.input;
    std::move(own.rows.begin(), own.rows.end(), std::back_inserter(all.rows));
    for (std::string& sentence : own.assumptions) add_once(all.assumptions, std::move(sentence));
  }
  return all;
}

Validation validate_memory_rows(const std::string& path) {
  return validate_memory_rows(std::span(&path, 1));
}

Validation validate_memory_rows(const CsvTable& table) {
  if (is_table_of_runs(table)) return validate_runs(table);
  Validation out;
  out.input = table.file;
  for (const char* column : {"kind", "model", "params_b", "strategy", "world_size", "gpu_memory_gb",
                             "precision", "offload", "per_gpu_gb", "per_cpu_gb", "what", "notes"}) {
    (void)table.column(column);
  }
  for (const std::vector<CsvCell>& cells : table.rows) {
    const std::size_t before = out.rows.size();
    compare_row(Row(table, cells), out);
    for (std::size_t i = before; i < out.rows.size(); ++i) {
      out.rows[i].source = source_of(table, cells);
    }
  }
  return out;
}

}  // namespace zerosim
