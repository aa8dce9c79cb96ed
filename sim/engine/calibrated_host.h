/// \file
/// Host times as training runs of a machine have them (`host` of a calibration, calibration.h) in
/// place of the table's (host_time.h).
///
/// A calibration has two constants: a factor on all host work of the interpreter, which is how much
/// slower its processor runs Python, dispatcher and driver than the table's; and the time of one of
/// DeepSpeed's hooks, which is code of its own. Without the latter the factor holds for hooks too:
///
///     t(work) = interpreter x table(work),   t(DeepSpeed's hook) = deepspeed_hook, if there is one
///
/// Not modelled: which processor it was; passes over host memory, copies and calls of the allocator
/// keep their times.
#pragma once

#include <optional>
#include <string>

#include "sim/engine/host_time.h"
#include "topology/calibration.h"

namespace zerosim {

[[nodiscard]] Seconds calibrated_host_time(const HostTimes& table, HostWork work,
                                           const std::optional<CalibratedHost>& host);

/// One sentence for assumptions; "": the calibration has no host.
[[nodiscard]] std::string host_note(const Calibration& calibration, const HostTimes& table);

}  // namespace zerosim
