/// \file
/// What a subcommand of `zerosim` is.
#pragma once

#include <memory>
#include <span>

#include <CLI/CLI.hpp>

namespace zerosim {

/// Exit codes (design.md section 5).
enum ExitCode : int {
  kYes = 0,       ///< done, and for a question: yes
  kNo = 1,        ///< the answer is no
  kBadInput = 2,  ///< bad input or usage
  kInternalFailure = 3,
  kEnvironment = 4,  ///< the environment lacks something
};

/// Holds its flags from `add_flags` on; `run` prints results to stdout and returns an ExitCode.
class Command {
 public:
  virtual ~Command() = default;
  virtual void add_flags(CLI::App& app) = 0;
  virtual int run() = 0;
};

struct CommandEntry {
  const char* group;  ///< "" or the word before the name: "validate", "topo"
  const char* name;
  const char* description;
  const char* example;
  std::unique_ptr<Command> (*make)();
};

/// All subcommands, in the order in which help lists them.
[[nodiscard]] std::span<const CommandEntry> commands();

// One file each.
[[nodiscard]] std::unique_ptr<Command> make_model_command();
[[nodiscard]] std::unique_ptr<Command> make_check_command();
[[nodiscard]] std::unique_ptr<Command> make_memory_command();
[[nodiscard]] std::unique_ptr<Command> make_schedule_command();
[[nodiscard]] std::unique_ptr<Command> make_run_command();
[[nodiscard]] std::unique_ptr<Command> make_compare_command();
[[nodiscard]] std::unique_ptr<Command> make_explain_oom_command();
[[nodiscard]] std::unique_ptr<Command> make_calibrate_command();
[[nodiscard]] std::unique_ptr<Command> make_validate_cases_command();
[[nodiscard]] std::unique_ptr<Command> make_validate_collectives_command();
[[nodiscard]] std::unique_ptr<Command> make_validate_kernels_command();
[[nodiscard]] std::unique_ptr<Command> make_validate_memory_command();
[[nodiscard]] std::unique_ptr<Command> make_validate_runs_command();
[[nodiscard]] std::unique_ptr<Command> make_validate_schedule_command();
[[nodiscard]] std::unique_ptr<Command> make_topo_import_command();
[[nodiscard]] std::unique_ptr<Command> make_topo_presets_command();
[[nodiscard]] std::unique_ptr<Command> make_topo_show_command();

}  // namespace zerosim
