#include "topology/perturbation_file.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "sim/base/text.h"
#include "topology/folding.h"
#include "topology/json_reading.h"
#include "topology/nccl_graph.h"
#include "topology/node_graph.h"

namespace zerosim {
namespace {

using Where = LinkPerturbation::Where;

constexpr double kLargestSpeed = 10;
/// Of what is slower by more a simulation ends only in a thousand times its time.
constexpr double kLeastFactor = 0.001;
/// A burst is an event: shorter periods are more events than anybody waits for.
constexpr Seconds kShortestPeriod{10e-6};
constexpr double kLargestJitter = 1;  // standard deviation of a logarithm
constexpr std::int64_t kLargestMicroBatch = 1 << 20;
constexpr std::int64_t kMostRepetitions = 10000;

const std::vector<std::string>& link_names() {
  static const std::vector<std::string> kNames = {"nvlink", "pcie", "nic", "fabric"};
  return kNames;
}

bool intersect(const std::vector<int>& a, const std::vector<int>& b) {
  if (a.empty() || b.empty()) return true;  // empty stands for all
  return std::any_of(a.begin(), a.end(),
                     [&b](int x) { return std::binary_search(b.begin(), b.end(), x); });
}

// Numbers of nodes, GPUs, NICs: 3, "0-7", "0-3,8", [0, "4-7"].

class IndexReader {
 public:
  /// Indices run from 0 to `count` - 1; `what` names one of them: "node".
  IndexReader(const JsonObject& object, std::string key, int count, std::string what)
      : object_(object), key_(std::move(key)), count_(count), what_(std::move(what)) {}

  std::vector<int> read(const JsonValue& value) {
    if (value.isArray()) {
      for (const JsonValue& element : value) add(element);
    } else {
      add(value);
    }
    if (indices_.empty()) fail(value, "an empty list selects nothing");
    return {indices_.begin(), indices_.end()};
  }

 private:
  [[noreturn]] void fail(const JsonValue& value, const std::string& message) const {
    throw ConfigError(object_.document().location(value),
                      format("{}: {}", object_.path_of(key_), message));
  }

  void add(const JsonValue& value) {
    if (value.isInt64()) return add_range(value, value.asInt64(), value.asInt64());
    if (!value.isString()) fail_form(value);
    const std::string text = value.asString();
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      add_text(value, std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
  }

  [[noreturn]] void fail_form(const JsonValue& value) const {
    fail(value, format("found {}, expected the number of a {}, a range such as \"0-3\", or a list "
                       "of them",
                       to_text(value, false), what_));
  }

  /// "4", "0-3"
  void add_text(const JsonValue& value, std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    const std::size_t dash = text.find('-');
    const std::int64_t first = number(value, text.substr(0, dash));
    const std::int64_t last =
        dash == std::string_view::npos ? first : number(value, text.substr(dash + 1));
    if (last < first) fail(value, format("found {}-{}, a range that runs backwards", first, last));
    add_range(value, first, last);
  }

  [[nodiscard]] std::int64_t number(const JsonValue& value, std::string_view text) const {
    std::int64_t result = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, result);
    if (error != std::errc() || stop != end || text.empty()) fail_form(value);
    return result;
  }

  void add_range(const JsonValue& value, std::int64_t first, std::int64_t last) {
    for (const std::int64_t index : {first, last}) {
      if (index >= 0 && index < count_) continue;
      const std::string range = count_ == 1 ? "only 0" : format("0 to {}", count_ - 1);
      fail(value, format("found {} {}, expected {}", what_, index, range));
    }
    for (std::int64_t index = first; index <= last; ++index) {
      indices_.insert(static_cast<int>(index));
    }
  }

