#include "topology/node_graph_file.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/json_reading.h"

namespace zerosim {
namespace {

constexpr std::int64_t kMostCpus = 64;
constexpr std::int64_t kMostNuma = 1023;

/// The number behind `word` in "cpu3"; -1 if the text is something else.
int number_after(std::string_view text, std::string_view word) {
  if (!text.starts_with(word)) return -1;
  const std::string_view digits = text.substr(word.size());
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : -1;
}

class GraphReader {
 public:
  GraphReader(JsonObject graph, const GpuSpec& gpu, BytesPerSecond nvlink, NodeShape& shape)
      : graph_(std::move(graph)), gpu_(gpu), shape_(shape) {
    if (gpu.nvlink_links > 0) per_link_ = nvlink.per_second() / gpu.nvlink_links;
  }

  void read() {
    expect_keys(graph_, {"cpus", "cpu_link", "c2c", "switches", "gpus", "nics", "nvlinks",
                         "nvswitch_links"});
    shape_.gpus_per_pcie_switch = 0;
    read_cpus();
    if (graph_.has("c2c")) shape_.c2c = positive_rate(graph_, "c2c");
    read_switches();
    read_gpus();
    read_nics();
    if (graph_.has("nvlinks")) read_nvlinks();
    if (graph_.has("nvswitch_links")) read_nvswitch();
  }

 private:
  std::vector<JsonObject> list(const std::string& key, std::int64_t minimum, std::int64_t maximum) {
    std::vector<JsonObject> entries;
    if (graph_.has(key) || minimum > 0) entries = graph_.objects(key);
    const auto count = static_cast<std::int64_t>(entries.size());
    if (count < minimum || count > maximum) {
      graph_.fail(key, format("found {} of them, expected {} to {}", count, minimum, maximum));
    }
    return entries;
  }

  void read_cpus() {
    shape_.sockets = 0;
    for (JsonObject& cpu : list("cpus", 1, kMostCpus)) {
      expect_keys(cpu, {"numa"});
      shape_.cpu_numa.push_back(cpu.has("numa") ? bounded_integer(cpu, "numa", 0, kMostNuma)
                                                : shape_.sockets);
      ++shape_.sockets;
    }
    shape_.socket_link = graph_.has("cpu_link") ? positive_rate(graph_, "cpu_link") : 16_GBps;
  }

  /// What `below` names; only switches that were listed before count.
  HostParent parent(JsonObject& device) {
    const std::string below = device.string("below");
    const int cpu = number_after(below, "cpu");
    if (cpu >= 0 && cpu < shape_.sockets) return {DeviceKind::Cpu, cpu};
    const int listed = static_cast<int>(shape_.switch_parents.size());
    const int pcie_switch = number_after(below, "switch");
    if (pcie_switch >= 0 && pcie_switch < listed) return {DeviceKind::PcieSwitch, pcie_switch};
    device.fail("below",
                format(R"(found "{}", expected "cpu0" to "cpu{}"{})", below, shape_.sockets - 1,
                       listed > 0 ? format(R"( or "switch0" to "switch{}")", listed - 1) : ""));
  }

  BytesPerSecond link(JsonObject& device) {
    return device.has("link") ? positive_rate(device, "link") : shape_.pcie;
  }

  void read_switches() {
    for (JsonObject& entry : list("switches", 0, kMaxGpusPerNode)) {
      expect_keys(entry, {"below", "link"});
      shape_.switch_parents.push_back(parent(entry));
      shape_.switch_links.push_back(link(entry));
    }
  }

  void read_gpus() {
    shape_.gpus = 0;
    for (JsonObject& entry : list("gpus", 1, kMaxGpusPerNode)) {
      expect_keys(entry, {"below", "link"});
      shape_.gpu_parents.push_back(parent(entry));
      shape_.gpu_links.push_back(gpu_link(entry, shape_.gpu_parents.back()));
      ++shape_.gpus;
    }
  }

  BytesPerSecond gpu_link(JsonObject& entry, const HostParent& parent) {
    if (shape_.c2c.per_second() <= 0) return link(entry);
    if (parent.kind != DeviceKind::Cpu) {
      entry.fail("below", "a GPU with C2C hangs from a CPU, expected \"cpu0\" or another");
    }
    if (entry.has("link")) entry.fail("link", "this GPU is joined to its CPU by graph.c2c");
    return shape_.c2c;
  }

