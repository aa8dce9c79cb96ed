#include "topology/fabric_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/base/text.h"
#include "topology/json_reading.h"

namespace zerosim {
namespace {

// Defaults; spec/topologies.md section 3 unless said.

constexpr int kLeafPorts = 64;          // 400G leaf, QM9700
constexpr int kUnitNodesAmpere = 20;    // nodes of a scalable unit: DGX A100, 40-port switches
constexpr int kUnitNodes = 32;          // DGX H100, B200
constexpr int kUnitsPerPod = 4;         // "core above 4 SUs"
constexpr int kFatTreePorts = 64;       // QM9700
constexpr int kDragonflySwitches = 16;  // of a group, "16-32"
constexpr int kDragonflyEndpoints =
    16;  // NICs of a switch: Slingshot's 64 ports are 16 down, 48 on
constexpr BytesPerSecond kTorusLink = 50_GBps;  // "50-100 GB/s"
constexpr Seconds kInfiniBandSwitch{0.13e-6};
constexpr Seconds kEthernetSwitch{0.6e-6};
constexpr Seconds kCable{5e-9};      // a metre
constexpr double kCableMetres = 20;  // an estimate: leaf and spine racks of one hall
// "0.7-0.9 for few big flows, 0.95+ with adaptive routing/packet spraying": InfiniBand routes
// adaptively and EFA's SRD sprays packets; RoCE and TCP hash flows.
constexpr double kSprayed = 0.95;
constexpr double kFewFlows = 0.8;

constexpr double kLargestRatio = 1000;
constexpr std::int64_t kMostSwitchPorts = 4096;
constexpr std::int64_t kMostTorusPlaces = 1 << 20;

bool is_ethernet(NetworkKind network) {
  return network != NetworkKind::InfiniBand;
}

class FabricReader {
 public:
  FabricReader(JsonObject object, const FabricContext& context,
               std::vector<std::string>& assumptions)
      : object_(std::move(object)), context_(context), assumptions_(assumptions) {
    context_.nics = std::max(context_.nics, 1);
  }

  Fabric read() {
    read_kind();
    expect_keys_of_kind();
    if (object_.has("efficiency")) fabric_.efficiency = share_of_one(object_, "efficiency");
    fabric_.node_nics = context_.nics;
    fabric_.nvlink_domain_nodes = context_.nvlink_domain_nodes;
    switch (fabric_.kind) {
      case FabricKind::Switch:
        break;
      case FabricKind::LeafSpine:
        read_leaf_spine();
        break;
      case FabricKind::RailOptimised:
        read_rails();
        break;
      case FabricKind::FatTree:
        read_fat_tree();
        break;
      case FabricKind::Dragonfly:
        read_dragonfly();
        break;
      case FabricKind::Torus:
        read_torus();
        break;
    }
    read_hop_latency();
    if (object_.has("nvlink_domain_nodes")) {
      fabric_.nvlink_domain_nodes = bounded_integer(object_, "nvlink_domain_nodes", 1, kMaxNodes);
    }
    if (object_.has("placement")) read_placement(object_.object("placement"));
    if (object_.has("sharp")) read_sharp();
    return std::move(fabric_);
  }

 private:
  void assume(const std::string& sentence) { assumptions_.push_back("fabric." + sentence); }

  void read_kind() {
    if (!object_.has("kind")) {
      assume("kind: switch, as the cluster file does not say");
      return;
    }
    const std::vector<std::string>& names = fabric_kind_names();
    const std::string name = one_of(object_, "kind", names, "kind of fabric");
    const auto found = std::find(names.begin(), names.end(), name);
    fabric_.kind = static_cast<FabricKind>(found - names.begin());
  }

