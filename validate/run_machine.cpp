#include "validate/run_machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/base/text.h"
#include "topology/presets/machines.h"
#include "validate/gpu_words.h"
#include "validate/link_words.h"
#include "validate/log_machine.h"

namespace zerosim {

namespace {

constexpr auto kUsualNetworks = std::to_array<UsualNetwork>({
    {"AWS", "A100", "4x100Gb EFA", "EC2 p4d and p4de"},
    {"AWS", "H100", "32x100Gb EFA", "EC2 p5"},
    {"AWS", "H200", "16x200Gb EFA", "EC2 p5en"},
    {"GCP", "A100", "100Gb TCP", "a2-highgpu and a2-ultragpu: one 100 Gb/s gVNIC"},
    {"GCP", "H100", "4x200Gb TCPX", "a3-highgpu"},
    {"Azure", "A100", "8x200Gb HDR IB", "ND A100 v4"},
    {"Azure", "H100", "8x400Gb NDR IB", "ND H100 v5"},
    {"", "V100-SXM3", "8x100Gb EDR IB", "DGX-2"},
    {"", "V100", "4x100Gb EDR IB", "DGX-1"},
    {"", "A100-SXM4", "8x200Gb HDR IB", "DGX A100"},
    {"", "A800", "8x200Gb HDR IB", "HGX A800"},
    {"", "H100-SXM", "8x400Gb NDR IB", "DGX H100"},
    {"", "H200-SXM", "8x400Gb NDR IB", "DGX H200"},
    {"", "B200", "8x400Gb NDR IB", "DGX B200"},
    {"", "B300", "8x800Gb XDR IB", "DGX B300"},
    {"", "GB", "4x400Gb NDR IB", "GB200 NVL72, a tray"},
    {"", "GH200", "400Gb NDR IB", "one adapter a superchip"},
    {"", "A10", "25Gb Ethernet", "usual of servers with such cards"},
    {"", "", "10Gb Ethernet", "usual of workstations"},
});

struct GpuName {
  std::string_view words;
  std::string_view gpu;
};

/// README of the measurements: names to look up in gpus.csv, once a trailing GB is dropped.
constexpr std::array kGpuNames = {
    GpuName{"A100-80", "A100-SXM4-80"},          GpuName{"A100", "A100-SXM4-80"},
    GpuName{"A100-40", "A100-SXM4-40"},          GpuName{"A100-SXM4", "A100-SXM4-80"},
    GpuName{"A800-80", "A800-SXM4-80"},          GpuName{"H100-80", "H100-SXM5-80"},
    GpuName{"H100-SXM-96", "H100-SXM-96-HBM2e"}, GpuName{"H200-SXM", "H200-SXM-141"},
    GpuName{"B200-180", "B200-SXM-180"},         GpuName{"B200-SXM", "B200-SXM-180"},
    GpuName{"V100-32", "V100-SXM2-32"},          GpuName{"RTX6000-24", "QUADRO-RTX-6000-24"},
    GpuName{"RTXA6000-48", "RTX-A6000-48"},
};

/// Why a row has no machine; becomes RunMachine::why.
struct NoRunMachine {
  std::string why;
};

bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

const GpuSpec& gpu_of(const std::string& words) {
  if (words.empty()) throw NoRunMachine{"gpu is empty"};
  if (is_amd_gpu(words)) throw NoRunMachine{format("GPU {} is not NVIDIA's", words)};
  std::string name = words.substr(0, words.find(" ("));
  if (name.ends_with("GB")) name.resize(name.size() - 2);
  const auto* const known = std::find_if(kGpuNames.begin(), kGpuNames.end(),
                                         [&](const GpuName& n) { return n.words == name; });
  if (known != kGpuNames.end()) name = known->gpu;
  if (is_simulated_gpu(name)) return gpu_spec(name);
  const NamedGpu named = gpu_by_words(name);
  if (named.gpu == nullptr) {
    throw NoRunMachine{format("GPU \"{}\" is not known{}", words, did_you_mean(name, gpu_names()))};
  }
  return *named.gpu;
}

bool is_board(const GpuSpec& gpu) {
  return has(gpu.name, "SXM") || gpu.name.starts_with("G");
}

bool has_preset(const GpuSpec& gpu) {
  return std::any_of(machines().begin(), machines().end(),
                     [&](const Machine& machine) { return machine.gpu == gpu.name; });
}

/// The GPU whose machine this one is put in: itself, or one with the same links.
const GpuSpec& seat_of(const GpuSpec& gpu) {
  if (has_preset(gpu) || !is_board(gpu)) return gpu;
  const auto& specs = gpu_specs();
  const auto other = std::find_if(specs.begin(), specs.end(), [&](const GpuSpec& spec) {
    return is_board(spec) && has_preset(spec) && have_same_links(spec, gpu);
  });
  return other == specs.end() ? gpu : *other;
}

bool has_mesh_of(const GpuSpec& gpu, int gpus) {
  return std::any_of(machines().begin(), machines().end(), [&](const Machine& machine) {
    return machine.gpu == gpu.name && machine.intra == IntraNode::NvLinkMesh &&
           machine.shape.gpus == gpus;
  });
}

class MachineOfRun {
 public:
  explicit MachineOfRun(const RunPlace& place) : place_(place), gpu_(gpu_of(place.gpu)) {}

