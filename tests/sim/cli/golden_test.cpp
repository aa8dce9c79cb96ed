// Each folder of tests/golden holds a command line and, byte for byte, what it prints.

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "tests/sim/cli/process.h"

namespace zerosim::testing {
namespace {

std::vector<std::string> golden_cases() {
  std::vector<std::string> cases;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ZEROSIM_SOURCE_DIR) + "/tests/golden")) {
    if (entry.is_directory()) cases.push_back(entry.path().filename().string());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, PrintsTheSameBytes) {
  const std::string folder = std::string(ZEROSIM_SOURCE_DIR) + "/tests/golden/" + GetParam();
  std::istringstream command(read_file(folder + "/command"));
  const std::vector<std::string> words{std::istream_iterator<std::string>(command),
                                       std::istream_iterator<std::string>()};
  const Outcome outcome = run_zerosim(words, folder);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out, read_file(folder + "/expected.txt"))
      << "if the change is meant: bash tests/golden/update.sh " ZEROSIM_EXECUTABLE;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, ::testing::ValuesIn(golden_cases()),
                         [](const ::testing::TestParamInfo<std::string>& input) {
                           return input.param;
                         });

}  // namespace
}  // namespace zerosim::testing
