#include "sim/analysis/nccl_environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/collective_change.h"
#include "topology/collective_model.h"
#include "topology/nccl_graph.h"
#include "topology/nccl_paths.h"

namespace zerosim {

namespace {

/// A piece of a value and its place.
struct Word {
  std::string_view text;
  SourceLocation where;
};

SourceLocation moved(SourceLocation where, std::size_t columns) {
  where.column += static_cast<int>(columns);
  return where;
}

std::vector<Word> split(const Word& word, char separator) {
  std::vector<Word> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = std::min(word.text.find(separator, begin), word.text.size());
    parts.push_back({word.text.substr(begin, end - begin), moved(word.where, begin)});
    if (end == word.text.size()) return parts;
    begin = end + 1;
  }
}

[[noreturn]] void fail(const EnvironmentVariable& variable, const Word& found,
                       const std::string& expected) {
  throw ConfigError(found.where,
                    format("{}: found \"{}\", expected {}", variable.name, found.text, expected));
}

Word whole(const EnvironmentVariable& variable) {
  return {variable.value, variable.where};
}

/// A number in these bounds; `expected` for the message.
int number(const EnvironmentVariable& variable, int least, int most, const char* expected) {
  const std::string& text = variable.value;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool read = error == std::errc() && end == text.data() + text.size();
  if (!read || value < least || value > most) fail(variable, whole(variable), expected);
  return value;
}

/// What a variable was found to do.
struct Effect {
  // NOLINTNEXTLINE(google-explicit-constructor): functions of nccl_paths.h say it in a string
  Effect(std::string words, bool always = false) : what(std::move(words)), told_always(always) {}
  Effect(const char* words) : what(words) {}  // NOLINT(google-explicit-constructor)
  std::string what;                           ///< half a sentence; "" if nothing
  bool told_always = false;  ///< also where no collective changes: it is no claim that one does
};

bool is_on(const EnvironmentVariable& variable) {
  return number(variable, 0, 1, "0 or 1") == 1;
}

// NCCL_ALGO and NCCL_PROTO.

/// What a name of a list stands for: numbers of an enumeration.
struct Choice {
  std::string_view name;
  std::vector<std::size_t> numbers;
};

template <typename... Numbered>
std::vector<std::size_t> numbers(Numbered... values) {
  return {static_cast<std::size_t>(values)...};
}

/// NCCL's words. "collnet" is what both were before 2.14.
const std::vector<Choice>& algorithms() {
  static const std::vector<Choice> kAll = {
      {"ring", numbers(Algorithm::Ring)},
      {"tree", numbers(Algorithm::Tree)},
      {"nvls", numbers(Algorithm::Nvls)},
      {"nvlstree", numbers(Algorithm::NvlsTree)},
      {"collnetdirect", numbers(Algorithm::CollNetDirect)},
      {"collnetchain", numbers(Algorithm::CollNetChain)},
      {"pat", numbers(Algorithm::Pat)},
      {"collnet", numbers(Algorithm::CollNetDirect, Algorithm::CollNetChain)},
  };
  return kAll;
}

const std::vector<Choice>& protocols() {
  static const std::vector<Choice> kAll = {
      {"ll", numbers(Protocol::LowLatency)},
      {"ll128", numbers(Protocol::LowLatency128)},
      {"simple", numbers(Protocol::Simple)},
  };
  return kAll;
}

const std::vector<Choice>& operations() {
  static const std::vector<Choice> kAll = {
      {"allreduce", numbers(CollectiveOp::AllReduce)},
      {"allgather", numbers(CollectiveOp::AllGather)},
      {"reducescatter", numbers(CollectiveOp::ReduceScatter)},
      {"broadcast", numbers(CollectiveOp::Broadcast)},
      {"reduce", numbers(CollectiveOp::Reduce)},
  };
  return kAll;
}

const std::vector<std::size_t>& named(const EnvironmentVariable& variable, const Word& word,
                                      const std::vector<Choice>& known) {
  const std::string name = lower_case(word.text);
  std::vector<std::string> names;
  names.reserve(known.size());
  for (const Choice& choice : known) {
    if (choice.name == name) return choice.numbers;
    names.emplace_back(choice.name);
  }
  fail(variable, word, format("one of {}{}", join(names, ", "), did_you_mean(name, names)));
}

/// "tree,ring" or "^tree".
template <std::size_t N>
std::array<bool, N> read_list(const EnvironmentVariable& variable, Word list,
                              const std::vector<Choice>& known) {
  const bool excluded = list.text.starts_with('^');
  if (excluded) list = {list.text.substr(1), moved(list.where, 1)};
  std::array<bool, N> allowed{};
  allowed.fill(excluded);
  for (const Word& word : split(list, ',')) {
    for (const std::size_t number : named(variable, word, known)) allowed[number] = !excluded;
  }
  return allowed;
}

/// Each list of the value, with the operations that it is for.
template <typename Body>
void for_lists(const EnvironmentVariable& variable, Body body) {
  const std::vector<Word> entries = split(whole(variable), ';');
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t colon = entries[i].text.find(':');
    if (colon == std::string_view::npos) {
      if (i > 0) fail(variable, entries[i], R"("operation:list" behind the first ";")");
      for (const Choice& operation : operations()) body(operation.numbers.front(), entries[i]);
      continue;
    }
    const Word name{entries[i].text.substr(0, colon), entries[i].where};
    const Word list{entries[i].text.substr(colon + 1), moved(entries[i].where, colon + 1)};
    body(named(variable, name, operations()).front(), list);
  }
}