  const JsonObject& object_;
  std::string key_;
  int count_;
  std::string what_;
  std::set<int> indices_;
};

// What is told of an entry.

/// "0-3,8"
std::string ranges(const std::vector<int>& indices) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < indices.size();) {
    std::size_t last = i;
    while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1) ++last;
    texts.push_back(last == i ? format("{}", indices[i])
                              : format("{}-{}", indices[i], indices[last]));
    i = last + 1;
  }
  return join(texts, ",");
}

std::string selected(const std::vector<int>& indices, std::string_view what) {
  if (indices.empty()) return format("every {}", what);
  return format("{} {}", what, ranges(indices));
}

std::string told(const GpuPerturbation& gpu) {
  std::vector<std::string> effects;
  const auto factor = [&effects](double value, std::string_view what) {
    if (value != 1) effects.push_back(format("{} at {:g} of nominal", what, value));
  };
  factor(gpu.speed, "arithmetic");
  factor(gpu.memory_speed, "device memory");
  factor(gpu.host_speed, "host thread");
  if (gpu.kind) effects.push_back(format("a {}", *gpu.kind));
  if (gpu.micro_batch) effects.push_back(format("micro batch {}", *gpu.micro_batch));
  if (effects.empty()) effects.emplace_back("as nominal");
  return format("{}, {}: {}", selected(gpu.nodes, "node"), selected(gpu.gpus, "GPU"),
                join(effects, ", "));
}

std::string told_links(const LinkPerturbation& link) {
  switch (link.where) {
    case Where::NvLink: {
      const std::string peer = link.peer < 0 ? "" : format(" to GPU {}", link.peer);
      return format("{}, NVLinks of {}{}", selected(link.nodes, "node"), selected(link.gpus, "GPU"),
                    peer);
    }
    case Where::Pcie:
      return format("{}, PCIe of {}", selected(link.nodes, "node"), selected(link.gpus, "GPU"));
    case Where::Nic:
      return format("{}, {}", selected(link.nodes, "node"), selected(link.nics, "NIC"));
    case Where::Fabric:
      return format("fabric, {}", link.fabric);
  }
  return "";
}

std::string told(const LinkPerturbation& link) {
  std::vector<std::string> effects;
  if (link.bandwidth != 1) effects.push_back(format("{:g} of the rate", link.bandwidth));
  if (link.lost_links > 0) effects.push_back(format("{} NVLink(s) lost", link.lost_links));
  if (link.background.per_second() > 0) {
    effects.push_back(format("{:g} GB/s of others' traffic", link.background.gb_per_second()));
  }
  if (effects.empty()) effects.emplace_back("as nominal");
  return format("{}: {}", told_links(link), join(effects, ", "));
}

std::string told(const CompetingJob& job) {
  return format("{}: job \"{}\" sends {:g} GB every {} from {} on", told_links(job.links), job.name,
                job.bytes.gb(), to_string(job.period), to_string(job.offset));
}

// Entries.

class PerturbationReader {
 public:
  PerturbationReader(JsonObject& root, Cluster& cluster)
      : root_(root), cluster_(cluster), network_(fabric_network(cluster)) {}

  void read() {
    if (root_.has("perturbations")) {
      for (JsonObject& entry : root_.objects("perturbations")) read_entry(entry);
      for (const auto& [link, entry] : with_background_) check_background(link, entry);
      check_all();
    }
    if (root_.has("jitter")) read_jitter(root_.object("jitter"));
  }

 private:
  Perturbations& all() { return cluster_.perturbations; }

  template <typename Entry>
  void add(std::vector<Entry>& entries, Entry entry) {
    cluster_.assumptions.push_back("perturbed: " + told(entry));
    entries.push_back(std::move(entry));
  }

  void read_entry(JsonObject& entry) {
    if (entry.has("job")) {
      add(all().jobs, read_job(entry));
    } else if (entry.has("link")) {
      LinkPerturbation link = read_link(entry);
      fabric_links_.push_back(range_of(link));
      if (link.background.per_second() > 0)
        with_background_.emplace_back(all().links.size(), entry);
      add(all().links, std::move(link));
    } else {
      add(all().gpus, read_gpu(entry));
    }
  }

