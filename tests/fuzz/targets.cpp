#include "tests/fuzz/targets.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/analysis/environment_settings.h"
#include "sim/analysis/nccl_environment.h"
#include "sim/analysis/oom_message.h"
#include "sim/base/environment.h"
#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/memory/alloc_conf.h"
#include "sim/memory/caching_allocator.h"
#include "sim/model/model.h"
#include "sim/strategy/accelerate_config.h"
#include "sim/strategy/strategy.h"
#include "sim/strategy/trainer_config.h"
#include "tests/sim/memory/allocator_invariants.h"
#include "topology/calibration.h"
#include "topology/cluster.h"
#include "topology/cluster_writer.h"
#include "topology/import.h"
#include "traces/nccl_tests.h"
#include "validate/case_file.h"
#include "validate/experiment.h"

namespace zerosim::fuzz {
namespace {

constexpr int kWorldSize = 8;

constexpr auto kTargets = std::to_array<Target>({
    {"hjson", hjson},
    {"ds_config", ds_config},
    {"model", model},
    {"training_config", training_config},
    {"alloc_conf", alloc_conf},
    {"environment", environment},
    {"allocator", allocator},
    {"oom_message", oom_message},
    {"user_case", user_case},
    {"topo_matrix", topo_matrix},
    {"nccl_xml", nccl_xml},
    {"cluster_file", cluster_file},
    {"nccl_tests", nccl_tests},
    {"calibration", calibration},
});

const Model& gpt2() {
  static const Model kModel = load_model("gpt2");
  return kModel;
}

/// One event of the stream is one byte, with one or two behind it:
///
///     0 to 3   allocate: stream, then mantissa and exponent of the size
///     4, 5     free: the streams that the block was recorded on, then which block
///     6        the device goes on: how many events of each stream complete
///     7        empty_cache
class AllocatorStream {
 public:
  AllocatorStream(std::string_view bytes, const AllocConf& conf)
      : bytes_(bytes), allocator_({2_GiB, 100_MiB, conf}) {}

  void run() {
    constexpr int kMostEvents = 4000;
    for (int i = 0; i < kMostEvents && next_ < bytes_.size(); ++i) {
      step(take());
      const std::string broken = testing::broken_invariant(allocator_);
      ZS_CHECK(broken.empty(), broken);
    }
    for (const BlockId block : live_) allocator_.free(block);
    allocator_.empty_cache();
    ZS_CHECK(allocator_.stats().reserved.current == Bytes(0), "an empty cache reserves something");
    ZS_CHECK(allocator_.snapshot().empty(), "an empty cache has segments");
  }

 private:
  static constexpr int kStreams = 3;

  unsigned take() {
    return next_ < bytes_.size() ? static_cast<unsigned char>(bytes_[next_++]) : 0U;
  }

  void step(unsigned byte) {
    const unsigned kind = byte % 8;
    const unsigned rest = byte / 8;
    if (kind < 4) {
      allocate(rest);
    } else if (kind < 6) {
      free(rest);
    } else if (kind == 6) {
      for (std::int64_t& done : done_) done += rest;
    } else {
      allocator_.empty_cache();
    }
  }

  void allocate(unsigned stream) {
    const std::int64_t mantissa = take();
    const std::int64_t size = mantissa << (take() % 24U);
    allocator_.poll_events([&](OpId event) {
      const bool done =
          event.value() / kStreams < done_[static_cast<std::size_t>(event.value()) % done_.size()];
      return done ? EventState::Completed : EventState::Pending;
    });
    const Allocation allocation =
        allocator_.allocate(Bytes(size), StreamId(static_cast<std::int32_t>(stream % kStreams)));
    if (allocation.block.valid()) live_.push_back(allocation.block);
  }

  void free(unsigned recorded) {
    const std::size_t which = take();
    if (live_.empty()) return;
    std::vector<StreamEvent> events;
    for (std::int32_t s = 0; s < kStreams; ++s) {
      if ((recorded >> static_cast<unsigned>(s)) % 2 != 0) {
        std::int32_t& number = recorded_[static_cast<std::size_t>(s)];
        events.push_back({StreamId(s), OpId(number++ * kStreams + s)});
      }
    }
    BlockId& block = live_[which % live_.size()];
    allocator_.free(block, events);
    block = live_.back();
    live_.pop_back();
  }

