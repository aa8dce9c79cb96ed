#include "validate/fit_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include <nlopt.hpp>

#include "sim/base/text.h"
#include "sim/engine/kernel_time.h"

namespace zerosim {
namespace {

// What fit_kernels.h tells.
constexpr double kRounding = 0.01;
constexpr std::size_t kFewestProducts = 20;
constexpr std::size_t kFewestAttentions = 6;
constexpr double kBadTenth = 0.15;
constexpr double kUsualP64 = 0.85;
constexpr int kJsonVersion = 1;

using Rows = std::vector<const MeasuredKernel*>;
using Point = std::vector<double>;

struct Halves {
  Rows fitted, held_out;
};

Halves halves_of(const Rows& rows, HoldOut hold_out) {
  Halves halves;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (is_held_out(i, rows.size(), hold_out) ? halves.held_out : halves.fitted).push_back(rows[i]);
  }
  return halves;
}

double mean_log_error(const Rows& rows, const KernelEfficiency& efficiency) {
  double sum = 0;
  for (const MeasuredKernel* row : rows) {
    sum += std::hypot(std::log(predicted_time(*row, efficiency) / row->time), kRounding);
  }
  return sum / static_cast<double>(rows.size());
}

std::vector<ValidationRow> compared(const Rows& rows, const KernelEfficiency& efficiency) {
  std::vector<ValidationRow> result;
  result.reserve(rows.size());
  for (const MeasuredKernel* row : rows) {
    result.push_back(compared_row(row->id, row->what, "s", predicted_time(*row, efficiency).count(),
                                  row->time.count()));
  }
  return result;
}

/// A search over constants between bounds.
struct Search {
  std::function<double(const Point&)> cost;
  Point lower, upper;
};

double objective(const Point& x, Point& /*gradient*/, void* data) {
  return static_cast<Search*>(data)->cost(x);
}

Point searched(Search& search, Point x) {
  nlopt::opt subplex(nlopt::LN_SBPLX, static_cast<unsigned>(x.size()));
  subplex.set_min_objective(objective, &search);
  subplex.set_lower_bounds(search.lower);
  subplex.set_upper_bounds(search.upper);
  Point step(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) step[i] = 0.1 * std::max(x[i], 0.1);
  subplex.set_initial_step(step);
  subplex.set_xtol_rel(1e-5);
  subplex.set_maxeval(3000);
  double least = 0;
  subplex.optimize(x, least);
  return x;
}

/// As files hold it.
double rounded_to(double value, double step) {
  return std::round(value / step) / std::round(1 / step);
}

KernelEfficiency table_of(const MeasuredKernel& row) {
  return kernel_efficiency(*row.gpu, KernelRegime::Benchmark);
}

KernelEfficiency efficiency_of(const MeasuredKernel& row, const Calibration& calibration) {
  return calibrated_efficiency(*row.gpu, calibration, KernelRegime::Benchmark);
}

// Products.

enum ProductConstant : std::size_t { kE0, kK0, kP64, kAccumulate, kProductConstants };

CalibratedProducts products_of(const Point& x) {
  constexpr double kStep = 1e-4;
  return {rounded_to(x[kE0], kStep),
          std::round(x[kK0]),
          rounded_to(x[kP64], kStep),
          rounded_to(x[kAccumulate], kStep),
          {}};
}

void set(const CalibratedProducts& products, KernelEfficiency& efficiency) {
  efficiency.gemm_e0 = products.e0;
  efficiency.gemm_k0 = products.k0;
  efficiency.p64 = products.p64;
  efficiency.fp32_accumulate = products.fp32_accumulate;
  efficiency.measured = products.measured;
  efficiency.measured_e0 = products.e0;
}

bool accumulates(const MeasuredKernel* row) {
  return row->kernels.front().fp32_accumulate;
}

CalibratedProducts fit_products(const Rows& rows) {
  KernelEfficiency efficiency = table_of(*rows.front());
  Search search;
  search.cost = [&](const Point& x) {
    set({x[kE0], x[kK0], x[kP64], x[kAccumulate], {}}, efficiency);
    return mean_log_error(rows, efficiency);
  };
  const bool any = std::any_of(rows.begin(), rows.end(), accumulates);
  search.lower = {0.05, 0, 0.3, any ? 0.5 : 1};
  search.upper = {1, 1000, 1, any ? 1.2 : 1};
  Point best;
  double least = std::numeric_limits<double>::infinity();
  for (const double k0 : {64.0, 150.0, 300.0}) {
    const Point x = searched(search, {efficiency.gemm_e0, k0, kUsualP64, 1});
    const double found = search.cost(x);
    if (found >= least) continue;
    least = found;
    best = x;
  }
  return products_of(best);
}

std::vector<MeasuredProduct> measured_products(const Rows& rows) {
  std::vector<MeasuredProduct> products;
  products.reserve(rows.size());
  for (const MeasuredKernel* row : rows) {
    const Kernel& kernel = row->kernels.front();
    products.push_back({static_cast<std::int32_t>(kernel.m), static_cast<std::int32_t>(kernel.n),
                        static_cast<std::int32_t>(kernel.k), kernel.layout,
                        std::max(1, static_cast<int>(std::lround(row->rate * 1000)))});
  }
  return products;
}

double worst_tenth(const std::vector<ValidationRow>& rows) {
  return summary_of(rows).p90.value_or(0);
}

// Attention.

enum AttentionConstant : std::size_t { kHead64, kHead128, kHead192, kTail, kAttentionConstants };

AttentionRates AttentionEfficiency::*direction_of(bool backward) {
  return backward ? &AttentionEfficiency::backward : &AttentionEfficiency::forward;
}

std::size_t nearest_head(const MeasuredKernel* row) {
  const auto head = static_cast<double>(row->kernels.front().n);
  return static_cast<std::size_t>(std::clamp(std::round(head / 64) - 1, 0.0, 2.0));
}

/// Rates in TFLOPS as logarithms, and the tail.
AttentionRates rates_of(const Point& x) {
  const auto rate = [&](AttentionConstant head) {
    return FlopsPerSecond(std::exp(x[head]) * 1e12);
  };
  return {rate(kHead64), rate(kHead128), rate(kHead192), x[kTail]};
}

Point point_of(const AttentionRates& rates) {
  const auto log = [](FlopsPerSecond rate) { return std::log(rate.per_second() * 1e-12); };
  return {log(rates.head64), log(rates.head128), log(rates.head192), rates.tail};
}

CalibratedAttention fit_attention(const Rows& rows, bool backward) {
  constexpr double kFactor = 1.6;  // ln 5
  KernelEfficiency efficiency = table_of(*rows.front());
  AttentionRates& rates = efficiency.flash2.*direction_of(backward);
  const Point start = point_of(rates);
  Search search;
  search.cost = [&](const Point& x) {
    rates = rates_of(x);
    return mean_log_error(rows, efficiency);
  };
  search.lower = search.upper = start;
  std::array<bool, kTail> occurs{};
  for (const MeasuredKernel* row : rows) occurs[nearest_head(row)] = true;
  for (std::size_t head = 0; head < kTail; ++head) {
    if (!occurs[head]) continue;
    search.lower[head] -= kFactor;
    search.upper[head] += kFactor;
  }
  search.lower[kTail] = 0;
  search.upper[kTail] = 10;
  const Point best = searched(search, start);
  CalibratedAttention fitted;
  const auto rate = [&](AttentionConstant head) {
    return FlopsPerSecond(occurs[head] ? rounded_to(std::exp(best[head]), 0.1) * 1e12 : 0);
  };
  fitted.head64 = rate(kHead64);
  fitted.head128 = rate(kHead128);
  fitted.head192 = rate(kHead192);
  fitted.tail = rounded_to(best[kTail], 1e-3);
  return fitted;
}

// A GPU.

bool is_product(const MeasuredKernel& row) {
  const Kernel& kernel = row.kernels.front();
  return row.kernels.size() == 1 && kernel.kernel_class == KernelClass::Gemm &&
         kernel.units == MatrixUnits::OfType && dtype_bytes(kernel.dtype) == 2 && !row.is_search;
}

bool is_attention(const MeasuredKernel& row, bool backward) {
  const Kernel& kernel = row.kernels.front();
  return kernel.kernel_class == KernelClass::Attention && kernel.backward == backward;
}

/// Fits the rows of one GPU, one kind of kernel after the other.
class GpuFit {
 public:
  GpuFit(const GpuSpec& gpu, const KernelTable& table, KernelFit& fit)
      : gpu_(gpu), table_(table), fit_(fit) {
    entry_.gpu = gpu.name;
    entry_.table = table.file;
    entry_.hold_out = to_string(fit.hold_out);
  }

