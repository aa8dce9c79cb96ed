#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A command line that must end in one line on stderr that holds all of `parts`.
struct BadInput {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<std::string> parts;
};

std::ostream& operator<<(std::ostream& out, const BadInput& input) {
  return out << input.name;
}

/// `zerosim compare` for GPT-2 on four GPUs, and more.
std::vector<std::string> compare(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"compare",     "--model",         "gpt2", "--cluster",
                                    "dgx-a100-80", "--gpus-per-node", "4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string topo_data(const std::string& name) {
  return std::string(ZEROSIM_TEST_DATA) + "/topo/" + name;
}

class BadInputTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, IsOneClearErrorAndExitCode2) {
  const Outcome outcome = run_zerosim(GetParam().arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.error, StartsWith("zerosim: error: "));
  EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  for (const std::string& part : GetParam().parts) EXPECT_THAT(outcome.error, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, BadInputTest,
    ::testing::Values(
        BadInput{
            "missing_file", compare({"--ds-config", "no_such_file.json"}), {"no_such_file.json"}},
        BadInput{"broken_file",
                 compare({"--ds-config", cli_data("ds_broken.json")}),
                 {"ds_broken.json:"}},
        BadInput{
            "unknown_gpu",
            {"compare", "--model", "gpt2", "--cluster", cli_data("cluster_with_unknown_gpu.json")},
            {"cluster_with_unknown_gpu.json:4:", "A100-SXM4-81", "A100-SXM4-80"}},
        BadInput{"misspelt_option_of_the_allocator",
                 compare({"--env", cli_data("misspelt_option.env")}),
                 {"misspelt_option.env:2:33: ", "\"max_split_size\"", "\"max_split_size_mb\"?"}},
        BadInput{"unknown_algorithm_of_nccl",
                 compare({"--env", cli_data("unknown_algorithm.env")}),
                 {"unknown_algorithm.env:2:26: NCCL_ALGO: found \"Tre\"", "\"tree\"?"}},
        BadInput{"no_environment",
                 compare({"--env", cli_data("no_assignment.env")}),
                 {"no_assignment.env:2:1: found \"module load cuda\"", "NAME=VALUE"}},
        BadInput{"missing_environment", compare({"--env", "no_such.env"}), {"no_such.env"}},
        BadInput{"environment_of_a_formula",
                 {"memory", "--params", "7e9", "--env", "no_such.env"},
                 {"--env needs --model and --cluster"}},
        BadInput{"plot_of_a_formula",
                 {"memory", "--params", "7e9", "--plot"},
                 {"--plot needs --model and --cluster"}},
        BadInput{"job_without_a_model",
                 {"explain-oom", "--strategies", "zero9", "--micro-batch", "abc"},
                 {"needs --model"}},
        BadInput{"batch_of_a_formula",
                 {"memory", "--params", "7e9", "--micro-batch", "4"},
                 {"--micro-batch needs --model and --cluster"}},
        BadInput{
            "plot_of_the_estimators",
            {"memory", "--model", "gpt2", "--cluster", "dgx-a100-80", "--like-deepspeed", "--plot"},
            {"--plot has no meaning with --like-deepspeed"}},
        BadInput{"timeline_of_the_paper",
                 {"memory", "--params", "7e9", "--accounting", "paper", "--timeline", "t.csv"},
                 {"--timeline has no meaning with --accounting paper"}},
        BadInput{"plot_in_json",
                 {"memory", "--model", "gpt2", "--cluster", "dgx-a100-80", "--strategies", "zero1",
                  "--plot", "--json"},
                 {"--plot draws text", "without --json"}},
        BadInput{"stage_of_a_replay",
                 {"memory", "--model", "gpt2", "--cluster", "dgx-a100-80", "--stage", "2"},
                 {"--stage needs --like-deepspeed"}},
        BadInput{"plot_of_two_strategies",
                 {"memory", "--model", "gpt2", "--cluster", "dgx-a100-80", "--strategies",
                  "zero1,zero2", "--plot"},
                 {"--plot: found 2 strategies", "one --ds-config or one of --strategies"}},
        BadInput{"timeline_that_cannot_be_opened",
                 {"memory", "--model", "gpt2", "--cluster", "dgx-a100-80", "--strategies", "zero1",
                  "--timeline", "/no_such_folder/timeline.csv"},
                 {"/no_such_folder/timeline.csv: cannot be opened for writing"}},
        BadInput{"unknown_cluster",
                 {"compare", "--model", "gpt2", "--cluster", "dgx-a100-8"},
                 {"dgx-a100-8", "dgx-a100-80"}},
        BadInput{"import_for_an_unknown_gpu",
                 {"topo", "import", topo_data("dgx1_v100.txt"), "--gpu", "A100-SXM-80"},
                 {"unknown GPU \"A100-SXM-80\"", "\"A100-SXM4-80\"?"}},
        BadInput{"import_that_needs_a_gpu",
                 {"topo", "import", topo_data("hgx_h20_8nic.txt")},
                 {"hgx_h20_8nic.txt:2:10: NV18", "give --gpu, one of H100-SXM5-80"}},
        BadInput{"import_with_a_bare_rate",
                 {"topo", "import", topo_data("dgx1_v100.txt"), "--nic-bandwidth", "200"},
                 {"--nic-bandwidth: \"200\"", "such as \"400Gb/s\""}},
        BadInput{"import_of_a_graph_file",
                 {"topo", "import", topo_data("azure_ncv4-graph.xml")},
                 {"azure_ncv4-graph.xml:1:1: found <graphs>", "--graph"}},
        BadInput{"import_into_no_folder",
                 {"topo", "import", topo_data("dgx1_v100.txt"), "-o", "/no_such_folder/c.json"},
                 {"/no_such_folder/c.json: cannot be opened for writing"}},
        BadInput{"unknown_form",
                 {"topo", "show", "--cluster", "dgx-h100", "--as", "matirx"},
                 {"--as: found \"matirx\", expected tree or matrix", "\"matrix\"?"}},
        BadInput{"drawn_only",
                 {"compare", "--model", "gpt2", "--cluster", "mi300x-node"},
                 {"MI300X-192", "RCCL is not modelled", "topo show"}},
        BadInput{"no_recording",
                 {"validate", "schedule", cli_data("tiny_llama.json")},
                 {"tiny_llama.json", "kind: missing, expected a recording"}},
        BadInput{"missing_recording", {"validate", "schedule", "no_such.json"}, {"no_such.json"}},
        BadInput{"missing_recordings",
                 {"validate", "schedule", "no_such.json", cli_data("tiny_llama.json")},
                 {"no_such.json", "; ", "tiny_llama.json:1:1: kind: missing"}},
        BadInput{"overflow_steps_of_a_recording",
                 {"validate", "schedule", "no_such.json", "--overflow-steps", "-1"},
                 {"--overflow-steps: found \"-1\"", "at least 0"}},
        BadInput{"unknown_model", {"model", "--model", "llama-2-8b"}, {"llama-2-8b", "llama-2-7b"}},
        BadInput{"misspelt_fold",
                 compare({"--fold", "of"}),
                 {"--fold: found \"of\", expected on, exact or off; did you mean"}},
        BadInput{"misspelt_collectives",
                 compare({"--collectives", "steped"}),
                 {"--collectives: found \"steped\", expected fluid or stepped", "\"stepped\"?"}},
        BadInput{"folded_steps",
                 compare({"--collectives", "stepped", "--fold", "on"}),
                 {"--fold on: with --collectives stepped every rank is simulated; expected off"}},
        BadInput{"links_of_no_model",
                 {"topo", "show", "--cluster", "dgx-h100", "--links", "--strategies", "zero3"},
                 {"--model is missing"}},
        BadInput{"links_of_two_strategies",
                 {"topo", "show", "--cluster", "dgx-h100", "--links", "--model", "gpt2",
                  "--strategies", "zero2,zero3"},
                 {"found 2 strategies, expected one"}},
        BadInput{"a_step_without_links",
                 {"topo", "show", "--cluster", "dgx-h100", "--classes", "--seq", "512"},
                 {"--seq has no meaning without --links"}},
        BadInput{
            "rank_that_is_not_there",
            {"schedule", "--model", "gpt2", "--world", "4", "--strategies", "zero2", "--rank", "4"},
            {"--rank: found \"4\"", "at most 3"}},
        BadInput{"unknown_strategy", compare({"--strategies", "ddp,zreo2"}), {"zreo2", "zero2"}},
        BadInput{"batch_triple",
                 compare({"--ds-config", cli_data("ds_wrong_triple.json")}),
                 {"ds_wrong_triple.json:", "100", "8", "4"}},
        BadInput{"negative_size",
                 compare({"--ds-config", cli_data("ds_negative_size.json")}),
                 {"ds_negative_size.json:6:", "reduce_bucket_size", "-5"}},
        BadInput{"no_hidden_size",
                 {"model", "--model", cli_data("llama_without_hidden_size.json")},
                 {"llama_without_hidden_size.json", "hidden_size"}},
        BadInput{"no_nodes", compare({"--nodes", "0"}), {"--nodes: found \"0\"", "at least 1"}},
        BadInput{"no_nodes_by_alias",
                 compare({"--num_nodes", "0"}),
                 {"--nodes: found \"0\"", "at least 1"}},
        BadInput{"no_gpus",
                 {"compare", "--model", "gpt2", "--cluster", "dgx-a100-80", "--num_gpus=0"},
                 {"--gpus-per-node: found \"0\"", "at least 1"}},
        BadInput{"more_gpus_than_a_node_has",
                 {"compare", "--model", "gpt2", "--cluster", "dgx-a100-80", "--gpus-per-node", "9"},
                 {"9", "8"}},
        BadInput{"negative_micro_batch",
                 compare({"--micro-batch", "-4"}),
                 {"--micro-batch: found \"-4\"", "at least 1"}},
        BadInput{"no_tokens", compare({"--seq", "0"}), {"--seq: found \"0\"", "at least 1"}},
        BadInput{"no_accumulation",
                 compare({"--grad-accum", "0"}),
                 {"--grad-accum: found \"0\"", "at least 1"}},
        BadInput{"huge_sequence",
                 compare({"--seq", "99999999999999999999"}),
                 {"--seq: found \"99999999999999999999\"", "at most"}},
        BadInput{"negative_parameters",
                 {"memory", "--params", "-7e9"},
                 {"--params: found \"-7e9\"", "at least 1"}},
        BadInput{"parameters_with_a_suffix",
                 {"memory", "--params", "7B"},
                 {"--params: found \"7B\"", "whole number"}},
        BadInput{"unknown_precision",
                 {"memory", "--params", "7e9", "--precision", "bf61"},
                 {"--precision", "bf61", "bf16"}},
        BadInput{"unknown_checkpointing",
                 compare({"--activation-checkpointing", "ful"}),
                 {"--activation-checkpointing", "ful", "full"}},
        BadInput{"unknown_optimizer",
                 compare({"--optimizer", "adamw_fuse"}),
                 {"--optimizer", "adamw_fuse", "adamw_fused"}},
        BadInput{"unknown_version",
                 compare({"--strategies", "zero1", "--deepspeed-version", "9"}),
                 {"--deepspeed-version", "9", "0.19"}},
        BadInput{"unknown_torch_version",
                 compare({"--torch-version", "1.12"}),
                 {"--torch-version: found \"1.12\"", "1.13 or 2"}},
        BadInput{"no_dots_only_version",
                 compare({"--torch-version", "2..4"}),
                 {"--torch-version: found \"2..4\""}},
        BadInput{"unknown_weights",
                 compare({"--ddp-weights", "bf61"}),
                 {"--ddp-weights", "bf61", "bf16"}},
        BadInput{"weights_of_another_type",
                 compare({"--ddp-weights", "bf16", "--precision", "fp16", "--strategies", "ddp"}),
                 {"--ddp-weights: found bf16", "computes in fp16"}},
        BadInput{"negative_bucket_cap",
                 compare({"--ddp-bucket-cap-mb=-1"}),
                 {"--ddp-bucket-cap-mb", "-1"}},
        BadInput{"both_kinds_of_sync",
                 compare({"--no-sync", "--sync-each-batch"}),
                 {"--no-sync and --sync-each-batch are both given"}},
        BadInput{"unknown_config_mode",
                 compare({"--config-as", "atuo"}),
                 {"--config-as", "atuo", "auto"}}),
    [](const ::testing::TestParamInfo<BadInput>& input) { return input.param.name; });

}  // namespace
}  // namespace zerosim::testing
