#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/analysis/cluster_ranks.h"
#include "sim/analysis/memory_report.h"
#include "sim/analysis/report.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/output.h"
#include "sim/engine/collective_call.h"
#include "sim/engine/engine.h"
#include "sim/program/build.h"
#include "sim/report/folding_text.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"
#include "sim/report/topology_text.h"
#include "sim/report/traffic_text.h"

namespace zerosim {

namespace {

class TopoShowCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app_ = &app;
    add_model_flags(app, flags_);
    add_cluster_flags(app, flags_);
    add_batch_flags(app, flags_);
    add_routing_flags(app, flags_);
    add_strategy_flags(app, flags_);
    add_accounting_flag(app, flags_);
    add_environment_flag(app, flags_);
    add_simulation_flags(app, flags_);
    app.add_option("--as", as_, "The node as a tree (default) or as a matrix like nvidia-smi's");
    app.add_flag("--classes", classes_,
                 "Ranks and links that behave alike and are simulated once, and what sets the "
                 "others apart; for the communicators of all ranks and of each node, or those of "
                 "one of --strategies or a --ds-config");
    app.add_flag("--links", links_,
                 "Simulates a step as `run` does, with its flags, and shows what each class of "
                 "links carries in it");
    app.add_flag("--assumptions", list_assumptions_, "Sources and defaults");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    check_form();
    check_flags();
    const Cluster cluster = required_topology(flags_);
    const TopologySummary summary = summarize(cluster);
    const std::optional<Classes> classes = classes_of(cluster);
    if (links_) simulate();
    if (json_) {
      JsonValue json = topology_json(cluster, summary);
      if (classes) json["classes"] = classes_json(*classes);
      if (links_) json["links"] = traffic_json(run_.timeline);
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
    std::string model;                     ///< of a strategy's program
    std::vector<std::string> assumptions;  ///< of that program
  };

  void check_form() const {
    static const std::vector<std::string> kForms = {"tree", "matrix"};
    if (std::find(kForms.begin(), kForms.end(), as_) != kForms.end()) return;
    throw ConfigError(
        format("--as: found \"{}\", expected tree or matrix{}", as_, did_you_mean(as_, kForms)));
  }

  void check_flags() const {
    if (links_) return;
    std::set<std::string> read = {"help", "cluster", "nodes",       "gpus-per-node",
                                  "as",   "classes", "assumptions", "json"};
    if (!classes_) return refuse_other_flags(*app_, read, "has no meaning without --links");
    read.insert({"strategies", "ds-config", "model"});
    refuse_other_flags(*app_, read, "has no meaning without --links");
  }

  /// A step as `run` has it.
  void simulate() {
    const GivenExperiment given = required_experiment(flags_);
    const std::vector<Strategy> strategies = load_strategies(flags_, given, {});
    check_one(strategies);
    const SimulationOptions options = simulation_options(flags_);
    Engine engine(given.experiment.cluster);
    step_ = simulate_strategy(given.experiment, strategies.front(), engine, options, &run_);
  }

  static void check_one(const std::vector<Strategy>& strategies) {
    if (strategies.size() == 1) return;
    throw ConfigError(format("found {} strategies, expected one --ds-config or one of --strategies",
                             strategies.size()));
  }

  [[nodiscard]] std::optional<Classes> classes_of(const Cluster& cluster) const {
    const bool has_strategy = !flags_.strategies.empty() || !flags_.ds_configs.empty();
    if (!classes_) return std::nullopt;
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
    Classes classes;
    const Program program = program_of(cluster, classes);
    for (const RankProgram& rank : program.ranks) {
      const std::optional<GpuRun> run = gpu_run_of(cluster, rank.representative);
      classes.names.micro_batches.push_back(run ? run->micro_batch : 0);
    }
    for (const ProcessGroup& group : program.groups) classes.names.groups.push_back(group.name);
    classes.folding = fold(cluster, rank_runs(program), group_patterns(program), FoldMode::Exact);
    return classes;
  }

  [[nodiscard]] Program program_of(const Cluster& cluster, Classes& classes) const {
    ExperimentFlags flags = flags_;
    std::vector<std::string>& assumptions = classes.assumptions;
    if (flags.model.empty()) {
      flags.model = "gpt2";
      assumptions.emplace_back("model gpt2: --model is not given; another may have other classes");
    }
    const Model model = required_model(flags);
    classes.model = model.name;
    const BatchShape batch = batch_shape(flags, model, assumptions);
    BuildOptions options;
    options.world_size = cluster.world_size();
    options.pieces = LocalPieces::Each;
    options.variants = rank_variants(cluster, kContextMemory.cuda);
    options.routing = routing_of(flags, model, assumptions);
    const std::vector<Strategy> strategies =
        load_strategies(flags, model, options.world_size, {}, assumptions);
    check_one(strategies);
    return build_program(model, strategies.front(), batch_of(batch, strategies.front()), options);
  }

  [[nodiscard]] std::string text(const Cluster& cluster, const TopologySummary& summary,
                                 const std::optional<Classes>& classes) const {
    std::string out = heading(cluster) + "\n";
    out += as_ == "tree" ? topology_tree(cluster) : topology_matrix(cluster);
    out += "\n" + topology_summary(cluster, summary);
    if (classes) {
      out += "\n" + folding_text(classes->folding, classes->names);
      if (!classes->model.empty()) {
        out += wrap(format("classes of {}{}", classes->model,
                           flags_.model.empty() ? ", as --model is not given" : ""),
                    kReportColumns);
      }
      if (cluster.must_not_fold()) {
        out += wrap(
            "jitter or hashed flows: every rank is simulated; these are the classes before that",
            kReportColumns);
      }
    }
    if (links_) {
      out += format("\n{} ({})\n", step_.name, to_string(step_.verdict));
      out += traffic_text(run_.timeline);
    }
    if (!list_assumptions_) return out;
    out += "\nAssumptions\n";
    const std::vector<std::string>& own = links_ ? step_.assumptions : cluster.assumptions;
    const std::vector<std::string> of_classes =
        classes ? classes->assumptions : std::vector<std::string>();
    for (const std::string& sentence : merged({own, of_classes})) {
      out += wrap(sentence, kReportColumns, "  - ");
    }
    return out;
  }

  [[nodiscard]] static JsonValue classes_json(const Classes& classes) {
    JsonValue json = folding_json(classes.folding, classes.names);
    if (classes.model.empty()) return json;
    json["model"] = classes.model;
    JsonValue& assumptions = json["assumptions"] = JsonValue(Json::arrayValue);
    for (const std::string& sentence : classes.assumptions) assumptions.append(sentence);
    return json;
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
  const CLI::App* app_ = nullptr;
  bool classes_ = false;
  bool links_ = false;
  StrategyReport step_;  ///< with --links
  SimulatedRun run_;
  bool list_assumptions_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_topo_show_command() {
  return std::make_unique<TopoShowCommand>();
}

}  // namespace zerosim