  void expect_keys_of_kind() {
    for (const char* key :
         {"efficiency", "hop_latency", "nvlink_domain_nodes", "placement", "kind", "sharp"}) {
      static_cast<void>(object_.has(key));
    }
    switch (fabric_.kind) {
      case FabricKind::Switch:
        return expect_keys(object_, {});
      case FabricKind::LeafSpine:
        return expect_keys(object_, {"nodes_per_leaf", "oversubscription", "ecmp",
                                     "ecmp_efficiency", "ecmp_seed", "cable_metres"});
      case FabricKind::RailOptimised:
        return expect_keys(object_, {"nodes_per_unit", "units_per_pod", "oversubscription",
                                     "core_oversubscription", "ecmp", "ecmp_efficiency",
                                     "ecmp_seed", "cable_metres"});
      case FabricKind::FatTree:
        return expect_keys(object_, {"ports", "nodes_per_leaf", "leaves_per_pod",
                                     "oversubscription", "core_oversubscription", "ecmp",
                                     "ecmp_efficiency", "ecmp_seed", "cable_metres"});
      case FabricKind::Dragonfly:
        return expect_keys(object_, {"nodes_per_switch", "switches_per_group", "local_links",
                                     "taper", "routing", "link_bandwidth", "cable_metres"});
      case FabricKind::Torus:
        return expect_keys(object_, {"dimensions", "link_bandwidth", "cable_metres"});
    }
  }

  int count(const char* key, int otherwise, const std::string& why, std::int64_t most) {
    if (object_.has(key)) return bounded_integer(object_, key, 1, most);
    assume(format("{}: {}, {}", key, otherwise, why));
    return otherwise;
  }

  /// At least 1, so that no tier has more up than down: 2 for 2:1.
  double ratio(const char* key, const char* why) {
    if (!object_.has(key)) {
      assume(format("{}: 1, {}", key, why));
      return 1;
    }
    const double value = object_.number(key);
    if (!(value >= 1 && value <= kLargestRatio)) {
      object_.fail(key,
                   format("found {}, expected a number from 1 to {}, such as 2 for 2:1", value,
                          kLargestRatio),
                   "out_of_range");
    }
    return value;
  }

  // Trees.

  void read_oversubscription() {
    fabric_.clos.oversubscription = ratio("oversubscription", "as many ports up as down");
  }
  void read_core_oversubscription() {
    fabric_.clos.core_oversubscription =
        ratio("core_oversubscription", "spines have as many ports up as down");
  }

  void read_leaf_spine() {
    read_oversubscription();
    const double o = fabric_.clos.oversubscription;
    const int down = static_cast<int>(kLeafPorts * o / (1 + o));
    fabric_.clos.nodes_per_leaf = count(
        "nodes_per_leaf", std::max(1, down / context_.nics),
        format("a leaf of {} ports, all {} NICs of a node on one leaf", kLeafPorts, context_.nics),
        kMaxNodes);
    read_ecmp();
  }

  void read_rails() {
    const bool ampere = context_.compute_capability / 10 == 8;
    fabric_.clos.rails = true;
    fabric_.clos.nodes_per_leaf = count("nodes_per_unit", ampere ? kUnitNodesAmpere : kUnitNodes,
                                        ampere ? "the scalable unit of a DGX A100 SuperPOD"
                                               : "the scalable unit of a DGX H100 or B200 SuperPOD",
                                        kMaxNodes);
    fabric_.clos.leaves_per_pod =
        count("units_per_pod", kUnitsPerPod, "a core joins the spines of more units (SuperPOD)",
              kMaxNodes);
    read_oversubscription();
    read_core_oversubscription();
    read_ecmp();
  }

  void read_fat_tree() {
    const bool spelled_out = object_.has("nodes_per_leaf") || object_.has("leaves_per_pod");
    if (spelled_out) {
      if (object_.has("ports")) {
        object_.fail("ports",
                     "gives nodes_per_leaf and leaves_per_pod; expected either the one or "
                     "the others");
      }
      fabric_.clos.nodes_per_leaf = bounded_integer(object_, "nodes_per_leaf", 1, kMaxNodes);
      fabric_.clos.leaves_per_pod = bounded_integer(object_, "leaves_per_pod", 1, kMaxNodes);
      read_oversubscription();
    } else {
      read_k_ary();
    }
    read_core_oversubscription();
    read_ecmp();
  }

