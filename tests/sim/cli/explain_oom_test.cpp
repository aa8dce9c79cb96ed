#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class ExplainOomCommand : public ::testing::Test {
 protected:
  /// Writes a file of the test.
  [[nodiscard]] std::string log_of(const std::string& name, const std::string& text) const {
    const std::string path = folder_.file("explain_oom_" + name + ".txt");
    std::ofstream(path) << text;
    return path;
  }

 private:
  TemporaryFolder folder_;
};

/// pythia-1b at stage 2 on 2 x A10: 16 sequences are too many, of 1 all fits.
std::vector<std::string> job(const std::string& log, const std::string& micro_batch) {
  return {"explain-oom",     log, "--model",      "pythia-1b", "--cluster",     "a10x4-pcie",
          "--gpus-per-node", "2", "--strategies", "zero2",     "--micro-batch", micro_batch,
          "--no-times"};
}

TEST_F(ExplainOomCommand, ExplainsTheSimulatedFailureWithoutAMessage) {
  const JsonDocument json = zerosim_json(job(log_of("empty", "\n"), "16"));
  const JsonValue& root = json.root();
  EXPECT_THAT(
      root.getMemberNames(),
      UnorderedElementsAre("causes", "evidence", "hints", "inputs", "match", "messages", "request",
                           "simulated_fits", "step", "strategy", "version", "ways_out", "zerosim"));
  EXPECT_EQ(root["match"], "simulated");
  EXPECT_EQ(root["strategy"], "zero2");
  EXPECT_EQ(root["simulated_fits"], false);
  EXPECT_EQ(root["causes"][0], "activations");
  EXPECT_THAT(
      root["request"]["found"].getMemberNames(),
      UnorderedElementsAre("allocated_before", "bytes", "cause", "class", "held_before", "module",
                           "of_this_size_before", "owner", "phase", "rule", "step"));
  ASSERT_GT(root["ways_out"].size(), 0U);
  for (const JsonValue& way : root["ways_out"]) {
    EXPECT_THAT(way.getMemberNames(),
                UnorderedElementsAre("change", "code", "is_enough", "note", "peak_allocated",
                                     "second_code", "setting", "simulated", "step", "verdict"));
  }
}

TEST_F(ExplainOomCommand, SaysSoWhereTheSimulatedJobFits) {
  const Outcome outcome = run_zerosim(job(log_of("empty", ""), "1"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("The job fits in the simulation"));
}

TEST_F(ExplainOomCommand, ExitsWithNoWhereNothingIsEnough) {
  // 3.4 GiB in all, less what context and NCCL take: 2 bytes x 1e9 weights alone are 1.9 GiB.
  const std::string log = log_of(
      "small",
      "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 1.80 GiB total capacity; 1.00 GiB "
      "already allocated; 0 bytes free; 1.00 GiB reserved in total by PyTorch)");
  const Outcome outcome = run_zerosim(job(log, "16"));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("None of the changes tried is enough"));
}

/// An A10 of the preset has 22.5 GiB; two of them are used.
TEST_F(ExplainOomCommand, TellsWhereTheMessageIsNotOfTheCluster) {
  const auto hints = [](const std::string& log) {
    const JsonDocument json = zerosim_json(job(log, "16"));
    std::string all;
    for (const JsonValue& hint : json.root()["hints"]) {
      all += hint.asString() + "\n";
    }
    return all;
  };
  const std::string all = hints(log_of(
      "elsewhere",
      "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 5 "
      "has a total capacity of 39.39 GiB of which 1.00 MiB is free.\n"));
  EXPECT_THAT(all, HasSubstr("The message is of a GPU of 39.39 GiB, those of the cluster have "));
  EXPECT_THAT(all, HasSubstr("The message is of rank 5, the job has 2 ranks: check --nodes and "
                             "--gpus-per-node."));
  EXPECT_THAT(all, HasSubstr("The message is of GPU 5, the job uses 2 of a node: check "
                             "--gpus-per-node."));
  EXPECT_THAT(hints(log_of("here",
                           "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                           "512.00 MiB. GPU 1 has a total capacity of 22.19 GiB of which 1.00 MiB "
                           "is free.\n")),
              Not(HasSubstr("The message is of")));
}

// GPU 1 is an A100 of 39.4 GiB beside those of 79.2: each message is of the GPU of its rank, and
// one without a rank of the one that is near.
TEST_F(ExplainOomCommand, KnowsTheGpusOfAMixedCluster) {
  const std::string cluster = log_of(
      "mixed_cluster",
      R"({"version": 1, "node": {"preset": "dgx-a100-80"}, "gpus_per_node": 4, "perturbations": [{"gpus": 1, "gpu": "A100-SXM4-40"}]})");
  const auto contradicts = [&](const std::string& rank, const std::string& total) {
    std::vector<std::string> arguments =
        job(log_of("mixed", rank +
                                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                                "512.00 MiB. GPU 0 has a total capacity of " +
                                total + " of which 1.00 MiB is free.\n"),
            "16");
    arguments[5] = cluster;
    const JsonDocument json = zerosim_json(arguments);
    for (const JsonValue& hint : json.root()["hints"]) {
      if (hint.asString().find("another --cluster?") != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_FALSE(contradicts("[rank1]: ", "39.39 GiB"));
  EXPECT_TRUE(contradicts("[rank0]: ", "39.39 GiB"));
  EXPECT_TRUE(contradicts("[rank1]: ", "79.15 GiB"));
  EXPECT_FALSE(contradicts("", "39.39 GiB"));
  EXPECT_FALSE(contradicts("", "79.15 GiB"));
  EXPECT_TRUE(contradicts("", "22.19 GiB"));
}

TEST_F(ExplainOomCommand, BadInput) {
  const Outcome nothing = run_zerosim({"explain-oom", log_of("empty", "  \n")});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.error,
              AllOf(HasSubstr("explain_oom_empty.txt: found nothing, expected a log with an "
                              "out-of-memory message, or --model")));

  const Outcome none = run_zerosim({"explain-oom", log_of("none", "step 1\nloss nan\n")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.error, HasSubstr("explain_oom_none.txt: found no out-of-memory message"));

  const Outcome driver =
      run_zerosim({"explain-oom", log_of("driver", "x\nRuntimeError: CUDA error: out of memory")});
  EXPECT_EQ(driver.exit_code, 2);
  EXPECT_THAT(driver.error,
              HasSubstr("explain_oom_driver.txt:2:15: found a driver's error without figures"));

  std::vector<std::string> two = job(log_of("empty", ""), "1");
  two[9] = "zero1,zero2";
  const Outcome strategies = run_zerosim(two);
  EXPECT_EQ(strategies.exit_code, 2);
  EXPECT_THAT(strategies.error, HasSubstr("found 2 strategies, expected one --ds-config or one of "
                                          "--strategies: that of the job"));

  const Outcome missing = run_zerosim({"explain-oom", "no_such.log"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.error, HasSubstr("no_such.log"));
}

}  // namespace
}  // namespace zerosim::testing
