// Graph files of NCCL's search: which channels it settled on.

#include <algorithm>
#include <filesystem>
#include <set>

#include "sim/base/text.h"
#include "topology/import.h"
#include "topology/xml_document.h"

namespace zerosim {
namespace {

// NCCL_TOPO_PATTERN_* of src/include/graph.h.
constexpr int kRing = 4;
constexpr int kNvls = 5;
constexpr double kFastestChannel = 1000;  // GB/s

class GraphFile {
 public:
  GraphFile(ImportedNode& node, const std::string& text, const std::string& file)
      : node_(node), xml_(text, file) {}

  void apply() {
    const pugi::xml_node root = xml_.root();
    if (std::string_view(root.name()) != "graphs") {
      xml_.fail(root, format("found <{}>, expected <graphs>, NCCL's graph file", root.name()));
    }
    static_cast<void>(xml_.integer(root, "version", 1, 1));
    xml_.expect_children(root, {"graph"}, "<graphs>");
    bool found = false;
    for (const pugi::xml_node graph : root.children("graph")) {
      const int pattern = xml_.integer(graph, "pattern", 0, 64).value_or(0);
      if (pattern != kRing && pattern != kNvls) continue;
      const Channels channels = read(graph, pattern);
      if (channels.count == 0) continue;  // not available on this machine
      found = found || pattern == kRing;
      take(pattern, channels);
    }
    if (!found) {
      xml_.fail(root, format("found no graph with channels of pattern {} (ring)", kRing));
    }
  }

 private:
  struct Channels {
    int count = 0;
    double intra = 0, inter = 0;  ///< GB/s of one
    bool between_nodes = false;   ///< they leave by a NIC
  };

  Channels read(pugi::xml_node graph, int pattern) {
    xml_.expect_children(graph, {"channel"}, "<graph>");
    Channels channels;
    channels.count = xml_.integer(graph, "nchannels", 0, kMaxNcclChannels).value_or(0);
    if (channels.count == 0) return channels;
    channels.intra = xml_.number(graph, "speedintra", 1e-3, kFastestChannel);
    channels.inter = xml_.number(graph, "speedinter", 1e-3, kFastestChannel);
    int listed = 0;
    for (const pugi::xml_node channel : graph.children("channel")) {
      ++listed;
      read_channel(channel, pattern, channels);
    }
    if (listed != channels.count) {
      xml_.fail(graph,
                format("nchannels: found {}, but {} channels are listed", channels.count, listed));
    }
    return channels;
  }

  /// A ring passes every GPU once.
  void read_channel(pugi::xml_node channel, int pattern, Channels& channels) {
    xml_.expect_children(channel, {"net", "gpu"}, "<channel>");
    channels.between_nodes = channels.between_nodes || channel.child("net");
    std::multiset<int> seen;
    for (const pugi::xml_node gpu : channel.children("gpu")) {
      const int dev = xml_.integer(gpu, "dev", 0, 1 << 20).value_or(-1);
      const std::vector<int>& known = node_.gpu_devices;
      if (std::find(known.begin(), known.end(), dev) == known.end()) {
        xml_.fail(gpu, format("dev: found {}, which is no GPU of the topology", dev));
      }
      seen.insert(dev);
    }
    if (pattern != kRing) return;
    for (const int dev : node_.gpu_devices) {
      if (seen.count(dev) == 1) continue;
      xml_.fail(channel,
                format("a ring with GPU {} {} times, expected once", dev, seen.count(dev)));
    }
  }

  void take(int pattern, const Channels& channels) {
    Machine& machine = node_.machine;
    GivenChannels& target = pattern == kNvls         ? machine.nvls
                            : channels.between_nodes ? machine.rings_between_nodes
                                                     : machine.rings;
    const double speed =
        pattern == kRing && channels.between_nodes ? channels.inter : channels.intra;
    target = {channels.count, speed};
    const char* what = pattern == kNvls         ? "NVLS heads"
                       : channels.between_nodes ? "ring channels between nodes"
                                                : "ring channels on one node";
    node_.assumptions.push_back(format("NCCL: {} {} of {:g} GB/s each, as {} says", channels.count,
                                       what, speed,
                                       std::filesystem::path(xml_.file()).filename().string()));
  }

  ImportedNode& node_;
  XmlDocument xml_;
};

}  // namespace

void apply_nccl_graph(ImportedNode& node, const std::string& text, const std::string& file) {
  GraphFile(node, text, file).apply();
}

}  // namespace zerosim
