/// \file
/// Which GPU a name speaks of, as drivers and people write it.
#pragma once

#include <string>
#include <string_view>

#include "topology/gpu.h"

namespace zerosim {

struct NamedGpu {
  const GpuSpec* gpu = nullptr;  ///< null: none that is simulated
  std::string assumption;        ///< what the name leaves open; empty: nothing
};

/// "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB", "GeForce RTX 2080 Ti", "B200-180GB": capitals,
/// vendor's words, kinds of memory and punctuation do not matter. A name without form factor is
/// that of the board (H100: H100-SXM5), a name without memory the first kind of gpu_specs(), of
/// several kinds the one whose memory is nearest.
[[nodiscard]] NamedGpu gpu_by_words(std::string_view words);

/// AMD's: "MI300X-192GB", "AMD Instinct MI250X".
[[nodiscard]] bool is_amd_gpu(std::string_view words);

/// "H100" of "H100-SXM5-80", "RTX4090" of "RTX4090-24".
[[nodiscard]] std::string gpu_family(const GpuSpec& gpu);

}  // namespace zerosim