/// Operations that nothing on the list does.
std::string without_choice(const Cluster& cluster) {
  const CollectiveGroup world = world_group(cluster);
  std::vector<std::string> names;
  for (const Choice& operation : operations()) {
    const auto op = static_cast<CollectiveOp>(operation.numbers.front());
    if (!has_nccl_choice(cluster, op, world)) names.emplace_back(operation.name);
  }
  if (names.empty()) return "";
  return format("; none is left for {}: rings, as before NCCL 2.24, while later ones fail",
                join(names, ", "));
}

Effect allow_algorithms(const EnvironmentVariable& variable, Cluster& cluster) {
  NcclSettings& settings = cluster.nccl_settings;
  for_lists(variable, [&](std::size_t operation, const Word& list) {
    settings.allowed[operation].algorithms = read_list<7>(variable, list, algorithms());
  });
  return {"NCCL chooses among these algorithms" + without_choice(cluster), true};
}

Effect allow_protocols(const EnvironmentVariable& variable, Cluster& cluster) {
  NcclSettings& settings = cluster.nccl_settings;
  bool forces = false;
  for_lists(variable, [&](std::size_t operation, const Word& list) {
    NcclAllowed& allowed = settings.allowed[operation];
    allowed.protocols = read_list<3>(variable, list, protocols());
    allowed.ll128_forced = allowed.protocols[static_cast<std::size_t>(Protocol::LowLatency128)];
    forces = forces || allowed.ll128_forced;
  });
  const NcclGraph& graph = cluster.nccl();
  const bool unusual = !graph.ll128 || (world_group(cluster).nodes > 1 && !graph.inter_ll128);
  return {format("NCCL chooses among these protocols{}{}",
                 forces && unusual ? "; LL128 among them, which it would not take here" : "",
                 without_choice(cluster)),
          true};
}

// Numbers.

/// Large rings of one group: SMs, and bus bandwidth in GB/s.
struct LargeGather {
  int ctas = 0;
  double rate = 0;
};

LargeGather large_gather(const Cluster& cluster, const CollectiveGroup& group) {
  constexpr Bytes kLarge{std::int64_t{1} << 30};
  const CollectiveCost cost = collective_cost(cluster, CollectiveOp::AllGather, kLarge, group);
  const double seconds = cost.transfer_time(cluster).count();
  return {cost.ctas, static_cast<double>(cost.sent_per_rank.count()) / seconds * 1e-9};
}

