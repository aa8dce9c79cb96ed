#include "validate/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/validate/recordings.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// Line 1: what was run; line 2: the rows of step 0; line 3: the other steps.
const std::string kHead =
    R"({"kind": "ddp", "versions": {"torch": "1.13.0a0"}, "spec": {"world": 2, "model": "mlp", )"
    R"("gas": 1}, "params": [["a", [2, 3], 6, "m"]], "groups": [[0, 1]], "events": {"0": [)";

std::string run(const std::string& rows, const std::string& others = R"("1": [], "2": [])") {
  return kHead + "\n" + rows + "],\n" + others + "}}";
}

std::string error_of(const std::string& text) {
  return test::config_error_of([&] { static_cast<void>(parse_recording(text, "r.json")); });
}

/// With one row that is bad.
std::string row_error(const std::string& row) {
  return error_of(run(row));
}

TEST(Recording, Rows) {
  const Recording recording = parse_recording(
      run(R"(["c", "all_gather_into_tensor", 1, "fwd", 3, 6, "bf16", 0, 1, "h.0", 5, {"co": 4}],
["m", "flush_bucket", 0, "bwd", 7, "", {"params": ["a", "b"]}],
["c", "reduce", 0, "step", 3, 3, "f32", 0, 0, "", 5, {"dst": 1, "redop": "AVG"}])"),
      "r.json");
  ASSERT_EQ(recording.steps[0].size(), 3U);
  const RecordedCollective& gather = *recording.steps[0][0].collective;
  EXPECT_EQ(gather.op, "all_gather_into_tensor");
  EXPECT_EQ(gather.micro_step, 1);
  EXPECT_EQ(gather.phase, Phase::Forward);
  EXPECT_EQ(gather.input_elements, 3);
  EXPECT_EQ(gather.output_elements, 6);
  EXPECT_EQ(gather.dtype, Dtype::Bf16);
  EXPECT_EQ(gather.group, 0U);
  EXPECT_TRUE(gather.async);
  EXPECT_EQ(gather.module, "h.0");
  EXPECT_EQ(gather.coalesced, 4);
  EXPECT_FALSE(gather.root.has_value());
  EXPECT_EQ(gather.reduction, "");
  const RecordedMarker& marker = *recording.steps[0][1].marker;
  EXPECT_EQ(marker.what, "flush_bucket");
  EXPECT_EQ(marker.elements, 7);
  EXPECT_THAT(marker.names, ElementsAre("a", "b"));
  EXPECT_EQ(recording.steps[0][2].collective->root, 1);
  EXPECT_EQ(recording.steps[0][2].collective->reduction, "AVG");
  EXPECT_EQ(to_string(recording.location(recording.steps[0][1])), "r.json:3:1");
}

TEST(Recording, Description) {
  const RecordingDescription run =
      parse_recording_description(test::recording_text("ds_s2_bf16_moe_some_b20k_w2"), "r.json");
  EXPECT_EQ(run.kind, RecordedKind::DeepSpeed);
  EXPECT_EQ(run.deepspeed_version.text, "0.19.5");
  EXPECT_EQ(to_string(run.deepspeed_version.where), "r.json:4:25");
  EXPECT_EQ(run.torch_version.text, "1.13.0a0");
  EXPECT_EQ(run.spec.world, 2);
  EXPECT_EQ(run.spec.model.text, "moe_small");
  EXPECT_EQ(to_string(run.spec.model.where), "r.json:5:46");
  EXPECT_EQ(run.micro_batch, 2);
  EXPECT_EQ(run.grad_accum, 1);
  EXPECT_EQ(run.train_batch, std::nullopt);
  EXPECT_EQ(run.parameters.front().name, "wte.weight");
  EXPECT_EQ(to_string(run.parameters.front().where), "r.json:8:1");
  EXPECT_THAT(run.parameters.front().shape, ElementsAre(1000, 64));
  EXPECT_EQ(run.modules.front().name, "");
  EXPECT_EQ(run.modules.front().class_name, "MoEGPT");
  EXPECT_THAT(run.groups, ElementsAre(ElementsAre(0, 1)));
  ASSERT_EQ(run.routing.size(), 9U);  // 3 steps x 1 micro batch x 3 blocks
  EXPECT_EQ(run.routing[3].when->step, 1);
  EXPECT_EQ(run.routing[3].module, "h.0.mlp");
  EXPECT_THAT(run.routing[3].tokens, ElementsAre(0, 22, 0, 23, 28, 0, 28, 27));
  EXPECT_THAT(run.notes, IsEmpty());
}

