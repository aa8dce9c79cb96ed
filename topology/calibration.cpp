#include "topology/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/text.h"
#include "topology/gpu.h"
#include "topology/json_reading.h"
#include "topology/nccl_graph.h"
#include "topology/node_file.h"

namespace zerosim {
namespace {

constexpr int kVersion = 1;
constexpr std::int64_t kMostRanks = kMaxGpusPerNode * kMaxNodes;
/// What a file can hold: its steps are 0.1 ns and 0.1 MB/s.
constexpr Seconds kLeastFloor{1e-10};
constexpr Seconds kLongest{3600};
constexpr BytesPerSecond kSlowest{1e5};
constexpr BytesPerSecond kFastest{1e15};

constexpr std::array kOperations = {CollectiveOp::AllReduce,     CollectiveOp::AllGather,
                                    CollectiveOp::ReduceScatter, CollectiveOp::Broadcast,
                                    CollectiveOp::Reduce,        CollectiveOp::AllToAll};
constexpr std::array kIntraKinds = {IntraNode::NvSwitch, IntraNode::NvLinkMesh, IntraNode::Pcie,
                                    IntraNode::PcieHostStaged};
const std::vector<std::string>& constant_names() {
  static const std::vector<std::string> kNames = {"floor", "bend", "exponent", "bandwidth"};
  return kNames;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  names.reserve(gpu_specs().size());
  for (const GpuSpec& gpu : gpu_specs()) names.push_back(gpu.name);
  return names;
}

/// The value of `all` that is called as the member `key`.
template <typename Values, typename Name>
auto named(JsonObject& object, const std::string& key, const Values& all, const Name& name_of,
           std::string_view what) {
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const auto& value : all) names.emplace_back(name_of(value));
  const std::string name = one_of(object, key, names, what);
  const auto found = std::find(names.begin(), names.end(), name);
  return all[static_cast<std::size_t>(found - names.begin())];
}

// Reading.

/// "": the time is within what a file holds.
std::string wrong_time(Seconds time, Seconds least, Seconds most = kLongest) {
  if (time >= least && time <= most) return "";
  return format("found {:g} s, expected {:g} s to {:g} s", time.count(), least.count(),
                most.count());
}

std::string wrong_rate(BytesPerSecond rate) {
  if (rate >= kSlowest && rate <= kFastest) return "";
  return format("found {:g} GB/s, expected {:g} to {:g}", rate.gb_per_second(),
                kSlowest.gb_per_second(), kFastest.gb_per_second());
}

std::string wrong_exponent(double exponent) {
  if (exponent >= 0 && exponent <= kLargestExponent) return "";
  return format("found {}, expected a number from 0 to {}", exponent, kLargestExponent);
}

Seconds bounded_time(JsonObject& object, const std::string& key, Seconds least,
                     Seconds most = kLongest) {
  const Seconds time = object.seconds(key);
  if (const std::string wrong = wrong_time(time, least, most); !wrong.empty()) {
    object.fail(key, wrong, "out_of_range");
  }
  return time;
}

BytesPerSecond bounded_rate(JsonObject& object, const std::string& key) {
  const BytesPerSecond rate = object.bytes_per_second(key);
  if (const std::string wrong = wrong_rate(rate); !wrong.empty()) {
    object.fail(key, wrong, "out_of_range");
  }
  return rate;
}

MeasuredMachine read_machine(JsonObject object, int nodes) {
  expect_keys(object, {"name", "gpu", "intra", "nics", "nic_bandwidth", "network"});
  MeasuredMachine machine;
  machine.name = object.string("name");
  machine.gpu = one_of(object, "gpu", gpu_names(), "GPU");
  machine.intra = named(object, "intra", kIntraKinds, intra_node_name, "kind of node");
  if (nodes == 1) {
    for (const char* key : {"nics", "nic_bandwidth", "network"}) {
      if (object.has(key)) object.fail(key, "expected none, as the group is on one node");
    }
    return machine;
  }
  machine.nics = bounded_integer(object, "nics", 1, kMaxGpusPerNode * kMaxGpusPerNode);
  machine.nic_bandwidth = bounded_rate(object, "nic_bandwidth");
  if (object.has("network")) {
    machine.network =
        network_kind(one_of(object, "network", network_kind_names(), "kind of network"));
  }
  return machine;
}

CollectiveLine read_line(JsonObject object) {
  expect_keys(object, {"floor", "bend", "exponent", "bandwidth"});
  CollectiveLine line;
  line.floor = bounded_time(object, "floor", kLeastFloor);
  line.bend = bounded_time(object, "bend", Seconds(0));
  line.exponent = object.number("exponent");
  if (const std::string wrong = wrong_exponent(line.exponent); !wrong.empty()) {
    object.fail("exponent", wrong, "out_of_range");
  }
  line.bandwidth = bounded_rate(object, "bandwidth");
  return line;
}

void read_provenance(JsonObject object, CalibratedCollective& entry) {
  expect_keys(object, {"log", "source", "nccl_version", "fitted", "hold_out"});
  entry.log = object.string("log");
  entry.source = object.optional_string("source").value_or("");
  entry.nccl_version = object.optional_string("nccl_version").value_or("");
  entry.hold_out = object.optional_string("hold_out").value_or("");
  entry.fitted = object.strings("fitted");
  const std::vector<std::string>& known = constant_names();
  for (const std::string& name : entry.fitted) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    object.fail("fitted", format("unknown constant \"{}\"{}", name, did_you_mean(name, known)));
  }
}

