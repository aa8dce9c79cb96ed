#include "validate/scatter_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ScatterPlot, PointsLieOnALogarithmicSquare) {
  // From 1 to 100: two decades of 320 each; (10, 10) in the middle, 80 + 320 and 50 + 320.
  const std::string svg =
      scatter_svg({"Title",
                   "measured, s",
                   "predicted, s",
                   0.25,
                   {{1, 1, "ddp", "low"}, {10, 10, "ddp", "middle"}, {100, 90, "zero3", "high"}}});
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"400.0\" cy=\"370.0\""));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"80.0\" cy=\"690.0\""));
  EXPECT_THAT(svg, HasSubstr("<title>middle</title>"));
  EXPECT_THAT(svg, HasSubstr(">100</text>"));
  EXPECT_THAT(svg, HasSubstr(">zero3</text>"));
}

TEST(ScatterPlot, NamesAreEscaped) {
  const std::string svg = scatter_svg({"a < b & c", "x", "y", 0.25, {{1, 1, "s", "\"<&>\""}}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, HasSubstr("<title>&quot;&lt;&amp;&gt;&quot;</title>"));
}

TEST(ScatterPlot, WithoutPointsItIsAFrame) {
  const std::string svg = scatter_svg({"none", "x", "y", 0.25, {}});
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace zerosim
