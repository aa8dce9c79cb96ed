#include "validate/kernel_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/engine/kernel_time.h"
#include "validate/gpu_words.h"

namespace zerosim {
namespace {

constexpr double kLargestSize = 1e9;
constexpr double kLargestRate = 1e6;  // TFLOPS
/// Backward of fused attention computes the scores again: 5 products for forward's 2.
constexpr double kBackward = 2.5;
/// Of the benchmark of FlashAttention: heads x head_dim.
constexpr std::int64_t kBenchmarkWidth = 2048;
constexpr std::int64_t kElement = 2;     // bytes of a 16-bit type
constexpr std::int64_t kStatistics = 4;  // log-sum-exp, fp32

/// What no prediction can be made of.
struct NoKernel {
  std::string why;
};

struct TypeWord {
  std::string_view word;
  Dtype dtype;
  MatrixUnits units;
};
constexpr std::array kTypes = {
    TypeWord{"bf16", Dtype::Bf16, MatrixUnits::OfType},
    TypeWord{"fp16", Dtype::F16, MatrixUnits::OfType},
    TypeWord{"bf16/fp16", Dtype::Bf16, MatrixUnits::OfType},
    TypeWord{"fp16/bf16", Dtype::Bf16, MatrixUnits::OfType},
    TypeWord{"fp32", Dtype::F32, MatrixUnits::OfType},
    TypeWord{"tf32", Dtype::F32, MatrixUnits::Tf32},
    TypeWord{"fp8", Dtype::Bf16, MatrixUnits::Fp8},
    TypeWord{"fp8_e4m3", Dtype::Bf16, MatrixUnits::Fp8},
};

/// A row's cells by the names of their columns.
class Row {
 public:
  Row(const CsvTable& table, const std::vector<CsvCell>& cells) : table_(&table), cells_(&cells) {}

  [[nodiscard]] const CsvCell& cell(const std::string& name) const {
    return (*cells_)[table_->column(name)];
  }
  [[nodiscard]] const std::string& text(const std::string& name) const { return cell(name).text; }
  [[nodiscard]] std::optional<double> number(const std::string& name, double most) const {
    const double least = std::numeric_limits<double>::min();
    return csv_number(*table_, *cells_, table_->column(name), {least, most, false});
  }
  [[nodiscard]] std::int64_t size(const std::string& name) const {
    const CsvRange range{1, kLargestSize, true};
    const auto value = csv_number(*table_, *cells_, table_->column(name), range);
    if (!value) throw NoKernel{format("{} is empty", name)};
    return std::llround(*value);
  }
  [[noreturn]] void fail(const std::string& name, const std::string& message) const {
    throw TraceError(table_->location(cell(name)), format("{}: {}", name, message));
  }
  [[nodiscard]] std::string line() const { return format("{}", cells_->front().line); }

