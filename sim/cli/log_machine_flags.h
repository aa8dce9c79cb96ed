/// \file
/// Flags that say on which machine logs of nccl-tests were made.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "validate/log_machine.h"

namespace zerosim {

/// As written; empty: not given.
struct LogMachineFlags {
  std::string cluster, nodes, gpus_per_node, environment;
};

/// `--cluster`, `--nodes`, `--gpus-per-node`, `--env`.
void add_log_machine_flags(CLI::App& app, LogMachineFlags& flags);

/// \throws ConfigError  for counts without a cluster, and what is no count; as read_environment
[[nodiscard]] LogMachineOptions log_machine_options(const LogMachineFlags& flags);

}  // namespace zerosim