/// What large all-gathers of one group have of SMs and rate, where they had others; "": the same.
std::string gather_text(const Cluster& before, const Cluster& after, const CollectiveGroup& group,
                        const char* where) {
  const LargeGather usual = large_gather(before, group);
  const LargeGather now = large_gather(after, group);
  if (now.ctas == usual.ctas && now.rate == usual.rate) return "";
  std::string text = format("{} hold {} where {} usual", where, counted(now.ctas, "SM"),
                            usual.ctas == 1 ? "1 is" : format("{} are", usual.ctas));
  if (now.rate < usual.rate * (1 - 1e-9)) {
    text += format(" and reach {:.3g} of {:.3g} GB/s", now.rate, usual.rate);
  } else if (now.ctas > usual.ctas) {
    text += " and are no faster";
  }
  return text;
}

/// The same of GPUs that NVLink or a node joins, then of all.
std::string channels_text(const Cluster& before, const Cluster& after) {
  std::vector<std::string> parts;
  const CollectiveGroup world = world_group(after);
  CollectiveGroup inside = world;
  inside.ranks = world.ranks / world.nodes;
  inside.nodes = 1;
  const auto add = [&](const CollectiveGroup& group, const char* where) {
    std::string text = group.ranks > 1 ? gather_text(before, after, group, where) : "";
    if (!text.empty()) parts.push_back(std::move(text));
  };
  add(inside,
      after.fabric.nvlink_domain_nodes > 1 ? "inside an NVLink domain they" : "inside a node they");
  if (world.nodes > 1) add(world, "between nodes they");
  if (parts.empty()) return "small collectives have other channels";
  return "of large all-gathers: " + join(parts, "; ");
}

Effect limit_channels(const EnvironmentVariable& variable, Cluster& cluster) {
  const int most = number(variable, 1, 1'000'000, "a number of channels, at least 1");
  const Cluster before = cluster;
  NcclSettings& settings = cluster.nccl_settings;
  settings.max_channels = settings.max_channels == 0 ? most : std::min(settings.max_channels, most);
  return channels_text(before, cluster);
}

Effect raise_channels(const EnvironmentVariable& variable, Cluster& cluster) {
  const int least = number(variable, 1, 1'000'000, "a number of channels, at least 1");
  const Cluster before = cluster;
  NcclSettings& settings = cluster.nccl_settings;
  if (settings.max_channels > 0 && least > settings.max_channels) {
    fail(
        variable, whole(variable),
        format("at most {}, the most channels that the environment allows", settings.max_channels));
  }
  settings.min_channels = std::max(settings.min_channels, std::min(least, kMaxNcclChannels));
  return channels_text(before, cluster);
}

Effect set_threads(const EnvironmentVariable& variable, Cluster& cluster) {
  constexpr int kMost = 512;
  constexpr const char* kExpected = "a multiple of 32 from 64 on";
  const int threads = number(variable, 64, 1'000'000, kExpected);
  if (threads % 32 != 0) fail(variable, whole(variable), kExpected);
  if (threads >= kMost) return "";
  cluster.nccl_settings.threads = threads;
  return format("small collectives keep up to {:g} times as many channels, and SMs",
                static_cast<double>(kMost) / threads);
}

// Switches that reduce.

Effect set_nvls(const EnvironmentVariable& variable, Cluster& cluster) {
  const bool on = number(variable, 0, 2, "0, 1 or 2") > 0;
  if (on || cluster.nccl().nvls_heads == 0) return "";
  cluster.nccl_settings.nvls = false;
  return "NVSwitches do not reduce";
}

Effect set_collnet(const EnvironmentVariable& variable, Cluster& cluster) {
  const bool on = is_on(variable);
  if (on && !cluster.fabric.sharp && cluster.nodes > 1) {
    return {"does nothing, as the cluster's switches do not reduce (fabric.sharp)", true};
  }
  if (on || !cluster.fabric.sharp) return "";
  cluster.nccl_settings.collnet = false;
  return "the network's switches do not reduce";
}

// Links.