TEST(Recording, TheConfigurationStandsWhereItDoesInTheFile) {
  const std::string text = test::recording_text("ds_s2_bf16_b20k_w2");
  const RecordingDescription run = parse_recording_description(text, "r.json");
  EXPECT_THAT(run.ds_config, StartsWith("\n\n\n\n\n            {\"train_micro_batch"));
  // "ds_config": is 12 columns; it is the sixth line.
  EXPECT_EQ(text.find("\"ds_config\":{"), text.find("\n\"ds_config\"") + 1);
}

TEST(Recording, TheSpec) {
  const RecordingDescription run = parse_recording_description(
      R"({"kind": "ddp", "versions": {"torch": "2.4.1"}, "spec": {"world": 8, "model": "mlp",
      "gas": 4, "ckpt": "nonreentrant", "two_groups": true, "zero_init": "mics",
      "input_grads": true, "leaf_classes": ["MoE"], "dtype": "bf16", "env": {"NDEV_PER_NODE": "2"},
      "opts": {"bucket_cap_mb": 0.5, "no_sync": true, "find_unused_parameters": true,
               "static_graph": true, "gradient_as_bucket_view": true, "broadcast_buffers": false}},
      "params": [], "groups": []})",
      "r.json");
  const RecordedSpec& spec = run.spec;
  EXPECT_EQ(spec.world, 8);
  ASSERT_TRUE(spec.grad_accum.has_value());
  EXPECT_EQ(spec.grad_accum->value, 4);
  EXPECT_EQ(to_string(spec.grad_accum->where), "r.json:2:14");
  EXPECT_EQ(spec.checkpointing, ActivationCheckpointing::NonReentrant);
  EXPECT_TRUE(spec.two_groups);
  EXPECT_EQ(spec.zero_init, ZeroInit::Mics);
  EXPECT_TRUE(spec.input_gradients);
  EXPECT_THAT(spec.leaf_classes, ElementsAre("MoE"));
  EXPECT_EQ(spec.ddp.parameter_dtype, Dtype::Bf16);
  EXPECT_EQ(spec.ddp.bucket_cap_mib, 0.5);
  EXPECT_EQ(spec.ddp.find_unused_parameters, true);
  EXPECT_EQ(spec.ddp.static_graph, true);
  EXPECT_EQ(spec.ddp.gradient_as_bucket_view, true);
  EXPECT_TRUE(spec.no_sync);
  EXPECT_EQ(spec.ddp.broadcast_buffers, false);
  EXPECT_EQ(spec.gpus_per_node, 2);
  EXPECT_THAT(run.notes, IsEmpty());
}

TEST(Recording, WhatIsNotToldIsNoted) {
  const auto read = [](const std::string& kind) {
    return parse_recording_description(
        R"({"kind": ")" + kind + R"(", "spec": {"world": 2, "model": "mlp"}, "params": [],)" +
            R"("groups": [], "ds_config": {}})",
        "r.json");
  };
  const RecordingDescription ddp = read("ddp");
  EXPECT_EQ(ddp.torch_version.text, "1.13");
  EXPECT_EQ(ddp.deepspeed_version.text, "");
  EXPECT_FALSE(ddp.spec.grad_accum.has_value());
  EXPECT_THAT(ddp.notes, ElementsAre("r.json: PyTorch 1.13, since versions.torch is missing",
                                     "r.json: spec.gas 1, since it is missing"));
  const RecordingDescription deepspeed = read("deepspeed");  // accumulation is in its file
  EXPECT_EQ(deepspeed.deepspeed_version.text, "0.19");
  EXPECT_THAT(deepspeed.notes,
              ElementsAre("r.json: PyTorch 1.13, since versions.torch is missing",
                          "r.json: DeepSpeed 0.19, since versions.deepspeed is missing"));
}

