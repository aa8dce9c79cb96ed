#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::HasSubstr;

TEST(Usage, VersionGoesToStdout) {
  const Outcome outcome = run_zerosim({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "zerosim " ZEROSIM_VERSION "\n");
}

class HelpTest : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(HelpTest, HasAnExample) {
  std::vector<std::string> arguments = GetParam();
  std::string command = "zerosim";
  for (const std::string& word : arguments) command += " " + word;
  arguments.emplace_back("--help");
  const Outcome outcome = run_zerosim(arguments);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.out, HasSubstr("Example:\n  " + command));
  EXPECT_THAT(outcome.out, HasSubstr("-h,--help  ")) << "a flag that takes no value";
}

INSTANTIATE_TEST_SUITE_P(
    Commands, HelpTest,
    ::testing::Values(std::vector<std::string>{"model"}, std::vector<std::string>{"memory"},
                      std::vector<std::string>{"schedule"}, std::vector<std::string>{"run"},
                      std::vector<std::string>{"compare"}, std::vector<std::string>{"explain-oom"},
                      std::vector<std::string>{"validate", "memory"},
                      std::vector<std::string>{"topo", "import"},
                      std::vector<std::string>{"topo", "presets"},
                      std::vector<std::string>{"topo", "show"}));

struct Misuse {
  std::vector<std::string> arguments;
  std::string message;  ///< what stderr holds
};

class MisuseTest : public ::testing::TestWithParam<Misuse> {};

TEST_P(MisuseTest, IsOneLineAndExitCode2) {
  const Outcome outcome = run_zerosim(GetParam().arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error, "zerosim: error: " + GetParam().message + "\n");
}

INSTANTIATE_TEST_SUITE_P(
    Flags, MisuseTest,
    ::testing::Values(
        Misuse{{},
               "`zerosim` needs a command: model, check, memory, schedule, run, compare, "
               "explain-oom, calibrate, validate, "
               "topo"},
        Misuse{{"comprae"},
               "`zerosim` knows no command \"comprae\"; did you mean \"compare\"?; expected model, "
               "check, memory, schedule, run, compare, explain-oom, calibrate, validate, topo"},
        Misuse{{"validate"},
               "`zerosim validate` needs a command: cases, collectives, kernels, memory, runs, "
               "schedule"},
        Misuse{{"memory", "--parms", "7e9"},
               "unknown flag --parms of `zerosim memory`; did you mean \"--params\"?"},
        Misuse{{"memory", "--parms=7e9"},
               "unknown flag --parms of `zerosim memory`; did you mean \"--params\"?"},
        Misuse{{"compare", "--seq"}, "--seq: 1 required VALUE missing"},
        Misuse{{"topo", "import"},
               "a file is missing; expected e.g. `nvidia-smi topo -m | zerosim topo import - -o "
               "node.json`"},
        Misuse{{"topo", "import", "nothing.txt"},
               "nothing.txt: cannot read: No such file or directory"},
        Misuse{{"memory", "7e9"}, "unexpected argument \"7e9\""},
        Misuse{{"memory"}, "--params or --model is missing; expected e.g. --params 7e9"},
        Misuse{{"compare", "--cluster", "dgx-a100-80"},
               "--model is missing; expected a preset's name (`zerosim model --list`), a Hugging "
               "Face config.json or a module listing"},
        Misuse{{"compare", "--model", "llama-2-7b"},
               "--cluster is missing; expected a preset's name (`zerosim topo presets`) or a "
               "cluster file"},
        Misuse{{"schedule", "--model", "gpt2", "--strategies", "zero1"},
               "--world is missing; expected the number of ranks, or --cluster"},
        Misuse{{"schedule", "--model", "gpt2", "--strategies", "zero1", "--gpus-per-node", "4"},
               "--nodes and --gpus-per-node need --cluster; without one, give --world"},
        Misuse{{"schedule", "--model", "gpt2", "--world", "2", "--strategies", "zero1,zero2"},
               "found 2 strategies, expected one --ds-config or one of --strategies"},
        Misuse{{"schedule", "--model", "gpt2", "--world", "2", "--strategies", "zero1", "--ops",
                "some"},
               "--ops: found \"some\", expected collectives or all"},
        Misuse{{"memory", "--model", "gpt2", "--world", "8"},
               "--world needs --accounting paper; give --cluster to replay a step"},
        Misuse{{"memory", "--params", "7e9", "--cluster", "dgx-a100-80"},
               "--cluster needs --model: a step is replayed for a model, not for --params"},
        Misuse{{"memory", "--params", "7e9", "--accounting", "papre"},
               "--accounting: found \"papre\", expected paper"},
        Misuse{{"memory", "--like-deepspeed", "--params", "7e9"},
               "--largest-layer is missing; expected the parameters of the largest module"}));

}  // namespace
}  // namespace zerosim::testing