/// Distances by NCCL's words; those between are taken for the next one that PathKind has.
std::optional<PathKind> distance(const EnvironmentVariable& variable) {
  struct Level {
    std::string_view name;
    std::optional<PathKind> path;
  };
  static const std::array<Level, 15> kLevels = {{
      {"LOC", std::nullopt},
      {"NVL", PathKind::NvSwitch},
      {"NVB", PathKind::NvLinkViaGpu},
      {"C2C", PathKind::NvLinkViaGpu},
      {"PIX", PathKind::PcieSwitch},
      {"PXB", PathKind::PcieSwitches},
      {"PXN", PathKind::PcieSwitches},
      {"P2C", PathKind::PcieSwitches},
      {"PHB", PathKind::HostBridge},
      {"SYS", PathKind::System},
      {"0", std::nullopt},
      {"1", PathKind::PcieSwitch},
      {"2", PathKind::PcieSwitches},
      {"3", PathKind::HostBridge},
      {"4", PathKind::System},
  }};
  std::vector<std::string> names;
  names.reserve(kLevels.size());
  for (const Level& level : kLevels) {
    if (level.name == variable.value) return level.path;
    names.emplace_back(level.name);
  }
  const std::span<const std::string> words(names.data(), 10);
  const bool is_old = std::all_of(variable.value.begin(), variable.value.end(),
                                  [](unsigned char c) { return std::isdigit(c) != 0; });
  if (is_old) return PathKind::System;  // NCCL takes larger ones so
  fail(variable, whole(variable),
       format("one of {}, or 0 to 4{}", join(words, ", "),
              did_you_mean(upper_case(variable.value), words)));
}

Effect set_p2p(const EnvironmentVariable& variable, Cluster& cluster) {
  return is_on(variable) ? limit_peer_copies(cluster, std::nullopt) : "";
}

Effect set_p2p_level(const EnvironmentVariable& variable, Cluster& cluster) {
  return limit_peer_copies(cluster, distance(variable));
}

Effect set_mnnvl(const EnvironmentVariable& variable, Cluster& cluster) {
  return is_on(variable) ? "" : separate_nodes(cluster);
}

Effect set_shared_memory(const EnvironmentVariable& variable, Cluster& cluster) {
  return is_on(variable) ? leave_shared_memory(cluster) : "";
}

bool needs_plugin(NetworkKind kind) {
  return is_efa(kind) || kind == NetworkKind::Tcpx;
}

Effect set_ib(const EnvironmentVariable& variable, Cluster& cluster) {
  return is_on(variable) && !needs_plugin(cluster.node.network) ? use_sockets(cluster) : "";
}

Effect set_net(const EnvironmentVariable& variable, Cluster& cluster) {
  return lower_case(variable.value) == "socket" ? use_sockets(cluster) : "";
}

Effect set_net_plugin(const EnvironmentVariable& variable, Cluster& cluster) {
  const bool lost = variable.value == "none" && needs_plugin(cluster.node.network);
  return lost ? use_sockets(cluster) : "";
}

Effect set_adapters(const EnvironmentVariable& variable, Cluster& cluster) {
  AdapterList list;
  Word rest = whole(variable);
  const auto takes = [&](char mark) {
    if (!rest.text.starts_with(mark)) return false;
    rest = {rest.text.substr(1), moved(rest.where, 1)};
    return true;
  };
  list.excluded = takes('^');
  list.exact = takes('=');
  for (const Word& word : split(rest, ',')) {
    const std::string name(word.text.substr(0, word.text.find(':')));
    if (name.empty()) fail(variable, word, R"(the name of an adapter, "mlx5_0" or "mlx5_0:1")");
    if (std::find(list.names.begin(), list.names.end(), name) == list.names.end()) {
      list.names.push_back(name);
    }
  }
  return keep_adapters(cluster, list);
}

Effect set_gdr_level(const EnvironmentVariable& variable, Cluster& cluster) {
  return limit_gpudirect(cluster, distance(variable));
}

Effect set_gdr_read(const EnvironmentVariable& variable, Cluster& cluster) {
  return is_on(variable) ? "" : stage_sends(cluster);
}