LineResiduals read_residuals(JsonObject object) {
  expect_keys(object, {"sizes", "errors", "median", "p90", "worst"});
  LineResiduals residuals;
  for (const std::int64_t size : object.integers("sizes")) {
    const bool ascends = residuals.sizes.empty() || Bytes(size) >= residuals.sizes.back();
    if (size < 1 || !ascends) object.fail("sizes", "expected positive sizes, ascending");
    residuals.sizes.emplace_back(size);
  }
  residuals.errors = object.numbers("errors");
  if (residuals.errors.size() != residuals.sizes.size()) {
    object.fail("errors", format("found {} errors of {} sizes", residuals.errors.size(),
                                 residuals.sizes.size()));
  }
  residuals.median = object.number("median");
  residuals.p90 = object.number("p90");
  residuals.worst = object.number("worst");
  return residuals;
}

CalibratedCollective read_collective(JsonObject object) {
  expect_keys(object, {"operation", "ranks", "nodes", "ranks_per_process", "as_group",
                       "environment", "machine", "constants", "provenance", "residuals"});
  CalibratedCollective entry;
  entry.operation = named(
      object, "operation", kOperations, [](CollectiveOp op) { return to_string(op); }, "operation");
  entry.ranks = bounded_integer(object, "ranks", 2, std::min<std::int64_t>(kMostRanks, INT32_MAX));
  entry.nodes = bounded_integer(object, "nodes", 1, entry.ranks);
  if (entry.ranks > kMaxGpusPerNode * entry.nodes) {
    object.fail("ranks",
                format("found {} on {}, expected at most {} on each", entry.ranks,
                       counted(entry.nodes, "node"), kMaxGpusPerNode),
                "out_of_range");
  }
  if (object.has("ranks_per_process")) {
    entry.launch.ranks_per_process = bounded_integer(object, "ranks_per_process", 1, entry.ranks);
  }
  entry.launch.as_group = object.optional_boolean("as_group").value_or(false);
  if (object.has("environment")) entry.environment = object.strings("environment");
  entry.machine = read_machine(object.object("machine"), entry.nodes);
  entry.line = read_line(object.object("constants"));
  if (auto provenance = object.optional_object("provenance")) read_provenance(*provenance, entry);
  if (auto residuals = object.optional_object("residuals")) {
    expect_keys(*residuals, {"fitted", "held_out"});
    entry.fitted_residuals = read_residuals(residuals->object("fitted"));
    if (auto held_out = residuals->optional_object("held_out")) {
      entry.held_out_residuals = read_residuals(*held_out);
    }
  }
  return entry;
}

constexpr std::array kLayouts = {GemmLayout::TN, GemmLayout::NN, GemmLayout::NT};
std::string_view layout_name(GemmLayout layout) {
  constexpr std::array<std::string_view, kLayouts.size()> kNames = {"TN", "NN", "NT"};
  return kNames[static_cast<std::size_t>(layout)];
}

