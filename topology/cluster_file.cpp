#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/text.h"
#include "topology/cluster.h"
#include "topology/fabric_file.h"
#include "topology/json_reading.h"
#include "topology/nccl_graph.h"
#include "topology/nccl_paths.h"
#include "topology/node_file.h"
#include "topology/node_graph.h"
#include "topology/perturbation_file.h"
#include "topology/presets/machines.h"

namespace zerosim {
namespace {

/// A cluster as a preset or a file states it, before the node is built.
struct Description {
  std::string name;
  NodeDescription node;
  int nodes = 1;
  int gpus_per_node = 0;  ///< 0: all
  Fabric fabric;
  double price_per_gpu_hour = 0;
  std::vector<std::string> assumptions;
  SourceLocation nodes_place;  ///< for messages: where `nodes` stands
  SourceLocation gpus_per_node_place;
  std::optional<JsonObject> file;  ///< for what depends on the rest: fabric, perturbations
};

/// Reads one cluster file into a Description.
class FileReader {
 public:
  explicit FileReader(JsonDocument document)
      : document_(std::move(document)), root_(document_, document_.root(), "") {
    description_.name = std::filesystem::path(document_.file()).stem().string();
  }

  Description read() {
    expect_keys(root_, {"version", "name", "node", "nodes", "gpus_per_node", "fabric",
                        "perturbations", "jitter", "price_per_gpu_hour", "assumptions"});
    read_version();
    if (root_.has("name")) description_.name = root_.string("name");
    description_.node = read_node(root_.object("node"), description_.name);
    description_.assumptions = std::move(description_.node.assumptions);
    if (root_.has("assumptions")) {
      for (std::string& sentence : root_.strings("assumptions")) assume(std::move(sentence));
    }
    description_.fabric.nvlink_domain_nodes = description_.node.machine.nvlink_domain_nodes;
    read_counts();
    if (root_.has("price_per_gpu_hour")) read_price();
    description_.file = root_;
    return std::move(description_);
  }

 private:
  void assume(std::string sentence) { description_.assumptions.push_back(std::move(sentence)); }

  void read_version() {
    const std::int64_t version = root_.integer("version");
    if (version != 1) root_.fail("version", format("found {}, expected 1", version));
  }

  void read_counts() {
    description_.nodes_place = place("nodes");
    description_.gpus_per_node_place = place("gpus_per_node");
    if (root_.has("nodes")) {
      description_.nodes = bounded_integer(root_, "nodes", 1, kMaxNodes);
    } else {
      description_.nodes = description_.node.machine.nodes;
      assume(format("nodes: {}, as the cluster file does not say", description_.nodes));
    }
    if (root_.has("gpus_per_node")) {
      description_.gpus_per_node = bounded_integer(root_, "gpus_per_node", 1, kMaxGpusPerNode);
    }
  }

  SourceLocation place(const std::string& key) {
    return root_.has(key) ? document_.location(root_.raw(key)) : document_.location(root_.value());
  }

  void read_price() {
    const double price = root_.number("price_per_gpu_hour");
    if (price < 0) root_.fail("price_per_gpu_hour", format("found {}, expected 0 or more", price));
    description_.price_per_gpu_hour = price;
  }