  /// k-ary: k/2 NICs a leaf, k/2 leaves a pod, k pods (Al-Fares, Loukissas, Vahdat 2008).
  void read_k_ary() {
    const int ports = count("ports", kFatTreePorts, "of each switch", kMostSwitchPorts);
    const int half = ports / 2;
    if (ports % 2 != 0 || half % context_.nics != 0) {
      object_.fail("ports",
                   format("found {}, expected an even number whose half is so many nodes of {} "
                          "NICs; or give nodes_per_leaf and leaves_per_pod",
                          ports, context_.nics));
    }
    if (object_.has("oversubscription")) {
      object_.fail("oversubscription",
                   "a tree of equal ports has none at its leaves; to have some give nodes_per_leaf "
                   "and leaves_per_pod");
    }
    fabric_.clos.nodes_per_leaf = half / context_.nics;
    fabric_.clos.leaves_per_pod = half;
    fabric_.clos.most_pods = ports;
  }

  void read_ecmp() {
    ClosShape& clos = fabric_.clos;
    if (object_.has("ecmp")) {
      clos.hashed = one_of(object_, "ecmp", {"ideal", "hashed"}, "way to spread") == "hashed";
    } else {
      assume("ecmp: ideal, flows spread evenly over equal ways");
    }
    if (clos.hashed) return read_hashing();
    if (object_.has("ecmp_seed")) {
      object_.fail("ecmp_seed", R"(only "ecmp": "hashed" draws)");
    }
    if (object_.has("ecmp_efficiency")) {
      clos.ecmp_efficiency = share_of_one(object_, "ecmp_efficiency");
      return;
    }
    const bool sprayed = context_.network == NetworkKind::InfiniBand || is_efa(context_.network);
    clos.ecmp_efficiency = sprayed ? kSprayed : kFewFlows;
    assume(format("ecmp_efficiency: {} of each bundle, usual for {} ({})", clos.ecmp_efficiency,
                  to_string(context_.network),
                  sprayed ? "adaptive routing or packet spraying" : "a few big flows, hashed"));
  }

  void read_hashing() {
    if (object_.has("ecmp_efficiency")) {
      object_.fail("ecmp_efficiency",
                   R"(with "ecmp": "hashed" the collisions are simulated, expected no factor)");
    }
    if (object_.has("ecmp_seed")) {
      fabric_.clos.hash_seed = static_cast<std::uint64_t>(object_.integer_at_least("ecmp_seed", 0));
    } else {
      assume("ecmp_seed: 1");
    }
  }

  // Others.

  void read_dragonfly() {
    DragonflyShape& dragonfly = fabric_.dragonfly;
    dragonfly.nodes_per_switch =
        count("nodes_per_switch", std::max(1, kDragonflyEndpoints / context_.nics),
              format("{} NICs a switch (Slingshot)", kDragonflyEndpoints), kMaxNodes);
    dragonfly.switches_per_group = count("switches_per_group", kDragonflySwitches,
                                         "the small end of Slingshot's", kMostSwitchPorts);
    dragonfly.local_links =
        count("local_links", 1, "cables between two switches of a group", kMostSwitchPorts);
    dragonfly.taper = ratio("taper", "global cables for all NICs of a group");
    if (object_.has("routing")) {
      const std::string name = one_of(object_, "routing", {"minimal", "adaptive"}, "routing");
      dragonfly.routing =
          name == "minimal" ? DragonflyRouting::Minimal : DragonflyRouting::Adaptive;
    } else {
      assume("routing: adaptive, spread over all ways with at most one detour");
    }
    if (object_.has("link_bandwidth")) {
      dragonfly.cable = positive_rate(object_, "link_bandwidth");
    } else {
      assume("link_bandwidth: that of a NIC");
    }
  }