double bounded_number(JsonObject& object, const std::string& key, double least, double most) {
  const double number = object.number(key);
  if (number >= least && number <= most) return number;
  object.fail(key, format("found {}, expected a number from {} to {}", number, least, most),
              "out_of_range");
}

/// [m, n, k, "TN", permille]
std::optional<MeasuredProduct> read_measured_product(const JsonValue& value) {
  constexpr Json::ArrayIndex kLayout = 3, kParts = 5;
  constexpr int kWhole = 1000;
  if (!value.isArray() || value.size() != kParts || !value[kLayout].isString()) return {};
  for (const Json::ArrayIndex i : {0U, 1U, 2U, 4U}) {
    if (!value[i].isInt() || value[i].asInt() < 1) return {};
  }
  const std::string name = value[kLayout].asString();
  const auto* const layout = std::find_if(kLayouts.begin(), kLayouts.end(), [&](GemmLayout known) {
    return layout_name(known) == name;
  });
  if (layout == kLayouts.end() || value[4].asInt() > kWhole) return {};
  return MeasuredProduct{value[0].asInt(), value[1].asInt(), value[2].asInt(), *layout,
                         value[4].asInt()};
}

CalibratedProducts read_products(JsonObject object) {
  constexpr double kLargestK0 = 1e4;
  expect_keys(object, {"e0", "k0", "p64", "fp32_accumulate", "measured"});
  CalibratedProducts products;
  products.e0 = bounded_number(object, "e0", 0.01, 1);
  products.k0 = bounded_number(object, "k0", 0, kLargestK0);
  products.p64 = bounded_number(object, "p64", 0.1, 1);
  products.fp32_accumulate = bounded_number(object, "fp32_accumulate", 0.1, 2);
  if (!object.has("measured")) return products;
  const JsonValue& measured = object.raw("measured");
  if (!measured.isArray()) object.fail("measured", "found no list, expected measured products");
  products.measured.reserve(measured.size());
  for (const JsonValue& value : measured) {
    const std::optional<MeasuredProduct> product = read_measured_product(value);
    if (!product) {
      throw ConfigError(
          object.document().location(value),
          format(R"({}: expected [m, n, k, "TN" or "NN" or "NT", permille of peak], whole numbers )"
                 "from 1",
                 object.path_of("measured")));
    }
    products.measured.push_back(*product);
  }
  return products;
}

CalibratedAttention read_attention(JsonObject object) {
  constexpr double kMost = 1e5;  // TFLOPS
  expect_keys(object, {"head64", "head128", "head192", "tail"});
  const auto rate = [&](const std::string& key) {
    return object.has(key) ? FlopsPerSecond(bounded_number(object, key, 1e-3, kMost) * 1e12)
                           : FlopsPerSecond(0);
  };
  CalibratedAttention attention;
  attention.head64 = rate("head64");
  attention.head128 = rate("head128");
  attention.head192 = rate("head192");
  attention.tail = bounded_number(object, "tail", 0, 100);
  return attention;
}

KernelResiduals read_kernel_residuals(JsonObject object) {
  expect_keys(object, {"shapes", "median", "p90", "worst"});
  return {bounded_integer(object, "shapes", 1, INT32_MAX), object.number("median"),
          object.number("p90"), object.number("worst")};
}

/// The table that an entry was fitted to, and how well.
template <typename Entry, typename Residuals>
void read_origin(JsonObject& object, Entry& entry, Residuals (*read_residuals)(JsonObject)) {
  if (auto provenance = object.optional_object("provenance")) {
    expect_keys(*provenance, {"table", "hold_out"});
    entry.table = provenance->string("table");
    entry.hold_out = provenance->optional_string("hold_out").value_or("");
  }
  if (auto residuals = object.optional_object("residuals")) {
    expect_keys(*residuals, {"fitted", "held_out"});
    entry.fitted = read_residuals(residuals->object("fitted"));
    if (auto held_out = residuals->optional_object("held_out")) {
      entry.held_out = read_residuals(std::move(*held_out));
    }
  }
}

