/// \file
/// A calibration: constants fitted to measurements of a machine, and their file.
///
/// `zerosim calibrate` writes it (validate/fit_collectives.h, fit_kernels.h, fit_host.h),
/// `--calibration F` reads it; what becomes of it in a simulation is told in calibrated_cost.h and,
/// for kernels and the host, in sim/engine/kernel_efficiency.h and calibrated_host.h.
///
/// The schema of a calibration file, version 1 (examples/calibration.json). Quantities are strings
/// with units; sizes are bytes; `?` marks what may be left out:
///
///     version              1
///     collectives          a list, an entry for each operation, group and machine:
///       operation          all_reduce, all_gather_into_tensor, reduce_scatter_tensor, broadcast,
///                          reduce or all_to_all_single
///       ranks, nodes       of the group, as NCCL counts nodes; at least 2 and 1, at most 1024
///                          ranks a node
///       ranks_per_process  ? = 1: of the run that was measured (LaunchMode)
///       as_group           ? = false: likewise
///       environment        ? = []: NCCL_* variables that the run had, ["NCCL_ALGO=Ring"]
///       machine            that was measured:
///         name             as reports call the cluster
///         gpu              a GPU's name ("A100-SXM4-40")
///         intra            nvswitch, nvlink-mesh, pcie or pcie-host-staged
///         nics             that the group's GPUs drive on a node; with nodes > 1, only then
///         nic_bandwidth    peak of one, one direction; likewise
///         network        ? "infiniband", "roce", ... as node.nics.kind of a cluster file,
///                          likewise; without it any kind is taken for alike
///       constants          of CollectiveLine: floor, bend (times), exponent (0 to 0.9), bandwidth
///       provenance       ? {log, source ?, nccl_version ?, fitted: names of the constants that the
///                          log decided (the others are fixed), hold_out ?}
///       residuals        ? {fitted, held_out ?}, each {sizes, errors: (line - measured) / measured
///                          of each size; median, p90, worst: of their absolute values}
///
///     kernels            ? a list, an entry for each GPU kind that was measured:
///       gpu                a GPU's name
///       products         ? {e0, k0, p64, fp32_accumulate: constants of kernel_time.h;
///                          measured ?: a list of [m, n, k, "TN" | "NN" | "NT", permille of peak]}
///       attention_forward, attention_backward   ? {head64 ?, head128 ?, head192 ?: TFLOPS; tail}
///       provenance       ? {table, hold_out ?}
///       residuals        ? {fitted, held_out ?}, each {shapes, median, p90, worst}
///
///     host               ? of the processors that training runs were measured on:
///       interpreter        factor on the time of all host work (0.01 to 100)
///       deepspeed_hook   ? time of one of ZeRO-3's hooks (at most 1 s), to which the factor does
///                          not apply; without it the table's, to which it does
///       provenance       ? {table, hold_out ?}
///       residuals        ? {fitted, held_out ?}, each {rows, median, p90, worst}
///
/// A file has an entry at least, or a host. Sections of later versions (links) stand beside these.
/// A file of another version is refused: constants must not be taken for what they are not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/model/operators.h"
#include "topology/cluster.h"
#include "topology/collective_model.h"

namespace zerosim {

/// Of a CollectiveLine: below 1, so that the transfer wins as V grows.
inline constexpr double kLargestExponent = 0.9;

/// Time of one operation of one group, alone, by the bytes V that each rank sends
/// (`ring_bytes_sent`):
///
///     t(V) = V / bandwidth + (floor^4 + (bend (V / 1 MiB)^exponent)^4)^(1/4)
///
/// The first part is on the links, the second is a delay: the launch, then what pipelines, and
/// their protocols, take beyond the transfer. NCCL changes protocol as V grows, so no single
/// latency holds; a power of V follows the envelope of all. The fourth power rounds the corner
/// between the two. It fits published curves better than nccl_cost.md section 7's A + V/B + kappa
/// sqrt(A V/B), whose exponent is 1/2 (README, Calibrate).
struct CollectiveLine {
  Seconds floor{0};
  Seconds bend{0};  ///< at V = 1 MiB
  double exponent = 0.5;
  BytesPerSecond bandwidth;  ///< bus bandwidth, as V grows

