#include "sim/strategy/deepspeed_release.h"

#include <array>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

const DeepSpeedRelease& deepspeed_release(std::string_view version, std::string_view flag) {
  static const std::array<DeepSpeedRelease, 2> releases = {{
      {.name = "0.14",
       .bf16_checks_overflow = false,
       .gradient_clipping = 0.0,
       .pins_offloaded_memory = false,
       .leaf_module_classes = {},
       .mics_deadlocks = false},
      {.name = "0.19",
       .bf16_checks_overflow = true,
       .gradient_clipping = 1.0,
       .pins_offloaded_memory = true,
       .leaf_module_classes = {"MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock",
                               "Qwen3MoeSparseMoeBlock"},
       .mics_deadlocks = true},
  }};
  for (const DeepSpeedRelease& release : releases) {
    const bool patch = version.starts_with(release.name) && version.size() > release.name.size() &&
                       version[release.name.size()] == '.';
    if (version == release.name || patch) {
      return release;
    }
  }
  throw ConfigError(format("{}: found \"{}\", expected 0.14 or 0.19", flag, version));
}

}  // namespace zerosim