  std::string_view bytes_;
  std::size_t next_ = 0;
  CachingAllocator allocator_;
  std::vector<BlockId> live_;
  std::array<std::int32_t, kStreams> recorded_{};
  std::array<std::int64_t, kStreams> done_{};
};

/// The kind of GPU that the length picks; "" is found out.
ImportOptions import_options(const std::string& bytes) {
  constexpr std::array kGpus = {"", "A100-SXM4-80", "RTX-A6000-48", "H100-SXM5-80"};
  ImportOptions options;
  options.gpu = kGpus[bytes.size() % kGpus.size()];
  return options;
}

using Importer = ImportedNode (*)(const std::string&, const std::string&, const ImportOptions&);

void import_and_read_back(const std::string& bytes, Importer importer) {
  ImportedNode node;
  try {
    node = importer(bytes, "fuzz", import_options(bytes));
  } catch (const Error&) {
    return;
  }
  node.machine.name = "fuzz";
  const std::string text = cluster_file_text(node.machine, node.assumptions);
  const Cluster cluster = parse_cluster(text, "fuzz.json");
  ZS_CHECK(is_connected(cluster.node.graph), "an imported node falls apart");
  ZS_CHECK(cluster.node.gpus == node.machine.shape.gpus, "an imported GPU is lost");
}

}  // namespace

std::span<const Target> targets() {
  return kTargets;
}

void hjson(const std::string& bytes) {
  std::string meaning;
  std::string json;
  try {
    json = hjson_to_json(bytes);
    meaning = to_text(JsonDocument::from_hjson(bytes, "fuzz.hjson").root(), false);
  } catch (const Error&) {
    return;
  }
  const JsonDocument again = JsonDocument::from_strict_json(json, "fuzz.json");
  ZS_CHECK(to_text(again.root(), false) == meaning, "Hjson rewritten as JSON means something else");
}

void ds_config(const std::string& bytes) {
  constexpr std::array kModes = {ConfigMode::Auto, ConfigMode::DeepSpeed, ConfigMode::HuggingFace};
  TrainingFlags flags;
  flags.config_as = kModes[bytes.size() % kModes.size()];
  try {
    (void)parse_deepspeed_config(bytes, "fuzz.json", flags, gpt2(), kWorldSize);
  } catch (const Error&) {
    return;
  }
}

void model(const std::string& bytes) {
  try {
    (void)parse_model(bytes, "fuzz.json");
  } catch (const Error&) {
    return;
  }
}

void training_config(const std::string& bytes) {
  constexpr std::array kReaders = {read_accelerate_config, read_training_arguments,
                                   read_fsdp_config};
  TrainingFlags flags;
  flags.micro_batch = 1;
  try {
    (void)parse_training_config(bytes, "fuzz", flags, gpt2(), kWorldSize);
  } catch (const Error&) {
    // Another reader may take it.
  }
  try {
    const JsonDocument document = JsonDocument::from_yaml(bytes, "fuzz.yaml");
    (void)kReaders[bytes.size() % kReaders.size()](document, flags, gpt2(), kWorldSize);
  } catch (const Error&) {
    return;
  }
}

void alloc_conf(const std::string& bytes) {
  std::vector<std::string> described;
  try {
    described = describe(parse_alloc_conf(bytes));
  } catch (const Error&) {
    return;
  }
  // What is unlimited has no text, and two defaults may not be asked for.
  std::erase_if(described, [](const std::string& option) { return option.ends_with("unlimited"); });
  std::erase(described, "garbage_collection_threshold:0");
  std::erase(described, "max_non_split_rounding_mb:20");
  const AllocConf again = parse_alloc_conf(join(described, ","));
  for (const std::string& option : described) {
    const std::vector<std::string> second = describe(again);
    ZS_CHECK(std::find(second.begin(), second.end(), option) != second.end(),
             "an option reads back as something else");
  }
}

void environment(const std::string& bytes) {
  Environment read;
  try {
    read = parse_environment(bytes, "fuzz.env");
    static_cast<void>(environment_settings(read));
    Cluster cluster = load_cluster("dgx-h100", 2);
    static_cast<void>(follow_nccl_variables(read, cluster));
    ZS_CHECK(ring_capacity(cluster.nccl()).per_second() > 0, "rings of some rate");
  } catch (const Error&) {
    // What was read, if anything, still has to read back.
  }
  for (const EnvironmentVariable& variable : read.variables) {
    const bool one_line = variable.value.find('\n') == std::string::npos;
    const bool trimmed = !variable.value.empty() && variable.value.back() > ' ';
    const bool quoted = variable.value.find_first_of("\"'") == 0;
    if (!one_line || !trimmed || quoted || variable.value.front() == ' ') continue;
    const std::string line = variable.name + "=" + variable.value;
    const Environment again = parse_environment(line, "fuzz.env");
    ZS_CHECK(again.variables.size() == 1 && again.variables.front().name == variable.name &&
                 again.variables.front().value == variable.value,
             "a variable reads back as something else");
  }
}

void allocator(const std::string& bytes) {
  const std::size_t line = std::min(bytes.find('\n'), bytes.size());
  const std::string_view all = bytes;
  AllocConf conf;
  try {
    conf = parse_alloc_conf(all.substr(0, line));
  } catch (const Error&) {
    conf = AllocConf();
  }
  AllocatorStream(all.substr(std::min(line + 1, all.size())), conf).run();
}

void oom_message(const std::string& bytes) {
  std::vector<OomMessage> messages;
  try {
    messages = parse_oom_messages(bytes, "fuzz.log");
  } catch (const Error&) {
    return;
  }
  ZS_CHECK(!messages.empty(), "a log without a message is an error");
  for (const OomMessage& message : messages) {
    ZS_CHECK(message.request.covers(message.request.bytes), "a size is not what it is printed as");
    ZS_CHECK(message.request.bytes >= Bytes(0), "a size is negative");
  }
}

void user_case(const std::string& bytes) {
  try {
    const CaseFile read = parse_case(bytes, "fuzz/case.json", "no_such_folder");
    for (const ExperimentInputs& variant : read.experiment.variants()) {
      static_cast<void>(cluster_of(variant));
    }
  } catch (const Error&) {
    return;
  }
}

void nccl_tests(const std::string& bytes) {
  std::vector<NcclTestsLog> logs;
  try {
    logs = parse_nccl_tests(bytes, "fuzz.txt");
  } catch (const Error&) {
    return;
  }
  ZS_CHECK(!logs.empty(), "a text without a log is an error");
  for (const NcclTestsLog& log : logs) {
    ZS_CHECK(!log.points.empty(), "a log without rows");
    ZS_CHECK(!log.ranks || *log.ranks >= 1, "a log of no ranks");
    for (const NcclTestsPoint& point : log.points) {
      ZS_CHECK(point.size >= Bytes(0) && point.out_of_place.time >= Seconds(0),
               "less than nothing");
    }
  }
}

void calibration(const std::string& bytes) {
  Calibration read;
  try {
    read = parse_calibration(bytes, "fuzz.json");
  } catch (const Error&) {
    return;
  }
  const std::string text = calibration_text(read);
  ZS_CHECK(calibration_text(parse_calibration(text, "fuzz.json")) == text,
           "a calibration reads back as something else");
}

void topo_matrix(const std::string& bytes) {
  import_and_read_back(bytes, import_nvidia_smi);
}

void nccl_xml(const std::string& bytes) {
  import_and_read_back(bytes, import_nccl_xml);
  static const ImportedNode kNode = import_nvidia_smi(
      "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tSYS\tSYS\tSYS\nGPU1\tSYS\tX\tSYS\tSYS\n"
      "GPU2\tSYS\tSYS\tX\tSYS\nGPU3\tSYS\tSYS\tSYS\tX\n",
      "fuzz", import_options(std::string(1, ' ')));
  try {
    ImportedNode node = kNode;
    apply_nccl_graph(node, bytes, "fuzz.xml");
  } catch (const Error&) {
    return;
  }
}

void cluster_file(const std::string& bytes) {
  try {
    (void)parse_cluster(bytes, "fuzz.json");
  } catch (const Error&) {
    return;
  }
}

}  // namespace zerosim::fuzz
