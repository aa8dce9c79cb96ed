/// \file
/// Renders a folding (topology/folding.h): classes of ranks and links, how many each stands for,
/// and what sets a class apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "topology/folding.h"

namespace zerosim {

/// "NIC", "fabric", ...; of a PCIe switch's uplink "uplink, up" or "uplink, down".
[[nodiscard]] const char* link_kind_word(LinkClass::Kind kind, bool uplink);

/// What a folding itself does not know, in its order.
struct FoldingNames {
  std::vector<std::string> groups;  ///< names of the communicators
  /// Samples of each program's ranks, 0: the strategy's; empty: all have the same.
  std::vector<std::int64_t> micro_batches{};
};

/// What sets a class of ranks apart from the usual one, the class of most ranks (the first of
/// equals): its own figures if they differ; else the communicator in which it meets ranks that
/// others do not; else the links that it shares differently. "" for the usual class itself.
[[nodiscard]] std::string difference(const Folding& folding, const FoldingNames& names,
                                     int rank_class);

[[nodiscard]] std::string folding_text(const Folding& folding, const FoldingNames& names);
[[nodiscard]] JsonValue folding_json(const Folding& folding, const FoldingNames& names);

}  // namespace zerosim