using Follow = Effect (*)(const EnvironmentVariable&, Cluster&);

struct Followed {
  std::string_view name;
  Follow follow;
};

/// In the order in which they build on each other: links, then what NCCL makes of them.
constexpr auto kFollowed = std::to_array<Followed>({
    {"NCCL_P2P_LEVEL", set_p2p_level},      {"NCCL_P2P_DISABLE", set_p2p},
    {"NCCL_MNNVL_ENABLE", set_mnnvl},       {"NCCL_IB_DISABLE", set_ib},
    {"NCCL_NET_PLUGIN", set_net_plugin},    {"NCCL_NET", set_net},
    {"NCCL_IB_HCA", set_adapters},          {"NCCL_NET_GDR_LEVEL", set_gdr_level},
    {"NCCL_NET_GDR_READ", set_gdr_read},    {"NCCL_SHM_DISABLE", set_shared_memory},
    {"NCCL_NVLS_ENABLE", set_nvls},         {"NCCL_COLLNET_ENABLE", set_collnet},
    {"NCCL_MAX_NRINGS", limit_channels},    {"NCCL_MAX_NCHANNELS", limit_channels},
    {"NCCL_MAX_CTAS", limit_channels},      {"NCCL_MIN_NRINGS", raise_channels},
    {"NCCL_MIN_NCHANNELS", raise_channels}, {"NCCL_MIN_CTAS", raise_channels},
    {"NCCL_NTHREADS", set_threads},         {"NCCL_PROTO", allow_protocols},
    {"NCCL_ALGO", allow_algorithms},
});

/// Known, and without effect on time here: logs, bootstrap, retries, buffers and queues that the
/// model has no figure for (chunks of NCCL_BUFFSIZE: spec/nccl_cost.md section 4), and what has
/// none in today's NCCL (NCCL_TREE_THRESHOLD since 2.5). NCCL_VERSION is what NVIDIA's images set.
constexpr auto kWithoutEffect = std::to_array<std::string_view>({
    "NCCL_BUFFSIZE",
    "NCCL_CHECKS_DISABLE",
    "NCCL_CHECK_POINTERS",
    "NCCL_COMM_BLOCKING",
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_CROSS_NIC",
    "NCCL_CTA_POLICY",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DEBUG_TIMESTAMP_FORMAT",
    "NCCL_DMABUF_ENABLE",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_GRAPH_FILE",
    "NCCL_GRAPH_MIXING_SUPPORT",
    "NCCL_GRAPH_REGISTER",
    "NCCL_HOSTID",
    "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_ADDR_FAMILY",
    "NCCL_IB_ADDR_RANGE",
    "NCCL_IB_CUDA_SUPPORT",
    "NCCL_IB_ECE_ENABLE",
    "NCCL_IB_FIFO_TC",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_MERGE_NICS",
    "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_RETRY_CNT",
    "NCCL_IB_ROCE_VERSION_NUM",
    "NCCL_IB_SL",
    "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IB_TC",
    "NCCL_IB_TIMEOUT",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_LAUNCH_MODE",
    "NCCL_LAUNCH_ORDER_IMPLICIT",
    "NCCL_LOCAL_REGISTER",
    "NCCL_NETDEVS_POLICY",
    "NCCL_NET_SHARED_BUFFERS",
    "NCCL_NET_SHARED_COMMS",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NVB_DISABLE",
    "NCCL_NVLS_CHUNKSIZE",
    "NCCL_OOB_NET_ENABLE",
    "NCCL_OOB_NET_IFNAME",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_PROFILER_PLUGIN",
    "NCCL_PXN_C2C",
    "NCCL_PXN_DISABLE",
    "NCCL_P2P_PXN_LEVEL",
    "NCCL_RAS_ADDR",
    "NCCL_RAS_ENABLE",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SET_STACK_SIZE",
    "NCCL_SET_THREAD_NAME",
    "NCCL_SINGLE_RING_THRESHOLD",
    "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_SOCKET_RETRY_CNT",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_TOPO_FILE",
    "NCCL_TREE_THRESHOLD",
    "NCCL_TUNER_PLUGIN",
    "NCCL_UID_STAGGER_RATE",
    "NCCL_UID_STAGGER_THRESHOLD",
    "NCCL_VERSION",
    "NCCL_WIN_ENABLE",
});