TEST(Recording, WaysToSayNone) {
  for (const char* none : {"null", "false", "\"none\""}) {
    const RecordedSpec spec =
        parse_recording(test::changed(run(""), "\"gas\": 1",
                                      format(R"("gas": 1, "ckpt": {0}, "zero_init": {0}, )"
                                             R"("frozen": {0}, "dtype": {0})",
                                             none)),
                        "r.json")
            .description.spec;
    EXPECT_EQ(spec.checkpointing, ActivationCheckpointing::None) << none;
    EXPECT_EQ(spec.zero_init, ZeroInit::None) << none;
    EXPECT_FALSE(spec.ddp.parameter_dtype.has_value()) << none;
  }
}

TEST(Recording, SwitchesMayBeNumbers) {
  const auto two_groups = [](const std::string& value) {
    return parse_recording(
               test::changed(run(""), "\"gas\": 1", "\"gas\": 1, \"two_groups\": " + value),
               "r.json")
        .description.spec.two_groups;
  };
  EXPECT_TRUE(two_groups("1"));
  EXPECT_TRUE(two_groups("true"));
  EXPECT_FALSE(two_groups("0"));
  EXPECT_FALSE(two_groups("null"));
  EXPECT_THAT(test::config_error_of([&] { two_groups("2"); }),
              HasSubstr("spec.two_groups: found 2, expected true or false"));
}

TEST(Recording, UnknownOptionsAreNoted) {
  const RecordingDescription options =
      parse_recording(test::changed(run(""), "\"gas\": 1",
                                    R"("gas": 1, "opts": {"bucket_cap_md": 1}, "colour": 2)"),
                      "r.json")
          .description;
  EXPECT_FALSE(options.spec.ddp.bucket_cap_mib.has_value());
  EXPECT_THAT(options.notes,
              ElementsAre("r.json: spec.opts.bucket_cap_md is not known and not followed",
                          "r.json: spec.colour is not known and not followed"));
}

RecordedFsdp fsdp_options(const std::string& opts) {
  const std::string text = test::changed(test::changed(run(""), "\"ddp\"", "\"fsdp\""),
                                         "\"gas\": 1", R"("gas": 1, "opts": )" + opts);
  return parse_recording(text, "r.json").description.spec.fsdp;
}

TEST(Recording, OptionsOfFsdp) {
  const RecordedFsdp fsdp = fsdp_options(
      R"({"strategy": "SHARD_GRAD_OP", "backward_prefetch": "BACKWARD_POST", "ckpt": "reentrant",
          "forward_prefetch": true, "limit_all_gathers": 1, "mixed": "bf16", "wrap": "root"})");
  EXPECT_EQ(fsdp.sharding, FsdpSharding::ShardGradOp);
  EXPECT_EQ(fsdp.backward_prefetch, BackwardPrefetch::Post);
  EXPECT_EQ(fsdp.forward_prefetch, true);
  EXPECT_EQ(fsdp.limit_all_gathers, true);
  EXPECT_FALSE(fsdp.use_orig_params.has_value());
  EXPECT_EQ(fsdp.param_dtype, Dtype::Bf16);
  EXPECT_EQ(fsdp.reduce_dtype, Dtype::Bf16);
  EXPECT_EQ(fsdp.wrap, FsdpWrap::None);
  EXPECT_FALSE(fsdp_options("{}").backward_prefetch.has_value());  // the release's default
  EXPECT_EQ(fsdp_options(R"({"backward_prefetch": null})").backward_prefetch,
            BackwardPrefetch::None);
  const RecordedFsdp types = fsdp_options(R"({"mixed": {"param": "bf16", "reduce": "fp32"}})");
  EXPECT_EQ(types.reduce_dtype, Dtype::F32);
  EXPECT_FALSE(types.buffer_dtype.has_value());
  EXPECT_EQ(fsdp_options(R"({"min_num_params": 5})").wrap, FsdpWrap::Size);
  EXPECT_THAT(fsdp_options(R"({"wrap": ["Block"]})").classes, ElementsAre("Block"));
}

