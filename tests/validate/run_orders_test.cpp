#include "validate/run_orders.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace zerosim {
namespace {

OrderRow row(const std::string& id, double measured, double predicted) {
  return {id,       "group",  "step", std::vector<std::string>(order_columns().size(), "x"),
          measured, predicted};
}

OrderRow with(OrderRow row, const std::string& column, const std::string& text) {
  const auto& columns = order_columns();
  const auto found = std::find(columns.begin(), columns.end(), column);
  row.knobs[static_cast<std::size_t>(found - columns.begin())] = text;
  return row;
}

TEST(RunOrders, PairsDifferInOneKnob) {
  const OrderRow a = row("a", 1, 1);
  EXPECT_FALSE(order_knob(a, a));
  EXPECT_EQ(order_knob(a, with(a, "strategy", "zero3")), OrderKnob::Strategy);
  EXPECT_EQ(order_knob(a, with(with(a, "strategy", "zero3"), "framework", "DeepSpeed")),
            OrderKnob::Strategy);
  EXPECT_EQ(order_knob(a, with(a, "intra_node", "PCIe")), OrderKnob::Interconnect);
  EXPECT_EQ(order_knob(a, with(with(a, "nodes", "2"), "world_size", "16")),
            OrderKnob::Interconnect);
  EXPECT_FALSE(order_knob(a, with(with(a, "strategy", "zero3"), "nodes", "2")));
  EXPECT_FALSE(order_knob(a, with(with(a, "strategy", "zero3"), "micro_batch", "2")));
  EXPECT_FALSE(order_knob(a, with(a, "framework", "DeepSpeed")));
  EXPECT_FALSE(order_knob(a, with(a, "world_size", "16")));
  OrderRow other = with(a, "strategy", "zero3");
  other.timer = "engine";
  EXPECT_FALSE(order_knob(a, other));
  other = with(a, "strategy", "zero3");
  other.group = "another";
  EXPECT_FALSE(order_knob(a, other));
}

TEST(RunOrders, GapsBelowFivePercentAreNone) {
  const OrderRow ddp = row("ddp", 1, 1);
  OrderRow zero3 = with(row("zero3", 1.2, 0.9), "strategy", "zero3");
  std::vector<OrderPair> pairs = order_pairs({ddp, zero3});
  ASSERT_EQ(pairs.size(), 1U);
  EXPECT_EQ(pairs[0].faster, "ddp");
  EXPECT_EQ(pairs[0].slower, "zero3");
  EXPECT_DOUBLE_EQ(pairs[0].measured, 1.2);
  EXPECT_DOUBLE_EQ(pairs[0].predicted, 0.9);
  EXPECT_FALSE(pairs[0].right());
  zero3.predicted = 1.01;
  EXPECT_TRUE(order_pairs({zero3, ddp})[0].right());
  zero3.measured = 1.04;
  EXPECT_TRUE(order_pairs({ddp, zero3}).empty());
  // The same prediction is no order.
  EXPECT_FALSE((OrderPair{OrderKnob::Strategy, "a", "b", 1.2, 1}).right());
}

}  // namespace
}  // namespace zerosim
