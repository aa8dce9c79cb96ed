#include "sim/cli/log_machine_flags.h"

#include "sim/base/error.h"
#include "sim/cli/numbers.h"

namespace zerosim {

void add_log_machine_flags(CLI::App& app, LogMachineFlags& flags) {
  app.add_option("--cluster", flags.cluster,
                 "A preset or a cluster file, of all logs (default: by the INDEX.csv beside each "
                 "log, or its list of devices)");
  app.add_option("--nodes", flags.nodes, "Nodes of it (default: as the log says)");
  app.add_option("--gpus-per-node", flags.gpus_per_node, "GPUs of each (default: as the log says)");
  app.add_option("--env", flags.environment,
                 "Environment of the runs, of all logs: NCCL_* variables");
}

LogMachineOptions log_machine_options(const LogMachineFlags& flags) {
  LogMachineOptions options;
  options.cluster = flags.cluster;
  if (flags.cluster.empty() && !(flags.nodes.empty() && flags.gpus_per_node.empty())) {
    throw ConfigError("--nodes and --gpus-per-node say how --cluster is used: give it, too");
  }
  if (!flags.nodes.empty()) {
    options.nodes = static_cast<int>(parse_integer(flags.nodes, "--nodes", kNodeRange));
  }
  if (!flags.gpus_per_node.empty()) {
    options.gpus_per_node =
        static_cast<int>(parse_integer(flags.gpus_per_node, "--gpus-per-node", kGpusPerNodeRange));
  }
  if (!flags.environment.empty()) options.environment = read_environment(flags.environment);
  return options;
}

}  // namespace zerosim