TEST(Recording, RefusesOtherOptionsOfFsdp) {
  const auto error = [](const std::string& opts) {
    return test::config_error_of([&] { static_cast<void>(fsdp_options(opts)); });
  };
  EXPECT_THAT(error(R"({"strategy": "FULL_SHRAD"})"),
              HasSubstr("spec.opts.strategy: found \"FULL_SHRAD\", expected one of FULL_SHARD, "));
  EXPECT_THAT(error(R"({"strategy": "FULL_SHRAD"})"), HasSubstr("did you mean \"FULL_SHARD\"?"));
  EXPECT_THAT(error(R"({"wrap": "blok"})"), HasSubstr("did you mean \"block\"?"));
  EXPECT_THAT(error(R"({"mixed": {"param": "bf61"}})"), HasSubstr("spec.opts.mixed.param"));
  EXPECT_THAT(error(R"({"min_num_params": -1})"), HasSubstr("spec.opts.min_num_params: found -1"));
}

TEST(Recording, OtherRanksRoutingIsNoted) {
  const auto notes = [](const std::string& others) {
    return parse_recording(test::changed(run(""), "\"groups\"",
                                         "\"routing_other_ranks\": " + others + ", \"groups\""),
                           "r.json")
        .description.notes;
  };
  EXPECT_THAT(notes(R"({"1": [[0, 0, "m", [1, 3]]]})"),
              ElementsAre("r.json: routing_other_ranks is not followed: each rank is routed as "
                          "rank 0 was"));
  EXPECT_THAT(notes("{}"), IsEmpty());
}

TEST(Recording, AnyWordIsAnOperation) {
  for (const char* op : {"all_reduce_coalesced", "all_gather_into_tensor_coalesced", "all_sum"}) {
    const Recording recording =
        parse_recording(run(format(R"(["c", "{}", 0, "bwd", 1, 1, "bf16", 0, 0, "", 1, )"
                                   R"({{"redop": "PREMUL_SUM"}}])",
                                   op)),
                        "r.json");
    EXPECT_EQ(recording.steps[0][0].collective->op, op);
    EXPECT_EQ(recording.steps[0][0].collective->reduction, "PREMUL_SUM");
  }
}

TEST(Recording, RefusesWhatContradictsItself) {
  // What adapters were is told by the list.
  EXPECT_EQ(error_of(test::changed(run(""), "\"gas\": 1", "\"gas\": 1,\n\"frozen\": \"lora\"")),
            "r.json:2:11: spec.frozen: found \"lora\", but the list \"frozen\" names no parameter");
  // Three ranks, but the largest group has two.
  EXPECT_EQ(error_of(test::changed(run(""), "\"world\": 2", "\"world\": 3")),
            "r.json:1:145: groups: found none of 3 ranks, but spec.world says 3");
}

TEST(Recording, StepsThatAreTheSame) {
  const std::string row = R"(["c", "barrier", 0, "step", 0, 0, "u8", 0, 0, "", 5, null])";
  const Recording recording =
      parse_recording(run(row, R"("1": "same as 0", "2": "same as 1")"), "r.json");
  EXPECT_EQ(recording.steps[2].size(), 1U);
  EXPECT_EQ(recording.steps[2][0].collective->op, "barrier");
}

