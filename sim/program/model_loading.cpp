#include "sim/program/model_loading.h"

#include "sim/strategy/deepspeed_release.h"

namespace zerosim {

BufferId load_checkpoint(const FrameworkContext& context, CheckpointCopies copies) {
  const Bytes bytes = Bytes(parameter_count(context.model)) * dtype_bytes(context.load_dtype);
  RankProgramBuilder& builder = context.builder;
  return copies == CheckpointCopies::OneANode
             ? builder.allocate_on_node(bytes, MemoryClass::Parameters, "checkpoint", "E6")
             : builder.allocate_on_host(bytes, MemoryClass::Parameters, "checkpoint",
                                        /*pinned=*/false, "E6");
}

std::vector<BufferId> load_model(const FrameworkContext& context) {
  BufferId checkpoint = load_checkpoint(context, CheckpointCopies::EveryRank);
  const int bytes = dtype_bytes(model_dtype(context.strategy.precision));
  std::vector<BufferId> buffers;
  for (const Parameter& parameter : context.model.parameters) {
    buffers.push_back(context.builder.allocate(Bytes(parameter.elements) * bytes,
                                               MemoryClass::Parameters, "whole_model",
                                               kComputeStream, "E3"));
  }
  context.builder.free(checkpoint, "E6");
  return buffers;
}

void allocate_parameters(const FrameworkContext& context, Bytes bytes, std::string_view owner,
                         std::string_view rule) {
  BufferId checkpoint;
  if (context.first_step == 0) {
    checkpoint = load_checkpoint(context, CheckpointCopies::EveryRank);
  }
  context.builder.allocate(bytes, MemoryClass::Parameters, owner, kComputeStream, rule);
  context.builder.free(checkpoint, "E6");
}

namespace {

/// Frees the parameters of `group` on the GPU, and makes its flat tensor.
void flatten_through_host(const FrameworkContext& context, const FlatGroup& group, Bytes flat,
                          std::vector<BufferId>& parameters) {
  RankProgramBuilder& builder = context.builder;
  const auto on_host = [&](std::string_view owner) {
    return builder.allocate_on_host(flat, MemoryClass::Parameters, owner, /*pinned=*/false, "B2.5");
  };
  BufferId copies = on_host("parameter_copies");
  for (const ParameterId id : group.order) {
    builder.free(parameters[id.index()], "B2.5");
  }
  builder.empty_cache("B2.5");
  BufferId host_flat = on_host("flat_copy");
  builder.free(copies, "B2.5");
  builder.allocate(flat, MemoryClass::Parameters, "flat_parameters", kComputeStream, "B2.5");
  builder.free(host_flat, "B2.5");
}

void flatten_on_device(const FrameworkContext& context, const FlatGroup& group, Bytes flat,
                       std::vector<BufferId>& parameters) {
  RankProgramBuilder& builder = context.builder;
  builder.allocate(flat, MemoryClass::Parameters, "flat_parameters", kComputeStream, "B2.5");
  for (const ParameterId id : group.order) {
    builder.free(parameters[id.index()], "B2.5");
  }
}

void flatten(const FrameworkContext& context, const FlatLayout& layout, int bytes) {
  const bool always = uses_bf16_optimizer(context.strategy);
  const bool on_device = deepspeed_release(context.strategy.version).flattens_on_device;
  std::vector<BufferId> parameters = load_model(context);
  Bytes held = Bytes(parameter_count(context.model)) * bytes;
  for (const FlatGroup& group : layout.groups) {
    const Bytes flat = Bytes(group.padded) * bytes;
    const bool room = !context.device_memory || held + flat <= *context.device_memory;
    const bool here = always || (on_device && room);
    const auto make = here ? flatten_on_device : flatten_through_host;
    make(context, group, flat, parameters);
    held += Bytes(group.padded - group.elements) * bytes;
  }
}

}  // namespace

void allocate_flat_parameters(const FrameworkContext& context, const FlatLayout& layout) {
  const int bytes = dtype_bytes(model_dtype(context.strategy.precision));
  if (context.first_step == 0) {
    flatten(context, layout, bytes);
    return;
  }
  for (const FlatGroup& group : layout.groups) {
    context.builder.allocate(Bytes(group.padded) * bytes, MemoryClass::Parameters,
                             "flat_parameters", kComputeStream, "B2.1");
  }
  const std::int64_t frozen = parameter_count(context.model) - layout.elements();
  if (frozen > 0) {
    context.builder.allocate(Bytes(frozen) * bytes, MemoryClass::Parameters, "frozen_parameters",
                             kComputeStream, "B2.1");
  }
}

void allocate_master_weights(const FrameworkContext& context, std::int64_t elements,
                             std::string_view rule) {
  RankProgramBuilder& builder = context.builder;
  const Dtype model = model_dtype(context.strategy.precision);
  const Dtype master = context.strategy.bf16_states ? Dtype::Bf16 : Dtype::F32;
  BufferId clone;
  if (context.first_step == 0 && model != master) {
    clone = builder.allocate(Bytes(elements) * dtype_bytes(model), MemoryClass::TemporaryBuffers,
                             "partition_clone", kComputeStream, rule);
  }
  builder.allocate(Bytes(elements) * dtype_bytes(master), MemoryClass::OptimizerStates,
                   "master_weights", kComputeStream, rule);
  builder.free(clone, rule);
}

}  // namespace zerosim
