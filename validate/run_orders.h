/// \file
/// Whether the simulator puts published runs in the right order.
///
/// A pair is two rows of one group with the same timer that differ only in strategy, or only in
/// nodes or interconnect, and whose measured times per sequence and GPU are more than 5 % apart.
/// What follows from the knob differs with it: the framework that has the strategy; the ranks;
/// where a global batch that both rows tell is spread over more or fewer nodes, the micro batches.
///
/// Besides the order there is the ratio: how far the predicted one of a pair is from the measured
/// one. What a kernel model gets wrong in both rows alike cancels in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "validate/csv.h"

namespace zerosim {

/// A row as far as its order is concerned.
struct OrderRow {
  std::string id, group, timer;
  std::vector<std::string> knobs;  ///< cells of `order_columns`
  double measured = 0;             ///< time per sequence and GPU
  double predicted = 0;
};

enum class OrderKnob { Strategy, Interconnect };
[[nodiscard]] std::string_view to_string(OrderKnob knob);

struct OrderPair {
  OrderKnob knob = OrderKnob::Strategy;
  std::string faster, slower;  ///< ids, as measured
  double measured = 0;         ///< time of `slower` over that of `faster`, above 1
  double predicted = 0;
  /// Predicted times that are the same to 0.1 % are no order.
  [[nodiscard]] bool right() const { return predicted > 1.001; }
  /// (predicted - measured) / measured
  [[nodiscard]] double error() const { return predicted / measured - 1; }
};

/// How far a ratio may be off, relative to the measured one, to count as reproduced.
inline constexpr double kRatioTolerance = 0.25;

struct OrderSummary {
  int pairs = 0;
  int right = 0;
  int reproduced = 0;            ///< ratios within `kRatioTolerance`
  std::optional<double> median;  ///< of the ratios' absolute errors
};
[[nodiscard]] OrderSummary summary_of(const std::vector<OrderPair>& pairs);

/// Columns that tell two runs apart.
[[nodiscard]] const std::vector<std::string>& order_columns();
/// Cells of them; "" where the table has no such column.
[[nodiscard]] std::vector<std::string> order_knobs(const CsvTable& table,
                                                   const std::vector<CsvCell>& row);
/// What two rows differ in, if it makes them a pair.
[[nodiscard]] std::optional<OrderKnob> order_knob(const OrderRow& a, const OrderRow& b);

[[nodiscard]] std::vector<OrderPair> order_pairs(const std::vector<OrderRow>& rows);

}  // namespace zerosim
