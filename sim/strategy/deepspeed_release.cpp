#include "sim/strategy/deepspeed_release.h"

#include <array>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

/// A later release, but for how stage 3 moves parameters and gradients.
DeepSpeedRelease with_lists(std::string_view name, DeepSpeedRelease release) {
  release.name = name;
  release.moves_lists = true;
  return release;
}

}  // namespace

const DeepSpeedRelease& deepspeed_release(std::string_view version, std::string_view flag) {
  static const DeepSpeedRelease kRelease014 = {.name = "0.14",
                                               .moves_lists = false,
                                               .bf16_checks_overflow = false,
                                               .gradient_clipping = 0.0,
                                               .pins_offloaded_memory = false,
                                               .flattens_on_device = false,
                                               .leaf_module_classes = {},
                                               .linear_hands_weight_first = false,
                                               .resets_before_forward = false,
                                               .verifies_list_lengths = false,
                                               .releases_leftovers = false,
                                               .releases_unused_prefetches = false,
                                               .holds_recomputed_frozen = false,
                                               .mics_deadlocks = false};
  static const std::array<DeepSpeedRelease, 5> kReleases = {{
      with_lists("0.3", kRelease014),
      with_lists("0.4", kRelease014),
      with_lists("0.5", kRelease014),
      kRelease014,
      {.name = "0.19",
       .moves_lists = false,
       .bf16_checks_overflow = true,
       .gradient_clipping = 1.0,
       .pins_offloaded_memory = true,
       .flattens_on_device = true,
       .leaf_module_classes = {"MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock",
                               "Qwen3MoeSparseMoeBlock"},
       .linear_hands_weight_first = true,
       .resets_before_forward = true,
       .verifies_list_lengths = true,
       .releases_leftovers = true,
       .releases_unused_prefetches = true,
       .holds_recomputed_frozen = true,
       .mics_deadlocks = true},
  }};
  for (const DeepSpeedRelease& release : kReleases) {
    const bool patch = version.starts_with(release.name) && version.size() > release.name.size() &&
                       version[release.name.size()] == '.';
    if (version == release.name || patch) {
      return release;
    }
  }
  throw ConfigError(
      format("{}: found \"{}\", expected 0.3, 0.4, 0.5, 0.14 or 0.19", flag, version));
}

}  // namespace zerosim