  void read_nics() {
    shape_.nics = 0;
    for (JsonObject& entry : list("nics", 0, kMaxGpusPerNode)) {
      expect_keys(entry, {"below", "link", "bandwidth"});
      shape_.nic_parents.push_back(parent(entry));
      shape_.nic_links.push_back(link(entry));
      shape_.nic_ports.push_back(entry.has("bandwidth") ? positive_rate(entry, "bandwidth")
                                                        : BytesPerSecond());
      ++shape_.nics;
    }
  }

  void require_nvlink(const std::string& key) {
    if (gpu_.nvlink_links == 0) graph_.fail(key, format("{} has no NVLink", gpu_.name));
  }

  void read_nvlinks() {
    require_nvlink("nvlinks");
    shape_.nvlink = BytesPerSecond(per_link_);
    std::vector<int> used(static_cast<std::size_t>(shape_.gpus));
    for (JsonObject& entry : graph_.objects("nvlinks")) {
      const NvLinkPair pair = nvlink_pair(entry);
      for (const int gpu : {pair.a, pair.b}) {
        int& sum = used[static_cast<std::size_t>(gpu)];
        sum += pair.links;
        if (sum <= gpu_.nvlink_links) continue;
        entry.fail("links", format("found {} NVLinks at GPU {}, expected at most {} of {}", sum,
                                   gpu, gpu_.nvlink_links, gpu_.name));
      }
      shape_.mesh.push_back(pair);
    }
    if (!shape_.mesh.empty() && shape_.gpus > kMaxMeshGpus) {
      graph_.fail("nvlinks",
                  format("a mesh of {} GPUs, expected at most {}", shape_.gpus, kMaxMeshGpus));
    }
  }

  NvLinkPair nvlink_pair(JsonObject& entry) {
    expect_keys(entry, {"between", "links"});
    const std::vector<std::int64_t> ends = entry.integers("between");
    const auto is_gpu = [&](std::int64_t i) { return i >= 0 && i < shape_.gpus; };
    const bool two = ends.size() == 2 && is_gpu(ends[0]) && is_gpu(ends[1]) && ends[0] != ends[1];
    if (!two) {
      entry.fail("between", format("expected the numbers of two GPUs, 0 to {}", shape_.gpus - 1));
    }
    const auto [a, b] = std::minmax({static_cast<int>(ends[0]), static_cast<int>(ends[1])});
    for (const NvLinkPair& pair : shape_.mesh) {
      if (pair.a == a && pair.b == b) {
        entry.fail("between", format("GPUs {} and {} are joined twice; expected one entry", a, b));
      }
    }
    return {a, b, bounded_integer(entry, "links", 1, gpu_.nvlink_links)};
  }

  void read_nvswitch() {
    require_nvlink("nvswitch_links");
    std::vector<int> links(static_cast<std::size_t>(shape_.gpus));
    if (graph_.raw("nvswitch_links").isArray()) {
      read_links_of_each(links);
    } else {
      const int each = bounded_integer(graph_, "nvswitch_links", 1, gpu_.nvlink_links);
      std::fill(links.begin(), links.end(), each);
    }
    const auto rate = [&](int count) { return BytesPerSecond(count * per_link_); };
    shape_.nvlink = BytesPerSecond(per_link_);
    shape_.nvswitch = rate(*std::max_element(links.begin(), links.end()));
    for (const int count : links) shape_.nvswitch_links.push_back(rate(count));
  }

  void read_links_of_each(std::vector<int>& links) {
    const std::vector<std::int64_t> counts = graph_.integers("nvswitch_links");
    const bool fitting = std::all_of(counts.begin(), counts.end(), [&](std::int64_t count) {
      return count >= 0 && count <= gpu_.nvlink_links;
    });
    if (counts.size() != links.size() || !fitting) {
      graph_.fail("nvswitch_links", format("expected {} numbers, 0 to {}, the NVLinks of each GPU",
                                           links.size(), gpu_.nvlink_links));
    }
    std::transform(counts.begin(), counts.end(), links.begin(),
                   [](std::int64_t count) { return static_cast<int>(count); });
  }

  JsonObject graph_;
  const GpuSpec& gpu_;
  NodeShape& shape_;
  double per_link_ = 0;
};

}  // namespace

void read_node_graph(JsonObject graph, const GpuSpec& gpu, BytesPerSecond nvlink,
                     NodeShape& shape) {
  GraphReader(std::move(graph), gpu, nvlink, shape).read();
}

}  // namespace zerosim
