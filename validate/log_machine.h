/// \file
/// The machine that a log of nccl-tests was made on, as a Cluster.
///
/// From the first of these that there is:
///
/// - the cluster that the user names, with the nodes and GPUs per node that the user or the log
///   says;
/// - the row of the log in an INDEX.csv beside it: columns file, op, gpu, gpus_per_node, nodes,
///   link, source (those of data/nccl_tests/INDEX.csv; others are not read). GPU and link are read
///   as gpu_words.h and link_words.h say;
/// - the list of devices in the log: GPU, hosts and GPUs of each.
///
/// GPU and links then name a preset, as a person would: one with this GPU, these links in a node
/// and GPUs enough; of several the one whose adapters are those that are stated, else, on one node,
/// the one with just as many GPUs, else the first. Its adapters are replaced where others are
/// stated. Where no preset has the GPU the node is spelled out as in a cluster file.
///
/// NCCL's release is the one that the log states; else that of the time where nccl-tests printed
/// busbw twice (2019 and before: 2.5); else that of the model.
///
/// How it was launched is what the log says (`ranks_per_process`); where it does not, one process
/// for all GPUs of one node, a process for each between nodes. Logs of old releases with several
/// GPUs a process were launched as a group (LaunchMode).
///
/// Skipped with a reason: AMD's GPUs (RCCL is no NCCL), GPUs and networks that are not known, ranks
/// that are not nodes x GPUs, hosts with unequal numbers of GPUs or with several kinds, and logs
/// whose list of devices has GPUs of another architecture than the user's cluster or the row.
/// Where list, row and user differ otherwise the first of them above counts, and that is a note.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/environment.h"
#include "topology/calibration.h"
#include "topology/cluster.h"
#include "topology/collective_model.h"
#include "topology/gpu.h"
#include "traces/nccl_tests.h"
#include "validate/link_words.h"

namespace zerosim {

/// What the user says.
struct LogMachineOptions {
  std::string cluster;  ///< a preset or file; "": found out
  int nodes = -1;       ///< -1: found out
  int gpus_per_node = -1;
  Calibration calibration{};  ///< of predictions; empty: the model
  Environment environment{};  ///< NCCL_* variables that the runs had
};

/// A row of INDEX.csv.
struct LogIndexRow {
  std::string place;  ///< "data/INDEX.csv:7"
  std::string operation, gpu, link;
  int gpus_per_node = 0;  ///< 0: blank
  int nodes = 0;
  std::string source{};  ///< where it was published
};
/// By name of the log.
using LogIndex = std::map<std::string, LogIndexRow>;

/// Reads the INDEX.csv of a folder; empty if there is none.
/// \throws TraceError  with line and column, if it is no such table, at an operation that is not
/// known
///                     and at a file's second row.
[[nodiscard]] LogIndex read_log_index(const std::string& folder);

struct LogMachine {
  std::optional<Cluster> cluster;
  std::string why;               ///< there is none
  std::optional<Cluster> found;  ///< the same without what the environment does
  CollectiveGroup group;
  std::string machine_class;  ///< "A100 nvswitch", "H100 efa": GPU and the narrowest links
  std::vector<std::string> assumptions;
  std::vector<std::string> notes;  ///< where the log says something else
};

/// \param row  null: the log is in no index
/// \throws ConfigError  if the user's cluster cannot be read, or has no place for the nodes and
/// GPUs
///                      that the user gives; as follow_nccl_variables
[[nodiscard]] LogMachine machine_of_log(const NcclTestsLog& log, const LogIndexRow* row,
                                        const LogMachineOptions& options);

/// The same where there is no log, of a GPU and words on its links: rows of training runs.
/// \param place  stands for the row in messages
[[nodiscard]] LogMachine machine_of_words(const GpuSpec& gpu, const LinkWords& link, int nodes,
                                          int gpus_per_node, const std::string& place);

}  // namespace zerosim
