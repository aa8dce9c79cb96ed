#include "validate/run_orders.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "validate/run_row.h"
#include "validate/validation.h"

namespace zerosim {

namespace {

constexpr double kSmallestGap = 1.05;  // closer ones may change places with the weather

/// What a column is to a pair.
enum class Role {
  Same,        ///< must be equal
  Strategy,    ///< the strategy itself
  OfStrategy,  ///< follows from it
  Links,       ///< nodes and what joins GPUs
  OfLinks,     ///< follows from it
  OfBatch,     ///< follows from it where the global batch is the same
  Batch,       ///< of all ranks
  Free,        ///< may differ in either
};

struct Column {
  std::string_view name;
  Role role = Role::Same;
};

constexpr auto kColumns = std::to_array<Column>({
    {"model"},
    {"params_b"},
    {"layers"},
    {"seq_len"},
    {"gpu"},
    {"gpus_per_node"},
    {"nodes", Role::Links},
    {"world_size", Role::OfLinks},
    {"intra_node", Role::Links},
    {"inter_node", Role::Links},
    {"framework", Role::OfStrategy},
    {"strategy", Role::Strategy},
    {"strategy_detail", Role::Free},
    {"precision"},
    {"optimizer"},
    {"micro_batch", Role::OfBatch},
    {"grad_accum"},
    {"global_batch_tokens", Role::Batch},
    {"activation_checkpointing"},
    {"flash_attention"},
    {"compile"},
    {"offload"},
});

bool has_role(std::size_t i, Role role) {
  return kColumns[i].role == role;
}

}  // namespace

std::string_view to_string(OrderKnob knob) {
  return knob == OrderKnob::Strategy ? "strategy" : "interconnect";
}

const std::vector<std::string>& order_columns() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    names.reserve(kColumns.size());
    for (const Column& column : kColumns) names.emplace_back(column.name);
    return names;
  }();
  return kNames;
}

std::vector<std::string> order_knobs(const CsvTable& table, const std::vector<CsvCell>& row) {
  std::vector<std::string> knobs;
  knobs.reserve(kColumns.size());
  for (const Column& column : kColumns) knobs.push_back(cell_or_blank(table, row, column.name));
  return knobs;
}

std::optional<OrderKnob> order_knob(const OrderRow& a, const OrderRow& b) {
  if (a.group != b.group || a.timer != b.timer) return std::nullopt;
  bool strategy = false, of_strategy = false, links = false, of_links = false, of_batch = false;
  bool same_batch = false;
  for (std::size_t i = 0; i < kColumns.size(); ++i) {
    if (has_role(i, Role::Batch)) same_batch = !a.knobs[i].empty() && a.knobs[i] == b.knobs[i];
    if (a.knobs[i] == b.knobs[i]) continue;
    if (has_role(i, Role::Same)) return std::nullopt;
    strategy |= has_role(i, Role::Strategy);
    of_strategy |= has_role(i, Role::OfStrategy);
    links |= has_role(i, Role::Links);
    of_links |= has_role(i, Role::OfLinks);
    of_batch |= has_role(i, Role::OfBatch);
  }
  if (of_batch && !(same_batch && of_links)) return std::nullopt;
  if (strategy && !links && !of_links) return OrderKnob::Strategy;
  if (links && !strategy && !of_strategy) return OrderKnob::Interconnect;
  return std::nullopt;
}

std::vector<OrderPair> order_pairs(const std::vector<OrderRow>& rows) {
  std::vector<OrderPair> pairs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      const std::optional<OrderKnob> knob = order_knob(rows[i], rows[j]);
      if (!knob) continue;
      const bool first_is_faster = rows[i].measured < rows[j].measured;
      const OrderRow& faster = first_is_faster ? rows[i] : rows[j];
      const OrderRow& slower = first_is_faster ? rows[j] : rows[i];
      const double gap = slower.measured / faster.measured;
      if (gap < kSmallestGap) continue;
      pairs.push_back({*knob, faster.id, slower.id, gap, slower.predicted / faster.predicted});
    }
  }
  return pairs;
}

OrderSummary summary_of(const std::vector<OrderPair>& pairs) {
  OrderSummary summary;
  std::vector<ValidationRow> errors;
  errors.reserve(pairs.size());
  for (const OrderPair& pair : pairs) {
    errors.push_back(compared_row("", "", "", pair.predicted, pair.measured));
    if (pair.right()) ++summary.right;
    if (std::abs(pair.error()) <= kRatioTolerance) ++summary.reproduced;
  }
  summary.pairs = static_cast<int>(pairs.size());
  summary.median = summary_of(errors).median;
  return summary;
}

}  // namespace zerosim