CalibratedKernels read_kernels(JsonObject object) {
  expect_keys(object, {"gpu", "products", "attention_forward", "attention_backward", "provenance",
                       "residuals"});
  CalibratedKernels entry;
  entry.gpu = one_of(object, "gpu", gpu_names(), "GPU");
  if (auto products = object.optional_object("products")) {
    entry.products = read_products(std::move(*products));
  }
  if (auto forward = object.optional_object("attention_forward")) {
    entry.forward = read_attention(std::move(*forward));
  }
  if (auto backward = object.optional_object("attention_backward")) {
    entry.backward = read_attention(std::move(*backward));
  }
  read_origin(object, entry, read_kernel_residuals);
  return entry;
}

RunResiduals read_run_residuals(JsonObject object) {
  expect_keys(object, {"rows", "median", "p90", "worst"});
  return {bounded_integer(object, "rows", 1, INT32_MAX), object.number("median"),
          object.number("p90"), object.number("worst")};
}

CalibratedHost read_host(JsonObject object) {
  constexpr double kLeastFactor = 0.01;
  constexpr double kMostFactor = 100;
  constexpr Seconds kLongestHook{1};
  expect_keys(object, {"interpreter", "deepspeed_hook", "provenance", "residuals"});
  CalibratedHost host;
  host.interpreter = bounded_number(object, "interpreter", kLeastFactor, kMostFactor);
  if (object.has("deepspeed_hook")) {
    host.deepspeed_hook = bounded_time(object, "deepspeed_hook", Seconds(0), kLongestHook);
  }
  read_origin(object, host, read_run_residuals);
  return host;
}

void check_version(JsonObject& root) {
  const std::int64_t version = root.integer("version");
  if (version == kVersion) return;
  root.fail("version", format("found version {}, expected {}, which is all that this zerosim reads",
                              version, kVersion));
}

// Writing.

std::string time_text(Seconds time) {
  return format("{:.4f}us", time.count() * 1e6);
}

std::string rate_text(BytesPerSecond rate) {
  return format("{:.4f}GB/s", rate.gb_per_second());
}

JsonValue machine_json(const CalibratedCollective& entry) {
  JsonValue json(Json::objectValue);
  json["name"] = entry.machine.name;
  json["gpu"] = entry.machine.gpu;
  json["intra"] = std::string(intra_node_name(entry.machine.intra));
  if (entry.nodes > 1) {
    json["nics"] = entry.machine.nics;
    json["nic_bandwidth"] = rate_text(entry.machine.nic_bandwidth);
    if (entry.machine.network) json["network"] = std::string(to_string(*entry.machine.network));
  }
  return json;
}

JsonValue constants_json(const CollectiveLine& line) {
  JsonValue json(Json::objectValue);
  json["floor"] = time_text(line.floor);
  json["bend"] = time_text(line.bend);
  json["exponent"] = line.exponent;
  json["bandwidth"] = rate_text(line.bandwidth);
  return json;
}

JsonValue provenance_json(const CalibratedCollective& entry) {
  JsonValue json(Json::objectValue);
  const auto put = [&](const char* key, const std::string& text) {
    if (!text.empty()) json[key] = text;
  };
  json["log"] = entry.log;
  put("source", entry.source);
  put("nccl_version", entry.nccl_version);
  put("hold_out", entry.hold_out);
  JsonValue& fitted = json["fitted"] = JsonValue(Json::arrayValue);
  for (const std::string& name : entry.fitted) fitted.append(name);
  return json;
}

JsonValue residuals_json(const LineResiduals& residuals) {
  JsonValue json(Json::objectValue);
  JsonValue& sizes = json["sizes"] = JsonValue(Json::arrayValue);
  for (const Bytes size : residuals.sizes) {
    sizes.append(JsonValue(static_cast<Json::Int64>(size.count())));
  }
  JsonValue& errors = json["errors"] = JsonValue(Json::arrayValue);
  for (const double error : residuals.errors) errors.append(error);
  json["median"] = residuals.median;
  json["p90"] = residuals.p90;
  json["worst"] = residuals.worst;
  return json;
}