  void run() {
    std::size_t used = fit_products_of_gpu();
    used += fit_attention_of_gpu(false);
    used += fit_attention_of_gpu(true);
    const auto own = rows_where([](const MeasuredKernel&) { return true; });
    fit_.unused += static_cast<int>(own.size() - used);
    if (used == 0) return;
    entry_.fitted = residuals(fitted_);
    entry_.held_out = residuals(held_out_);
    fit_.gpus.push_back(std::move(entry_));
  }

 private:
  template <typename Condition>
  [[nodiscard]] Rows rows_where(const Condition& condition) const {
    Rows rows;
    for (const MeasuredKernel& row : table_.rows) {
      if (row.gpu == &gpu_ && condition(row)) rows.push_back(&row);
    }
    return rows;
  }

  [[nodiscard]] static KernelResiduals residuals(const std::vector<ValidationRow>& rows) {
    constexpr double kStep = 1e-6;
    const ValidationSummary summary = summary_of(rows);
    return {summary.count, rounded_to(summary.median.value_or(0), kStep),
            rounded_to(summary.p90.value_or(0), kStep),
            rounded_to(summary.worst.value_or(0), kStep)};
  }

  void record(FittedKernels done, const Halves& halves) {
    const Calibration calibration{"", {}, {entry_}};
    const KernelEfficiency now = efficiency_of(*halves.fitted.front(), calibration);
    done.fitted = compared(halves.fitted, now);
    done.held_out = compared(halves.held_out, now);
    done.held_out_before = compared(halves.held_out, table_of(*halves.fitted.front()));
    fitted_.insert(fitted_.end(), done.fitted.begin(), done.fitted.end());
    held_out_.insert(held_out_.end(), done.held_out.begin(), done.held_out.end());
    fit_.fits.push_back(std::move(done));
  }

