/// \file
/// What a simulated run means: the values that `run` and `compare` print (design.md section 5).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/units.h"
#include "sim/engine/timeline.h"
#include "sim/memory/alloc_conf.h"
#include "sim/memory/memory_timeline.h"
#include "sim/model/model.h"
#include "sim/model/operators.h"
#include "sim/model/routing.h"
#include "sim/program/program.h"
#include "sim/strategy/strategy.h"
#include "topology/calibration.h"
#include "topology/cluster.h"
#include "topology/folding.h"

namespace zerosim {

enum class Verdict { Fits, Tight, DoesNotFit };
[[nodiscard]] std::string_view to_string(Verdict verdict);  ///< "fits", "tight", "does_not_fit"

/// A request of the job that failed, on the GPU as it is (E7.9).
struct MemoryFailure {
  Bytes request;                    ///< as asked for
  Bytes allocated, reserved, free;  ///< before it; free: of the GPU, as cudaMemGetInfo says
  std::string part, phase, op;      ///< as the peak's
};

/// What the rank that holds least has at its peak.
struct LeastMemory {
  int rank = 0;
  Bytes peak_allocated;
};

/// Per GPU, of the worst rank: a job from its initialisation to a steady step.
///
/// The two peaks are those of the whole job on a GPU without limit, so that what does not fit has
/// a peak too; flushes and the failure are those on the GPU as it is.
struct MemoryReport {
  Bytes model_states;  ///< as the ZeRO paper counts (data/cases/README.md, `memory.model_states`)
  /// At the moment at which a steady step has allocated most.
  Bytes parameters, gradients, optimizer_states, activations, temporary_buffers, live_parameters;
  Bytes logits;            ///< at their largest in a steady step
  Bytes steady_allocated;  ///< the peak of a steady step: what the classes sum to
  Bytes after_step;        ///< allocated between two steps
  Bytes fragmentation;     ///< reserved and not allocated, when most is reserved (E7.7)
  Bytes context;           ///< CUDA context and NCCL buffers, outside the allocator (E1)
  Bytes peak_allocated;
  Bytes peak_active;  ///< allocated, or freed and awaited by another stream (E7.8)
  Bytes peak_reserved;
  std::string peak_part;  ///< "initialisation", "first step", "second step", "steady step"
  std::string peak_phase, peak_op;
  int flushes = 0;        ///< of the cache (E7.9), in a steady step
  int early_flushes = 0;  ///< before it
  /// What the flushes add to the time of a steady step; without running time: of the driver's calls
  /// alone.
  Seconds flush_time{0};
  std::optional<MemoryFailure> failure;
  Bytes capacity;
  /// Host memory of a node at its largest (data/cases/README.md, `memory.host`), as if all its
  /// ranks held what this one does.
  Bytes host;
  int rank = 0;
  /// The rank that holds least, where ranks differ.
  std::optional<LeastMemory> least;
};

/// The step time of repeated draws (perturbation.h, Jitter).
struct JitterReport {
  int repetitions = 0;
  Seconds mean{0};
  Seconds deviation{0};  ///< of the sample: over repetitions - 1; 0 of one
  Seconds minimum{0}, maximum{0};
};

/// Of one steady optimizer step; the first four after `step` sum to it. An update on the CPU counts
/// as optimizer, its copies included.
///
/// They are the *critical* rank's: of all rank classes the one that waits least for communication
/// in the step, as the others wait for it; the first of those that wait alike. On a cluster with
/// jitter all figures here and of throughput are those of the first repetition.
struct TimeReport {
  Seconds step{0};
  Seconds compute{0}, exposed_communication{0}, host{0}, optimizer{0};
  Seconds forward{0}, backward{0};  ///< of one micro batch, on the compute stream
  Seconds communication{0};         ///< time with at least one collective running
  int rank = 0;                     ///< the critical one, which stands for its class
  std::optional<JitterReport> jitter;
};

/// What was simulated in place of every rank and link (topology/folding.h).
struct FoldingReport {
  FoldMode mode = FoldMode::On;
  int ranks = 0;
  int classes = 0;   ///< of ranks
  int programs = 0;  ///< that they run
  int links = 0;     ///< of the simulation
};
[[nodiscard]] std::string_view to_string(FoldMode mode);  ///< "on", "exact", "off"

struct OperationTotals {
  int calls = 0;
  Bytes bytes_sent;
};

/// Per optimizer step.
struct CommunicationReport {
  int collectives = 0;
  Bytes bytes_sent_per_rank;  ///< ring counting
  Bytes inter_node_bytes;     ///< per node
  double psi = 0;             ///< volume / parameter bytes, ring factor (n-1)/n left out (B7)
  double paper_psi = 0;       ///< what the ZeRO paper counts for this stage (F2); 0: one rank
  std::map<std::string, OperationTotals> by_operation;
};

struct ThroughputReport {
  double tokens_per_s = 0, tokens_per_s_per_gpu = 0, samples_per_s = 0;
  double tflops_per_gpu = 0, mfu = 0, hfu = 0;
};

struct StrategyReport {
  std::string name;
  int stage = 0;
  Verdict verdict = Verdict::Fits;
  MemoryReport memory;
  TimeReport time;
  CommunicationReport communication;
  ThroughputReport throughput;
  FoldingReport folding;
  std::vector<std::string> assumptions;
  std::vector<Warning> warnings;
};

/// One question: this model, trained so, on this cluster.
struct Experiment {
  Model model;
  Cluster cluster;
  BatchShape batch;        ///< micro_batch is replaced by each strategy's
  Routing routing{};       ///< of models with experts
  AllocConf alloc_conf{};  ///< PYTORCH_CUDA_ALLOC_CONF of every rank
  int host_threads = 0;    ///< OMP_NUM_THREADS of every rank; 0: not set
  /// Type of the checkpoint as each rank loads it; unset: that of the model in training.
  std::optional<Dtype> load_dtype{};
  Calibration calibration{};  ///< empty: the model
};

class Engine;
enum class CollectiveForm;

/// How a strategy is simulated.
struct SimulationOptions {
  /// Of a cluster on which no two ranks may behave alike (Cluster::must_not_fold) On becomes Off.
  FoldMode fold = FoldMode::On;
  /// Times the job's first so many steps and reports the last of them; 0: a steady one, after
  /// warm-up steps that take no time.
  int first_steps = 0;
  /// Told what is about to be simulated, where it may take more than a moment.
  std::function<void(const std::string&)> progress{};
  /// Stepped: `fold` On becomes Off, too. The first of CollectiveForm: Fluid.
  CollectiveForm collectives{};
};

/// What ran, of the first repetition.
struct SimulatedRun {
  Program program;
  Folding folding;
  Timeline timeline;
  CollectiveForm collectives{};
};

/// Builds, runs and summarises one strategy. `run`, where not null, receives what ran. Of several
/// strategies on one engine see prepare.h: it has room for what its first run needs.
/// \throws ConfigError  as prepare.
[[nodiscard]] StrategyReport simulate_strategy(const Experiment& experiment,
                                               const Strategy& strategy, Engine& engine,
                                               const SimulationOptions& options = {},
                                               SimulatedRun* run = nullptr);

/// What the GPU of the first rank class has allocated, of the run once more: runs do not influence
/// each other, and with the same allocator its times are the same. The warm-up is one point.
[[nodiscard]] std::vector<MemorySample> memory_over_time(const Experiment& experiment,
                                                         const SimulatedRun& run, Engine& engine);

/// Splits the last step of `rank_class` instant by instant (TimeReport).
[[nodiscard]] TimeReport split_step(const Program& program, const Timeline& timeline,
                                    int rank_class = 0);
/// The same of the critical rank class.
[[nodiscard]] TimeReport split_critical_step(const Program& program, const Timeline& timeline);

/// Counts the last step's collectives.
[[nodiscard]] CommunicationReport count_communication(const Program& program,
                                                      const Cluster& cluster);

struct Comparison {
  std::string model, cluster;
  int world_size = 1;
  std::int64_t parameters = 0;
  std::int64_t sequence = 0;
  std::vector<StrategyReport> strategies;
  std::vector<std::string> sentences;  ///< which to choose and why
};

[[nodiscard]] Comparison compare(const Experiment& experiment,
                                 const std::vector<Strategy>& strategies,
                                 const SimulationOptions& options = {});

}  // namespace zerosim
