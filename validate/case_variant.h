/// \file
/// One variant of a user case, simulated as far as its checks ask: each thing once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/analysis/explain_oom.h"
#include "sim/analysis/report.h"
#include "sim/model/model.h"
#include "sim/strategy/strategy.h"
#include "validate/case_file.h"
#include "validate/experiment.h"

namespace zerosim {

/// Why a check cannot be answered; makes a skipped check of it.
struct CaseSkip {
  std::string why;
};

/// Whether a job has room on its GPUs and in the memory of their nodes.
struct Room {
  std::optional<Verdict> gpu;        ///< not set: it is not known what the GPU holds
  Bytes host;                        ///< taken of a node
  std::optional<Bytes> host_memory;  ///< `host_memory_gib`

  [[nodiscard]] bool exceeds_host() const { return host_memory && host > *host_memory; }
  [[nodiscard]] bool lacks() const { return gpu == Verdict::DoesNotFit || exceeds_host(); }
};

/// Models by `ModelInputs::key` and data folder: variants and cases share them.
class ModelCache {
 public:
  /// \throws ConfigError  as model_of.
  [[nodiscard]] const Model& model(const ExperimentInputs& inputs);

 private:
  std::map<std::string, Model> models_;
};

/// A request of the job on the device, as asked for, and what was allocated before it.
struct CaseAllocation {
  Bytes bytes;
  Bytes allocated_before;
};

/// What a walk over the job's allocations finds of one size.
struct AllocationSearch {
  std::vector<CaseAllocation> found;      ///< of this size, in order
  std::optional<CaseAllocation> nearest;  ///< in size, of all
  int most_at_once = 0;                   ///< live together, of this size
};

/// What reading the configuration ends in.
struct ConfigOutcome {
  std::optional<Strategy> strategy;
  std::optional<ConfigError> error;  ///< if there is no strategy
};

class CaseVariant {
 public:
  /// \param inputs, models  must outlive the object.
  CaseVariant(const ExperimentInputs& inputs, ModelCache& models)
      : inputs_(&inputs), models_(&models) {}

  [[nodiscard]] const ExperimentInputs& inputs() const { return *inputs_; }

  /// As the framework reads it.
  [[nodiscard]] const ConfigOutcome& config();

  // Each throws CaseSkip where the inputs do not tell enough or the strategy is not simulated, and
  // ConfigError where it is refused.

  /// What is simulated: sizes that nobody gives are 1.
  [[nodiscard]] const Strategy& strategy();
  [[nodiscard]] const Experiment& experiment();
  /// With the limits of the GPU, where they are known.
  [[nodiscard]] const MemoryReport& memory();
  [[nodiscard]] Verdict verdict();
  [[nodiscard]] Room room();
  /// \throws CaseSkip  if it is not known how much the GPU holds.
  void check_gpu_memory() const;
  /// Numbers of GPUs and sequences of a micro batch (limits.h); none: no size that was tried is
  /// enough.
  [[nodiscard]] std::optional<std::int64_t> min_gpus();
  [[nodiscard]] std::optional<std::int64_t> max_micro_batch();
  /// As codes, most likely first: causes of the measured out-of-memory error, or what fills memory.
  [[nodiscard]] const std::vector<std::string>& memory_causes();
  /// Codes of the changes that are proposed: ways out of the measured out-of-memory error, or of
  /// the one that is simulated, of the GPU or of the host; of a job that has room, what saves
  /// memory for nothing.
  [[nodiscard]] const std::vector<std::string>& memory_advice();
  [[nodiscard]] AllocationSearch allocations(const ExpectedFigure& size);
  /// Calls of the steady step.
  /// \param op  empty: all
  [[nodiscard]] int collectives(const std::string& op, std::optional<Phase> phase);
  /// In bytes, seconds, 1/s or counts.
  [[nodiscard]] double metric(const std::string& name);

 private:
  [[nodiscard]] const Model& model() { return models_->model(*inputs_); }
  /// The strategy, if build_program can take it.
  [[nodiscard]] const Strategy& simulated_strategy();
  [[nodiscard]] Bytes model_states();
  [[nodiscard]] double memory_metric(const std::string& name);
  [[nodiscard]] double estimator_metric(const std::string& name);
  [[nodiscard]] double communication_metric(const std::string& name);
  [[nodiscard]] double time_metric(const std::string& name);
  void count_collectives();
  [[nodiscard]] const OomExplanation& explanation();

  const ExperimentInputs* inputs_;
  ModelCache* models_;
  std::optional<ConfigOutcome> config_;
  std::optional<Strategy> strategy_;
  std::optional<Experiment> experiment_;
  std::optional<MemoryReport> memory_;
  std::optional<OomExplanation> explanation_;
  std::optional<std::vector<std::string>> causes_, advice_;
  std::optional<CommunicationReport> communication_;
  std::map<std::pair<std::string, Phase>, int> calls_;
  std::map<std::string, double> times_;  ///< metrics of a simulated step
};

}  // namespace zerosim