  std::size_t fit_products_of_gpu() {
    const Rows rows = rows_where(is_product);
    const Halves halves = halves_of(rows, fit_.hold_out);
    if (halves.fitted.size() < kFewestProducts) return 0;
    FittedKernels done;
    done.what = gpu_.name + " products";
    entry_.products = fit_products(halves.fitted);
    KernelEfficiency formula = table_of(*halves.fitted.front());
    set(*entry_.products, formula);
    done.corrected = worst_tenth(compared(halves.fitted, formula)) > kBadTenth;
    if (done.corrected) {
      done.held_out_formula = compared(halves.held_out, formula);
      entry_.products->measured = measured_products(halves.fitted);
    }
    record(std::move(done), halves);
    return rows.size();
  }

  std::size_t fit_attention_of_gpu(bool backward) {
    const Rows rows =
        rows_where([&](const MeasuredKernel& row) { return is_attention(row, backward); });
    const Halves halves = halves_of(rows, fit_.hold_out);
    if (halves.fitted.size() < kFewestAttentions) return 0;
    FittedKernels done;
    done.what = gpu_.name + (backward ? " attention backward" : " attention forward");
    (backward ? entry_.backward : entry_.forward) = fit_attention(halves.fitted, backward);
    record(std::move(done), halves);
    return rows.size();
  }