  /// One of the keys must be there, else the entry says nothing.
  static void expect_some(JsonObject& entry, std::initializer_list<const char*> effects) {
    std::vector<std::string> names;
    for (const char* key : effects) {
      if (entry.has(key)) return;
      names.emplace_back(key);
    }
    throw ConfigError(entry.document().location(entry.value()),
                      format("{}: changes nothing, expected at least one of: {}", entry.path(),
                             join(names, ", ")));
  }

  std::vector<int> indices(JsonObject& entry, const char* key, int count, const char* what) {
    if (!entry.has(key)) return {};
    return IndexReader(entry, key, count, what).read(entry.raw(key));
  }
  std::vector<int> nodes(JsonObject& entry) {
    return indices(entry, "nodes", cluster_.nodes, "node");
  }
  std::vector<int> gpus(JsonObject& entry) {
    return indices(entry, "gpus", cluster_.gpus_per_node, "GPU");
  }

  static double speed(JsonObject& entry, const char* key) {
    if (!entry.has(key)) return 1;
    const double value = entry.number(key);
    if (!(value >= kLeastFactor && value <= kLargestSpeed)) {
      entry.fail(
          key,
          format("found {}, expected a factor from {} to {}", value, kLeastFactor, kLargestSpeed),
          "out_of_range");
    }
    return value;
  }

  // GPUs.

  GpuPerturbation read_gpu(JsonObject& entry) {
    expect_keys(entry, {"nodes", "gpus", "speed", "memory_speed", "host_speed", "gpu",
                        "micro_batch", "link", "job"});
    expect_some(entry, {"speed", "memory_speed", "host_speed", "gpu", "micro_batch"});
    GpuPerturbation gpu;
    gpu.nodes = nodes(entry);
    gpu.gpus = gpus(entry);
    gpu.speed = speed(entry, "speed");
    gpu.memory_speed = speed(entry, "memory_speed");
    gpu.host_speed = speed(entry, "host_speed");
    if (entry.has("gpu")) gpu.kind = read_kind(entry);
    if (entry.has("micro_batch")) {
      gpu.micro_batch = bounded_integer(entry, "micro_batch", 1, kLargestMicroBatch);
    }
    return gpu;
  }

  /// NCCL's rings, and so the graph of the node, are those of the cluster's own GPU.
  std::string read_kind(JsonObject& entry) {
    std::string name = one_of(entry, "gpu", gpu_names(), "GPU");
    const GpuSpec& usual = cluster_.gpu();
    if (!have_same_links(usual, gpu_spec(name))) {
      entry.fail("gpu", format("{} has other links or another architecture than {}, expected a GPU "
                               "with the same",
                               name, usual.name));
    }
    return name;
  }

  // Links.

  Where read_where(JsonObject& entry) {
    const std::string name = one_of(entry, "link", link_names(), "kind of link");
    const auto found = std::find(link_names().begin(), link_names().end(), name);
    return static_cast<Where>(found - link_names().begin());
  }

  LinkPerturbation read_link(JsonObject& entry) {
    const Where where = read_where(entry);
    if (where == Where::NvLink) {
      expect_keys(
          entry, {"job", "link", "nodes", "gpus", "peer", "bandwidth", "lost_links", "background"});
      expect_some(entry, {"bandwidth", "lost_links", "background"});
    } else {
      expect_link_keys(entry, where, {"bandwidth", "background"});
      expect_some(entry, {"bandwidth", "background"});
    }
    LinkPerturbation link = read_selection(entry, where);
    if (where == Where::NvLink) read_nvlink(entry, link);
    if (entry.has("bandwidth")) link.bandwidth = factor_of_rate(entry);
    if (entry.has("background")) link.background = positive_rate(entry, "background");
    return link;
  }

