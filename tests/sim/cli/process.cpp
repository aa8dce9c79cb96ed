#include "tests/sim/cli/process.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <stdexcept>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <gtest/gtest.h>
#include <spawn.h>

#include "sim/base/text.h"

extern char** environ;

namespace zerosim::testing {

namespace {

/// A file that is there while the object lives.
class TemporaryFile {
 public:
  TemporaryFile() {
    path_ = (std::filesystem::temp_directory_path() / "zerosim_test_XXXXXX").string();
    descriptor_ = mkstemp(path_.data());
  }
  ~TemporaryFile() {
    close(descriptor_);
    std::filesystem::remove(path_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] std::string content() const { return read_file(path_); }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "zerosim_test_XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder for a test");
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}
std::string TemporaryFolder::file(const std::string& name) const {
  return (std::filesystem::path(path_) / name).string();
}

Outcome run_zerosim(const std::vector<std::string>& arguments, const std::string& folder) {
  std::vector<std::string> words = {ZEROSIM_EXECUTABLE};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const TemporaryFile out;
  const TemporaryFile error;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.descriptor(), STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, ZEROSIM_EXECUTABLE, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  Outcome outcome;
  if (failed != 0) {
    ADD_FAILURE() << "cannot start " << ZEROSIM_EXECUTABLE;
    return outcome;
  }
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = out.content();
  outcome.error = error.content();
  return outcome;
}

JsonDocument zerosim_json(std::vector<std::string> arguments, int expected_exit) {
  arguments.emplace_back("--json");
  const Outcome outcome = run_zerosim(arguments);
  EXPECT_EQ(outcome.exit_code, expected_exit) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  return JsonDocument::from_text(outcome.out.empty() ? "{}" : outcome.out, "stdout");
}

std::string cli_data(const std::string& name) {
  return std::string(ZEROSIM_TEST_DATA) + "/cli/" + name;
}

}  // namespace zerosim::testing
