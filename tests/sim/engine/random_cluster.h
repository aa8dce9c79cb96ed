/// \file
/// Random clusters as cluster files, uniform and perturbed, and random programs of several kinds of
/// ranks, from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/text.h"
#include "tests/sim/engine/engine_test_support.h"

namespace zerosim::testing {

/// Our own mapping to a range: the standard's distributions differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

struct RandomMachine {
  const char* preset;
  const char* other_gpu;  ///< with the same links
  bool nvlink;
  bool meshed;
};

/// The text of a cluster file.
class RandomCluster {
 public:
  explicit RandomCluster(Random& random) : random_(random) {
    machine_ =
        random.one_of(std::vector<RandomMachine>{{"dgx-h100", "H200-SXM-141", true, false},
                                                 {"dgx-a100-80", "A100-SXM4-40", true, false},
                                                 {"dgx1-v100-32", "V100-SXM2-16", true, true},
                                                 {"rtx4090x8-pcie", "RTX4090-24", false, false},
                                                 {"a100x8-pcie-plx", "A100-PCIe-80", false, false},
                                                 {"l40sx8-pcie-plx", "L40S-48", false, false}});
    nodes_ = random.one_of(std::vector<int>{1, 2, 2, 3, 4, 4, 5, 8, 8, 12, 16, 32});
    gpus_ = random.one_of(std::vector<int>{1, 2, 4, 8, 8});
    if (nodes_ > 8) gpus_ = std::min(gpus_, 4);  // so that the unfolded runs take seconds in all
  }

  std::string text() {
    std::string result =
        format(R"({{"version": 1, "nodes": {}, "gpus_per_node": {}, )", nodes_, gpus_);
    result +=
        format(R"("node": {{"preset": "{}", "nics": {{"count": 8, "bandwidth": "200Gb/s"}}}})",
               machine_.preset);
    if (machine_.nvlink) {
      result = format(R"({{"version": 1, "nodes": {}, "gpus_per_node": {}, )", nodes_, gpus_) +
               format(R"("node": {{"preset": "{}"}})", machine_.preset);
    }
    result += R"(, "fabric": )" + fabric();
    if (random_.chance(70)) result += R"(, "perturbations": [)" + perturbations() + "]";
    return result + "}";
  }

 private:
  std::string fabric() {
    switch (random_.below(6)) {
      case 0:
        return R"({"kind": "leaf-spine", "nodes_per_leaf": 2, "oversubscription": 3})";
      case 1:
        return R"({"kind": "rail-optimised", "nodes_per_unit": 2, "oversubscription": 2})";
      case 2:
        return R"({"kind": "fat-tree", "nodes_per_leaf": 2, "leaves_per_pod": 2,
                   "core_oversubscription": 4})";
      case 3:
        return R"({"kind": "dragonfly", "nodes_per_switch": 2, "switches_per_group": 2, "taper": 2})";
      case 4:
        return R"({"kind": "leaf-spine", "nodes_per_leaf": 3, "placement": {"kind": "scattered"}})";
      default:
        return R"({"kind": "switch"})";
    }
  }

  std::string node() { return format(R"("nodes": {})", random_.below(nodes_)); }
  std::string gpu() { return format(R"("gpus": {})", random_.below(gpus_)); }

  std::string perturbations() {
    std::string result;
    for (int i = random_.below(4); i >= 0; --i) {
      if (!result.empty()) result += ", ";
      result += "{" + perturbation() + "}";
    }
    return result;
  }

  std::string perturbation() {
    switch (random_.below(10)) {
      case 0:
        return node() + ", " + gpu() + R"(, "speed": 0.9)";
      case 1:
        return node() + R"(, "host_speed": 0.5)";
      case 2:
        return gpu() + R"(, "memory_speed": 0.8)";
      case 3:
        return node() + format(R"(, "gpu": "{}")", machine_.other_gpu);
      case 4:
        return R"("link": "pcie", )" + node() + ", " + gpu() + R"(, "bandwidth": 0.5)";
      case 5:
        if (machine_.nvlink && !machine_.meshed && gpus_ > 1) {
          return R"("link": "nvlink", )" + node() + ", " + gpu() + R"(, "lost_links": 2)";
        }
        break;
      case 6:
        if (machine_.nvlink && !machine_.meshed && gpus_ > 1) {
          return R"("link": "nvlink", )" + node() + R"(, "background": "10GB/s")";
        }
        break;
      case 7:
        if (nodes_ > 1) return R"("link": "nic", "nics": 0, "background": "300MB/s")";
        break;
      case 8:
        if (nodes_ > 1) {
          return R"("job": "other", "link": "nic", "nics": 0, "bytes": "20MB", "period": "4ms")";
        }
        break;
      default:
        break;
    }
    if (nodes_ > 1) return R"("link": "nic", )" + node() + R"(, "nics": 0, "bandwidth": 0.5)";
    return R"("speed": 1.1)";
  }

  Random& random_;
  RandomMachine machine_{};
  int nodes_ = 1;
  int gpus_ = 1;
};

