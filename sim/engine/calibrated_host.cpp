#include "sim/engine/calibrated_host.h"

#include "sim/base/text.h"

namespace zerosim {

Seconds calibrated_host_time(const HostTimes& table, HostWork work,
                             const std::optional<CalibratedHost>& host) {
  const Seconds time = host_time(table, work);
  if (!host) return time;
  if (work == HostWork::DeepSpeedHook && host->deepspeed_hook) return *host->deepspeed_hook;
  return time * host->interpreter;
}

std::string host_note(const Calibration& calibration, const HostTimes& table) {
  if (!calibration.host) return "";
  const CalibratedHost& host = *calibration.host;
  const Seconds hook = calibrated_host_time(table, HostWork::DeepSpeedHook, calibration.host);
  std::string note = format(
      "calibration {}: host work takes {:g} times the table's time, a hook of DeepSpeed {:.4g} us",
      calibration.file, host.interpreter, hook.count() * 1e6);
  if (host.fitted.rows == 0) return note;
  return note + format(", fitted to {} training runs of {} (median error {:.1f} %)",
                       host.fitted.rows, host.table, host.fitted.median * 100);
}

}  // namespace zerosim
