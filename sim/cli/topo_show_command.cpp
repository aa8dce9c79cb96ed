#include <algorithm>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/output.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"
#include "sim/report/topology_text.h"

namespace zerosim {

namespace {

class TopoShowCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    add_cluster_flags(app, flags_);
    app.add_option("--as", as_, "The node as a tree (default) or as a matrix like nvidia-smi's");
    app.add_flag("--assumptions", list_assumptions_, "Sources and defaults");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    check_form();
    const Cluster cluster = required_topology(flags_);
    const TopologySummary summary = summarize(cluster);
    if (json_) {
      print(topology_json(cluster, summary));
    } else {
      print(text(cluster, summary));
    }
    return kYes;
  }

 private:
  void check_form() const {
    static const std::vector<std::string> kForms = {"tree", "matrix"};
    if (std::find(kForms.begin(), kForms.end(), as_) != kForms.end()) return;
    throw ConfigError(
        format("--as: found \"{}\", expected tree or matrix{}", as_, did_you_mean(as_, kForms)));
  }

  [[nodiscard]] std::string text(const Cluster& cluster, const TopologySummary& summary) const {
    std::string out = heading(cluster) + "\n";
    out += as_ == "tree" ? topology_tree(cluster) : topology_matrix(cluster);
    out += "\n" + topology_summary(cluster, summary);
    if (!list_assumptions_) return out;
    out += "\nAssumptions\n";
    for (const std::string& sentence : cluster.assumptions) {
      out += wrap(sentence, kReportColumns, "  - ");
    }
    return out;
  }

  [[nodiscard]] static std::string heading(const Cluster& cluster) {
    std::string text = format("{}: {} of {} x {}", cluster.name,
                              cluster.nodes == 1 ? "1 node" : format("{} nodes", cluster.nodes),
                              cluster.node.gpus, cluster.node.gpu);
    if (cluster.gpus_per_node < cluster.node.gpus) {
      text += format(", {} of them used", cluster.gpus_per_node);
    }
    return wrap(text, kReportColumns);
  }

  ExperimentFlags flags_;
  std::string as_ = "tree";
  bool list_assumptions_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_topo_show_command() {
  return std::make_unique<TopoShowCommand>();
}

}  // namespace zerosim
