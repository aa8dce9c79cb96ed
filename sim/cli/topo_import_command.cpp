#include <filesystem>
#include <iostream>
#include <iterator>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/output.h"
#include "sim/report/report_text.h"
#include "topology/cluster.h"
#include "topology/cluster_writer.h"
#include "topology/import.h"
#include "topology/node_file.h"

namespace zerosim {

namespace {

std::string stem_of(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

class TopoImportCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app.add_option("file", file_,
                   "Output of `nvidia-smi topo -m`, or NCCL's topology XML (NCCL_TOPO_DUMP_FILE); "
                   "-: standard input");
    app.add_option("--graph", graph_,
                   "NCCL's graph XML (NCCL_GRAPH_DUMP_FILE): its channels in place of our rule's");
    app.add_option("--gpu", gpu_, "Kind of GPU, where the file does not tell: \"A100-SXM4-80\"");
    app.add_option("--nic-bandwidth", nic_bandwidth_,
                   "Peak of each NIC whose rate the file does not tell: \"200Gb/s\"");
    app.add_option("--name", name_,
                   "What the cluster is called (default: as the file, or as -o names it)");
    app.add_option("-o,--output", output_, "Cluster file to write (default: standard output)");
    app.add_flag("--json", json_, "A report of the import as JSON, the cluster within");
  }

  int run() override {
    if (file_.empty()) {
      throw ConfigError(
          "a file is missing; expected e.g. `nvidia-smi topo -m | zerosim topo import "
          "- -o node.json`");
    }
    const ImportedNode node = import();
    const std::string text = cluster_file_text(node.machine, node.assumptions);
    // Reading it back also checks it.
    const Cluster cluster = parse_cluster(text, output_.empty() ? "imported cluster" : output_);
    if (!output_.empty()) write_file(output_, text);
    if (json_) {
      print(report(cluster, text));
      return kYes;
    }
    for (const std::string& sentence : node.assumptions) std::cerr << "note: " << sentence << '\n';
    print(output_.empty() ? text : summary(cluster));
    return kYes;
  }

 private:
  [[nodiscard]] ImportedNode import() const {
    ImportOptions options;
    options.gpu = gpu_;
    options.name = name_.empty() && file_ == "-" ? stem_of(output_) : name_;
    if (!gpu_.empty()) static_cast<void>(gpu_spec(gpu_));  // a misspelt one fails here
    if (!nic_bandwidth_.empty()) options.nic_bandwidth = nic_bandwidth();
    const bool from_stdin = file_ == "-";
    const std::string text =
        from_stdin ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(file_);
    ImportedNode node = import_topology(text, from_stdin ? "stdin" : file_, options);
    if (!graph_.empty()) apply_nccl_graph(node, read_file(graph_), graph_);
    return node;
  }

  [[nodiscard]] BytesPerSecond nic_bandwidth() const {
    BytesPerSecond rate;
    try {
      rate = parse_bytes_per_second(nic_bandwidth_);
    } catch (const std::invalid_argument& error) {
      throw ConfigError(format("--nic-bandwidth: {}", error.what()));
    }
    if (rate.per_second() <= 0) {
      throw ConfigError("--nic-bandwidth: found a rate of 0, expected a positive one");
    }
    return rate;
  }

  [[nodiscard]] std::string summary(const Cluster& cluster) const {
    std::string nics = "no NICs";
    if (cluster.node.nics > 0) {
      nics = format("{} NICs ({} x {:g} Gb/s in use)", cluster.node.nics, cluster.used_nics,
                    cluster.node.nic_bandwidth.per_second() * 8 / 1e9);
    }
    return format("{}: {} x {}, {}, {}\n", output_, cluster.node.gpus, cluster.node.gpu,
                  intra_node_name(cluster.node.intra), nics);
  }

  static JsonValue report(const Cluster& cluster, const std::string& text) {
    JsonValue json(Json::objectValue);
    json["version"] = kJsonVersion;
    json["name"] = cluster.name;
    json["gpu"] = cluster.node.gpu;
    json["gpus"] = cluster.node.gpus;
    json["intra"] = std::string(intra_node_name(cluster.node.intra));
    json["nics"] = cluster.node.nics;
    json["used_nics"] = cluster.used_nics;
    json["assumptions"] = JsonValue(Json::arrayValue);
    for (const std::string& sentence : cluster.assumptions) json["assumptions"].append(sentence);
    json["cluster"] = JsonDocument::from_text(text, "imported cluster").root();
    return json;
  }

  std::string file_, graph_, gpu_, nic_bandwidth_, name_, output_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_topo_import_command() {
  return std::make_unique<TopoImportCommand>();
}

}  // namespace zerosim
