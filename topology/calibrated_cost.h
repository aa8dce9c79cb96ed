/// \file
/// What a calibration says about one collective of a simulated cluster.
///
/// An entry is asked if it is of the operation and of a machine of the same kind: a GPU of the same
/// compute capability, the same links in a node and, between nodes, adapters of the same kind,
/// number and rate. Entries of other machines are told and not used.
///
/// What NCCL_* variables do is the model's: an entry's machine is compared with the cluster as the
/// entry was measured (Calibration::measured_on), without the job's environment and with the
/// entry's.
///
/// - *Exact*: an entry of as many ranks on as many nodes, launched alike (LaunchMode), and the
///   group drives all adapters. The collective takes the line's time: the V/B part as bytes on the
///   links, where it contends, the rest as the delay. (Where the job's environment makes the model
///   say something else of this group than of the one that was measured, the entry is scaled, at
///   the very size.)
/// - *Scaled*: of the entries whose group is of one node, or of several, as this one, the nearest
///   in ranks (by ratio), then in nodes. The model's delay and transfer of this group are
///   multiplied by what the entry's line is of the model's delay and transfer of the entry's group
///   as it was measured, at the same size; the size is kept within those that were fitted.
/// - *None*: the model alone.
///
/// Of entries that are equally near one that was launched alike is taken, then the one with most
/// sizes fitted, then the first.
///
/// Bytes: the narrowest link class carries transfer x its capacity; others, the fabric and device
/// memory what the model puts on them, or less where that would last longer than the transfer that
/// was measured.
///
/// Not modelled: what else the cluster at hand and the one that was measured differ in (fabric,
/// perturbations).
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
  /// As the entry was measured: part of the calibration, or the cluster at hand.
  const Cluster* measured_on = nullptr;
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
