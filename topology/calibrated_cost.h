/// \file
/// What a calibration says about one collective of a simulated cluster.
///
/// An entry is asked if it is of the operation and of a machine of the same kind: a GPU of the same
/// compute capability, the same links in a node and, between nodes, adapters of the same number and
/// rate. Entries of other machines are told and not used.
///
/// - *Exact*: an entry of as many ranks on as many nodes, launched alike (LaunchMode), and the
///   group drives all adapters. The collective takes the line's time: the V/B part as bytes on the
///   links, where it contends, the rest as the delay.
/// - *Scaled*: of the entries whose group is of one node, or of several, as this one, the nearest
///   in ranks (by ratio), then in nodes. The model's delay and transfer of this group are
///   multiplied by what the entry's line is of the model's delay and transfer of the entry's group,
///   at the same size; the size is kept within those that were fitted.
/// - *None*: the model alone.
///
/// Of entries that are equally near one that was launched alike is taken, then the one with most
/// sizes fitted, then the first.
///
/// Bytes: the narrowest link class carries transfer x its capacity; others, the fabric and device
/// memory what the model puts on them, or less where that would last longer than the transfer that
/// was measured.
///
/// Not told apart: kinds of network with adapters alike (InfiniBand, RoCE). The model of an entry's
/// group is that on the cluster at hand, not on the one that was measured.
#pragma once

#include <string>
#include <vector>

#include "topology/calibration.h"
#include "topology/cluster.h"
#include "topology/collective_model.h"

namespace zerosim {

struct CalibrationMatch {
  enum class Kind { None, Exact, Scaled };
  Kind kind = Kind::None;
  const CalibratedCollective* entry = nullptr;  ///< part of the calibration; null: none
};

[[nodiscard]] CalibrationMatch calibration_match(const Calibration& calibration,
                                                 const Cluster& cluster, CollectiveOp op,
                                                 const CollectiveGroup& group);

/// As `collective_cost`, calibrated; the same where nothing matches.
[[nodiscard]] CollectiveCost calibrated_cost(const Calibration& calibration, const Cluster& cluster,
                                             CollectiveOp op, Bytes size,
                                             const CollectiveGroup& group);

/// A sentence on where the times of this operation come from, for `assumptions`.
[[nodiscard]] std::string calibration_note(const Calibration& calibration, const Cluster& cluster,
                                           CollectiveOp op, const CollectiveGroup& group);

/// A sentence for each machine of the file that is not of the cluster's kind.
[[nodiscard]] std::vector<std::string> foreign_machines(const Calibration& calibration,
                                                        const Cluster& cluster);

}  // namespace zerosim