  static double factor_of_rate(JsonObject& entry) {
    const double factor = share_of_one(entry, "bandwidth");
    if (factor < kLeastFactor) {
      entry.fail("bandwidth",
                 format("found {}, expected a factor from {} to 1", factor, kLeastFactor),
                 "out_of_range");
    }
    return factor;
  }

  static void expect_link_keys(JsonObject& entry, Where where,
                               std::initializer_list<const char*> effects) {
    for (const char* key : effects) static_cast<void>(entry.has(key));
    switch (where) {
      case Where::NvLink:
      case Where::Pcie:
        return expect_keys(entry, {"job", "link", "nodes", "gpus"});
      case Where::Nic:
        return expect_keys(entry, {"job", "link", "nodes", "nics"});
      case Where::Fabric:
        return expect_keys(entry, {"job", "link", "name"});
    }
  }

  LinkPerturbation read_selection(JsonObject& entry, Where where) {
    LinkPerturbation link;
    link.where = where;
    switch (where) {
      case Where::NvLink:
      case Where::Pcie:
        link.nodes = nodes(entry);
        link.gpus = gpus(entry);
        break;
      case Where::Nic:
        expect_network(entry, "its NICs");
        link.nodes = nodes(entry);
        link.nics = nics(entry);
        break;
      case Where::Fabric:
        link.fabric = fabric_link(entry);
        expect_network(entry, "a fabric");
        break;
    }
    return link;
  }

  /// What nobody sends anything over would change nothing.
  void expect_network(JsonObject& entry, const char* over) {
    if (cluster_.nodes == 1) {
      entry.fail("link",
                 format("one node sends nothing over {}, so this would change nothing", over));
    }
    if (cluster_.nodes <= cluster_.fabric.nvlink_domain_nodes) {
      entry.fail("link", format("NVLink joins all {} nodes, which send nothing over NICs, so this "
                                "would change nothing",
                                cluster_.nodes));
    }
  }

  std::vector<int> nics(JsonObject& entry) {
    std::vector<int> listed = indices(entry, "nics", cluster_.node.nics, "NIC");
    if (listed.empty()) return listed;
    const std::vector<int> used = used_nics(cluster_.node.graph, cluster_.gpus_per_node).nics;
    for (const int nic : listed) {
      if (std::find(used.begin(), used.end(), nic) != used.end()) continue;
      entry.fail("nics", format("found NIC {}, which none of the used GPUs drives, expected NICs "
                                "among {}",
                                nic, ranges(used)));
    }
    return listed;
  }

  std::string fabric_link(JsonObject& entry) {
    std::string name = entry.string("name");
    if (!network_.links_named(name).empty()) return name;
    const std::vector<FabricLevel> levels = network_.levels();
    if (levels.empty()) {
      entry.fail("name", R"(a fabric of one switch has no links but the NICs' ("link": "nic"))");
    }
    std::vector<std::string> known;
    known.reserve(levels.size());
    for (const FabricLevel& level : levels) known.push_back(level.name);
    std::string hint = did_you_mean(name, known);
    if (hint.empty()) {
      hint = format("; levels are: {}; a link is called, for example, {}", join(known, ", "),
                    network_.name(0));
    }
    entry.fail("name", format("no link of the fabric, and no level of them, is called \"{}\"{}",
                              name, hint));
  }

