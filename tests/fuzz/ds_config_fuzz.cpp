// Any bytes as a DeepSpeed file, in each mode: only zerosim::Error may come out.

#include <cstddef>
#include <cstdint>
#include <string>

#include "sim/base/error.h"
#include "sim/model/model.h"
#include "sim/strategy/strategy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const zerosim::Model kModel = zerosim::load_model("gpt2");
  const std::string text(data, data + size);
  for (const auto mode : {zerosim::ConfigMode::Auto, zerosim::ConfigMode::DeepSpeed,
                          zerosim::ConfigMode::HuggingFace}) {
    zerosim::TrainingFlags flags;
    flags.config_as = mode;
    try {
      (void)zerosim::parse_deepspeed_config(text, "fuzz.json", flags, kModel, 8);
    } catch (const zerosim::Error&) {
      continue;
    }
  }
  return 0;
}