  JsonDocument document_;
  JsonObject root_;
  Description description_;
};

Description read_description(JsonDocument document) {
  return FileReader(std::move(document)).read();
}

Description preset_description(const Machine& machine) {
  Description description;
  description.name = machine.name;
  description.node.machine = machine;
  description.nodes = machine.nodes;
  description.fabric.nvlink_domain_nodes = machine.nvlink_domain_nodes;
  return description;
}

[[noreturn]] void fail_unknown_cluster(const std::string& name) {
  throw ConfigError(format(
      "cluster \"{}\" is neither a preset nor a file{} (`zerosim topo presets` lists the presets)",
      name, did_you_mean(name, machine_names())));
}

Description describe(const std::string& name_or_path) {
  if (const Machine* machine = find_machine(name_or_path)) return preset_description(*machine);
  const std::filesystem::path path(name_or_path);
  std::error_code ignored;
  const bool looks_like_file = path.has_parent_path() || path.extension() == ".json";
  if (!looks_like_file && !std::filesystem::exists(path, ignored)) {
    fail_unknown_cluster(name_or_path);
  }
  return read_description(JsonDocument::from_file(name_or_path));
}

/// -1 stands for a flag that was not given.
void apply_flag(int value, const char* flag, int& target, SourceLocation& place) {
  if (value == -1) return;
  if (value < 1) {
    throw ConfigError(format("{}: found {}, expected an integer of at least 1", flag, value));
  }
  target = value;
  place = {flag, 0, 0};
}

/// An error at a key of the file, or at the flag that replaced it.
[[noreturn]] void fail_at(const SourceLocation& place, const char* key,
                          const std::string& message) {
  const bool is_flag = place.file.starts_with("--");
  throw ConfigError(place, is_flag ? message : format("{}: {}", key, message));
}

void check_counts(const Description& description) {
  const int gpus = description.node.machine.shape.gpus;
  if (description.gpus_per_node > gpus) {
    fail_at(description.gpus_per_node_place, "gpus_per_node",
            format("found {}, expected at most {}, the GPUs of one node ({})",
                   description.gpus_per_node, gpus, description.node.machine.name));
  }
  const std::int64_t world = std::int64_t{description.nodes} * description.gpus_per_node;
  if (world > std::numeric_limits<int>::max()) {
    fail_at(description.nodes_place, "nodes",
            format("found {}, a cluster of {} GPUs is too large", description.nodes, world));
  }
  if (description.nodes > 1 && description.node.machine.shape.nics == 0) {
    fail_at(description.nodes_place, "nodes",
            format("found {}, but the node has no NICs; give node.nics {{count, bandwidth}}",
                   description.nodes));
  }
}

std::string used_gpus_sentence(const Cluster& cluster) {
  const bool kept = cluster.node.intra == IntraNode::NvSwitch;
  const double bus = link_capacity(cluster, LinkClass::Kind::IntraNode).gb_per_second();
  return format("gpus_per_node: the first {} of {} GPUs; rings inside a node {} {:g} GB/s a GPU",
                cluster.gpus_per_node, cluster.node.gpus, kept ? "keep" : "have", bus);
}

std::string settled_sentence(const Cluster& cluster) {
  return format(
      "perturbations: NCCL's rings use {:g} GB/s of every GPU inside a node in place of "
      "{:g}, what the node with most NVLinks lost can carry",
      ring_capacity(cluster.nccl()).gb_per_second(),
      ring_capacity(cluster.node.nccl).gb_per_second());
}

/// 0 for a GPU that is not known.
int compute_capability(const std::string& gpu) {
  return is_simulated_gpu(gpu) ? gpu_spec(gpu).compute_capability : 0;
}

/// Reads the fabric, which must have room for the nodes.
void add_fabric(const Description& description, Cluster& cluster) {
  cluster.fabric = description.fabric;
  cluster.fabric.node_nics = cluster.node.nics;
  if (!description.file || !description.file->value().isMember("fabric")) {
    if (cluster.nodes > 1) {
      cluster.assumptions.emplace_back(
          "fabric: one switch that is no bottleneck between the nodes, as nothing says otherwise");
    }
    return;
  }
  JsonObject file = *description.file;
  const FabricContext context{description.node.machine.network, cluster.node.nics,
                              compute_capability(cluster.node.gpu),
                              description.fabric.nvlink_domain_nodes};
  std::vector<std::string> assumptions;
  JsonObject keys = file.object("fabric");
  cluster.fabric = read_fabric(keys, context, assumptions);
  if (cluster.fabric.nvlink_domain_nodes > 1 && cluster.node.intra != IntraNode::NvSwitch) {
    keys.fail("nvlink_domain_nodes", "NVLink joins nodes by switches only, and this node has none");
  }
  if (cluster.nodes > 1) {
    cluster.assumptions.insert(cluster.assumptions.end(), assumptions.begin(), assumptions.end());
  }
  try {
    static_cast<void>(fabric_network(cluster));
  } catch (const ConfigError& error) {
    const bool by_flag = description.nodes_place.file.starts_with("--");
    throw ConfigError(
        by_flag ? description.nodes_place : file.document().location(file.raw("fabric")),
        error.what());
  }
}

/// Where an efficiency is stated it is what somebody measured, host memory and all.
bool has_usual_sockets(const NodeTemplate& node) {
  return node.nics > 0 && node.network == NetworkKind::Tcp && is_simulated_gpu(node.gpu) &&
         node.nic_efficiency == network_efficiency(node.network, node.nic_bandwidth);
}

Cluster build(Description description) {
  if (description.gpus_per_node == 0)
    description.gpus_per_node = description.node.machine.shape.gpus;
  check_counts(description);
  Cluster cluster;
  cluster.name = description.name;
  cluster.node = make_node(description.node.machine, description.gpus_per_node);
  cluster.node.gpu_memory = description.node.gpu_memory;
  cluster.node.gpu_power_limit = description.node.gpu_power_limit;
  cluster.nodes = description.nodes;
  cluster.gpus_per_node = description.gpus_per_node;
  cluster.price_per_gpu_hour = description.price_per_gpu_hour;
  cluster.assumptions = std::move(description.assumptions);
  if (cluster.node.nics > 0) {
    cluster.used_nics = reachable_nics(cluster.node.graph, cluster.gpus_per_node);
  }
  if (has_usual_sockets(cluster.node)) stage_sockets(cluster);
  add_fabric(description, cluster);
  if (description.node.ring_bandwidth) {
    NcclGraph& nccl = cluster.node.nccl;
    const double nominal = nccl.ring_channels * nccl.ring_channel_gbps;
    nccl.ring_efficiency = description.node.ring_bandwidth->gb_per_second() / nominal;
  }
  cluster.assumptions.push_back(format("cluster {}: {}", cluster.name, cluster.node.source));
  if (description.node.machine.by_links) {
    cluster.assumptions.push_back(format("node.intra.kind: {}, by the links of the used GPUs",
                                         intra_node_name(cluster.node.intra)));
  }
  const bool simulated = is_simulated_gpu(cluster.node.gpu);
  if (simulated) {
    cluster.assumptions.emplace_back(
        "collectives: NCCL 2.30's choice of algorithm and protocol and its latencies, without a "
        "log of this machine");
  }
  if (simulated && cluster.gpus_per_node < cluster.node.gpus) {
    cluster.assumptions.push_back(used_gpus_sentence(cluster));
  }
  const bool by_default = description.node.preset_network && cluster.nodes > 1;
  if (by_default && !description.node.machine.network_assumption.empty()) {
    cluster.assumptions.push_back(description.node.machine.network_assumption);
  }
  if (cluster.nodes > 1 && cluster.used_nics < cluster.node.nics) {
    cluster.assumptions.push_back(
        format("network: the used GPUs reach {} of {} NICs without passing a CPU; only these count",
               cluster.used_nics, cluster.node.nics));
  }
  if (description.file) read_perturbations(*description.file, cluster);
  settle_nccl(cluster);
  if (cluster.settled) cluster.assumptions.push_back(settled_sentence(cluster));
  return cluster;
}

Description describe(const std::string& name_or_path, int nodes, int gpus_per_node) {
  Description description = describe(name_or_path);
  apply_flag(nodes, "--nodes", description.nodes, description.nodes_place);
  apply_flag(gpus_per_node, "--gpus-per-node", description.gpus_per_node,
             description.gpus_per_node_place);
  return description;
}

/// For a simulation.
Cluster build_simulated(Description description) {
  const std::string& gpu = description.node.machine.gpu;
  if (!is_simulated_gpu(gpu)) {
    throw ConfigError(format(
        "cluster {}: its GPUs ({}) are not NVIDIA's, and RCCL is not modelled; `zerosim topo "
        "show` draws it, nothing simulates it",
        description.name, gpu));
  }
  return build(std::move(description));
}

}  // namespace

Cluster load_cluster(const std::string& name_or_path, int nodes, int gpus_per_node) {
  return build_simulated(describe(name_or_path, nodes, gpus_per_node));
}

Cluster load_topology(const std::string& name_or_path, int nodes, int gpus_per_node) {
  return build(describe(name_or_path, nodes, gpus_per_node));
}

Cluster parse_cluster(std::string text, const std::string& file) {
  return build_simulated(read_description(JsonDocument::from_text(std::move(text), file)));
}

}  // namespace zerosim