 private:
  const CsvTable* table_;
  const std::vector<CsvCell>* cells_;
};

/// The number after `key`, as in "head_num=64;" or "seq 8192".
std::int64_t number_after(const Row& row, const std::string& column, std::string_view key) {
  const std::string& text = row.text(column);
  std::size_t at = text.find(key);
  while (at != std::string::npos && at > 0 && text[at - 1] != ' ' && text[at - 1] != ';') {
    at = text.find(key, at + 1);
  }
  std::int64_t value = 0;
  if (at != std::string::npos) {
    const char* begin = text.data() + at + key.size();
    std::from_chars(begin, text.data() + text.size(), value);
  }
  if (value < 1 || value > static_cast<std::int64_t>(kLargestSize)) {
    row.fail(column, format(R"(found "{}", expected "{}" and a positive number)", text, key));
  }
  return value;
}

const TypeWord& type_of(const Row& row) {
  const std::string& word = row.text("dtype");
  const auto* const known = std::find_if(kTypes.begin(), kTypes.end(),
                                         [&](const TypeWord& type) { return type.word == word; });
  if (known != kTypes.end()) return *known;
  std::vector<std::string> words;
  words.reserve(kTypes.size());
  for (const TypeWord& type : kTypes) words.emplace_back(type.word);
  row.fail("dtype", format("found \"{}\", expected one of {}{}", word, join(words, ", "),
                           did_you_mean(word, words)));
}

double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

GemmLayout layout_of(const Row& row) {
  const std::string& words = row.text("layout");
  constexpr std::array kLayouts = {std::pair{" TN ", GemmLayout::TN},
                                   std::pair{" NN ", GemmLayout::NN},
                                   std::pair{" NT ", GemmLayout::NT}};
  if (words.empty()) return GemmLayout::TN;
  for (const auto& [name, layout] : kLayouts) {
    if (words.find(name) != std::string::npos) return layout;
  }
  row.fail("layout",
           format(R"(found "{}", expected "b=1 TN accumulate=False out=bf16" or NN, NT)", words));
}

/// C[m,n] = A[m,k] B[k,n], `matrices` of them, m being all rows together.
Kernel product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t matrices,
               const TypeWord& type) {
  Kernel kernel;
  kernel.kernel_class = KernelClass::Gemm;
  kernel.name = "gemm";
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.dtype = type.dtype;
  kernel.units = type.units;
  kernel.flops = Flops(product_flops(m, n, k));
  const std::int64_t element = type.units == MatrixUnits::Fp8 ? 1 : dtype_bytes(type.dtype);
  kernel.bytes = Bytes(m) * k * element + Bytes(k) * n * (element * matrices) +
                 Bytes(m) * n * dtype_bytes(type.dtype);
  return kernel;
}

void read_gemm(const Row& row, const TypeWord& type, MeasuredKernel& measured) {
  const std::int64_t m = row.size("m");
  const std::int64_t n = row.size("n");
  const std::int64_t k = row.size("k");
  const std::string& words = row.text("layout");
  Kernel kernel = product(m, n, k, 1, type);
  kernel.layout = layout_of(row);
  kernel.fp32_accumulate = words.find("accumulate=True") != std::string::npos;
  if (words.find("out=fp32") != std::string::npos) {
    kernel.bytes += Bytes(m) * n * (2 * std::int64_t{dtype_bytes(Dtype::F32)} - kElement);
  }
  measured.what = format("{} x {} x {}", m, n, k);
  measured.kernels = {kernel};
  measured.is_search = row.text("notes").find("best shape of a search") != std::string::npos;
  if (words.empty()) return;
  constexpr std::array<std::string_view, 3> kNames = {"TN", "NN", "NT"};
  measured.group += format(" {}", kNames[static_cast<std::size_t>(kernel.layout)]);
  if (kernel.fp32_accumulate) measured.group += " accumulate";
}

/// One attention of `batch` sequences.
struct AttentionSizes {
  std::int64_t batch = 1, sequence = 1, heads = 1, kv_heads = 1, keys = 1, values = 1;
};

Kernel attention(const AttentionSizes& sizes, bool causal, bool backward, const TypeWord& type) {
  Kernel kernel;
  kernel.kernel_class = KernelClass::Attention;
  kernel.name = backward ? "attention_backward" : "attention_forward";
  kernel.m = sizes.sequence;
  kernel.n = sizes.keys;
  kernel.k = sizes.batch * sizes.heads;
  kernel.dtype = type.dtype;
  kernel.backward = backward;
  kernel.causal = causal;
  const std::int64_t tokens = sizes.batch * sizes.sequence;
  const double whole =
      product_flops(tokens * sizes.heads, sizes.sequence, sizes.keys + sizes.values);
  kernel.flops = Flops(whole * (causal ? 0.5 : 1) * (backward ? kBackward : 1));
  const std::int64_t wide = (sizes.heads + sizes.kv_heads) * (sizes.keys + sizes.values);
  kernel.bytes = Bytes(tokens) * (wide * kElement * (backward ? 2 : 1) + sizes.heads * kStatistics);
  return kernel;
}

void read_sdp(const Row& row, const TypeWord& type, MeasuredKernel& measured) {
  const auto number = [&](std::string_view key) { return number_after(row, "layout", key); };
  AttentionSizes sizes;
  sizes.batch = number("batch=");
  sizes.sequence = number("seq_len=");
  sizes.heads = number("head_num=");
  sizes.kv_heads = number("kv_head_num=");
  sizes.keys = number("qk_head_dim=");
  sizes.values = number("v_head_dim=");
  const bool backward = row.text("kind") == "sdp_bwd";
  measured.what = format("batch {}, s {}, {}/{} heads of {}", sizes.batch, sizes.sequence,
                         sizes.heads, sizes.kv_heads, sizes.keys);
  measured.kernels = {attention(sizes, true, backward, type)};
}

AttentionSizes benchmark_sizes(const Row& row) {
  AttentionSizes sizes;
  sizes.batch = number_after(row, "m", "batch ");
  sizes.sequence = number_after(row, "n", "seq ");
  sizes.keys = sizes.values = number_after(row, "k", "head_dim ");
  sizes.heads = sizes.kv_heads = std::max<std::int64_t>(1, kBenchmarkWidth / sizes.keys);
  return sizes;
}

void read_benchmark(const Row& row, const TypeWord& type, MeasuredKernel& measured) {
  const AttentionSizes sizes = benchmark_sizes(row);
  measured.what = format("batch {}, s {}, {} heads of {}", sizes.batch, sizes.sequence, sizes.heads,
                         sizes.keys);
  if (row.text("kind") == "attention_flash2") {
    measured.kernels = {attention(sizes, false, false, type)};
    return;
  }
  const std::int64_t matrices = sizes.batch * sizes.heads;
  const std::int64_t rows = matrices * sizes.sequence;
  Kernel softmax;
  softmax.name = "softmax";
  softmax.bytes = Bytes(rows) * sizes.sequence * (2 * kElement);
  measured.kernels = {product(rows, sizes.sequence, sizes.keys, matrices, type), softmax,
                      product(rows, sizes.values, sizes.sequence, matrices, type)};
}

/// FLOPs that a table counts where its TFLOPS come from.
double counted_flops(const Row& row, const MeasuredKernel& measured) {
  double flops = 0;
  for (const Kernel& kernel : measured.kernels) flops += kernel.flops.count();
  return row.text("kind").starts_with("sdp_") ? 2 * flops : flops;
}

struct KindWord {
  std::string_view word;
  void (*read)(const Row&, const TypeWord&, MeasuredKernel&);
};
constexpr std::array kKinds = {
    KindWord{"gemm", read_gemm}, KindWord{"sdp_fwd", read_sdp}, KindWord{"sdp_bwd", read_sdp},
    KindWord{"attention_flash2", read_benchmark}, KindWord{"attention_standard", read_benchmark}};

const KindWord& kind_of(const Row& row) {
  const std::string& word = row.text("kind");
  const auto* const known = std::find_if(kKinds.begin(), kKinds.end(),
                                         [&](const KindWord& kind) { return kind.word == word; });
  if (known != kKinds.end()) return *known;
  std::vector<std::string> words;
  words.reserve(kKinds.size());
  for (const KindWord& kind : kKinds) words.emplace_back(kind.word);
  row.fail("kind", format("found \"{}\", expected one of {}{}", word, join(words, ", "),
                          did_you_mean(word, words)));
}

/// "NVIDIA H100 SXM": of the board whose generation it does not tell.
const GpuSpec* gpu_named(std::string_view words) {
  constexpr std::string_view kForm = " SXM";
  if (words.ends_with(kForm)) words.remove_suffix(kForm.size());
  return gpu_by_words(words).gpu;
}

MeasuredKernel read_row(const Row& row) {
  const KindWord& kind = kind_of(row);
  const TypeWord& type = type_of(row);
  const std::string& words = row.text("gpu");
  MeasuredKernel measured;
  measured.id = row.line();
  measured.gpu = gpu_named(words);
  if (measured.gpu == nullptr) throw NoKernel{format("GPU \"{}\" is not simulated", words)};
  measured.group = format("{} {}", measured.gpu->name, kind.word);
  kind.read(row, type, measured);
  measured.group += format(" {}", type.word);
  const std::optional<double> tflops = row.number("tflops", kLargestRate);
  if (!tflops) throw NoKernel{"tflops is empty"};
  const std::optional<double> peak = row.number("peak_tflops", kLargestRate);
  measured.rate = peak ? *tflops / *peak : 0;
  measured.time = Seconds(counted_flops(row, measured) / (*tflops * 1e12));
  return measured;
}

std::string percent(double share) {
  return format("{:.1f}", share * 100);
}

std::string group_line(const std::string& name, const ValidationSummary& summary, double mean) {
  if (!summary.median) return "";
  return format("{:<48} {:>5} {:>7} {:>7} {:>7} {:>7}\n", name, summary.count - summary.skipped,
                percent(mean), percent(*summary.median), percent(*summary.p90),
                percent(*summary.worst));
}

std::string groups_text(const std::vector<ValidationRow>& rows) {
  std::string out = format("{:<48} {:>5} {:>7} {:>7} {:>7} {:>7}\n", "absolute error of time, %",
                           "n", "mean", "median", "p90", "worst");
  for (const SourceSummary& group : summaries_by_source(rows)) {
    std::vector<ValidationRow> own;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(own),
                 [&](const ValidationRow& row) { return row.source == group.source; });
    out += group_line(group.source, group.summary, mean_error(own));
  }
  return out + group_line("all", summary_of(rows), mean_error(rows));
}