TEST(Recording, RefusesStepsThatDoNotExist) {
  const auto message = [](const std::string& others) { return error_of(run("", others)); };
  EXPECT_EQ(message(R"("1": "same as 1", "2": [])"),
            "r.json:3:6: events.1: found \"same as 1\", expected an array of rows or \"same as\" "
            "an earlier step");
  EXPECT_THAT(message(R"("1": "same as 2", "2": "same as 1")"), HasSubstr("an earlier step"));
  EXPECT_THAT(message(R"("1": [], "2": "same as 3")"), HasSubstr("r.json:3:15: events.2: found"));
  EXPECT_THAT(message(R"("1": [])"),
              HasSubstr("events.2: missing, expected an array of rows or \"same as N\""));
  EXPECT_THAT(message(R"("1": 7, "2": [])"), HasSubstr("r.json:3:6: events.1: found 7, expected"));
  EXPECT_EQ(message(R"("1": [], "2": [], "3": [])"),
            "r.json:3:19: events.3: unknown key; expected one of: 0, 1, 2, init");
}

TEST(Recording, RefusesBadRows) {
  EXPECT_EQ(row_error(R"(["c", "all_reduce", 0, "bwd", 1, 1, "bf16", 0, 0, "", 1])"),
            "r.json:2:1: events.0[0]: found 11 cells, expected 12: \"c\", op, micro step, phase, "
            "input and output elements, type, group, async, module, site, extra");
  EXPECT_EQ(row_error(R"(["m", "release", 0, "bwd", 1, ""])"),
            "r.json:2:1: events.0[0]: found 6 cells, expected 7: \"m\", what, micro step, phase, "
            "elements, module, extra");
  EXPECT_EQ(row_error(R"(["x"])"), "r.json:2:2: events.0[0][0]: found \"x\", expected one of c, m");
  EXPECT_EQ(row_error("[]"),
            "r.json:2:1: events.0[0]: found an empty row, expected \"c\" or \"m\"");
  EXPECT_EQ(row_error("7"), "r.json:2:1: events.0[0]: found no array, expected a row");
  EXPECT_EQ(row_error(R"(["c", 7, 0, "bwd", 1, 1, "bf16", 0, 0, "", 1, null])"),
            "r.json:2:7: events.0[0][1]: found 7, expected text: the operation");
  EXPECT_EQ(row_error(R"(["c", "reduce", "0", "bwd", 1, 1, "bf16", 0, 0, "", 1, null])"),
            "r.json:2:17: events.0[0][2]: found \"0\", expected an integer from 0 to 2147483647: "
            "the micro step");
  EXPECT_EQ(row_error(R"(["c", "reduce", 0, "forward", 1, 1, "bf16", 0, 0, "", 1, null])"),
            "r.json:2:20: events.0[0][3]: found \"forward\", expected one of init, fwd, bwd, step");
  EXPECT_THAT(row_error(R"(["c", "reduce", 0, "bwd", -1, 1, "bf16", 0, 0, "", 1, null])"),
              HasSubstr("[4]: found -1, expected an integer from 0 to "));
  EXPECT_EQ(row_error(R"(["c", "reduce", 0, "bwd", 1, 1, "bf17", 0, 0, "", 1, null])"),
            "r.json:2:33: events.0[0][6]: found \"bf17\", expected one of bf16, f16, f32, f64, u8, "
            "i64, i32; did you mean \"bf16\"?");
  EXPECT_EQ(row_error(R"(["c", "reduce", 0, "bwd", 1, 1, "bf16", 1, 0, "", 1, null])"),
            "r.json:2:41: events.0[0][7]: found 1, expected an index into groups, of which there "
            "are 1");
  EXPECT_THAT(row_error(R"(["c", "reduce", 0, "bwd", 1, 1, "bf16", 0, 2, "", 1, null])"),
              HasSubstr("[8]: found 2, expected an integer from 0 to 1: 1 if the caller waits"));
  EXPECT_THAT(row_error(R"(["c", "reduce", 0, "bwd", 1, 1, "bf16", 0, 0, 5, 1, null])"),
              HasSubstr("[9]: found 5, expected text: the module"));
  EXPECT_THAT(row_error(R"(["c", "reduce", 0, "bwd", 1, 1, "bf16", 0, 0, "", 1, 5])"),
              HasSubstr("events.0[0][11]: found 5, expected an object"));
  EXPECT_THAT(row_error(R"(["c", "reduce", 0, "bwd", 1, 1, "bf16", 0, 0, "", 1, {"dst": "x"}])"),
              HasSubstr("events.0[0][11].dst: found \"x\", expected an integer"));
  EXPECT_THAT(row_error(R"(["c", "reduce", 0, "bwd", 1, 1, "bf16", 0, 0, "", 1, {"redop": 4}])"),
              HasSubstr("events.0[0][11].redop: found 4, expected a string"));
}