  void read_torus() {
    for (const std::int64_t extent : object_.integers("dimensions")) {
      if (extent < 1 || extent > kMostTorusPlaces) {
        object_.fail("dimensions",
                     format("found {}, expected numbers from 1 to {}", extent, kMostTorusPlaces));
      }
      fabric_.torus.dimensions.push_back(static_cast<int>(extent));
    }
    std::int64_t places = 1;
    for (const int extent : fabric_.torus.dimensions) {
      places *= extent;
      if (places > kMostTorusPlaces) break;
    }
    const std::size_t dimensions = fabric_.torus.dimensions.size();
    if (dimensions < 1 || dimensions > 6 || places > kMostTorusPlaces) {
      object_.fail("dimensions",
                   format("expected 1 to 6 numbers whose product is at most {}", kMostTorusPlaces));
    }
    if (object_.has("link_bandwidth")) {
      fabric_.torus.cable = positive_rate(object_, "link_bandwidth");
    } else {
      fabric_.torus.cable = kTorusLink;
      assume(format("link_bandwidth: {:g} GB/s in each direction, the small end of such machines'",
                    kTorusLink.gb_per_second()));
    }
  }

  // For all.

  void read_sharp() {
    fabric_.sharp = object_.boolean("sharp");
    if (fabric_.sharp && context_.network != NetworkKind::InfiniBand) {
      object_.fail("sharp", format("switches of kind {} do not reduce, only infiniband's",
                                   to_string(context_.network)));
    }
  }

  void read_hop_latency() {
    if (object_.has("hop_latency")) {
      fabric_.hop_latency = object_.seconds("hop_latency");
      if (object_.has("cable_metres")) {
        object_.fail("cable_metres", "hop_latency holds the cable, expected either");
      }
      return;
    }
    if (fabric_.kind == FabricKind::Switch) return;  // NCCL's own figure holds one switch
    const double metres = cable_metres();
    const Seconds hop = is_ethernet(context_.network) ? kEthernetSwitch : kInfiniBandSwitch;
    fabric_.hop_latency = hop + metres * kCable;
    assume(format(
        "hop_latency: {:g} us for each switch but the first, which NCCL's own figure "
        "holds ({:g} us of {}, {:g} m of cable at 5 ns)",
        fabric_.hop_latency.count() * 1e6, hop.count() * 1e6,
        is_ethernet(context_.network) ? "an Ethernet switch" : "an InfiniBand switch", metres));
  }

  double cable_metres() {
    if (!object_.has("cable_metres")) return kCableMetres;
    const double metres = object_.number("cable_metres");
    if (!(metres >= 0 && metres <= 1e6)) {
      object_.fail("cable_metres", format("found {}, expected metres, 0 or more", metres));
    }
    return metres;
  }

  void read_placement(JsonObject placement) {
    expect_keys(placement, {"kind", "seed", "among"});
    const std::string kind =
        one_of(placement, "kind", {"contiguous", "scattered"}, "kind of placement");
    fabric_.placement.scattered = kind == "scattered";
    if (!fabric_.placement.scattered) {
      for (const char* key : {"seed", "among"}) {
        if (placement.has(key)) placement.fail(key, "only a scattered placement draws places");
      }
      return;
    }
    if (placement.has("seed")) {
      fabric_.placement.seed = static_cast<std::uint64_t>(placement.integer_at_least("seed", 0));
    } else {
      assume("placement.seed: 1");
    }
    if (placement.has("among")) {
      fabric_.placement.among = bounded_integer(placement, "among", 1, kMaxNodes);
    } else {
      assume("placement.among: as many places as nodes");
    }
  }

  JsonObject object_;
  FabricContext context_;
  std::vector<std::string>& assumptions_;
  Fabric fabric_;
};

}  // namespace

Fabric read_fabric(JsonObject object, const FabricContext& context,
                   std::vector<std::string>& assumptions) {
  return FabricReader(std::move(object), context, assumptions).read();
}

}  // namespace zerosim
