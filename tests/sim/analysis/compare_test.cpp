// From a model, a cluster and strategies to the report, end to end. Each test runs in a child: one
// process has one engine.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/analysis/advice.h"
#include "sim/analysis/isolate.h"
#include "sim/analysis/memory_report.h"
#include "sim/analysis/report.h"
#include "sim/base/text.h"
#include "sim/engine/engine.h"

namespace zerosim {
namespace {

using ::testing::HasSubstr;

/// A Llama of four blocks.
Model small_llama() {
  return parse_model(R"({"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
                         "vocab_size": 32000, "num_hidden_layers": 4, "num_attention_heads": 16,
                         "num_key_value_heads": 16, "max_position_embeddings": 2048,
                         "tie_word_embeddings": false})",
                     "small_llama/config.json");
}

Experiment experiment_of(const Model& model, const std::string& cluster, int nodes, int gpus,
                         std::int64_t sequence) {
  Experiment experiment{model, load_cluster(cluster, nodes, gpus), {}, {}, {}};
  experiment.batch.sequence = sequence;
  return experiment;
}

std::vector<Strategy> strategies_of(const std::vector<std::string>& names,
                                    const TrainingFlags& flags, int world_size) {
  std::vector<Strategy> strategies;
  for (const std::string& name : names)
    strategies.push_back(named_strategy(name, flags, world_size));
  return strategies;
}

/// Runs `checks` in a child; what it returns but "" is a failure.
void isolated(const std::function<std::string()>& checks) {
  EXPECT_EQ(run_isolated(checks), "");
}

std::string unless(bool condition, const std::string& complaint) {
  return condition ? "" : complaint + "\n";
}

bool near(double a, double b, double relative = 1e-12) {
  return std::abs(a - b) <= relative * std::max(std::abs(a), std::abs(b));
}

std::string check_time(const StrategyReport& report) {
  const TimeReport& time = report.time;
  const Seconds sum = time.compute + time.exposed_communication + time.host + time.optimizer;
  return unless(near(sum.count(), time.step.count()),
                format("{}: the parts sum to {}, the step takes {}", report.name, sum.count(),
                       time.step.count())) +
         unless(time.compute > Seconds(0) && time.optimizer > Seconds(0) &&
                    time.host >= Seconds(0) && time.exposed_communication >= Seconds(0),
                report.name + ": a part is negative") +
         unless(time.exposed_communication <= time.step,
                report.name + ": more exposed than there is") +
         unless(time.forward > Seconds(0) && time.backward > time.forward,
                format("{}: forward {}, backward {}", report.name, time.forward.count(),
                       time.backward.count()));
}

std::string check_memory(const StrategyReport& report) {
  const MemoryReport& memory = report.memory;
  const Bytes classes = memory.parameters + memory.gradients + memory.optimizer_states +
                        memory.activations + memory.temporary_buffers + memory.live_parameters;
  return unless(classes == memory.steady_allocated,
                format("{}: classes sum to {}, the peak of a steady step is {}", report.name,
                       classes.count(), memory.steady_allocated.count())) +
         unless(memory.after_step < memory.steady_allocated &&
                    memory.steady_allocated <= memory.peak_allocated &&
                    memory.peak_allocated <= memory.peak_reserved,
                report.name + ": peaks are not in order") +
         unless(memory.capacity > Bytes(), report.name + ": no capacity");
}

std::string check_rates(const StrategyReport& report, const Experiment& experiment,
                        const Strategy& strategy) {
  // tokens/s = T x s / step; TFLOPS = (6 N + 12 L h s) x tokens/s / GPUs / 1e12
  const ModelShape& shape = experiment.model.shape;
  const auto sequence = static_cast<double>(experiment.batch.sequence);
  const double flops = 6.0 * static_cast<double>(parameter_count(experiment.model)) +
                       12.0 * static_cast<double>(shape.layers * shape.hidden) * sequence;
  const double tokens =
      static_cast<double>(strategy.train_batch) * sequence / report.time.step.count();
  const double tflops = flops * tokens / experiment.cluster.world_size() / 1e12;
  return unless(near(report.throughput.tokens_per_s, tokens), report.name + ": tokens/s") +
         unless(near(report.throughput.tflops_per_gpu, tflops), report.name + ": TFLOPS") +
         unless(near(report.throughput.mfu, tflops / 312),
                report.name + ": MFU against 312 TFLOPS");
}

std::string check(const Experiment& experiment, const std::vector<Strategy>& strategies,
                  const Comparison& comparison) {
  std::string complaints;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const StrategyReport& report = comparison.strategies[i];
    complaints +=
        check_time(report) + check_memory(report) + check_rates(report, experiment, strategies[i]);
  }
  return complaints;
}

struct Case {
  std::int64_t micro_batch;
  std::int64_t grad_accum;
  ActivationCheckpointing checkpointing;
  int nodes;
  int gpus;
};

class EveryStage : public ::testing::TestWithParam<Case> {};

TEST_P(EveryStage, SumsHold) {
  isolated([&] {
    const Case& with = GetParam();
    const Experiment experiment =
        experiment_of(small_llama(), "dgx-a100-80", with.nodes, with.gpus, 512);
    TrainingFlags flags;
    flags.micro_batch = with.micro_batch;
    flags.grad_accum = with.grad_accum;
    flags.checkpointing = with.checkpointing;
    const std::vector<Strategy> strategies =
        strategies_of({"ddp", "zero0", "zero1", "zero2", "zero3"}, flags, with.nodes * with.gpus);
    const Comparison comparison = compare(experiment, strategies);
    return check(experiment, strategies, comparison) +
           unless(comparison.sentences.size() >= 2, "too few sentences");
  });
}

