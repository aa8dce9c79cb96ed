#include "topology/calibrated_cost.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "sim/base/text.h"
#include "topology/collective_change.h"
#include "topology/gpu.h"
#include "topology/nccl_graph.h"
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
  if (measured.network && measured.network != here.network) {
    return format("{} between nodes, not {}", to_string(*measured.network),
                  to_string(*here.network));
  }
  return "";
}

/// The cluster as entry `i` was measured; null: it cannot be.
const Cluster* measured_cluster(const Calibration& calibration, std::size_t i,
                                const Cluster& cluster) {
  if (calibration.measured_on.empty()) return &cluster;
  const std::optional<Cluster>& own = calibration.measured_on.at(i);
  return own ? &*own : nullptr;
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

/// That were fitted; repeated rows of a log bring nothing new.
std::size_t different_sizes(const CalibratedCollective& entry) {
  const std::vector<Bytes>& sizes = entry.fitted_residuals.sizes;
  return std::set<Bytes>(sizes.begin(), sizes.end()).size();
}

/// Whether `a` is to be preferred to `b` for this group.
bool is_nearer(const CalibratedCollective& a, const CalibratedCollective& b,
               const CollectiveGroup& group) {
  if (distance(a, group) != distance(b, group)) return distance(a, group) < distance(b, group);
  const bool launched_alike = a.launch == group.launch;
  if (launched_alike != (b.launch == group.launch)) return launched_alike;
  return different_sizes(a) > different_sizes(b);
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

/// The model's `cost`, multiplied by what the entry's group took of what the model says of it.
Parts scaled_parts(const CalibrationMatch& match, Bytes size, Parts cost) {
  const CalibratedCollective& entry = *match.entry;
  const Parts line = line_parts(entry.line, entry.operation, size, entry.ranks);
  const CollectiveCost model =
      collective_cost(*match.measured_on, entry.operation, size, group_of(entry));
  const Parts parts = parts_of(model, *match.measured_on);
  if (parts.delay > Seconds(0)) cost.delay *= line.delay / parts.delay;
  if (parts.transfer > Seconds(0)) cost.transfer *= line.transfer / parts.transfer;
  return cost;
}

/// The nearest entry; its kind is Exact if its group is this one, whatever the environments.
CalibrationMatch nearest(const Calibration& calibration, const Cluster& cluster, CollectiveOp op,
                         const CollectiveGroup& group) {
  CalibrationMatch match;
  for (std::size_t i = 0; i < calibration.collectives.size(); ++i) {
    const CalibratedCollective& entry = calibration.collectives[i];
    const bool same_reach = (entry.nodes == 1) == (group.nodes == 1);
    if (entry.operation != op || !same_reach) continue;
    const Cluster* measured_on = measured_cluster(calibration, i, cluster);
    if (measured_on == nullptr || !is_alike(entry, *measured_on)) continue;
    if (match.entry != nullptr && !is_nearer(entry, *match.entry, group)) continue;
    match.entry = &entry;
    match.measured_on = measured_on;
  }
  if (match.entry == nullptr) return match;
  match.kind = is_of(*match.entry, cluster, group) ? CalibrationMatch::Kind::Exact
                                                   : CalibrationMatch::Kind::Scaled;
  return match;
}

std::string in_words(CollectiveOp op, const CollectiveGroup& group) {
  const int together = group.launch.ranks_per_process;
  return format("{} of {} ranks on {} node{}{}", to_string(op), group.ranks, group.nodes,
                group.nodes == 1 ? "" : "s",
                together == 1 ? "" : format(", {} a process,", together));
}

std::string origin(const CalibratedCollective& entry) {
  std::string text = entry.machine.name;
  if (!entry.log.empty()) text += ", " + entry.log;
  if (!entry.environment.empty()) text += ", with " + join(entry.environment, " ");
  return text;
}

}  // namespace

CalibrationMatch calibration_match(const Calibration& calibration, const Cluster& cluster,
                                   CollectiveOp op, const CollectiveGroup& group) {
  CalibrationMatch match = nearest(calibration, cluster, op, group);
  if (match.kind == CalibrationMatch::Kind::Exact && match.measured_on != &cluster &&
      !costs_alike(*match.measured_on, cluster, op, group)) {
    match.kind = CalibrationMatch::Kind::Scaled;
  }
  return match;
}

CollectiveCost calibrated_cost(const Calibration& calibration, const Cluster& cluster,
                               CollectiveOp op, Bytes size, const CollectiveGroup& group) {
  CollectiveCost cost = collective_cost(cluster, op, size, group);
  if (group.ranks == 1 || size == Bytes(0)) return cost;
  const CalibrationMatch match = nearest(calibration, cluster, op, group);
  if (match.kind == CalibrationMatch::Kind::None) return cost;
  const bool same_group = match.kind == CalibrationMatch::Kind::Exact;
  if (same_group && match.measured_on == &cluster) {
    set_parts(line_parts(match.entry->line, op, size, group.ranks), cluster, cost);
  } else {
    const Bytes compared = same_group ? size : within_fitted(size, *match.entry);
    set_parts(scaled_parts(match, compared, parts_of(cost, cluster)), cluster, cost);
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
  if (is_of(entry, cluster, group)) {
    return format(
        "calibration {}: {} as measured ({}), changed as the model is by the job's "
        "environment{}",
        calibration.file, what, origin(entry), gpu);
  }
  return format("calibration {}: {} by the model, scaled as {} were measured ({}){}",
                calibration.file, what, in_words(op, group_of(entry)), origin(entry), gpu);
}

std::vector<std::string> foreign_machines(const Calibration& calibration, const Cluster& cluster) {
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < calibration.collectives.size(); ++i) {
    const CalibratedCollective& entry = calibration.collectives[i];
    const int nodes = cluster.nodes == 1 ? 1 : entry.nodes;
    MeasuredMachine measured = entry.machine;
    if (nodes == 1) {
      measured.nics = 0;
      measured.nic_bandwidth = {};
      measured.network.reset();
    }
    const Cluster* measured_on = measured_cluster(calibration, i, cluster);
    const std::string why = measured_on == nullptr
                                ? join(entry.environment, " ") + " leaves GPUs no way here"
                                : difference(measured, *measured_on, nodes);
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