/// One that is set and followed.
struct Set {
  const Followed* followed = nullptr;
  const EnvironmentVariable* variable = nullptr;
};

std::vector<Set> followed_ones(const Environment& environment,
                               const std::vector<std::string>& elsewhere) {
  std::vector<Set> all;
  for (const Followed& followed : kFollowed) {
    const EnvironmentVariable* variable = environment.find(followed.name);
    if (variable == nullptr || variable->value.empty()) continue;
    if (std::find(elsewhere.begin(), elsewhere.end(), followed.name) != elsewhere.end()) continue;
    all.push_back({&followed, variable});
  }
  return all;
}

/// Errors of the cluster's functions have no place: that of the variable.
Effect follow_one(const Set& set, Cluster& cluster) {
  const EnvironmentVariable& variable = *set.variable;
  if (variable.needs_expansion) {
    fail(variable, whole(variable), "a value that no shell has to expand");
  }
  try {
    return set.followed->follow(variable, cluster);
  } catch (const ConfigError& error) {
    if (!error.location().file.empty()) throw;
    throw ConfigError(variable.where, format("{}: {}", variable.name, error.what()), error.code());
  }
}

/// Whether `sets` alone make the collectives of `found` those of `wanted`.
bool make_alike(const std::vector<Set>& sets, Cluster found, const Cluster& wanted) {
  try {
    for (const Set& set : sets) static_cast<void>(follow_one(set, found));
  } catch (const ConfigError&) {
    return false;  // without the others they cannot be
  }
  return collectives_alike(found, wanted);
}

/// Those without which some collective would be another: each in turn is left out if the rest make
/// the same cluster, the last first, as later ones are what earlier ones have done already.
std::vector<Set> that_matter(std::vector<Set> sets, const Cluster& found, const Cluster& followed) {
  for (std::size_t i = sets.size(); i-- > 0;) {
    std::vector<Set> others = sets;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    if (make_alike(others, found, followed)) sets = std::move(others);
  }
  return sets;
}

std::string sentence(const EnvironmentVariable& variable, const std::string& what) {
  return format("environment: {}={}: {}", variable.name, variable.value, what);
}

}  // namespace

const std::vector<std::string_view>& nccl_variables() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names(kWithoutEffect.begin(), kWithoutEffect.end());
    for (const Followed& followed : kFollowed) names.push_back(followed.name);
    return names;
  }();
  return kNames;
}

bool is_followed_nccl_variable(std::string_view name) {
  return std::any_of(kFollowed.begin(), kFollowed.end(),
                     [&](const Followed& followed) { return followed.name == name; });
}

std::vector<std::string> follow_nccl_variables(const Environment& environment, Cluster& cluster,
                                               const std::vector<std::string>& elsewhere) {
  const std::vector<Set> all = followed_ones(environment, elsewhere);
  const Cluster found = cluster;
  std::vector<Effect> effects;
  effects.reserve(all.size());
  for (const Set& set : all) effects.push_back(follow_one(set, cluster));
  const std::vector<Set> matter = that_matter(all, found, cluster);
  std::vector<std::string> told;
  told.reserve(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool matters = std::any_of(matter.begin(), matter.end(), [&](const Set& set) {
      return set.variable == all[i].variable;
    });
    const bool says = !effects[i].what.empty() && (matters || effects[i].told_always);
    told.push_back(sentence(*all[i].variable, says ? effects[i].what : "changes nothing here"));
  }
  return told;
}

std::vector<std::string> followed_settings(const Environment& environment) {
  std::vector<std::string> settings;
  for (const Set& set : followed_ones(environment, {})) {
    settings.push_back(format("{}={}", set.variable->name, set.variable->value));
  }
  return settings;
}

}  // namespace zerosim
