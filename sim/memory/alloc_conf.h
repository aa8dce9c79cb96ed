/// \file
/// PYTORCH_CUDA_ALLOC_CONF: how PyTorch's caching allocator is tuned (E7.1, E7.5, E7.11 to E7.13).
///
///     max_split_size_mb:512,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,>:4]
///
/// Read as c10/cuda/CUDAAllocatorConfig.cpp of PyTorch 2.x does: spaces count for nothing, a comma
/// may end the text, the last of several equal options wins, a number goes as far as std::stoi
/// reads it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/units.h"

namespace zerosim {

/// Intervals of roundup_power2_divisions: [2^i, 2^(i+1)) MiB. The first takes all smaller sizes as
/// well, the last (32 GiB) all larger ones.
inline constexpr int kRoundupIntervals = 16;

struct AllocConf {
  enum class Backend : std::uint8_t { Native, CudaMallocAsync };

  Backend backend = Backend::Native;
  std::optional<Bytes> max_split_size;  ///< E7.12; none: every block may be split
  Bytes max_non_split_rounding = 20_MiB;
  /// By interval; 0 and 1: multiples of 512 bytes (E7.1).
  std::array<std::int64_t, kRoundupIntervals> roundup_power2_divisions{};
  double garbage_collection_threshold = 0;  ///< E7.11; 0: off
  bool expandable_segments = false;         ///< E7.13
  std::optional<double> memory_fraction;    ///< per_process_memory_fraction
  std::vector<std::string> without_effect;  ///< options that are read, and change nothing here
  std::vector<Warning> warnings;            ///< "512MB" read as 512

  /// Of a request of `size` bytes.
  [[nodiscard]] std::int64_t roundup_divisions(Bytes size) const;
};

/// \param where  of the first character: name of the variable, or file and position of its value.
/// \throws ConfigError  where PyTorch raises: unknown option, value out of range, missing token;
///                      says at which column, what is expected, and the nearest option's name.
[[nodiscard]] AllocConf parse_alloc_conf(std::string_view text,
                                         const SourceLocation& where = {"PYTORCH_CUDA_ALLOC_CONF",
                                                                        1, 1});

/// Every option with its value, also where it is the default: "backend:native",
/// "max_split_size_mb:unlimited", "roundup_power2_divisions:[1:0,2:0,...,32768:0]", ...
[[nodiscard]] std::vector<std::string> describe(const AllocConf& conf);

}  // namespace zerosim