std::string rows_text(const std::vector<ValidationRow>& rows) {
  std::string out = format("\n{:>6} {:<44} {:>12} {:>12} {:>8}\n", "line", "", "predicted us",
                           "measured us", "error %");
  std::string group;
  for (const ValidationRow& row : rows) {
    if (row.skipped) continue;
    if (row.source != group) out += row.source + "\n";
    group = row.source;
    out += format("{:>6} {:<44} {:>12.2f} {:>12.2f} {:>+8.1f}\n", row.id, row.what,
                  *row.predicted * 1e6, *row.measured * 1e6, *row.relative_error * 100);
  }
  return out;
}

std::string skipped_text(const std::vector<ValidationRow>& rows) {
  std::map<std::string, int> reasons;
  for (const ValidationRow& row : rows) {
    if (row.skipped) ++reasons[row.why];
  }
  std::string out;
  for (const auto& [why, count] : reasons) out += format("skipped {}: {}\n", count, why);
  return out.empty() ? out : "\n" + out;
}

}  // namespace

KernelTable read_kernel_table(const CsvTable& table) {
  KernelTable result;
  result.file = table.file;
  for (const char* column :
       {"gpu", "kind", "dtype", "m", "n", "k", "layout", "tflops", "peak_tflops", "notes"}) {
    (void)table.column(column);
  }
  result.rows.reserve(table.rows.size());
  for (const std::vector<CsvCell>& cells : table.rows) {
    const Row row(table, cells);
    try {
      result.rows.push_back(read_row(row));
    } catch (const NoKernel& none) {
      result.skipped.push_back(skipped_row(row.line(), "", none.why));
    }
  }
  return result;
}