  [[nodiscard]] Seconds delay(Bytes sent) const;
  [[nodiscard]] Seconds transfer(Bytes sent) const { return sent / bandwidth; }
  [[nodiscard]] Seconds time(Bytes sent) const { return delay(sent) + transfer(sent); }
  bool operator==(const CollectiveLine&) const = default;
};

/// What decides whether constants hold for another cluster.
struct MeasuredMachine {
  std::string name;
  std::string gpu;
  IntraNode intra = IntraNode::NvSwitch;
  int nics = 0;  ///< 0: one node
  BytesPerSecond nic_bandwidth;
  std::optional<NetworkKind> network;  ///< nullopt: not told, or one node
  bool operator==(const MeasuredMachine&) const = default;
};
/// Of a group on so many of its nodes.
[[nodiscard]] MeasuredMachine measured_machine(const Cluster& cluster, int nodes);

/// How far the line is from what was measured.
struct LineResiduals {
  std::vector<Bytes> sizes;    ///< ascending
  std::vector<double> errors;  ///< (line - measured) / measured
  double median = 0, p90 = 0, worst = 0;
  bool operator==(const LineResiduals&) const = default;
};

struct CalibratedCollective {
  CollectiveOp operation = CollectiveOp::AllReduce;
  int ranks = 2;
  int nodes = 1;
  LaunchMode launch{};
  std::vector<std::string> environment;  ///< "NCCL_ALGO=Ring", in the order of the file
  MeasuredMachine machine;
  CollectiveLine line;
  /// \name Provenance
  ///@{
  std::string log, source, nccl_version;
  std::vector<std::string> fitted;
  std::string hold_out;  ///< "": not told
  ///@}
  LineResiduals fitted_residuals, held_out_residuals;  ///< without sizes: not told
  bool operator==(const CalibratedCollective&) const = default;
};

/// A product as measured.
struct MeasuredProduct {
  std::int32_t m = 0, n = 0, k = 0;
  GemmLayout layout = GemmLayout::TN;
  std::int32_t permille = 0;  ///< of peak
  bool operator==(const MeasuredProduct&) const = default;
};

/// Constants of matrix products: what kernel_time.h calls so.
struct CalibratedProducts {
  double e0 = 0, k0 = 0, p64 = 0, fp32_accumulate = 1;
  std::vector<MeasuredProduct> measured;  ///< what corrects the formula; may be empty
  bool operator==(const CalibratedProducts&) const = default;
};

/// Of one direction of fused attention; 0: not measured.
struct CalibratedAttention {
  FlopsPerSecond head64, head128, head192;
  double tail = 0;
  bool operator==(const CalibratedAttention&) const = default;
};

struct KernelResiduals {
  int shapes = 0;  ///< 0: not told
  double median = 0, p90 = 0, worst = 0;
  bool operator==(const KernelResiduals&) const = default;
};

struct CalibratedKernels {
  std::string gpu;
  std::optional<CalibratedProducts> products;
  std::optional<CalibratedAttention> forward, backward;
  std::string table, hold_out;  ///< provenance; "": not told
  KernelResiduals fitted, held_out;
  bool operator==(const CalibratedKernels&) const = default;
};

/// Of absolute errors of step times.
struct RunResiduals {
  int rows = 0;  ///< 0: not told
  double median = 0, p90 = 0, worst = 0;
  bool operator==(const RunResiduals&) const = default;
};

/// Host work against the table of sim/engine/host_time.cpp.
struct CalibratedHost {
  double interpreter = 1;
  std::optional<Seconds> deepspeed_hook;
  std::string table, hold_out;  ///< provenance; "": not told
  RunResiduals fitted, held_out;
  bool operator==(const CalibratedHost&) const = default;
};

struct Calibration {
  std::string file;  ///< as it is called in sentences
  std::vector<CalibratedCollective> collectives;
  std::vector<CalibratedKernels> kernels;
  std::optional<CalibratedHost> host{};
  /// The cluster at hand as each entry was measured: without what the job's environment did to it
  /// and with what the entry's does (sim/analysis/calibration_notes.h); nullopt: it cannot be.
  /// Empty: as it is, since neither has an environment.
  std::vector<std::optional<Cluster>> measured_on{};

  [[nodiscard]] bool empty() const { return collectives.empty() && kernels.empty() && !host; }
};

/// \throws ConfigError  with file, line, column and the nearest name
[[nodiscard]] Calibration read_calibration(const std::string& path);
/// `file` stands for the text in messages.
[[nodiscard]] Calibration parse_calibration(std::string text, const std::string& file);

/// What keeps a file from holding the entry; "": nothing does.
[[nodiscard]] std::string out_of_bounds(const CalibratedCollective& entry);

/// What reads back as the same, with the precision of `rounded`. The same calibration gives the
/// same bytes.
[[nodiscard]] std::string calibration_text(const Calibration& calibration);
[[nodiscard]] JsonValue calibration_json(const Calibration& calibration);

/// The line as its file holds it: 0.1 ns, 0.1 MB/s, exponent 0.0001.
[[nodiscard]] CollectiveLine rounded(const CollectiveLine& line);
/// The constants as their file holds them: factor 0.0001, 0.1 ns.
[[nodiscard]] CalibratedHost rounded(CalibratedHost host);

}  // namespace zerosim
