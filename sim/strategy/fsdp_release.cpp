#include "sim/strategy/fsdp_release.h"

#include <array>

#include "sim/base/error.h"

namespace zerosim {

const FsdpRelease& fsdp_release(std::string_view torch_version) {
  static constexpr std::array<FsdpRelease, 2> kReleases = {{
      {.name = "1.13",
       .checks_order = true,
       .prefetches_every_forward = false,
       .unshards_prefetched_again = true,
       .stays_prefetched_until_freed = true,
       .always_pads = true,
       .reshards_frozen_units = false,
       .zeroes_gradients = true,
       .limits_all_gathers = false,
       .backward_prefetch = BackwardPrefetch::None,
       .has_hybrid = false,
       .has_original_parameters = false,
       .has_fully_shard = false},
      {.name = "2"},
  }};
  for (const FsdpRelease& release : kReleases) {
    if (release.name == torch_version) return release;
  }
  ZS_CHECK(false, "a release that parse_torch_version knows");
}

}  // namespace zerosim