TEST(Recording, RefusesWhatIsNoDescription) {
  const std::string good = run("");
  EXPECT_THAT(error_of("{}"), HasSubstr("kind: missing, expected a recording of the kind "
                                        "deepspeed, ddp, fsdp"));
  EXPECT_EQ(error_of(test::changed(good, "\"ddp\"", "\"dpp\"")),
            "r.json:1:10: kind: found \"dpp\", expected one of deepspeed, ddp, fsdp; did you mean "
            "\"ddp\"?");
  EXPECT_THAT(error_of(test::changed(good, "\"world\"", "\"words\"")),
              HasSubstr("spec.world: missing, expected"));
  EXPECT_THAT(error_of(test::changed(good, "\"params\"", "\"param\"")),
              HasSubstr("params: missing, expected an array"));
  EXPECT_THAT(error_of(test::changed(good, "\"groups\"", "\"group\"")),
              HasSubstr("groups: missing, expected an array"));
  EXPECT_THAT(error_of(test::changed(good, "\"events\"", "\"event\"")),
              HasSubstr("events: missing, expected"));
  EXPECT_THAT(error_of(test::changed(good, "6, \"m\"", "7, \"m\"")),
              HasSubstr("params[0][2]: found 7, expected 6, the product of the shape"));
  EXPECT_THAT(error_of(test::changed(good, "[0, 1]]", "[0, 2]]")),
              HasSubstr("groups[0][1]: found 2, expected an integer from 0 to 1: a rank"));
  EXPECT_THAT(error_of(test::changed(good, "\"gas\": 1", "\"gas\": 1, \"ckpt\": \"re\"")),
              HasSubstr("spec.ckpt: found \"re\", expected one of reentrant, nonreentrant"));
  EXPECT_THAT(
      error_of(test::changed(good, "\"gas\": 1", "\"gas\": 1, \"opts\": {\"bucket_cap_mb\": -1}")),
      HasSubstr("spec.opts.bucket_cap_mb: found -1, expected 0 or more"));
  EXPECT_THAT(error_of(test::changed(good, "\"gas\": 1",
                                     "\"gas\": 1, \"env\": {\"NDEV_PER_NODE\": \"two\"}")),
              HasSubstr("spec.env.NDEV_PER_NODE: found \"two\", expected a number of GPUs"));
  EXPECT_THAT(error_of(test::changed(good, "\"groups\"",
                                     "\"modules\": [[\"m\", \"Linear\", [\"b\"]]], \"groups\"")),
              HasSubstr("modules[0][2]: found [\"b\"], expected names of params: \"b\" is none"));
  EXPECT_THAT(
      error_of(test::changed(good, "\"groups\"", "\"routing\": [[0, 0, \"m\", 5]], \"groups\"")),
      HasSubstr("routing[0][3]: found 5, expected an array of integers"));
  EXPECT_THAT(
      error_of(test::changed(good, R"("kind": "ddp", "versions": {)",
                             R"("kind": "deepspeed", "versions": {"deepspeed": "v0.19.5", )")),
      HasSubstr("ds_config: missing, expected"));
}

}  // namespace
}  // namespace zerosim
