#include "sim/analysis/memory_cause.h"

#include <algorithm>

#include "sim/model/model.h"

namespace zerosim {

namespace {

struct Words {
  std::string_view code;
  std::string_view words;
};
constexpr std::array<Words, kMemoryCauses> kWords = {{
    {"model_states", "parameters, gradients and optimizer states"},
    {"optimizer_step_temporary", "temporaries of the optimizer step"},
    {"activations", "activations"},
    {"logits", "logits"},
    {"reduce_bucket", "gradient buckets"},
    {"live_parameters", "gathered parameters"},
    {"largest_parameter", "the largest parameter, gathered whole"},
    {"whole_model_materialised", "the whole model before it is cut"},
}};

bool is_of_gather(std::string_view rule) {
  return rule.starts_with("C3") || rule.starts_with("C4") || rule.starts_with("C5") ||
         rule.starts_with("D2.4") || rule.starts_with("D3");
}

/// Whether a gathered buffer is the one tensor that no other of the model comes near: larger than
/// a transformer block on average.
bool is_largest_parameter(const Buffer& buffer, const Strategy& strategy, const Model& model) {
  std::int64_t largest = 0;
  for (const Parameter& parameter : model.parameters) {
    largest = std::max(largest, parameter.elements);
  }
  const std::int64_t bytes = largest * dtype_bytes(model_dtype(strategy.precision));
  const std::int64_t blocks = std::max<std::int64_t>(model.shape.layers, 1);
  const bool stands_out = largest > (parameter_count(model) - largest) / blocks;
  // Padding for the ranks is far below a hundredth of such a tensor.
  return stands_out && buffer.bytes.count() >= bytes && buffer.bytes.count() < bytes + bytes / 100;
}

/// What is only there until a framework has cut the model (zero.Init not used).
MemoryCause cause_of_setup(const Strategy& strategy, MemoryCause otherwise) {
  const bool cuts = strategy.framework == Framework::DeepSpeed && strategy.zero.stage == 3;
  return cuts && !strategy.zero_init ? MemoryCause::WholeModelMaterialised : otherwise;
}

MemoryCause cause_of_temporary(const Buffer& buffer, const Op& op, const Strategy& strategy) {
  if (buffer.owner.find("bucket") != std::string_view::npos) return MemoryCause::ReduceBucket;
  if (op.phase == Phase::Init) return cause_of_setup(strategy, MemoryCause::ModelStates);
  if (op.phase == Phase::Step) return MemoryCause::OptimizerStepTemporary;
  if (is_of_gather(op.rule)) return MemoryCause::LiveParameters;
  if (op.rule.starts_with("E5")) return MemoryCause::Activations;
  return MemoryCause::ReduceBucket;
}

}  // namespace

std::string_view to_string(MemoryCause cause) {
  return kWords[static_cast<std::size_t>(cause)].code;
}
std::string_view in_words(MemoryCause cause) {
  return kWords[static_cast<std::size_t>(cause)].words;
}

MemoryCause cause_of(const Buffer& buffer, const Op& op, const Strategy& strategy,
                     const Model& model) {
  switch (buffer.memory_class) {
    case MemoryClass::Parameters:
      return buffer.owner.starts_with("whole") ? cause_of_setup(strategy, MemoryCause::ModelStates)
                                               : MemoryCause::ModelStates;
    case MemoryClass::Gradients:
    case MemoryClass::OptimizerStates:
      break;
    case MemoryClass::Activations:
      return MemoryCause::Activations;
    case MemoryClass::Logits:
      return MemoryCause::Logits;
    case MemoryClass::TemporaryBuffers:
      return cause_of_temporary(buffer, op, strategy);
    case MemoryClass::LiveParameters:
      if (op.phase == Phase::Init) return cause_of_setup(strategy, MemoryCause::LiveParameters);
      return is_largest_parameter(buffer, strategy, model) ? MemoryCause::LargestParameter
                                                           : MemoryCause::LiveParameters;
  }
  return MemoryCause::ModelStates;
}

}  // namespace zerosim
