// Figure 1 and Table 1 of "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
// (arXiv 1910.02054), figures in decimal GB as printed there. tests/validate compares the same
// figures from the file tests/data/measured/zero_paper.csv.

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "sim/memory/model_states.h"

namespace zerosim {
namespace {

std::string printed(double parameters, const std::string& strategy, int world_size) {
  for (const Sharding& sharding : shardings()) {
    if (sharding.strategy == strategy) {
      return paper_figure(
          paper_model_states(parameters, sharding, world_size, state_bytes(Precision::Fp16)) / 1e9);
    }
  }
  return "no such strategy";
}

TEST(ZeroPaper, Figure1) {
  // Psi = 7.5e9, N = 64, K = 12: 16 Psi; 4 Psi + 12 Psi / 64; 2 Psi + 14 Psi / 64; 16 Psi / 64.
  EXPECT_EQ(printed(7.5e9, "ddp", 64), "120");
  EXPECT_EQ(printed(7.5e9, "zero1", 64), "31.4");
  EXPECT_EQ(printed(7.5e9, "zero2", 64), "16.6");
  EXPECT_EQ(printed(7.5e9, "zero3", 64), "1.88");
}

struct Table1Row {
  int world_size;
  std::array<const char*, 9> figures;  ///< P_os, P_os+g, P_os+g+p of 7.5B, of 128B, of 1T
};

TEST(ZeroPaper, Table1) {
  const std::array<Table1Row, 6> kRows = {{
      {1, {"120", "120", "120", "2048", "2048", "2048", "16000", "16000", "16000"}},
      {4, {"52.5", "41.3", "30", "896", "704", "512", "7000", "5500", "4000"}},
      {16, {"35.6", "21.6", "7.5", "608", "368", "128", "4750", "2875", "1000"}},
      {64, {"31.4", "16.6", "1.88", "536", "284", "32", "4187", "2218", "250"}},
      {256, {"30.4", "15.4", "0.47", "518", "263", "8", "4046", "2054", "62.5"}},
      {1024, {"30.1", "15.1", "0.12", "513", "257", "2", "4011", "2013", "15.6"}},
  }};
  const std::array<double, 3> kModels = {7.5e9, 128e9, 1e12};
  const std::array<const char*, 3> kStrategies = {"zero1", "zero2", "zero3"};
  for (const Table1Row& row : kRows) {
    for (std::size_t i = 0; i < row.figures.size(); ++i) {
      EXPECT_EQ(printed(kModels[i / 3], kStrategies[i % 3], row.world_size), row.figures[i])
          << kModels[i / 3] << " parameters, " << kStrategies[i % 3] << ", " << row.world_size;
    }
  }
}

TEST(PaperFigure, CutsFrom100OnAndRoundsHalfUpBelow) {
  EXPECT_EQ(paper_figure(257.75), "257");
  EXPECT_EQ(paper_figure(100), "100");
  EXPECT_EQ(paper_figure(41.25), "41.3");
  EXPECT_EQ(paper_figure(99.96), "100");  // 99.96 -> 100.0
  EXPECT_EQ(paper_figure(9.996), "10");
  EXPECT_EQ(paper_figure(1.875), "1.88");
  EXPECT_EQ(paper_figure(0.46875), "0.47");
}

TEST(PaperFigure, KeepsTwoDigitsOfWhatThePaperDoesNotReach) {
  EXPECT_EQ(paper_figure(0.0156), "0.016");
  EXPECT_EQ(paper_figure(0.00123), "0.0012");
  EXPECT_EQ(paper_figure(0), "0");
  EXPECT_EQ(paper_figure(1.6e7), "16000000");
}

}  // namespace
}  // namespace zerosim