  RunMachine find() {
    const GpuSpec& seat = seat_of(gpu_);
    LinkWords link = inside(seat);
    if (place_.nodes > 1) {
      link.network = network(seat);
      link.in_network_reduction = has(place_.inter_node, "SHARP");
    }
    LogMachine found =
        machine_of_words(seat, link, place_.nodes, place_.gpus_per_node, place_.location);
    if (!found.cluster) throw NoRunMachine{found.why};
    if (seat.name != gpu_.name) {
      found.cluster->node.gpu = gpu_.name;
      tell(format("no preset has {}: it is put in the node of {}", gpu_.name, seat.name));
    }
    for (std::string& told : found.assumptions) tell(std::move(told));
    return {std::move(found.cluster), "", std::move(assumptions_)};
  }

 private:
  void tell(std::string sentence) {
    if (std::find(assumptions_.begin(), assumptions_.end(), sentence) == assumptions_.end()) {
      assumptions_.push_back(std::move(sentence));
    }
  }

  LinkWords inside(const GpuSpec& seat) {
    const bool open = has(place_.intra_node, " or ");
    LinkWords link = read_link_words(open ? "" : place_.intra_node);
    link.network.reset();
    link.unknown.clear();
    if (link.intra || place_.gpus_per_node == 1) return link;
    if (open && has(place_.intra_node, "NVLink bridge") && !is_board(seat) &&
        place_.gpus_per_node == 2) {
      link.intra = IntraNode::NvLinkMesh;
      tell(
          format("links in a node, \"{}\": taken as a bridge, as transformers' perf_hardware.md "
                 "shows of a pair of TITAN RTX",
                 place_.intra_node));
      return link;
    }
    if (!open && has(place_.intra_node, "NVLink")) {
      const bool mesh = !is_board(seat) || has_mesh_of(seat, place_.gpus_per_node);
      link.intra = mesh ? IntraNode::NvLinkMesh : IntraNode::NvSwitch;
      tell(format("links in a node, \"{}\": {}", place_.intra_node,
                  mesh ? "direct NVLinks" : "NVSwitches"));
    } else {
      tell(format("links in a node are not said: {} usually have {}", gpu_.name,
                  is_board(seat) ? "NVLink" : "no NVLink, and meet in host memory"));
    }
    return link;
  }

  [[nodiscard]] const UsualNetwork& usual(const GpuSpec& seat) const {
    const std::string cloud = place_.cloud + " " + place_.inter_node;
    const auto* const found = std::find_if(
        kUsualNetworks.begin(), kUsualNetworks.end(), [&](const UsualNetwork& network) {
          return has(cloud, network.cloud) && seat.name.starts_with(network.gpu);
        });
    return *found;  // the last entry fits everything
  }

  NetworkWords network(const GpuSpec& seat) {
    const UsualNetwork& table = usual(seat);
    const NetworkWords usual = *read_link_words(table.words).network;
    const std::optional<NetworkWords> stated = read_link_words(place_.inter_node).network;
    if (!stated) {
      tell(format("network is not said: {} ({})", table.words, table.source));
      return usual;
    }
    NetworkWords network = *stated;
    if (!network.kind) {
      network.kind = usual.kind;
      tell(format("network \"{}\": taken as {}, as in {} ({})", place_.inter_node,
                  to_string(*usual.kind), table.words, table.source));
    }
    if (network.bandwidth.per_second() <= 0) {
      network.bandwidth = usual.bandwidth;
      network.count = usual.count;
      tell(format("rate of the network is not said: {} ({})", table.words, table.source));
    } else if (network.count == 0) {
      share_out(network, usual);
    }
    return network;
  }

  /// The rate of a node as one of adapters.
  void share_out(NetworkWords& network, const NetworkWords& usual) {
    const double ratio = network.bandwidth.per_second() / usual.bandwidth.per_second();
    network.count = std::clamp(static_cast<int>(std::lround(ratio)), 1, place_.gpus_per_node);
    network.bandwidth = BytesPerSecond(network.bandwidth.per_second() / network.count);
    tell(format("network \"{}\": {} adapters of {:g} Gb/s each", place_.inter_node, network.count,
                network.bandwidth.gb_per_second() * 8));
  }

  const RunPlace& place_;
  const GpuSpec& gpu_;
  std::vector<std::string> assumptions_;
};

}  // namespace

std::span<const UsualNetwork> usual_networks() {
  return kUsualNetworks;
}

RunMachine machine_of_run(const RunPlace& place) {
  try {
    return MachineOfRun(place).find();
  } catch (const NoRunMachine& none) {
    return {std::nullopt, none.why, {}};
  }
}

}  // namespace zerosim
