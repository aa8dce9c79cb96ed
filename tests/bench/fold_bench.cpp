// What a simulated step costs as the cluster grows, folded and unfolded (design.md section 7): time
// to build, fold and run, and memory, each in a process of its own. Prints tables; needs no
// arguments.
//
//     fold_bench            everything but the large unfolded runs
//     fold_bench all        those of 1024 and 4096 GPUs, and a 7B step of 512, too
//
// and what one uneven part does to 512 GPUs.
//
// The workload: 32 layers of 404.8 MB of bf16 parameters, 4.3 ms forward and 8.6 ms backward each,
// ZeRO stage 3: every layer is gathered ahead of its use, in backward again, where its gradient is
// then reduce-scattered. Nodes of 8 GPUs: NVSwitch, 450 GB/s, and a NIC of 50 GB/s a GPU.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "sim/analysis/memory_report.h"
#include "sim/analysis/report.h"
#include "sim/base/text.h"
#include "sim/engine/collective_call.h"
#include "sim/engine/engine.h"
#include "sim/memory/allocator_observer.h"
#include "sim/model/model.h"
#include "sim/program/build.h"
#include "sim/program/builder.h"
#include "sim/strategy/strategy.h"

namespace {

using namespace zerosim;  // NOLINT(google-build-using-namespace): a program, not a header

constexpr int kLayers = 32;
constexpr Bytes kLayerBytes(404'800'000);
constexpr Seconds kForward{4.3e-3};
constexpr Seconds kBackward{8.6e-3};
constexpr std::size_t kAhead = 2;  ///< layers that are gathered before their use

Cluster cluster_of(int gpus, const std::string& fabric) {
  const int of_node = std::min(gpus, 8);
  return parse_cluster(format(R"({{
    "version": 1, "nodes": {}, "gpus_per_node": {},
    "node": {{"gpu": "H100-SXM5-80", "gpus": 8,
      "intra": {{"kind": "nvswitch", "nvlink": "450GB/s", "ring_bandwidth": "450GB/s"}},
      "nics": {{"count": 8, "bandwidth": "50GB/s", "kind": "infiniband", "efficiency": 1}}}},
    "fabric": {{"kind": "{}"}}}})",
                              gpus / of_node, of_node, fabric),
                       "fold_bench.json");
}

/// Writes the workload. Gathers and reductions are on communicators of their own.
class Workload {
 public:
  explicit Workload(int gpus) : gpus_(gpus), builder_(Rank(0), gpus) {
    gather_ = builder_.add_stream("all_gather");
    reduce_ = builder_.add_stream("reduce");
    builder_.add_communicator(GroupId(0), "gather");
    builder_.add_communicator(GroupId(1), "reduce");
    builder_.set_step(0, 0);
  }

  Program build() {
    for (int layer = 0; layer < kLayers; ++layer) pass(kForward, false);
    for (int layer = 0; layer < kLayers; ++layer) pass(kBackward, true);
    Program program;
    program.strategy = "stage 3 by hand";
    program.world_size = gpus_;
    program.groups = {{"gather", gpus_}, {"reduce", gpus_}};
    program.ranks.push_back(builder_.finish());
    return program;
  }

 private:
  void pass(Seconds time, bool reduces) {
    if (kernels_.size() > kAhead) {
      builder_.stream_wait(gather_, kernels_[kernels_.size() - 1 - kAhead], "bench");
    }
    const OpId gathered = call(gather_, CollectiveKind::AllGather, 0);
    builder_.stream_wait(kComputeStream, gathered, "bench");
    Kernel kernel;
    kernel.name = "layer";
    kernel.flops = Flops(time.count());  // options(): its time
    kernels_.push_back(builder_.kernel(kComputeStream, kernel, HostWork::KernelLaunch, "bench"));
    if (!reduces) return;
    builder_.stream_wait(reduce_, kernels_.back(), "bench");
    call(reduce_, CollectiveKind::ReduceScatter, 1);
  }

  OpId call(StreamId caller, CollectiveKind kind, int group) {
    const std::int64_t whole = kLayerBytes.count() / 2;  // bf16
    const std::int64_t part = (whole + gpus_ - 1) / gpus_;
    Collective collective;
    collective.kind = kind;
    collective.input_elements = kind == CollectiveKind::AllGather ? part : part * gpus_;
    collective.output_elements = kind == CollectiveKind::AllGather ? part * gpus_ : part;
    collective.group = GroupId(group);
    collective.async = true;
    return builder_.collective(caller, collective, "bench");
  }