Seconds predicted_time(const MeasuredKernel& row, const KernelEfficiency& efficiency) {
  const BytesPerSecond bandwidth = usable_memory_bandwidth(*row.gpu, efficiency);
  Seconds time{0};
  for (const Kernel& kernel : row.kernels) {
    const KernelTime own = kernel_time(kernel, *row.gpu, efficiency);
    time += own.launch_gap + std::max(own.sm_time, own.memory_bytes / bandwidth);
  }
  return time;
}

Validation validate_kernels(std::span<const std::string> paths, const Calibration& calibration) {
  Validation all;
  all.assumptions.emplace_back(
      "kernels of a benchmark follow each other on one stream, at the clock of one kernel alone");
  for (const std::string& path : paths) {
    const KernelTable table = read_kernel_table(read_csv(path));
    all.input += (all.input.empty() ? "" : ", ") + table.file;
    for (const MeasuredKernel& row : table.rows) {
      const KernelEfficiency efficiency =
          calibrated_efficiency(*row.gpu, calibration, KernelRegime::Benchmark);
      ValidationRow compared = compared_row(
          row.id, row.what, "s", predicted_time(row, efficiency).count(), row.time.count());
      compared.source = row.group + (row.is_search ? " (best of a search)" : "");
      all.rows.push_back(std::move(compared));
    }
    all.rows.insert(all.rows.end(), table.skipped.begin(), table.skipped.end());
  }
  return all;
}

double mean_error(std::span<const ValidationRow> rows) {
  double sum = 0;
  int count = 0;
  for (const ValidationRow& row : rows) {
    if (!row.relative_error) continue;
    sum += std::abs(*row.relative_error);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

std::string kernels_text(const Validation& validation, bool rows) {
  std::string out = format("{}: predicted against measured kernels\n\n", validation.input);
  out += groups_text(validation.rows);
  if (rows) out += rows_text(validation.rows);
  out += skipped_text(validation.rows);
  for (const std::string& assumption : validation.assumptions) {
    out += "assumed: " + assumption + "\n";
  }
  return out;
}

}  // namespace zerosim