  const GpuSpec& gpu_;
  const KernelTable& table_;
  KernelFit& fit_;
  CalibratedKernels entry_;
  std::vector<ValidationRow> fitted_, held_out_;
};

// Text and JSON.

std::string error_line(const std::string& what, const std::vector<ValidationRow>& rows) {
  const ValidationSummary summary = summary_of(rows);
  if (!summary.median) return "";
  return format("  {:<34} {:>5} {:>7.1f} {:>7.1f} {:>7.1f} {:>7.1f}\n", what, summary.count,
                mean_error(rows) * 100, *summary.median * 100, *summary.p90 * 100,
                *summary.worst * 100);
}

std::string attention_text(std::string_view direction, const CalibratedAttention& attention) {
  std::string out = format("  attention {}:", direction);
  const auto rate = [&](int head, FlopsPerSecond value) {
    if (value.per_second() > 0) out += format(" heads of {} {:.1f} TFLOPS,", head, value.tflops());
  };
  rate(64, attention.head64);
  rate(128, attention.head128);
  rate(192, attention.head192);
  return out + format(" tail {:g}\n", attention.tail);
}

std::string constants_text(const CalibratedKernels& gpu) {
  std::string out = gpu.gpu + "\n";
  if (gpu.products) {
    out += format("  products: e0 {:g}, K0 {:g}, p64 {:g}, fp32 accumulate {:g}", gpu.products->e0,
                  gpu.products->k0, gpu.products->p64, gpu.products->fp32_accumulate);
    const std::size_t n = gpu.products->measured.size();
    out += n > 0 ? format(", corrected by {} measured products\n", n) : "\n";
  }
  if (gpu.forward) out += attention_text("forward", *gpu.forward);
  if (gpu.backward) out += attention_text("backward", *gpu.backward);
  return out;
}

JsonValue errors_json(const std::vector<ValidationRow>& rows) {
  const ValidationSummary summary = summary_of(rows);
  JsonValue json(Json::objectValue);
  json["count"] = summary.count;
  if (!summary.median) return json;
  json["mean"] = mean_error(rows);
  json["median"] = *summary.median;
  json["p90"] = *summary.p90;
  json["worst"] = *summary.worst;
  return json;
}

}  // namespace

KernelFit fit_kernels(std::span<const std::string> paths, HoldOut hold_out) {
  KernelFit fit;
  fit.hold_out = hold_out;
  KernelTable all;
  for (const std::string& path : paths) {
    KernelTable own = read_kernel_table(read_csv(path));
    all.file += (all.file.empty() ? "" : ", ") + own.file;
    std::move(own.rows.begin(), own.rows.end(), std::back_inserter(all.rows));
  }
  fit.input = all.file;
  for (const GpuSpec& gpu : gpu_specs()) GpuFit(gpu, all, fit).run();
  return fit;
}

std::string kernel_fit_text(const KernelFit& fit) {
  std::string out = format("{}: constants fitted to measured kernels\n\n", fit.input);
  for (const CalibratedKernels& gpu : fit.gpus) out += constants_text(gpu);
  out += format("\n{:<36} {:>5} {:>7} {:>7} {:>7} {:>7}\n", "absolute error of time, %", "n",
                "mean", "median", "p90", "worst");
  for (const FittedKernels& kernels : fit.fits) {
    out += kernels.what + "\n";
    out += error_line("fitted", kernels.fitted);
    out += error_line("held out", kernels.held_out);
    out += error_line("held out, formula alone", kernels.held_out_formula);
    out += error_line("held out, zerosim's constants", kernels.held_out_before);
  }
  if (fit.unused > 0) {
    out += format(
        "\n{} rows not used: other types, or too few of a GPU (at least {} products, {} "
        "attentions each way)\n",
        fit.unused, kFewestProducts, kFewestAttentions);
  }
  return out;
}

JsonValue kernel_fit_json(const KernelFit& fit) {
  const Calibration calibration{"", {}, fit.gpus};
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["input"] = fit.input;
  json["hold_out"] = std::string(to_string(fit.hold_out));
  json["kernels"] = calibration_json(calibration)["kernels"];
  JsonValue& fits = json["fits"] = JsonValue(Json::arrayValue);
  for (const FittedKernels& kernels : fit.fits) {
    JsonValue entry(Json::objectValue);
    entry["what"] = kernels.what;
    entry["corrected"] = kernels.corrected;
    entry["fitted"] = errors_json(kernels.fitted);
    entry["held_out"] = errors_json(kernels.held_out);
    entry["held_out_before"] = errors_json(kernels.held_out_before);
    if (kernels.corrected) entry["held_out_formula"] = errors_json(kernels.held_out_formula);
    fits.append(std::move(entry));
  }
  json["unused"] = fit.unused;
  return json;
}

}  // namespace zerosim
