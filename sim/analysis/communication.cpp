// Counting a step's collectives: volume, bytes by ring counting, bytes that leave a node.

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "sim/analysis/report.h"
#include "sim/analysis/volume.h"
#include "sim/engine/collective_call.h"
#include "topology/collective_model.h"

namespace zerosim {

namespace {

/// Calls `visit(collective, group)` for each collective of the last step, in host order.
template <typename Visit>
void for_each_collective(const Program& program, Visit visit) {
  const RankProgram& rank = program.ranks.front();
  const int last_step = program.first_step + program.steps - 1;
  for (const Op& op : rank.ops) {
    if (op.kind != OpKind::Collective || op.step != last_step) continue;
    const Collective& collective = rank.collectives[static_cast<std::size_t>(op.payload)];
    visit(collective, program.groups[collective.group.index()]);
  }
}

}  // namespace

Volume count_volume(const Program& program) {
  Volume volume;
  for_each_collective(program, [&](const Collective& collective, const ProcessGroup& group) {
    if (group.size < 2) return;
    const Bytes size = collective_size(collective);
    switch (collective.kind) {
      case CollectiveKind::AllReduce:
        volume.all_reduced += size;
        break;
      case CollectiveKind::AllGather:
        volume.gathered += size;
        break;
      default:
        volume.reduced_once += size;
    }
  });
  return volume;
}

double Volume::in_units_of(Bytes parameter_bytes) const {
  if (parameter_bytes.count() <= 0) return 0;
  return static_cast<double>((2 * all_reduced + gathered + reduced_once).count()) /
         static_cast<double>(parameter_bytes.count());
}

namespace {

/// Groups alike that are on each node of one that lies so.
int groups_on_a_node(const Cluster& cluster, const CollectiveGroup& shape) {
  const int gpus = cluster.gpus_per_node * cluster.fabric.nvlink_domain_nodes;
  const int of_group = (shape.ranks + shape.nodes - 1) / shape.nodes;
  return std::max(1, gpus / of_group);
}

}  // namespace

CommunicationReport count_communication(const Program& program, const Cluster& cluster) {
  struct Sent {
    Bytes bytes;
    Bytes inter_node;
  };
  std::map<std::tuple<CollectiveKind, Bytes, GroupId>, Sent> known;  // a step repeats few sizes
  std::map<GroupId, CollectiveGroup> shapes;
  CommunicationReport report;
  for_each_collective(program, [&](const Collective& collective, const ProcessGroup& group) {
    const Bytes size = collective_size(collective);
    const auto [entry, added] = known.try_emplace({collective.kind, size, collective.group});
    Sent& sent = entry->second;
    if (added) {
      const auto [shape, is_new] = shapes.try_emplace(collective.group);
      if (is_new) shape->second = placement(cluster, group);
      const CollectiveCost cost =
          collective_cost(cluster, collective_op(collective.kind), size, shape->second);
      sent = {cost.sent_per_rank, cost.inter_node * groups_on_a_node(cluster, shape->second)};
    }
    OperationTotals& totals = report.by_operation[std::string(to_string(collective.kind))];
    ++totals.calls;
    totals.bytes_sent += sent.bytes;
    ++report.collectives;
    report.bytes_sent_per_rank += sent.bytes;
    report.inter_node_bytes += sent.inter_node;
  });
  report.psi = count_volume(program).in_units_of(program.parameter_bytes);
  return report;
}

}  // namespace zerosim
