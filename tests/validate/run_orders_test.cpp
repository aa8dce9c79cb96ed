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

// 1536 sequences over 48 nodes of 8 GPUs are 4 a GPU, over 96 nodes 2.
TEST(RunOrders, AFixedGlobalBatchIsSpread) {
  const OrderRow a = with(row("a", 1, 1), "global_batch_tokens", "3145728");
  const auto spread = [&](const OrderRow& from) {
    return with(with(with(from, "nodes", "96"), "world_size", "768"), "micro_batch", "2");
  };
  EXPECT_EQ(order_knob(a, spread(a)), OrderKnob::Interconnect);
  EXPECT_FALSE(order_knob(a, with(a, "micro_batch", "2")));                     // no more nodes
  EXPECT_FALSE(order_knob(a, with(spread(a), "grad_accum", "2")));              // another knob
  EXPECT_FALSE(order_knob(a, with(spread(a), "global_batch_tokens", "1024")));  // not fixed
  const OrderRow untold = with(a, "global_batch_tokens", "");
  EXPECT_FALSE(order_knob(untold, spread(untold)));
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
  EXPECT_FALSE((OrderPair{OrderKnob::Strategy, "a", "b", 1.2, 1.0000003}).right());
}

// Off by 1.5 / 2 - 1 = -25 %, 1.2 / 1.2 - 1 = 0, 0.9 / 1.5 - 1 = -40 %: the median is 25 %.
TEST(RunOrders, RatiosHaveErrors) {
  const auto pair = [](double measured, double predicted) {
    return OrderPair{OrderKnob::Strategy, "a", "b", measured, predicted};
  };
  EXPECT_DOUBLE_EQ(pair(2, 1.5).error(), -0.25);
  const OrderSummary summary = summary_of({pair(2, 1.5), pair(1.2, 1.2), pair(1.5, 0.9)});
  EXPECT_EQ(summary.pairs, 3);
  EXPECT_EQ(summary.right, 2);
  EXPECT_EQ(summary.reproduced, 2);
  ASSERT_TRUE(summary.median);
  EXPECT_DOUBLE_EQ(*summary.median, 0.25);
  EXPECT_FALSE(summary_of(std::vector<OrderPair>{}).median);
}

}  // namespace
}  // namespace zerosim
