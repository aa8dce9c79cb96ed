#include "sim/analysis/isolate.h"

#include <csignal>
#include <stdexcept>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

TEST(RunIsolated, BringsBytesBack) {
  EXPECT_EQ(run_isolated([] { return std::string("a\0b", 3); }), std::string("a\0b", 3));
  EXPECT_EQ(run_isolated([] { return std::string(); }), "");
  const std::string large(3'000'000, 'x');  // more than a pipe holds
  EXPECT_EQ(run_isolated([&] { return large; }), large);
}

TEST(RunIsolated, LeavesThisProcessAsItIs) {
  int value = 1;
  const std::string child = run_isolated([&] {
    value = 2;
    return std::to_string(getpid()) + " has " + std::to_string(value);
  });
  EXPECT_THAT(child, ::testing::EndsWith(" has 2"));
  EXPECT_NE(child, std::to_string(getpid()) + " has 2");
  EXPECT_EQ(value, 1);
}

template <typename Thrown>
std::string message_of(const std::function<std::string()>& work) {
  try {
    static_cast<void>(run_isolated(work));
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(RunIsolated, ErrorsComeBackAsTheSameKind) {
  EXPECT_EQ(message_of<SimulationError>([]() -> std::string { throw SimulationError("stuck"); }),
            "stuck");
  EXPECT_EQ(message_of<BackendError>([]() -> std::string { throw BackendError("no GPU"); }),
            "no GPU");
  EXPECT_EQ(message_of<TraceError>([]() -> std::string {
              throw TraceError({"log.txt", 3, 0}, "expected a size");
            }),
            "log.txt:3: expected a size");
  EXPECT_EQ(message_of<std::runtime_error>(
                []() -> std::string { throw std::runtime_error("something else"); }),
            "something else");
}

TEST(RunIsolated, AConfigErrorKeepsItsPlaceAndCode) {
  try {
    static_cast<void>(run_isolated([]() -> std::string {
      throw ConfigError({"ds_config.json", 4, 12}, "stage 7", "stage_unknown");
    }));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "ds_config.json:4:12: stage 7");
    EXPECT_EQ(error.location().file, "ds_config.json");
    EXPECT_EQ(error.location().line, 4);
    EXPECT_EQ(error.location().column, 12);
    EXPECT_EQ(error.code(), "stage_unknown");
  }
}

TEST(RunIsolated, SaysHowTheChildDied) {
  EXPECT_THAT(message_of<SimulationError>([]() -> std::string {
                raise(SIGKILL);
                return "";
              }),
              ::testing::StartsWith("the isolated run was ended by signal 9"));
  EXPECT_EQ(message_of<SimulationError>([]() -> std::string { _exit(5); }),
            "the isolated run ended with status 5 and no result");
}

}  // namespace
}  // namespace zerosim