  void read_nvlink(JsonObject& entry, LinkPerturbation& link) {
    const IntraNode intra = cluster_.node.intra;
    if (intra != IntraNode::NvSwitch && intra != IntraNode::NvLinkMesh) {
      entry.fail("link", "the GPUs of this cluster do not use NVLinks");
    }
    if (cluster_.gpus_per_node * std::min(cluster_.nodes, cluster_.fabric.nvlink_domain_nodes) ==
        1) {
      entry.fail("link",
                 "one GPU a node sends nothing over its NVLinks, so this would change nothing");
    }
    int links = 0;
    if (intra == IntraNode::NvLinkMesh) {
      links = read_peer(entry, link);
    } else if (entry.has("peer")) {
      entry.fail("peer", "NVLinks to a switch lead to no GPU in particular, expected no peer");
    } else {
      links = fewest_links_to_switch(link.gpus);
    }
    if (!entry.has("lost_links")) return;
    link.lost_links = bounded_integer(entry, "lost_links", 1, kMaxGpusPerNode);
    // A GPU without NVLinks is another machine; of a mesh NCCL uses what is left.
    const int most = link.peer < 0 ? links - 1 : links;
    if (link.lost_links > most) {
      entry.fail("lost_links",
                 format("found {}, expected at most {} of the {} NVLinks {}", link.lost_links, most,
                        links, link.peer < 0 ? "of a GPU" : "between the two"),
                 "out_of_range");
    }
  }

  /// Of the listed GPUs; of all used ones if none is.
  [[nodiscard]] int fewest_links_to_switch(const std::vector<int>& gpus) const {
    int fewest = std::numeric_limits<int>::max();
    for_selected(gpus, cluster_.gpus_per_node,
                 [&](int gpu) { fewest = std::min(fewest, links_to_switch(cluster_.node, gpu)); });
    return fewest;
  }

  /// \returns  the NVLinks between the pair
  int read_peer(JsonObject& entry, LinkPerturbation& link) {
    if (link.gpus.size() != 1 || !entry.has("peer")) {
      entry.fail("link",
                 "NVLinks of a mesh are between two GPUs, expected one in \"gpus\" and the "
                 "other as \"peer\"");
    }
    link.peer = bounded_integer(entry, "peer", 0, cluster_.gpus_per_node - 1);
    const int gpu = link.gpus.front();
    const int links = link.peer == gpu ? 0 : links_between(cluster_.node, gpu, link.peer);
    if (links == 0) entry.fail("peer", format("no NVLink joins GPU {} and GPU {}", gpu, link.peer));
    return links;
  }

  // Background traffic.

  /// Links of the fabric, from the first to the last: of a level, or one.
  using Range = std::pair<int, int>;

  [[nodiscard]] Range range_of(const LinkPerturbation& link) const {
    if (link.where != Where::Fabric) return {0, -1};
    const std::vector<int> links = network_.links_named(link.fabric);
    return {links.front(), links.back()};
  }

  [[nodiscard]] BytesPerSecond nominal(std::size_t index) const {
    const LinkPerturbation& link = cluster_.perturbations.links[index];
    switch (link.where) {
      case Where::NvLink:
        if (link.peer >= 0) {
          return nvlink_pair_bandwidth(cluster_.node.graph, link.gpus.front(), link.peer);
        }
        return link_capacity(cluster_, LinkClass::Kind::IntraNode);
      case Where::Pcie:
        return link_capacity(cluster_, LinkClass::Kind::HostToDevice);
      case Where::Nic:
        return network_.nic_bandwidth();
      case Where::Fabric:
        return network_.capacity(fabric_links_[index].first);
    }
    return {};
  }

  [[nodiscard]] bool meet(std::size_t one, std::size_t other) const {
    const LinkPerturbation& a = cluster_.perturbations.links[one];
    const LinkPerturbation& b = cluster_.perturbations.links[other];
    if (a.where != b.where) return false;
    if (a.where == Where::Fabric) {
      return fabric_links_[one].first <= fabric_links_[other].second &&
             fabric_links_[other].first <= fabric_links_[one].second;
    }
    return intersect(a.nodes, b.nodes) && intersect(a.gpus, b.gpus) && intersect(a.nics, b.nics) &&
           (a.peer == b.peer || a.peer < 0 || b.peer < 0);
  }