JsonValue collective_json(const CalibratedCollective& entry) {
  JsonValue json(Json::objectValue);
  json["operation"] = std::string(to_string(entry.operation));
  json["ranks"] = entry.ranks;
  json["nodes"] = entry.nodes;
  if (entry.launch.ranks_per_process > 1) {
    json["ranks_per_process"] = entry.launch.ranks_per_process;
  }
  if (entry.launch.as_group) json["as_group"] = true;
  for (const std::string& setting : entry.environment) json["environment"].append(setting);
  json["machine"] = machine_json(entry);
  json["constants"] = constants_json(entry.line);
  if (!entry.log.empty()) json["provenance"] = provenance_json(entry);
  if (!entry.fitted_residuals.sizes.empty()) {
    json["residuals"]["fitted"] = residuals_json(entry.fitted_residuals);
  }
  if (!entry.held_out_residuals.sizes.empty()) {
    json["residuals"]["held_out"] = residuals_json(entry.held_out_residuals);
  }
  return json;
}

JsonValue products_json(const CalibratedProducts& products) {
  JsonValue json(Json::objectValue);
  json["e0"] = products.e0;
  json["k0"] = products.k0;
  json["p64"] = products.p64;
  json["fp32_accumulate"] = products.fp32_accumulate;
  for (const MeasuredProduct& product : products.measured) {
    JsonValue entry(Json::arrayValue);
    for (const std::int32_t size : {product.m, product.n, product.k}) entry.append(size);
    entry.append(std::string(layout_name(product.layout)));
    entry.append(product.permille);
    json["measured"].append(std::move(entry));
  }
  return json;
}

JsonValue attention_json(const CalibratedAttention& attention) {
  JsonValue json(Json::objectValue);
  const auto put = [&](const char* key, FlopsPerSecond rate) {
    if (rate.per_second() > 0) json[key] = rate.per_second() / 1e12;
  };
  put("head64", attention.head64);
  put("head128", attention.head128);
  put("head192", attention.head192);
  json["tail"] = attention.tail;
  return json;
}

JsonValue kernel_residuals_json(const KernelResiduals& residuals) {
  JsonValue json(Json::objectValue);
  json["shapes"] = residuals.shapes;
  json["median"] = residuals.median;
  json["p90"] = residuals.p90;
  json["worst"] = residuals.worst;
  return json;
}

JsonValue kernels_json(const CalibratedKernels& entry) {
  JsonValue json(Json::objectValue);
  json["gpu"] = entry.gpu;
  if (entry.products) json["products"] = products_json(*entry.products);
  if (entry.forward) json["attention_forward"] = attention_json(*entry.forward);
  if (entry.backward) json["attention_backward"] = attention_json(*entry.backward);
  if (!entry.table.empty()) json["provenance"]["table"] = entry.table;
  if (!entry.hold_out.empty()) json["provenance"]["hold_out"] = entry.hold_out;
  if (entry.fitted.shapes > 0) json["residuals"]["fitted"] = kernel_residuals_json(entry.fitted);
  if (entry.held_out.shapes > 0) {
    json["residuals"]["held_out"] = kernel_residuals_json(entry.held_out);
  }
  return json;
}

JsonValue run_residuals_json(const RunResiduals& residuals) {
  JsonValue json(Json::objectValue);
  json["rows"] = residuals.rows;
  json["median"] = residuals.median;
  json["p90"] = residuals.p90;
  json["worst"] = residuals.worst;
  return json;
}

JsonValue host_json(const CalibratedHost& host) {
  JsonValue json(Json::objectValue);
  json["interpreter"] = host.interpreter;
  if (host.deepspeed_hook) json["deepspeed_hook"] = time_text(*host.deepspeed_hook);
  if (!host.table.empty()) json["provenance"]["table"] = host.table;
  if (!host.hold_out.empty()) json["provenance"]["hold_out"] = host.hold_out;
  if (host.fitted.rows > 0) json["residuals"]["fitted"] = run_residuals_json(host.fitted);
  if (host.held_out.rows > 0) json["residuals"]["held_out"] = run_residuals_json(host.held_out);
  return json;
}

}  // namespace

