/// \file
/// Runs the executable as a user does.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"

namespace zerosim::testing {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string error;
};

/// Runs `zerosim ARGUMENTS...`, without a shell, in `folder` or else here.
[[nodiscard]] Outcome run_zerosim(const std::vector<std::string>& arguments,
                                  const std::string& folder = ".");

/// The same with `--json`, parsed; fails the test unless the exit code is `expected_exit`.
[[nodiscard]] JsonDocument zerosim_json(std::vector<std::string> arguments, int expected_exit = 0);

/// A folder of its own that lives as long as the object: tests run at the same time.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Path of a file in it, which need not be there.
  [[nodiscard]] std::string file(const std::string& name) const;

 private:
  std::string path_;
};

/// Path of a file of tests/data/cli.
[[nodiscard]] std::string cli_data(const std::string& name);

}  // namespace zerosim::testing