  int gpus_;
  RankProgramBuilder builder_;
  StreamId gather_, reduce_;
  std::vector<OpId> kernels_;
};

EngineOptions options() {
  EngineOptions options;
  options.kernel_time = [](const Kernel& kernel) {
    return KernelTime{Seconds(0), Seconds(kernel.flops.count()), Bytes()};
  };
  return options;
}

// ---- Measuring ---------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

/// Of this process: what other processes take of the machine does not count.
double cpu_milliseconds() {
  return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Largest resident memory of this process so far, MB.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) * 1024e-6;
  }
  return 0;
}

/// Runs `body`, which prints, in a process of its own.
template <typename Body>
void in_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) std::printf("  failed\n");
}

/// CPU seconds of the best published simulator on this workload (issue of part 7), behind a switch;
/// "-" where none is.
std::string peer_seconds(int gpus, std::string_view fabric) {
  struct Published {
    int gpus;
    double seconds;
  };
  for (const Published& peer : {Published{8, 0.03}, Published{64, 0.24}, Published{256, 2.3},
                                Published{1024, 9.8}, Published{4096, 85}}) {
    if (peer.gpus == gpus && fabric == "switch") return format("{:g}", peer.seconds);
  }
  return "-";
}

void run_workload(int gpus, const char* fabric, FoldMode mode) {
  const double cpu_before = cpu_milliseconds();
  const Clock::time_point start = Clock::now();
  const Cluster cluster = cluster_of(gpus, fabric);
  const Program program = Workload(gpus).build();
  const double built = milliseconds_since(start);
  const Folding folding = fold(cluster, rank_runs(program), group_patterns(program), mode);
  const double folded = milliseconds_since(start);
  Engine engine(cluster, options());
  const Timeline timeline = engine.run(program, folding);
  const double all = milliseconds_since(start);
  std::printf("%7d  %-14s  %-5s %8zu %8zu  %9.2f %9.2f %11.2f %11.2f %11.2f  %10s  %8.1f  %10.3f\n",
              gpus, fabric, mode == FoldMode::Off ? "off" : "exact", folding.ranks.size(),
              folding.links.size(), built, folded - built, all - folded, all,
              cpu_milliseconds() - cpu_before, peer_seconds(gpus, fabric).c_str(), peak_megabytes(),
              timeline.end.count() * 1e3);
}

void workload_table(bool large) {
  std::printf(
      "32 layers of 404.8 MB, forward 4.3 ms, backward 8.6 ms, stage 3\n"
      "%7s  %-14s  %-5s %8s %8s  %9s %9s %11s %11s %11s  %10s  %8s  %10s\n",
      "GPUs", "fabric", "fold", "classes", "links", "build ms", "fold ms", "engine ms", "all ms",
      "cpu ms", "peer cpu s", "peak MB", "step ms");
  for (const int gpus : {8, 64, 256, 1024, 4096, 16384, 131072}) {
    in_child([&] { run_workload(gpus, "switch", FoldMode::Exact); });
  }
  for (const int gpus : {1024, 16384, 131072}) {
    in_child([&] { run_workload(gpus, "rail-optimised", FoldMode::Exact); });
  }
  for (const int gpus : {8, 64, 256, 512, 1024, 4096}) {
    if (gpus <= 512 || large) in_child([&] { run_workload(gpus, "switch", FoldMode::Off); });
  }
}

// ---- A real step -------------------------------------------------------------------------------

void run_step(const Cluster& cluster, FoldMode mode, Engine& engine) {
  static const Model kModel = load_model("llama-2-7b");
  const int gpus = cluster.world_size();
  BatchShape batch;
  batch.micro_batch = 1;
  batch.sequence = 2048;
  const Strategy strategy = named_strategy("zero3", {}, gpus);
  const Experiment experiment{kModel, cluster, batch};
  const double cpu_before = cpu_milliseconds();
  const Clock::time_point start = Clock::now();
  const Program program = build_program(kModel, strategy, batch, {gpus, 2, 1});
  const double built = milliseconds_since(start);
  const Folding folding = fold(cluster, rank_runs(program), group_patterns(program), mode);
  const double folded = milliseconds_since(start);
  Timeline timeline;
  if (mode == FoldMode::Off) {
    timeline = engine.run(program, folding);
  } else {
    AllocatorObserver observer(program, allocator_setup(experiment, program));
    timeline = engine.run(program, folding, &observer);
  }
  const double all = milliseconds_since(start);
  std::printf("%7d  %-5s %8zu %8zu  %9.2f %9.2f %11.2f %11.2f %11.2f  %8.1f  %10.3f\n", gpus,
              mode == FoldMode::Off ? "off" : "on", folding.ranks.size(),
              program.ranks[0].ops.size(), built, folded - built, all - folded, all,
              cpu_milliseconds() - cpu_before, peak_megabytes(), timeline.end.count() * 1e3);
}

