#include "validate/run_figures.h"

#include <charconv>
#include <cmath>

#include "sim/analysis/memory_report.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr double kLargestFigure = 1e12;
constexpr double kTera = 1e12;
constexpr double kBillion = 1e9;

bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

RunTimer timer_of(const std::string& id) {
  if (id.starts_with("dsat-") && id.ends_with("-ds")) return RunTimer::InsideEngine;
  if (id.starts_with("belle-") || id.starts_with("lf3499")) return RunTimer::MicroBatch;
  return RunTimer::WholeStep;
}

/// "peak 312" of a convention, in FLOP/s; nothing if it names none or one by GPU.
std::optional<double> stated_peak(const std::string& convention) {
  const std::size_t word = convention.rfind("peak ");
  if (word == std::string::npos || has(convention.substr(word), " and ")) return std::nullopt;
  double tera = 0;
  const char* begin = convention.data() + word + 5;
  const auto [end, error] = std::from_chars(begin, convention.data() + convention.size(), tera);
  if (error != std::errc() || tera <= 0) return std::nullopt;
  return tera * kTera;
}

class FigureReader {
 public:
  FigureReader(const CsvTable& table, const std::vector<CsvCell>& row, const TrainingRun& run)
      : table_(table), row_(row), run_(run) {}

  RunFigures read() {
    figures_.timer = timer_of(text("id"));
    read_step();
    read_peak();
    return figures_;
  }

 private:
  [[nodiscard]] const std::string& text(std::string_view column) const {
    return cell_or_blank(table_, row_, column);
  }
  [[nodiscard]] std::optional<double> number(const std::string& column) const {
    if (text(column).empty()) return std::nullopt;
    const std::optional<double> value =
        csv_number(table_, row_, table_.column(column), {0, kLargestFigure});
    return value && *value > 0 ? value : std::nullopt;
  }

  /// Sequences of one optimizer step of all ranks.
  [[nodiscard]] double sequences() const {
    return static_cast<double>(run_.strategy.micro_batch * run_.strategy.grad_accum) *
           run_.experiment.cluster.world_size();
  }
  [[nodiscard]] double tokens() const {
    return number("global_batch_tokens")
        .value_or(sequences() * static_cast<double>(run_.experiment.batch.sequence));
  }

  void set_step(double seconds, const char* from) {
    figures_.step = Seconds(seconds);
    figures_.step_from = from;
  }

  void read_step() {
    const double world = run_.experiment.cluster.world_size();
    if (const auto step = number("step_time_s")) {
      set_step(*step, "step_time_s");
    } else if (const auto rate = number("tokens_per_s_per_gpu")) {
      set_step(tokens() / (*rate * world), "tokens_per_s_per_gpu");
    } else if (const auto samples = number("samples_per_s")) {
      set_step(sequences() / *samples, "samples_per_s");
    } else {
      read_flops();
    }
  }

  void read_flops() {
    const std::string& convention = text("flop_convention");
    const auto tera = number("tflops_per_gpu");
    const auto share = number("mfu");
    if (!tera && !share) {
      figures_.no_step = "no time or rate is published";
      return;
    }
    const std::optional<Flops> each =
        flops_by_convention(convention, run_.experiment.model, run_.experiment.batch.sequence);
    if (!each) {
      figures_.no_step = format("FLOP convention \"{}\" is not known", convention);
      return;
    }
    const double peak =
        stated_peak(convention).value_or(run_.experiment.cluster.gpu().bf16.per_second());
    const double rate = tera ? *tera * kTera : *share * peak;
    if (rate <= 0) {
      figures_.no_step =
          format("{} has no published peak rate", run_.experiment.cluster.gpu().name);
      return;
    }
    set_step(each->count() * tokens() / (rate * run_.experiment.cluster.world_size()),
             tera ? "tflops_per_gpu by flop_convention" : "mfu by flop_convention");
  }

  void read_peak() {
    const auto printed = number("peak_memory_gb");
    if (!printed) {
      figures_.no_peak = "no peak is published";
      return;
    }
    const std::string& words = text("peak_memory_kind");
    const std::optional<PeakKind> kind = peak_kind_of(words);
    if (!kind) {
      figures_.no_peak = format(
          "peak_memory_kind \"{}\" is none of allocated, active, reserved, nvidia-smi, process",
          words);
      return;
    }
    figures_.peak = MeasuredPeak{*kind, printed_peak(*printed, words)};
  }

  const CsvTable& table_;
  const std::vector<CsvCell>& row_;
  const TrainingRun& run_;
  RunFigures figures_;
};

}  // namespace

std::string_view to_string(RunTimer timer) {
  switch (timer) {
    case RunTimer::WholeStep:
      return "step";
    case RunTimer::InsideEngine:
      return "engine";
    case RunTimer::MicroBatch:
      return "micro batch";
  }
  return "";
}

std::string_view to_string(PeakKind kind) {
  switch (kind) {
    case PeakKind::Allocated:
      return "allocated";
    case PeakKind::Active:
      return "active";
    case PeakKind::Reserved:
      return "reserved";
    case PeakKind::Process:
      return "process";
  }
  return "";
}

RunFigures figures_of(const CsvTable& table, const std::vector<CsvCell>& row,
                      const TrainingRun& run) {
  return FigureReader(table, row, run).read();
}

std::optional<Flops> flops_by_convention(const std::string& convention, const Model& model,
                                         std::int64_t sequence) {
  const auto n = static_cast<double>(parameter_count(model));
  const auto d = static_cast<double>(model.shape.hidden);
  const auto l = static_cast<double>(model.shape.layers);
  const auto v = static_cast<double>(model.shape.vocab);
  const auto s = static_cast<double>(sequence);
  if (has(convention, "96*") || has(convention, "Megatron") || has(convention, "hardware FLOPs")) {
    return Flops(96 * l * d * d * (1 + s / (6 * d) + v / (16 * l * d)));
  }
  if (has(convention, "8*N")) return Flops(8 * n);
  const bool without_table = has(convention, "N-N_emb") || has(convention, "input embedding");
  const double products = 6 * (without_table ? n - v * d : n);
  if (has(convention, "causal-halved")) return Flops(products + 6 * l * d * s);
  if (has(convention, "12*L*d*s")) return Flops(products + 12 * l * d * s);
  if (has(convention, "6*N")) return Flops(products);
  return std::nullopt;
}

std::optional<PeakKind> peak_kind_of(const std::string& words) {
  const std::string first = words.substr(0, words.find(';'));
  if (first.starts_with("allocated")) return PeakKind::Allocated;
  if (first.starts_with("active")) return PeakKind::Active;
  if (has(first, "reserved")) return PeakKind::Reserved;
  if (first.starts_with("nvidia-smi") || first.starts_with("process")) return PeakKind::Process;
  return std::nullopt;
}

Bytes printed_peak(double printed, const std::string& words) {
  const double unit = has(words, "probably GiB") ? 0x1p30 : kBillion;
  return Bytes(std::llround(printed * unit));
}

Bytes peak_of_kind(const MemoryReport& memory, PeakKind kind) {
  switch (kind) {
    case PeakKind::Allocated:
      return memory.peak_allocated;
    case PeakKind::Active:
      return memory.peak_active;
    case PeakKind::Reserved:
      return memory.peak_reserved;
    case PeakKind::Process:
      return needed(memory);
  }
  return {};
}

}  // namespace zerosim
