#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "sim/analysis/cluster_ranks.h"
#include "sim/analysis/explain_oom.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"
#include "sim/cli/experiment_flags.h"
#include "sim/cli/output.h"
#include "sim/report/oom_text.h"

namespace zerosim {

namespace {

/// A log as it was given: a file, else standard input unless that is a terminal.
struct Log {
  std::string name = "stdin";
  std::string text;
};

Log read_log(const std::string& file) {
  if (!file.empty()) return {file, read_file(file)};
  if (isatty(STDIN_FILENO) != 0) return {};
  return {"stdin", {std::istreambuf_iterator<char>(std::cin), {}}};
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

bool is_answered(const OomExplanation& explanation) {
  return explanation.simulated_fits ||
         std::any_of(explanation.ways_out.begin(), explanation.ways_out.end(),
                     [](const WayOut& way) { return way.is_enough; });
}

/// Apart, as a share of what the GPU has.
double distance(Bytes message, Bytes gpu) {
  return std::abs(message.gib() - gpu.gib()) / gpu.gib();
}

/// Which of the cluster's GPUs the message is of: that of its rank, else the kind that is nearest
/// to it.
std::string kind_of_message(const OomMessage& message, const Cluster& cluster) {
  if (message.rank) {
    if (const auto run = gpu_run_of(cluster, Rank(*message.rank))) return run->kind;
  }
  if (!message.total) return cluster.node.gpu;
  const std::vector<GpuRun> runs = gpu_runs(cluster);
  const auto nearest =
      std::min_element(runs.begin(), runs.end(), [&](const GpuRun& a, const GpuRun& b) {
        return distance(message.total->bytes, gpu_memory_of(cluster, a.kind)) <
               distance(message.total->bytes, gpu_memory_of(cluster, b.kind));
      });
  return nearest->kind;
}

/// Where the message cannot be of the job's cluster. \param cluster  as given, not as the message
/// has it.
void add_contradictions(const OomMessage& message, const Cluster& cluster,
                        std::vector<std::string>& hints) {
  // Vendors' GB are 10^9 bytes or 2^30, 7.4 % more: a V100 of 16 GB has 14.9 GiB by the first and
  // reports 15.78. What a driver reserves is less.
  constexpr double kApart = 0.075;
  const std::string kind = kind_of_message(message, cluster);
  const Bytes given = gpu_memory_of(cluster, kind);
  if (message.total && distance(message.total->bytes, given) > kApart) {
    std::string hint = format(
        "The message is of a GPU of {:.2f} GiB, those of the cluster have {:.2f}: another "
        "--cluster?",
        message.total->bytes.gib(), given.gib());
    if (kind == cluster.node.gpu) hint += " The message's is used.";
    hints.push_back(std::move(hint));
  }
  if (message.rank && *message.rank >= cluster.world_size()) {
    hints.push_back(format(
        "The message is of rank {}, the job has {} ranks: check --nodes and --gpus-per-node.",
        *message.rank, cluster.world_size()));
  }
  if (message.device >= cluster.gpus_per_node) {
    hints.push_back(
        format("The message is of GPU {}, the job uses {} of a node: check --gpus-per-node.",
               message.device, cluster.gpus_per_node));
  }
}

class ExplainOomCommand : public Command {
 public:
  void add_flags(CLI::App& app) override {
    app_ = &app;
    app.add_option("file", file_,
                   "A log with PyTorch's out-of-memory message (default: standard input; nothing "
                   "there: what fails in the simulation is explained)");
    add_model_flags(app, flags_);
    add_cluster_flags(app, flags_);
    add_batch_flags(app, flags_);
    add_routing_flags(app, flags_);
    add_strategy_flags(app, flags_);
    add_environment_flag(app, flags_);
    add_calibration_flag(app, flags_);
    app.add_flag("--no-times", no_times_, "Do not simulate what each way out costs in step time");
    app.add_flag("--json", json_, "JSON");
  }

  int run() override {
    const Log log = read_log(file_);
    OomReport report;
    if (!is_blank(log.text)) report.messages = parse_oom_messages(log.text, log.name);
    const bool has_job = !flags_.model.empty();
    if (!has_job) refuse_other_flags(*app_, {"no-times", "json", "help"}, "needs --model");
    if (report.messages.empty() && !has_job) {
      throw ConfigError(format(
          "{}: found nothing, expected a log with an out-of-memory message, or --model, --cluster "
          "and a configuration to explain what fails in the simulation",
          log.name));
    }
    const OomFigures figures =
        report.messages.empty() ? OomFigures() : figures_of(report.messages.front());
    if (has_job) {
      explain_with_job(figures, report);
    } else {
      explain_alone(figures, report);
    }
    print(report);
    return !has_job || is_answered(report.explanation) ? kYes : kNo;
  }

 private:
  void print(const OomReport& report) const {
    if (!json_) {
      zerosim::print(oom_text(report));
      return;
    }
    JsonValue json = oom_json(report);
    add_inputs(json, flags_);
    zerosim::print(json);
  }

  static void explain_alone(const OomFigures& figures, OomReport& report) {
    report.explanation = explain_oom(figures);
    report.hints.emplace_back(
        "With the job (--model, --cluster, --ds-config or --strategies, --micro-batch, --seq) the "
        "buffer, its phase, what filled the rest and the ways out can be told.");
  }

  void explain_with_job(const OomFigures& figures, OomReport& report) const {
    GivenExperiment given = required_experiment(flags_);
    if (!report.messages.empty()) {
      add_contradictions(report.messages.front(), given.experiment.cluster, report.hints);
    }
    // What the message says of the GPU is nearer than what its kind has.
    Cluster& cluster = given.experiment.cluster;
    if (figures.total && (report.messages.empty() ||
                          kind_of_message(report.messages.front(), cluster) == cluster.node.gpu)) {
      cluster.node.gpu_memory = figures.total->bytes;
    }
    const std::vector<Strategy> strategies = load_strategies(flags_, given, {});
    if (strategies.size() != 1) {
      throw ConfigError(format(
          "found {} strategies, expected one --ds-config or one of --strategies: that of the job",
          strategies.size()));
    }
    report.strategy = strategies.front().name;
    report.explanation =
        explain_oom(figures, given.experiment, strategies.front(), /*timed=*/!no_times_);
    if (report.explanation.match == OomMatch::NotFound) {
      report.hints.emplace_back(
          "Check --seq, --micro-batch, --precision, --optimizer, --activation-checkpointing and "
          "--no-flash-attention: what differs from the job changes the sizes.");
    }
  }

  const CLI::App* app_ = nullptr;  ///< to see what was given
  ExperimentFlags flags_;
  std::string file_;
  bool no_times_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_explain_oom_command() {
  return std::make_unique<ExplainOomCommand>();
}

}  // namespace zerosim