Seconds CollectiveLine::delay(Bytes sent) const {
  const double mebibytes = static_cast<double>(sent.count()) / (1 << 20);
  const double bent = bend.count() * std::pow(mebibytes, exponent);
  // Of the larger of the two: neither overflows nor vanishes.
  const double larger = std::max(floor.count(), bent);
  if (larger <= 0) return Seconds(0);
  const double ratio = std::min(floor.count(), bent) / larger;
  return Seconds(larger * std::pow(1 + ratio * ratio * ratio * ratio, 0.25));
}

MeasuredMachine measured_machine(const Cluster& cluster, int nodes) {
  MeasuredMachine machine;
  machine.name = cluster.name;
  machine.gpu = cluster.node.gpu;
  machine.intra = cluster.intra();
  if (nodes > 1) {
    machine.nics = nics_in_use(cluster);
    machine.nic_bandwidth = cluster.node.nic_bandwidth;
    machine.network = cluster.node.network;
  }
  return machine;
}

std::string out_of_bounds(const CalibratedCollective& entry) {
  const auto told = [](const char* constant, const std::string& wrong) {
    return wrong.empty() ? "" : format("{}: {}", constant, wrong);
  };
  const CollectiveLine& line = entry.line;
  for (const std::string& wrong :
       {told("floor", wrong_time(line.floor, kLeastFloor)),
        told("bend", wrong_time(line.bend, Seconds(0))),
        told("exponent", wrong_exponent(line.exponent)),
        told("bandwidth", wrong_rate(line.bandwidth)),
        told("ranks", entry.ranks > kMaxGpusPerNode * entry.nodes
                          ? format("found {} on {}", entry.ranks, counted(entry.nodes, "node"))
                          : "")}) {
    if (!wrong.empty()) return wrong;
  }
  return "";
}

CollectiveLine rounded(const CollectiveLine& line) {
  CollectiveLine read;
  read.floor = parse_seconds(time_text(line.floor));
  read.bend = parse_seconds(time_text(line.bend));
  read.exponent = std::round(line.exponent * 1e4) / 1e4;
  read.bandwidth = parse_bytes_per_second(rate_text(line.bandwidth));
  return read;
}

CalibratedHost rounded(CalibratedHost host) {
  host.interpreter = std::round(host.interpreter * 1e4) / 1e4;
  if (host.deepspeed_hook) host.deepspeed_hook = parse_seconds(time_text(*host.deepspeed_hook));
  return host;
}

Calibration parse_calibration(std::string text, const std::string& file) {
  const JsonDocument document = JsonDocument::from_text(std::move(text), file);
  JsonObject root(document, document.root(), "");
  if (root.has("version")) check_version(root);  // first: another version may have other keys
  expect_keys(root, {"version", "collectives", "kernels", "host"});
  check_version(root);
  Calibration calibration;
  calibration.file = file;
  if (root.has("collectives") || !(root.has("kernels") || root.has("host"))) {
    for (JsonObject& object : root.objects("collectives")) {
      calibration.collectives.push_back(read_collective(std::move(object)));
    }
  }
  if (root.has("kernels")) {
    for (JsonObject& object : root.objects("kernels")) {
      calibration.kernels.push_back(read_kernels(std::move(object)));
    }
  }
  if (root.has("host")) calibration.host = read_host(root.object("host"));
  if (calibration.empty()) root.fail("collectives", "found none, expected one at least");
  return calibration;
}

Calibration read_calibration(const std::string& path) {
  return parse_calibration(read_file(path), path);
}

std::string calibration_text(const Calibration& calibration) {
  return to_text(calibration_json(calibration)) + "\n";
}

JsonValue calibration_json(const Calibration& calibration) {
  JsonValue json(Json::objectValue);
  json["version"] = kVersion;
  JsonValue& entries = json["collectives"] = JsonValue(Json::arrayValue);
  for (const CalibratedCollective& entry : calibration.collectives) {
    entries.append(collective_json(entry));
  }
  for (const CalibratedKernels& entry : calibration.kernels) {
    json["kernels"].append(kernels_json(entry));
  }
  if (calibration.host) json["host"] = host_json(*calibration.host);
  return json;
}

}  // namespace zerosim
