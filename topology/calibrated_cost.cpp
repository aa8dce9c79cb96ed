#include "topology/calibrated_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/text.h"
#include "topology/gpu.h"
#include "topology/node_file.h"

namespace zerosim {
namespace {

/// What makes a machine another kind; "": it is alike.
std::string difference(const MeasuredMachine& measured, const Cluster& cluster, int nodes) {
  const MeasuredMachine here = measured_machine(cluster, nodes);
  if (gpu_spec(measured.gpu).compute_capability != gpu_spec(here.gpu).compute_capability) {
    return format("{}, not {}", measured.gpu, here.gpu);
  }
  if (measured.intra != here.intra) {
    return format("{}, not {}", intra_node_name(measured.intra), intra_node_name(here.intra));
  }
  if (measured.nics != here.nics || measured.nic_bandwidth != here.nic_bandwidth) {
    return format("{} x {:g} GB/s of network a node, not {} x {:g}", measured.nics,
                  measured.nic_bandwidth.gb_per_second(), here.nics,
                  here.nic_bandwidth.gb_per_second());
  }
  return "";
}

bool is_alike(const CalibratedCollective& entry, const Cluster& cluster) {
  // Without a network there is nothing that an entry of several nodes could be alike.
  if (entry.nodes > 1 && cluster.nodes == 1) return false;
  return difference(entry.machine, cluster, entry.nodes).empty();
}

CollectiveGroup group_of(const CalibratedCollective& entry) {
  CollectiveGroup group;
  group.ranks = entry.ranks;
  group.nodes = entry.nodes;
  group.launch = entry.launch;
  return group;
}

/// As many ranks and nodes, launched alike, by all adapters, as logs are measured.
bool is_of(const CalibratedCollective& entry, const Cluster& cluster,
           const CollectiveGroup& group) {
  const int all = nics_in_use(cluster) * std::max(1, cluster.fabric.nvlink_domain_nodes);
  const bool all_nics = group.nodes == 1 || group.nics == 0 || group.nics == all;
  return entry.ranks == group.ranks && entry.nodes == group.nodes && entry.launch == group.launch &&
         all_nics;
}

/// By which factor the numbers of ranks differ, then those of nodes.
std::pair<double, double> distance(const CalibratedCollective& entry,
                                   const CollectiveGroup& group) {
  return {std::abs(std::log(static_cast<double>(entry.ranks) / group.ranks)),
          std::abs(std::log(static_cast<double>(entry.nodes) / group.nodes))};
}

/// Whether `a` is to be preferred to `b` for this group.
bool is_nearer(const CalibratedCollective& a, const CalibratedCollective& b,
               const CollectiveGroup& group) {
  if (distance(a, group) != distance(b, group)) return distance(a, group) < distance(b, group);
  const bool launched_alike = a.launch == group.launch;
  if (launched_alike != (b.launch == group.launch)) return launched_alike;
  return a.fitted_residuals.sizes.size() > b.fitted_residuals.sizes.size();
}

/// Delay and transfer, which `CollectiveCost::idle_time` sums.
struct Parts {
  Seconds delay{0};
  Seconds transfer{0};
};

Parts parts_of(const CollectiveCost& cost, const Cluster& cluster) {
  return {cost.delay, cost.transfer_time(cluster)};
}

Seconds alone(const LinkLoad& load, const CollectiveCost& cost, const Cluster& cluster) {
  CollectiveCost one;
  one.nics = cost.nics;
  one.loads = {load};
  return one.transfer_time(cluster);
}

bool is_link(const LinkLoad& load) {
  return load.kind == LinkClass::Kind::IntraNode || load.kind == LinkClass::Kind::Network;
}

Bytes scaled(Bytes bytes, double factor) {
  return Bytes(std::llround(static_cast<double>(bytes.count()) * factor));
}

/// Puts other times on the same links.
void set_parts(const Parts& parts, const Cluster& cluster, CollectiveCost& cost) {
  Seconds narrowest{0};
  for (const LinkLoad& load : cost.loads) {
    if (is_link(load)) narrowest = std::max(narrowest, alone(load, cost, cluster));
  }
  if (narrowest > Seconds(0)) {
    const double stretch = parts.transfer / narrowest;
    for (LinkLoad& load : cost.loads) {
      const Seconds time = alone(load, cost, cluster);
      if (load.kind == LinkClass::Kind::Fabric) {
        load.bytes = scaled(load.bytes, std::min(1.0, stretch));
      } else if (time > parts.transfer || (is_link(load) && time == narrowest)) {
        load.bytes = scaled(load.bytes, parts.transfer / time);
      }
    }
  }
  // Loads are whole bytes: the delay makes up for what rounding took.
  const Seconds loaded = cost.transfer_time(cluster);
  cost.delay = std::max(Seconds(0), parts.delay + parts.transfer - loaded);
}

Parts line_parts(const CollectiveLine& line, CollectiveOp op, Bytes size, int ranks) {
  const Bytes sent = ring_bytes_sent(op, size, ranks);
  return {line.delay(sent), line.transfer(sent)};
}

Bytes within_fitted(Bytes size, const CalibratedCollective& entry) {
  const std::vector<Bytes>& sizes = entry.fitted_residuals.sizes;
  return sizes.empty() ? size : std::clamp(size, sizes.front(), sizes.back());
}

/// What the entry's group takes of what the model says of it.
struct Ratios {
  double delay = 1;
  double transfer = 1;
};

Ratios ratios_of(const CalibratedCollective& entry, const Cluster& cluster, Bytes size) {
  const Bytes fitted = within_fitted(size, entry);
  const Parts line = line_parts(entry.line, entry.operation, fitted, entry.ranks);
  const CollectiveCost model = collective_cost(cluster, entry.operation, fitted, group_of(entry));
  const Parts parts = parts_of(model, cluster);
  Ratios ratios;
  if (parts.delay > Seconds(0)) ratios.delay = line.delay / parts.delay;
  if (parts.transfer > Seconds(0)) ratios.transfer = line.transfer / parts.transfer;
  return ratios;
}

std::string in_words(CollectiveOp op, const CollectiveGroup& group) {
  const int together = group.launch.ranks_per_process;
  return format("{} of {} ranks on {} node{}{}", to_string(op), group.ranks, group.nodes,
                group.nodes == 1 ? "" : "s",
                together == 1 ? "" : format(", {} a process,", together));
}

std::string origin(const CalibratedCollective& entry) {
  return entry.log.empty() ? entry.machine.name : format("{}, {}", entry.machine.name, entry.log);
}

}  // namespace

CalibrationMatch calibration_match(const Calibration& calibration, const Cluster& cluster,
                                   CollectiveOp op, const CollectiveGroup& group) {
  CalibrationMatch match;
  for (const CalibratedCollective& entry : calibration.collectives) {
    const bool same_reach = (entry.nodes == 1) == (group.nodes == 1);
    if (entry.operation != op || !same_reach || !is_alike(entry, cluster)) continue;
    if (match.entry == nullptr || is_nearer(entry, *match.entry, group)) match.entry = &entry;
  }
  if (match.entry != nullptr) {
    match.kind = is_of(*match.entry, cluster, group) ? CalibrationMatch::Kind::Exact
                                                     : CalibrationMatch::Kind::Scaled;
  }
  return match;
}

CollectiveCost calibrated_cost(const Calibration& calibration, const Cluster& cluster,
                               CollectiveOp op, Bytes size, const CollectiveGroup& group) {
  CollectiveCost cost = collective_cost(cluster, op, size, group);
  if (group.ranks == 1 || size == Bytes(0)) return cost;
  const CalibrationMatch match = calibration_match(calibration, cluster, op, group);
  switch (match.kind) {
    case CalibrationMatch::Kind::None:
      break;
    case CalibrationMatch::Kind::Exact:
      set_parts(line_parts(match.entry->line, op, size, group.ranks), cluster, cost);
      break;
    case CalibrationMatch::Kind::Scaled: {
      const Ratios ratios = ratios_of(*match.entry, cluster, size);
      const Parts model = parts_of(cost, cluster);
      set_parts({ratios.delay * model.delay, ratios.transfer * model.transfer}, cluster, cost);
      break;
    }
  }
  return cost;
}

std::string calibration_note(const Calibration& calibration, const Cluster& cluster,
                             CollectiveOp op, const CollectiveGroup& group) {
  const CalibrationMatch match = calibration_match(calibration, cluster, op, group);
  const std::string what = in_words(op, group);
  if (match.kind == CalibrationMatch::Kind::None) {
    return format("calibration {}: nothing for {}, the model alone", calibration.file, what);
  }
  const CalibratedCollective& entry = *match.entry;
  const bool same_gpu = entry.machine.gpu == cluster.node.gpu;
  const std::string gpu =
      same_gpu ? "" : format("; {} there, {} here", entry.machine.gpu, cluster.node.gpu);
  if (match.kind == CalibrationMatch::Kind::Exact) {
    return format("calibration {}: {} as measured ({}){}", calibration.file, what, origin(entry),
                  gpu);
  }
  return format("calibration {}: {} by the model, scaled as {} were measured ({}){}",
                calibration.file, what, in_words(op, group_of(entry)), origin(entry), gpu);
}

std::vector<std::string> foreign_machines(const Calibration& calibration, const Cluster& cluster) {
  std::vector<std::string> sentences;
  for (const CalibratedCollective& entry : calibration.collectives) {
    const int nodes = cluster.nodes == 1 ? 1 : entry.nodes;
    MeasuredMachine measured = entry.machine;
    if (nodes == 1) {
      measured.nics = 0;
      measured.nic_bandwidth = {};
    }
    const std::string why = difference(measured, cluster, nodes);
    if (why.empty()) continue;
    std::string sentence = format("calibration {}: measurements of {} are not used: {}",
                                  calibration.file, entry.machine.name, why);
    if (std::find(sentences.begin(), sentences.end(), sentence) == sentences.end()) {
      sentences.push_back(std::move(sentence));
    }
  }
  return sentences;
}

}  // namespace zerosim
