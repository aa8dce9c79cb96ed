#include <string>
#include <vector>

#include "sim/base/text.h"
#include "sim/strategy/deepspeed_reader.h"

namespace zerosim::internal {
namespace {

// Top-level keys that have no effect on the time or the memory of a steady step.
constexpr const char* kKeysWithoutEffect[] = {
    "steps_per_print",
    "dump_state",
    "disable_allgather",
    "dataloader_drop_last",
    "memory_breakdown",
    "tensorboard",
    "wandb",
    "comet",
    "csv_monitor",
    "checkpoint",
    "nebula",
    "datastates",
    "vocabulary_size",
    "graph_harvesting",
    "train_steps",
    "use_data_before_expert_parallelism",
    "load_universal_checkpoint",
};

/// Sections that change training when their `enabled` is true.
constexpr const char* kSwitchedSections[] = {
    "elasticity",          "autotuning",        "data_efficiency",
    "curriculum_learning", "hybrid_engine",     "progressive_layer_drop",
    "eigenvalue",          "quantize_training",
};

// Sections whose mere presence asks for something else than plain training.
constexpr const char* kSectionsByPresence[] = {
    "sparse_attention",
    "compression_training",
    "pipeline",
};

/// Acts only on models that call DeepSpeed's own checkpoint function (A4).
void read_activation_checkpointing(DeepSpeedReading& reading) {
  std::optional<ConfigSection> section = reading.root.section("activation_checkpointing");
  if (!section) return;
  for (const char* key :
       {"partition_activations", "cpu_checkpointing", "contiguous_memory_optimization",
        "synchronize_checkpoint_boundary", "profile"}) {
    section->boolean_or(key, false, {.matters = false});
  }
  if (const auto checkpoints = section->integer("number_checkpoints", 0)) {
    section->list("number_checkpoints", std::to_string(*checkpoints), Origin::File);
  }
  section->warn_unknown("unknown_key_ignored", "which DeepSpeed ignores");
  reading.assume(
      "activation_checkpointing: the section acts only on models that call DeepSpeed's own "
      "checkpoint function, so it is not simulated.");
}

/// How NVMe is read and written (A3).
void read_aio(DeepSpeedReading& reading) {
  const ZeroOptions& zero = reading.strategy.zero;
  const Listing listing{.matters = zero.offload_param.device == OffloadDevice::Nvme ||
                                   zero.offload_optimizer.device == OffloadDevice::Nvme};
  ConfigSection section = reading.root.section_or_empty("aio");
  AioOptions& aio = reading.strategy.aio;
  aio.block_size = section.integer_or("block_size", aio.block_size, 1, listing);
  aio.queue_depth = section.integer_or("queue_depth", aio.queue_depth, 1, listing);
  aio.intra_op_parallelism =
      section.integer_or("intra_op_parallelism", aio.intra_op_parallelism, 1, listing);
  aio.single_submit = section.boolean_or("single_submit", aio.single_submit, listing);
  aio.overlap_events = section.boolean_or("overlap_events", aio.overlap_events, listing);
  aio.use_gds = section.boolean_or("use_gds", aio.use_gds, listing);
  static_cast<void>(section.has("thread_count"));  // the older name of intra_op_parallelism
  section.warn_unknown("unknown_key_ignored", "which DeepSpeed ignores");
}

/// Only learning rates and a few host operations (A4); the parameters are free-form.
void read_scheduler(DeepSpeedReading& reading) {
  if (std::optional<ConfigSection> section = reading.root.section("scheduler")) {
    section->list_if_set("type");
  }
}

void read_parallelism(DeepSpeedReading& reading) {
  if (std::optional<ConfigSection> section = reading.root.section("tensor_parallel")) {
    section->integer_or("autotp_size", 0, 0, {.matters = false});
  }
  if (std::optional<ConfigSection> section = reading.root.section("compile")) {
    section->boolean_or("deepcompile", false, {.matters = false});
  }
}

void note_unknown_keys(DeepSpeedReading& reading) {
  const std::vector<std::string> known = reading.root.object().known_keys();
  for (const std::string& key :
       reading.root.warn_unknown("unknown_key_top", "which DeepSpeed ignores")) {
    const std::string nearest = nearest_name(key, known);
    if (!nearest.empty()) reading.root.warn(key, "did_you_mean", nearest);
  }
}

}  // namespace

void read_other_sections(DeepSpeedReading& reading) {
  ConfigSection& root = reading.root;
  read_scheduler(reading);
  read_activation_checkpointing(reading);
  read_aio(reading);
  read_parallelism(reading);
  for (const char* key : kSwitchedSections) {
    if (std::optional<ConfigSection> section = root.section(key)) {
      section->boolean_or("enabled", false, {.matters = false});
    }
  }
  for (const char* key : kSectionsByPresence) root.list_if_set(key);
  for (const char* key : kKeysWithoutEffect) root.list_if_set(key);
  note_unknown_keys(reading);
}

}  // namespace zerosim::internal
