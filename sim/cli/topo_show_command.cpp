#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/cluster_ranks.h"
#include "sim/analysis/memory_report.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/output.h"
#include "sim/engine/collective_call.h"
#include "sim/program/build.h"
#include "sim/report/folding_text.h"
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
    app.add_flag("--classes", classes_,
                 "Ranks and links that behave alike and are simulated once, and what sets the "
                 "others apart");
    app.add_option(
        "--strategies", flags_.strategies,
        "With --classes: whose communicators to look at (default: all ranks, each node)");
    app.add_option("--ds-config", flags_.ds_configs, "As --strategies, a DeepSpeed file");
    app.add_option(
        "--model", flags_.model,
        "With --strategies: what is trained (default: gpt2; communicators are the same)");
    app.add_flag("--assumptions", list_assumptions_, "Sources and defaults");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    check_form();
    const Cluster cluster = required_topology(flags_);
    const TopologySummary summary = summarize(cluster);
    const std::optional<Classes> classes = classes_of(cluster);
    if (json_) {
      JsonValue json = topology_json(cluster, summary);
      if (classes) json["classes"] = folding_json(classes->folding, classes->names);
      print(json);
    } else {
      print(text(cluster, summary, classes));
    }
    return kYes;
  }

 private:
  /// What is simulated once, and what its parts are called.
  struct Classes {
    Folding folding;
    FoldingNames names;
  };

  void check_form() const {
    static const std::vector<std::string> kForms = {"tree", "matrix"};
    if (std::find(kForms.begin(), kForms.end(), as_) != kForms.end()) return;
    throw ConfigError(
        format("--as: found \"{}\", expected tree or matrix{}", as_, did_you_mean(as_, kForms)));
  }

  [[nodiscard]] std::optional<Classes> classes_of(const Cluster& cluster) const {
    const bool has_strategy = !flags_.strategies.empty() || !flags_.ds_configs.empty();
    if (!classes_) {
      if (has_strategy || !flags_.model.empty()) {
        throw ConfigError(
            "--strategies, --ds-config and --model: have no meaning without --classes");
      }
      return std::nullopt;
    }
    if (!is_simulated_gpu(cluster.node.gpu)) {
      throw ConfigError(format("--classes: {} is not simulated, it has no classes", cluster.name));
    }
    return has_strategy ? classes_of_strategy(cluster) : classes_of_nodes(cluster);
  }

  /// All ranks, and those of each node.
  [[nodiscard]] static Classes classes_of_nodes(const Cluster& cluster) {
    const int world = cluster.world_size();
    Classes classes;
    std::vector<GroupPattern> patterns{{world, 1}};
    classes.names.groups = {"all ranks"};
    if (cluster.nodes > 1 && cluster.gpus_per_node > 1) {
      patterns.push_back({cluster.gpus_per_node, 1});
      classes.names.groups.emplace_back("node");
    }
    const std::vector<RankRun> runs = runs_by_micro_batch(cluster, classes.names.micro_batches);
    classes.folding = fold(cluster, runs, patterns, FoldMode::Exact);
    return classes;
  }

  /// One program for each size of micro batch.
  [[nodiscard]] static std::vector<RankRun> runs_by_micro_batch(const Cluster& cluster,
                                                                std::vector<std::int64_t>& sizes) {
    std::vector<RankRun> runs;
    for (const GpuRun& run : gpu_runs(cluster)) {
      const auto known = std::find(sizes.begin(), sizes.end(), run.micro_batch);
      runs.push_back({run.first, run.count, static_cast<int>(known - sizes.begin())});
      if (known == sizes.end()) sizes.push_back(run.micro_batch);
    }
    return runs;
  }

  [[nodiscard]] Classes classes_of_strategy(const Cluster& cluster) const {
    const Program program = program_of(cluster);
    Classes classes;
    for (const RankProgram& rank : program.ranks) {
      const std::optional<GpuRun> run = gpu_run_of(cluster, rank.representative);
      classes.names.micro_batches.push_back(run ? run->micro_batch : 0);
    }
    for (const ProcessGroup& group : program.groups) classes.names.groups.push_back(group.name);
    classes.folding = fold(cluster, rank_runs(program), group_patterns(program), FoldMode::Exact);
    return classes;
  }

  [[nodiscard]] Program program_of(const Cluster& cluster) const {
    ExperimentFlags flags = flags_;
    if (flags.model.empty()) flags.model = "gpt2";
    std::vector<std::string> assumptions;
    const Model model = required_model(flags);
    const BatchShape batch = batch_shape(flags, model, assumptions);
    BuildOptions options;
    options.world_size = cluster.world_size();
    options.pieces = LocalPieces::Each;
    options.variants = rank_variants(cluster, kContextMemory.cuda);
    options.routing = routing_of(flags, model, assumptions);
    const std::vector<Strategy> strategies =
        load_strategies(flags, model, options.world_size, {}, assumptions);
    if (strategies.size() != 1) {
      throw ConfigError(
          format("found {} strategies, expected one --ds-config or one of --strategies",
                 strategies.size()));
    }
    return build_program(model, strategies.front(), batch_of(batch, strategies.front()), options);
  }

  [[nodiscard]] std::string text(const Cluster& cluster, const TopologySummary& summary,
                                 const std::optional<Classes>& classes) const {
    std::string out = heading(cluster) + "\n";
    out += as_ == "tree" ? topology_tree(cluster) : topology_matrix(cluster);
    out += "\n" + topology_summary(cluster, summary);
    if (classes) {
      out += "\n" + folding_text(classes->folding, classes->names);
      if (cluster.must_not_fold()) {
        out += wrap(
            "jitter or hashed flows: every rank is simulated; these are the classes before that",
            kReportColumns);
      }
    }
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
  bool classes_ = false;
  bool list_assumptions_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_topo_show_command() {
  return std::make_unique<TopoShowCommand>();
}

}  // namespace zerosim
