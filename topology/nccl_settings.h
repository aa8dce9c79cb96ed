/// \file
/// What a job's environment tells NCCL's choice: algorithms, protocols, channels, threads; and
/// which release of NCCL chooses.
///
/// Which links NCCL uses is no part of it: that changes the node (nccl_paths.h). Sources: NCCL user
/// guide, "Environment Variables"; src/graph/tuning.cc and connect.cc of the NCCL of
/// spec/nccl_cost.md.
///
///     NCCL_ALGO, NCCL_PROTO            allowed      what is not listed has no time
///     NCCL_MAX_NCHANNELS, _MAX_CTAS    max_channels the lower of both
///     NCCL_MIN_NCHANNELS, _MIN_CTAS    min_channels the higher of both
///     NCCL_NTHREADS                    threads      of a block, LL and Simple
///     NCCL_NVLS_ENABLE=0               nvls         no reduction in NVSwitches
///     NCCL_COLLNET_ENABLE=0            collnet      none in the network's switches
///
/// Fewer channels than the search finds are as fast each, so that the rest of the NVLinks, or of
/// the NICs, lies idle. Two exceptions: rings over PCIe share one link, of which one channel may
/// take all; heads of NVLS are as many as GPUs, and each gets less. More channels hold SMs and
/// bring nothing: the links are full.
///
/// A release lacks what came later (as NCCL's release notes and tags are remembered: they were not
/// at hand):
///
///     2.4   trees                2.5   LL128             2.6   CollNet (SHARP)
///     2.8   unaligned data in unrolled loops (src/collectives/device/common_kernel.h)
///     2.17  NVLS                 2.18  NVLSTree          2.23  PAT
///
/// Not modelled: constants of older releases' tuning, which changed with most of them.
#pragma once

#include <array>
#include <cstddef>

namespace zerosim {

enum class CollectiveOp;
enum class Algorithm;
enum class Protocol;

/// Of one operation, by number of the enumerations.
struct NcclAllowed {
  std::array<bool, 7> algorithms = {true, true, true, true, true, true, true};
  std::array<bool, 3> protocols = {true, true, true};
  /// NCCL_PROTO names the protocols, so that LL128 is on where NCCL itself leaves it off.
  bool ll128_forced = false;
  bool operator==(const NcclAllowed&) const = default;
};

/// That of spec/nccl_cost.md: 2.30.
inline constexpr int kModelledNcclRelease = 30;
/// Those since then have all that the table above lists.
inline constexpr int kCompleteNcclRelease = 23;

struct NcclSettings {
  int release = kModelledNcclRelease;    ///< 18 of 2.18
  std::array<NcclAllowed, 6> allowed{};  ///< by CollectiveOp; all-to-all asks for none
  int min_channels = 0;                  ///< 0: not given
  int max_channels = 0;                  ///< 0: not given
  int threads = 0;                       ///< 0: by protocol
  bool nvls = true;
  bool collnet = true;

  [[nodiscard]] const NcclAllowed& of(CollectiveOp op) const {
    return allowed[static_cast<std::size_t>(op)];
  }
  [[nodiscard]] NcclAllowed& of(CollectiveOp op) { return allowed[static_cast<std::size_t>(op)]; }
  bool operator==(const NcclSettings&) const = default;
};

}  // namespace zerosim
