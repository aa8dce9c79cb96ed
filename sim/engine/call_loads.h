/// \file
/// What a collective puts on a shared link.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "topology/collective_model.h"
#include "topology/folding.h"

namespace zerosim::internal {

/// Slots and uplinks.
[[nodiscard]] constexpr bool is_slot(LinkClass::Kind kind) {
  return kind == LinkClass::Kind::HostToDevice || kind == LinkClass::Kind::DeviceToHost;
}

class CallLoads {
 public:
  /// \param alone     how long it loads links without contention
  /// \param exchange  it is an all-to-all
  CallLoads(const CollectiveCost& cost, Seconds alone, bool exchange)
      : alone_(alone), exchange_(exchange) {
    for (const LinkLoad& load : cost.loads) {
      bytes_[static_cast<std::size_t>(load.kind)] = static_cast<double>(load.bytes.count());
    }
  }

  /// Of a kind, as the cost says.
  [[nodiscard]] double of(LinkClass::Kind kind) const {
    return bytes_[static_cast<std::size_t>(kind)];
  }
  /// On slots and uplinks at most what passes while it is alone.
  [[nodiscard]] double on(const LinkShare& share, const FoldedLink& link) const {
    using Kind = LinkClass::Kind;
    const double part = exchange_ ? share.exchange_share : share.share;
    if (!is_slot(link.kind)) return of(link.kind) * part;
    const double intra = exchange_ ? share.intra_exchange_share : share.intra_share;
    return std::min(of(Kind::Network) * part + of(Kind::IntraNode) * intra,
                    link.nominal.per_second() * alone_.count());
  }

 private:
  std::array<double, static_cast<std::size_t>(LinkClass::Kind::Fabric) + 1> bytes_{};
  Seconds alone_;
  bool exchange_;
};

}  // namespace zerosim::internal