void step_table(bool large) {
  std::printf(
      "\nLlama-2-7B, stage 3, DGX H100; folded with the allocator, three runs in one process\n"
      "%7s  %-5s %8s %8s  %9s %9s %11s %11s %11s  %8s  %10s\n",
      "GPUs", "fold", "classes", "ops", "build ms", "fold ms", "engine ms", "all ms", "cpu ms",
      "peak MB", "step ms");
  for (const int gpus : {8, 64, 512, 4096, 16384}) {
    in_child([&] {
      const Cluster cluster = load_cluster("dgx-h100", gpus / 8, 8);
      Engine engine(cluster);
      for (int i = 0; i < 3; ++i) {
        run_step(cluster, FoldMode::On, engine);
      }
    });
  }
  for (const int gpus : {8, 64, 512}) {
    if (gpus == 512 && !large) continue;
    in_child([&] {
      const Cluster cluster = load_cluster("dgx-h100", gpus / 8, 8);
      Engine engine(cluster);
      run_step(cluster, FoldMode::Off, engine);
    });
  }
}

// ---- Uneven clusters ---------------------------------------------------------------------------

struct Unevenness {
  const char* name;
  const char* keys;  ///< of the cluster file
};

const Unevenness kUneven[] = {
    {"even", ""},
    {"one GPU at 0.9", R"(, "perturbations": [{"nodes": 7, "gpus": 3, "speed": 0.9}])"},
    {"one host at 0.5", R"(, "perturbations": [{"nodes": 7, "host_speed": 0.5}])"},
    {"one NIC at half speed",
     R"(, "perturbations": [{"link": "nic", "nodes": 7, "nics": 3, "bandwidth": 0.5}])"},
    {"one NVLink lost",
     R"(, "perturbations": [{"link": "nvlink", "nodes": 7, "gpus": 3, "lost_links": 1}])"},
    {"9 NVLinks of one GPU lost",
     R"(, "perturbations": [{"link": "nvlink", "nodes": 7, "gpus": 3, "lost_links": 9}])"},
    {"10 GB/s of others on every NIC",
     R"(, "perturbations": [{"link": "nic", "background": "10GB/s"}])"},
    {"leaf-spine 2:1, nodes in order",
     R"(, "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 4, "oversubscription": 2})"},
    {"leaf-spine 2:1, nodes scattered",
     R"(, "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 4, "oversubscription": 2,
                      "placement": {"kind": "scattered"}})"},
    {"the same, another job on the uplinks",
     R"(, "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 4, "oversubscription": 2,
                      "placement": {"kind": "scattered"}},
        "perturbations": [{"job": "other", "link": "fabric", "name": "leaf uplink",
                           "bytes": "4GB", "period": "20ms"}])"},
};

double step_milliseconds(const Cluster& cluster, const char* strategy_name, int micro_batch) {
  const Model model = load_model("llama-2-7b");
  BatchShape batch;
  batch.micro_batch = micro_batch;
  batch.sequence = 4096;
  const int gpus = cluster.world_size();
  Strategy strategy = named_strategy(strategy_name, {}, gpus);
  strategy.micro_batch = micro_batch;
  const Program program = build_program(model, strategy, batch, {gpus, 2, 1});
  Engine engine(cluster);
  return engine.run(program).end.count() * 1e3;
}

void unevenness_table() {
  std::printf(
      "\nLlama-2-7B, sequence 4096, 512 GPUs (64 DGX H100): ms of a step\n%-46s %14s %14s %14s\n",
      "", "zero3, batch 1", "zero3, batch 4", "zero1, batch 1");
  for (const Unevenness& uneven : kUneven) {
    std::printf("%-46s", uneven.name);
    const std::string text =
        format(R"({{"version": 1, "nodes": 64, "node": {{"preset": "dgx-h100"}}{}}})", uneven.keys);
    const auto column = [&](const char* strategy, int micro_batch) {
      in_child([&] {
        const Cluster cluster = parse_cluster(text, "uneven.json");
        std::printf(" %14.3f", step_milliseconds(cluster, strategy, micro_batch));
      });
    };
    column("zero3", 1);
    column("zero3", 4);
    column("zero1", 1);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool large = argc > 1 && std::string(argv[1]) == "all";
  workload_table(large);
  step_table(large);
  unevenness_table();
  return 0;
}