/// The world, groups of a node, replicas across nodes, and one of any size and stride that fits.
inline std::vector<ProcessGroup> random_groups(const Cluster& cluster, Random& random) {
  const int world = cluster.world_size();
  std::vector<ProcessGroup> groups = {{"WORLD", world},
                                      {"NODE", cluster.gpus_per_node},
                                      {"REPLICAS", cluster.nodes, cluster.gpus_per_node}};
  std::vector<ProcessGroup> odd;
  for (int size = 2; size <= world; ++size) {
    for (int stride = 1; size * stride <= world; ++stride) {
      if (world % (size * stride) == 0) odd.push_back({"ODD", size, stride});
    }
  }
  if (!odd.empty()) groups.push_back(random.one_of(odd));
  return groups;
}

/// Programs of one shape (so that nothing deadlocks) with kernels, copies and host work of their
/// own, run by runs of ranks with borders anywhere.
class RandomProgram {
 public:
  RandomProgram(const Cluster& cluster, Random& random) : random_(random) {
    program_.strategy = "random";
    program_.world_size = cluster.world_size();
    program_.groups = random_groups(cluster, random);
    add_runs();
    for (std::size_t i = 0; i < runs_.size(); ++i) add_rank();
    for (int i = 6 + random.below(10); i > 0; --i) add_piece();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      program_.ranks.push_back(ranks_[i].program());
      program_.ranks.back().representative = Rank(runs_[i].first);
    }
    check_program(program_);
  }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const std::vector<RankRun>& runs() const { return runs_; }

 private:
  void add_runs() {
    const int world = program_.world_size;
    std::vector<int> borders = {0};
    for (int i = random_.below(3); i > 0; --i) borders.push_back(random_.below(world));
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    for (std::size_t i = 0; i < borders.size(); ++i) {
      const int end = i + 1 < borders.size() ? borders[i + 1] : world;
      runs_.push_back({borders[i], end - borders[i], static_cast<int>(i)});
    }
  }

  void add_rank() {
    RankBuilder& rank = ranks_.emplace_back();
    second_.push_back(rank.stream("second"));
    std::vector<StreamId>& streams = communicators_.emplace_back();
    for (std::size_t g = 0; g < program_.groups.size(); ++g) {
      streams.push_back(g == 0   ? rank.world
                        : g == 1 ? rank.other
                                 : rank.stream("nccl:" + program_.groups[g].name, GroupId(g)));
    }
    device_.emplace_back();
  }

  /// A collective of all, and in each program what it likes around it.
  void add_piece() {
    const auto group =
        static_cast<std::size_t>(random_.below(static_cast<int>(program_.groups.size())));
    const auto kind = random_.one_of(std::vector<CollectiveKind>{
        CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
        CollectiveKind::Broadcast, CollectiveKind::AllToAll});
    const Bytes size(random_.chance(15) ? 1 + random_.below(100'000)
                                        : 1 + random_.below(200'000'000));
    const bool waits = random_.chance(15);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      add_local(r);
      RankBuilder& rank = ranks_[r];
      const std::vector<OpId> after = last_of(r);
      device_[r].push_back(
          rank.collective(communicators_[r][group], size, after, random_.below(30), kind));
      if (waits) rank.host_wait({device_[r].back()});
    }
  }

  void add_local(std::size_t r) {
    RankBuilder& rank = ranks_[r];
    for (int i = random_.below(4); i > 0; --i) {
      const StreamId on = random_.chance(60) ? rank.compute : second_[r];
      const std::vector<OpId> after = last_of(r);
      if (random_.chance(20)) {
        device_[r].push_back(rank.copy(
            on, random_.chance(50) ? Copy::Direction::HostToDevice : Copy::Direction::DeviceToHost,
            Bytes(1 + random_.below(30'000'000)), after));
      } else {
        const Seconds arithmetic(random_.below(3000) * 1e-6);
        const Bytes memory(random_.below(2'000'000'000));
        device_[r].push_back(rank.kernel(on, arithmetic, memory, after, random_.below(30), 2000));
      }
    }
  }

  [[nodiscard]] std::vector<OpId> last_of(std::size_t r) {
    const std::vector<OpId>& device = device_[r];
    if (device.empty() || random_.chance(40)) return {};
    const int back = random_.below(std::min(4, static_cast<int>(device.size())));
    return {device[device.size() - 1 - static_cast<std::size_t>(back)]};
  }

  Random& random_;
  Program program_;
  std::vector<RankRun> runs_;
  std::vector<RankBuilder> ranks_;
  std::vector<StreamId> second_;
  std::vector<std::vector<StreamId>> communicators_;
  std::vector<std::vector<OpId>> device_;
};

}  // namespace zerosim::testing