INSTANTIATE_TEST_SUITE_P(Batches, EveryStage,
                         ::testing::Values(Case{1, 1, ActivationCheckpointing::None, 1, 4},
                                           Case{4, 1, ActivationCheckpointing::Full, 1, 8},
                                           Case{2, 3, ActivationCheckpointing::None, 1, 2},
                                           Case{2, 2, ActivationCheckpointing::Full, 2, 8}));

TEST(Compare, VolumeAsDeepSpeedIssuesIt) {
  // F2, G = 1: DDP and stage 0 2 Psi, stages 1 and 2 3 Psi. Padding, control collectives and norms
  // change the fourth digit.
  isolated([] {
    const Experiment experiment = experiment_of(small_llama(), "dgx-a100-80", 1, 4, 512);
    const Comparison comparison =
        compare(experiment, strategies_of({"ddp", "zero0", "zero1", "zero2"}, {}, 4));
    const double expected[] = {2, 2, 3, 3};
    std::string complaints;
    for (std::size_t i = 0; i < comparison.strategies.size(); ++i) {
      const StrategyReport& report = comparison.strategies[i];
      complaints += unless(near(report.communication.psi, expected[i], 1e-3),
                           format("{} sends {} Psi", report.name, report.communication.psi));
    }
    return complaints;
  });
}

TEST(Compare, Stage3WithoutReuseSendsThreePsi) {
  // No persistent parameters, no reuse, no prefetch: a gather for forward, one for backward, a
  // reduce-scatter. Only the last module fetched in forward may still be there.
  isolated([] {
    const Experiment experiment = experiment_of(small_llama(), "dgx-a100-80", 1, 4, 512);
    Strategy strategy = named_strategy("zero3", {}, 4);
    strategy.zero.param_persistence_threshold = 0;
    strategy.zero.max_reuse_distance = 0;
    strategy.zero.max_live_parameters = 0;
    strategy.zero.prefetch_bucket_size = 0;
    const Comparison comparison = compare(experiment, {strategy});
    const double psi = comparison.strategies[0].communication.psi;
    return unless(psi > 2.5 && psi < 3.01, format("{} Psi", psi));
  });
}

TEST(Compare, OneGpuHasNoCommunication) {
  isolated([] {
    const Experiment experiment = experiment_of(small_llama(), "dgx-a100-80", 1, 1, 512);
    const Comparison comparison = compare(experiment, strategies_of({"single", "zero3"}, {}, 1));
    std::string complaints;
    for (const StrategyReport& report : comparison.strategies) {
      complaints += unless(report.time.exposed_communication == Seconds(0),
                           report.name + " waits for communication") +
                    unless(report.communication.bytes_sent_per_rank == Bytes(),
                           report.name + " sends bytes") +
                    check_time(report);
    }
    return complaints;
  });
}

TEST(Compare, MoreAccumulationAtStage3GathersEachMicroBatch) {
  isolated([] {
    const Experiment experiment = experiment_of(small_llama(), "dgx-a100-80", 1, 4, 512);
    TrainingFlags four;
    four.grad_accum = 4;
    const Comparison comparison =
        compare(experiment, {named_strategy("zero3", {}, 4), named_strategy("zero3", four, 4)});
    const double ratio =
        comparison.strategies[1].communication.psi / comparison.strategies[0].communication.psi;
    return unless(ratio > 3.5 && ratio < 4.1, format("{} times the volume", ratio));
  });
}

TEST(Compare, SaysWhatHelpsWhereNothingFits) {
  // Llama-2-7B without sharding on A100-40: 16 x 6.7e9 B are more than twice the GPU.
  isolated([] {
    const Experiment experiment =
        experiment_of(load_model("llama-2-7b"), "dgx-a100-40", 1, 2, 2048);
    const Comparison comparison = compare(experiment, strategies_of({"ddp", "zero1"}, {}, 2));
    std::string text;
    for (const std::string& sentence : comparison.sentences) text += sentence + "\n";
    return unless(text.find("Nothing fits on 2 x A100-SXM4-40: the smallest, zero1, needs ") == 0,
                  text) +
           unless(text.find("GPUs (") != std::string::npos, "no number of GPUs in: " + text);
  });
}

TEST(WaysOut, LeastNumberOfGpusIsTheLeast) {
  const Experiment experiment = experiment_of(load_model("llama-2-7b"), "dgx-a100-40", 1, 2, 2048);
  const Strategy strategy = named_strategy("zero3", {}, 2);
  ASSERT_EQ(verdict_of(replayed_memory(experiment, strategy)), Verdict::DoesNotFit);
  for (const WayOut& way : ways_out(experiment, strategy)) {
    if (!way.is_enough) continue;
    EXPECT_NE(verdict_of(*way.memory), Verdict::DoesNotFit) << way.change;
    if (way.change.find(" GPUs") == std::string::npos) continue;
    const int gpus = std::stoi(way.change);
    ASSERT_GT(gpus, 2);
    ASSERT_LE(gpus, 8);
    Experiment fewer = experiment;
    fewer.cluster.gpus_per_node = gpus - 1;
    EXPECT_EQ(verdict_of(replayed_memory(fewer, strategy)), Verdict::DoesNotFit) << way.change;
  }
}

}  // namespace
}  // namespace zerosim