  /// Each other entry that meets this one shares a link with it. What three of them leave of a link
  /// `check_all` sees, which knows no place in the file.
  void check_background(std::size_t index, const JsonObject& entry) {
    const LinkPerturbation& link = all().links[index];
    const double own = nominal(index).per_second() * link.bandwidth;
    double left = own;
    for (std::size_t i = 0; i < all().links.size(); ++i) {
      const LinkPerturbation& other = all().links[i];
      if (i == index || !meet(index, i)) continue;
      left = std::min(left, own * other.bandwidth - other.background.per_second());
    }
    if (link.background.per_second() < left) return;
    entry.fail("background",
               format("found {:g} GB/s, expected less than {:g} GB/s, which is all that the link "
                      "can carry",
                      link.background.gb_per_second(), std::max(0.0, left) / 1e9),
               "out_of_range");
  }

  /// What all entries together do to the links, as a simulation finds it.
  void check_all() {
    if (all().links.empty() || !is_simulated_gpu(cluster_.node.gpu)) return;
    try {
      static_cast<void>(fold(cluster_, {{0, cluster_.world_size(), 0}}, {}, FoldMode::Exact));
    } catch (const ConfigError& error) {
      throw ConfigError(root_.document().location(root_.raw("perturbations")),
                        format("perturbations: {}", error.what()));
    }
  }

  // Jobs and jitter.

  CompetingJob read_job(JsonObject& entry) {
    const Where where = read_where(entry);
    if (where == Where::NvLink || where == Where::Pcie) {
      entry.fail("link", R"(a node belongs to one job, expected "nic" or "fabric")");
    }
    expect_link_keys(entry, where, {"bytes", "period", "offset"});
    CompetingJob job;
    job.name = entry.string("job");
    job.links = read_selection(entry, where);
    job.bytes = entry.bytes("bytes");
    if (job.bytes <= Bytes()) entry.fail("bytes", "found no bytes, expected more than 0");
    job.period = entry.seconds("period");
    if (job.period < kShortestPeriod) {
      entry.fail("period",
                 format("found {}, expected at least {}", to_string(job.period),
                        to_string(kShortestPeriod)),
                 "out_of_range");
    }
    if (entry.has("offset")) {
      job.offset = entry.seconds("offset");
    } else {
      cluster_.assumptions.push_back(format("{}.offset: 0 s", entry.path()));
    }
    return job;
  }

  void read_jitter(JsonObject jitter) {
    expect_keys(jitter, {"kernels", "host", "seed", "repetitions"});
    expect_some(jitter, {"kernels", "host"});
    all().jitter.kernels = deviation(jitter, "kernels");
    all().jitter.host = deviation(jitter, "host");
    if (jitter.has("seed")) {
      all().jitter.seed = static_cast<std::uint64_t>(jitter.integer_at_least("seed", 0));
    } else {
      cluster_.assumptions.push_back(format("jitter.seed: {}", all().jitter.seed));
    }
    if (jitter.has("repetitions")) {
      all().jitter.repetitions = bounded_integer(jitter, "repetitions", 1, kMostRepetitions);
    } else {
      cluster_.assumptions.push_back(format("jitter.repetitions: {}", all().jitter.repetitions));
    }
  }

  static double deviation(JsonObject& jitter, const char* key) {
    if (!jitter.has(key)) return 0;
    const double value = jitter.number(key);
    if (!(value >= 0 && value <= kLargestJitter)) {
      jitter.fail(
          key, format("found {}, expected a relative spread from 0 to {}", value, kLargestJitter),
          "out_of_range");
    }
    return value;
  }

  JsonObject& root_;
  Cluster& cluster_;
  FabricNetwork network_;
  std::vector<Range> fabric_links_;  ///< of each entry about links
  std::vector<std::pair<std::size_t, JsonObject>> with_background_;
};

}  // namespace

void read_perturbations(JsonObject& root, Cluster& cluster) {
  PerturbationReader(root, cluster).read();
}

}  // namespace zerosim
