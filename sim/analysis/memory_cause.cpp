#include "sim/analysis/memory_cause.h"

#include <algorithm>
#include <initializer_list>

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
    {"other_temporaries", "other temporaries"},
}};

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return text.starts_with(beginning); });
}

/// Rules by which parameters are gathered.
bool is_of_gather(std::string_view rule) {
  return starts_with_any(rule, {"C3", "C4", "C5", "C10.1", "D2.4", "D3.3", "D3.4", "D3.7"});
}

/// Rules by which gradients are copied together, cast, reduced and handed on.
bool is_of_reduction(std::string_view rule) {
  return starts_with_any(rule, {"B1.3", "B1.4", "B2", "B3", "B4", "B6", "C6", "C7", "C8.6", "C10.2",
                                "C11", "D1.6", "D1.8", "D2.8", "D3.8"});
}

/// What operators hold beside what they save: autocast's copies, workspaces.
bool is_of_operator(const Buffer& buffer, std::string_view rule) {
  return buffer.owner.starts_with("autocast") || buffer.owner == "backward_workspace" ||
         rule.starts_with("E5");
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
  if (is_of_operator(buffer, op.rule)) return MemoryCause::Activations;
  if (is_of_reduction(op.rule)) return MemoryCause::ReduceBucket;
  return MemoryCause::OtherTemporaries;
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
