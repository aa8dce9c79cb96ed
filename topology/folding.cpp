#include "topology/folding.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "topology/instances.h"
#include "topology/nccl_graph.h"
#include "topology/rank_figures.h"

namespace zerosim {
namespace {

using Colours = std::vector<std::int32_t>;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

// ---- Numbering ---------------------------------------------------------------------------------

/// Numbers pairs of ints in the order in which they come. Numbers begin at `kFirst`, beyond all
/// colours, so that chains pair(pair(a, b), c) of different lengths never meet.
class PairNumbers {
 public:
  static constexpr std::int32_t kFirst = 1 << 30;

  std::int32_t operator()(std::int32_t a, std::int32_t b) {
    const auto key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 |
                     static_cast<std::uint32_t>(b);
    // Most pairs come again at once: ranks of all nodes repeat the same few.
    Recent& recent = recent_[(key * 0x9e3779b97f4a7c15) >> 56];
    if (recent.key != key || recent.number == 0) {
      const auto [entry, added] = numbers_.try_emplace(key, next_);
      next_ += added ? 1 : 0;
      recent = {key, entry->second};
    }
    return recent.number;
  }

 private:
  struct Recent {
    std::uint64_t key = 0;
    std::int32_t number = 0;
  };
  std::array<Recent, 256> recent_{};
  std::unordered_map<std::uint64_t, std::int32_t> numbers_;
  std::int32_t next_ = kFirst;
};

/// Collects distinct small numbers.
class NumberSet {
 public:
  void begin() {
    ++serial_;
    items_.clear();
  }
  /// \returns false if it is there already.
  bool add(std::int32_t number) {
    const auto index = static_cast<std::size_t>(number % PairNumbers::kFirst);
    if (index >= seen_.size()) seen_.resize(2 * index + 64, 0);
    if (seen_[index] == serial_) return false;
    seen_[index] = serial_;
    items_.push_back(number);
    return true;
  }
  [[nodiscard]] Colours& sorted() {
    std::sort(items_.begin(), items_.end());
    return items_;
  }

 private:
  std::int64_t serial_ = 0;
  std::vector<std::int64_t> seen_;
  Colours items_;
};

/// Renames numbers to 0, 1, ... from `next` on, in the order in which they come.
int make_dense(Colours& colours, int next) {
  const int first = next;
  std::unordered_map<std::int32_t, std::int32_t> names;
  std::int32_t last = -1;
  std::int32_t name = -1;
  for (std::int32_t& colour : colours) {
    if (colour != last) {
      last = colour;
      const auto [entry, added] = names.try_emplace(colour, next);
      next += added ? 1 : 0;
      name = entry->second;
    }
    colour = name;
  }
  return next - first;
}

// ---- The graph that is refined -----------------------------------------------------------------

/// An instance loads a link; `share` is an index into Graph::shares.
struct Use {
  std::int32_t link = 0;
  std::int32_t share = 0;
};

/// Instances of one communicator.
struct GroupInstances {
  GroupPattern pattern;
  int count = 0;
  std::vector<std::int32_t> shape;     ///< index into Graph::shapes
  std::vector<Use> uses;               ///< pool: those of instance i begin at first_use[i]
  std::vector<std::size_t> first_use;  ///< and the end

  [[nodiscard]] std::size_t begin(int instance) const { return first_use[at(instance)]; }
  [[nodiscard]] std::size_t end(int instance) const { return first_use[at(instance) + 1]; }
};

struct SharedLink {
  LinkClass::Kind kind = LinkClass::Kind::Network;
  double nominal = 0;
  double capacity = 0;  ///< nominal, until `finish_links`
  LinkPart part;
  std::vector<int> jobs;
  bool operator==(const SharedLink&) const = default;
};

struct Graph {
  int ranks = 0;
  std::vector<std::int32_t> programs;  ///< by rank
  UnevenRanks uneven;
  std::vector<GroupInstances> groups;
  std::vector<CollectiveGroup> shapes;
  std::vector<LinkShare> shares;  ///< distinct ones, of no link
  std::vector<SharedLink> kinds;  ///< distinct shared links
  std::vector<std::int32_t> kind_of_link;
};

template <typename T>
std::int32_t index_in(std::vector<T>& known, const T& value) {
  const auto found = std::find(known.begin(), known.end(), value);
  if (found != known.end()) return static_cast<std::int32_t>(found - known.begin());
  known.push_back(value);
  return static_cast<std::int32_t>(known.size()) - 1;
}

/// Which of the shared links an entry means; calls `body(link)` for each.
template <typename Body>
void for_links(const LinkPerturbation& entry, const Cluster& cluster, const InstanceMap& map,
               Body body) {
  using Where = LinkPerturbation::Where;
  const auto nics = static_cast<int>(map.nics().size());
  const auto among = [](const std::vector<int>& listed, int index) {
    return listed.empty() || std::find(listed.begin(), listed.end(), index) != listed.end();
  };
  if (entry.where == Where::Nic) {
    check_selected("NIC", entry.nics, cluster.node.nics);
    check_selected("node", entry.nodes, cluster.nodes);
    const auto on_node = [&](int node) {
      for (int i = 0; i < nics; ++i) {
        const int link = node * nics + i;
        if (among(entry.nics, map.nics()[at(i)]) && link < map.nic_links()) body(link);
      }
    };
    for_selected(entry.nodes, cluster.nodes, on_node);
  }
  if (entry.where == Where::Pcie) {  // uneven_ranks has checked nodes and GPUs
    for_selected(entry.nodes, cluster.nodes, [&](int node) {
      for_selected(entry.gpus, cluster.gpus_per_node, [&](int gpu) {
        if (gpu >= cluster.gpus_per_node) return;
        for (const int link : map.slots(node, gpu)) body(link);
      });
    });
  }
  if (entry.where == Where::Fabric) {
    const std::vector<int> links = map.fabric().links_named(entry.fabric);
    for (const int link : links) body(map.nic_links() + link);
    if (links.empty() && cluster.nodes > 1) {
      throw ConfigError(
          format("a perturbation names the fabric's links \"{}\": there are none", entry.fabric));
    }
  }
}

class GraphBuilder {
 public:
  GraphBuilder(const Cluster& cluster, const std::vector<RankRun>& runs) : cluster_(cluster) {
    for (const RankRun& run : runs) {
      ZS_CHECK(run.first == graph_.ranks && run.count > 0, "runs of ranks in order, without gaps");
      graph_.programs.insert(graph_.programs.end(), at(run.count), run.program);
      graph_.ranks += run.count;
    }
    if (graph_.ranks < 1 || graph_.ranks > cluster.world_size()) {
      throw SimulationError(
          format("{} ranks on a cluster of {}", graph_.ranks, cluster.world_size()));
    }
  }

  Graph build(const std::vector<GroupPattern>& groups, InstanceMap& map) {
    graph_.uneven = uneven_ranks(cluster_, graph_.ranks);
    graph_.groups.reserve(groups.size());
    for (const GroupPattern& group : groups) add_group(group, map);
    add_links(map);
    return std::move(graph_);
  }

  [[nodiscard]] int ranks() const { return graph_.ranks; }

 private:
  void add_group(const GroupPattern& pattern, InstanceMap& map) {
    GroupInstances& group = graph_.groups.emplace_back();
    group.pattern = pattern;
    group.count = instance_count(pattern, graph_.ranks);
    group.first_use.reserve(at(group.count) + 1);
    group.first_use.push_back(0);
    std::vector<LinkShare> uses;
    for (int i = 0; i < group.count; ++i) {
      uses.clear();
      group.shape.push_back(index_in(graph_.shapes, map.place(pattern, i, uses)));
      for (const LinkShare& use : uses) {
        LinkShare share = use;
        share.link = 0;
        if (graph_.shares.empty() || graph_.shares[at(last_share_)] != share) {
          last_share_ = index_in(graph_.shares, share);
        }
        group.uses.push_back({use.link, last_share_});
      }
      group.first_use.push_back(group.uses.size());
    }
  }

  void add_links(const InstanceMap& map) {
    graph_.kind_of_link.assign(at(map.link_count()), 0);
    const double nic = usable_nic_bandwidth(cluster_).per_second();
    graph_.kinds.push_back({LinkClass::Kind::Network, nic, nic, {}, {}});
    for (int link = map.nic_links(); link < map.link_count(); ++link) {
      const double capacity = map.capacity(link).per_second();
      graph_.kind_of_link[at(link)] =
          index_in(graph_.kinds, SharedLink{map.kind(link), capacity, capacity, {}, {}});
    }
    const Perturbations& perturbations = cluster_.perturbations;
    for (const LinkPerturbation& entry : perturbations.links) {
      for_links(entry, cluster_, map,
                [&](int link) { change(link, [&](SharedLink& kind) { kind.part.add(entry); }); });
    }
    for (std::size_t job = 0; job < perturbations.jobs.size(); ++job) {
      for_links(perturbations.jobs[job].links, cluster_, map, [&](int link) {
        change(link, [&](SharedLink& kind) { kind.jobs.push_back(static_cast<int>(job)); });
      });
    }
    if (!perturbations.links.empty()) finish_links();
  }

  /// What all entries leave of each link. Only kinds that are left in use count.
  void finish_links() {
    const std::vector<SharedLink> drafts = std::exchange(graph_.kinds, {});
    Colours finished(drafts.size(), -1);
    for (std::int32_t& kind : graph_.kind_of_link) {
      std::int32_t& own = finished[at(kind)];
      if (own < 0) {
        SharedLink link = drafts[at(kind)];
        const bool network =
            link.kind == LinkClass::Kind::Network || link.kind == LinkClass::Kind::Fabric;
        link.capacity =
            left_of(link.part, link.capacity, network ? "a link of the network" : "a PCIe link");
        link.part = {};
        own = index_in(graph_.kinds, link);
      }
      kind = own;
    }
  }

  template <typename Change>
  void change(int link, Change body) {
    std::int32_t& kind = graph_.kind_of_link[at(link)];
    SharedLink changed = graph_.kinds[at(kind)];
    body(changed);
    kind = index_in(graph_.kinds, changed);
  }

  const Cluster& cluster_;
  Graph graph_;
  std::int32_t last_share_ = 0;
};

// ---- Refinement --------------------------------------------------------------------------------

/// Colours of all ranks, instances and shared links. Those of one kind of node begin at 0, but
/// instances of all communicators are numbered together.
struct Colouring {
  Colours ranks;
  std::vector<Colours> instances;  ///< by communicator
  Colours links;
};

/// How many instances load each link.
std::vector<std::int32_t> users_of(const GroupInstances& group, std::size_t links) {
  std::vector<std::int32_t> users(links, 0);
  for (const Use& use : group.uses) ++users[at(use.link)];
  return users;
}

bool loads(const GroupInstances& group, int instance, int link) {
  for (std::size_t u = group.begin(instance); u < group.end(instance); ++u) {
    if (group.uses[u].link == link) return true;
  }
  return false;
}

/// Instances of one communicator that meet on a link get different numbers, each the least that is
/// free on all of its links.
Colours told_apart(const GroupInstances& group, std::size_t links) {
  Colours tags(at(group.count), 0);
  const std::vector<std::int32_t> users = users_of(group, links);
  if (std::all_of(users.begin(), users.end(), [](std::int32_t n) { return n <= 1; })) return tags;
  std::unordered_map<std::int32_t, Colours> taken;  // by link
  std::vector<std::int32_t> taken_by;               // by tag: the latest instance that may not
  for (int i = 0; i < group.count; ++i) {
    for (std::size_t u = group.begin(i); u < group.end(i); ++u) {
      if (users[at(group.uses[u].link)] <= 1) continue;
      for (const std::int32_t tag : taken[group.uses[u].link]) {
        if (at(tag) >= taken_by.size()) taken_by.resize(at(tag) + 1, -1);
        taken_by[at(tag)] = i;
      }
    }
    std::int32_t& tag = tags[at(i)];
    while (at(tag) < taken_by.size() && taken_by[at(tag)] == i) ++tag;
    for (std::size_t u = group.begin(i); u < group.end(i); ++u) {
      if (users[at(group.uses[u].link)] > 1) taken[group.uses[u].link].push_back(tag);
    }
  }
  return tags;
}

class Refinement {
 public:
  /// \param copies_apart  those that meet on an uplink
  Refinement(const Graph& graph, bool copies_apart) : graph_(graph), copies_apart_(copies_apart) {}

  Colouring fixed_point() {
    initial();
    for (int before = -1; before != count_;) {
      before = count_;
      round();
    }
    return std::move(own_);
  }

 private:
  void initial() {
    PairNumbers pair;
    own_.ranks.resize(at(graph_.ranks));
    for (int r = 0; r < graph_.ranks; ++r) {
      own_.ranks[at(r)] = pair(graph_.programs[at(r)], graph_.uneven.of_rank[at(r)]);
    }
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) {
      const GroupInstances& group = graph_.groups[g];
      const bool apart = copies_apart_ || !group.pattern.host;
      Colours& colours = own_.instances.emplace_back(
          apart ? told_apart(group, graph_.kind_of_link.size()) : Colours(at(group.count), 0));
      for (int i = 0; i < group.count; ++i) {
        const std::int32_t of_group = pair(static_cast<std::int32_t>(g), group.shape[at(i)]);
        colours[at(i)] = pair(of_group, colours[at(i)]);
      }
    }
    own_.links = graph_.kind_of_link;
    make_all_dense();
  }

  void make_all_dense() {
    count_ = make_dense(own_.ranks, 0);
    int instances = 0;
    for (Colours& colours : own_.instances) instances += make_dense(colours, instances);
    count_ += instances + make_dense(own_.links, 0);
  }

  void round() {
    PairNumbers pair;
    refine_ranks(pair);
    refine_instances(pair);
    refine_links(pair);
    make_all_dense();
  }

  /// A rank's colour: its own, and those of its instances.
  void refine_ranks(PairNumbers& pair) {
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) {
      const GroupPattern& pattern = graph_.groups[g].pattern;
      for (int r = 0; r < graph_.ranks; ++r) {
        const std::int32_t instance = own_.instances[g][at(instance_of(pattern, r))];
        own_.ranks[at(r)] = pair(own_.ranks[at(r)], instance);
      }
    }
    make_dense(own_.ranks, 0);
  }

  /// An instance's: its own, and the sets of those of its ranks, and of (link, share).
  void refine_instances(PairNumbers& pair) {
    int next = 0;
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) {
      const GroupInstances& group = graph_.groups[g];
      Colours& colours = own_.instances[g];
      for (int i = 0; i < group.count; ++i) {
        std::int32_t& colour = colours[at(i)];
        set_.begin();
        for (int k = 0; k < group.pattern.size; ++k) {
          set_.add(own_.ranks[at(rank_of(group.pattern, i, k))]);
        }
        colour = chained(colour, pair);
        set_.begin();
        for (std::size_t u = group.begin(i); u < group.end(i); ++u) {
          set_.add(pair(own_.links[at(group.uses[u].link)], group.uses[u].share));
        }
        colour = chained(colour, pair);
      }
      next += make_dense(colours, next);
    }
  }

  /// `colour` with all of the set, its size first.
  std::int32_t chained(std::int32_t colour, PairNumbers& pair) {
    const Colours& items = set_.sorted();
    colour = pair(colour, static_cast<std::int32_t>(items.size()));
    for (const std::int32_t item : items) colour = pair(colour, item);
    return colour;
  }

  /// A link's: its own, and those of the instances that load it, with shares. No two of one colour
  /// load one link, so that the order of colours is an order.
  void refine_links(PairNumbers& pair) {
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) {
      const GroupInstances& group = graph_.groups[g];
      if (group.uses.empty()) continue;
      std::vector<int> order(at(group.count));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return own_.instances[g][at(a)] < own_.instances[g][at(b)];
      });
      for (const int i : order) {
        for (std::size_t u = group.begin(i); u < group.end(i); ++u) {
          const std::int32_t load = pair(own_.instances[g][at(i)], group.uses[u].share);
          std::int32_t& link = own_.links[at(group.uses[u].link)];
          link = pair(link, load);
        }
      }
    }
  }

  const Graph& graph_;
  bool copies_apart_;
  Colouring own_;
  NumberSet set_;
  int count_ = 0;
};

/// Whether copies of one class have each link on which they meet to themselves: they go in step
/// then, and share it as one transfer of all their bytes would. (Beside others on the link they
/// would not: each transfer has an equal part of it.)
bool copies_go_in_step(const Graph& graph, const Colouring& colouring) {
  const std::size_t links = graph.kind_of_link.size();
  for (std::size_t g = 0; g < graph.groups.size(); ++g) {
    const GroupInstances& copies = graph.groups[g];
    if (!copies.pattern.host) continue;
    const std::vector<std::int32_t> users = users_of(copies, links);
    Colours colour_of(links, -1);
    for (int i = 0; i < copies.count; ++i) {
      for (std::size_t u = copies.begin(i); u < copies.end(i); ++u) {
        const auto link = at(copies.uses[u].link);
        std::int32_t& colour = colour_of[link];
        if (colour < 0) colour = colouring.instances[g][at(i)];
        if (users[link] > 1 && colour != colouring.instances[g][at(i)]) return false;
      }
    }
    for (const GroupInstances& group : graph.groups) {
      const auto meets = [&](const Use& use) { return users[at(use.link)] > 1; };
      if (&group != &copies && std::any_of(group.uses.begin(), group.uses.end(), meets)) {
        return false;
      }
    }
  }
  return true;
}

Colouring refined(const Graph& graph) {
  Colouring in_step = Refinement(graph, false).fixed_point();
  return copies_go_in_step(graph, in_step) ? in_step : Refinement(graph, true).fixed_point();
}

/// Everything a class of its own.
Colouring unfolded(const Graph& graph) {
  Colouring own;
  own.ranks.resize(at(graph.ranks));
  std::iota(own.ranks.begin(), own.ranks.end(), 0);
  std::int32_t next = 0;
  for (const GroupInstances& group : graph.groups) {
    Colours& colours = own.instances.emplace_back(at(group.count));
    std::iota(colours.begin(), colours.end(), next);
    next += group.count;
  }
  own.links.resize(graph.kind_of_link.size());
  std::iota(own.links.begin(), own.links.end(), 0);
  return own;
}

// ---- The quotient ------------------------------------------------------------------------------

class Quotient {
 public:
  /// \param sends  are told (FoldMode::Off)
  Quotient(const Cluster& cluster, const Graph& graph, InstanceMap& map, Colouring colouring,
           bool sends)
      : cluster_(cluster),
        graph_(graph),
        map_(map),
        colouring_(std::move(colouring)),
        sends_(sends) {}

  Folding build() {
    result_.gpus = graph_.uneven.gpus;
    add_ranks();
    link_class_.assign(graph_.kind_of_link.size(), -1);
    count_links();
    for (std::size_t g = 0; g < graph_.groups.size(); ++g) add_instances(g);
    if (result_.ranks.size() > 1) result_.class_of_rank = std::move(colouring_.ranks);
    return std::move(result_);
  }

 private:
  void add_ranks() {
    make_dense(colouring_.ranks, 0);
    for (int r = 0; r < graph_.ranks; ++r) {
      const auto found = at(colouring_.ranks[at(r)]);
      if (found == result_.ranks.size()) add_rank(r);
      RankClass& own = result_.ranks[found];
      ++own.multiplicity;
      if (own.intra_link >= 0) ++result_.links[at(own.intra_link)].multiplicity;
    }
  }

  void add_rank(int rank) {
    const RankFigures& figures = graph_.uneven.figures[at(graph_.uneven.of_rank[at(rank)])];
    RankClass added;
    added.representative = rank;
    added.multiplicity = 0;
    added.program = graph_.programs[at(rank)];
    added.gpu = figures.gpu;
    added.gpu_speed = figures.gpu_speed;
    added.memory_speed = figures.memory_speed;
    added.host_speed = figures.host_speed;
    added.intra_link =
        add_ring_link(rank, has_nvlink(cluster_.intra()) ? "nvlink" : "pcie", figures.intra);
    result_.ranks.push_back(added);
  }

  int add_ring_link(int rank, const char* name, double capacity) {
    if (capacity <= 0) return -1;
    const int per_node = cluster_.gpus_per_node;
    return add_link({LinkClass::Kind::IntraNode,
                     format("node{}.gpu{}.{}", rank / per_node, rank % per_node, name),
                     BytesPerSecond(capacity), 0});
  }

  int add_link(FoldedLink link) {
    result_.links.push_back(std::move(link));
    return static_cast<int>(result_.links.size()) - 1;
  }

  /// How many shared links that anybody loads have each colour.
  void count_links() {
    std::vector<bool> loaded(graph_.kind_of_link.size());
    for (const GroupInstances& group : graph_.groups) {
      for (const Use& use : group.uses) loaded[at(use.link)] = true;
    }
    links_of_colour_.assign(graph_.kind_of_link.size(), 0);
    for (std::size_t link = 0; link < loaded.size(); ++link) {
      if (loaded[link]) ++links_of_colour_[at(colouring_.links[link])];
    }
  }

  void add_instances(std::size_t g) {
    const GroupInstances& group = graph_.groups[g];
    Colours& colours = colouring_.instances[g];
    make_dense(colours, 0);
    std::vector<InstanceClass>& classes = result_.groups.emplace_back();
    for (int i = 0; i < group.count; ++i) {
      const auto found = at(colours[at(i)]);
      if (found == classes.size()) classes.push_back(instance(g, i));
      ++classes[found].multiplicity;
    }
    std::vector<int>& of_class = result_.instance_of.emplace_back();
    of_class.reserve(result_.ranks.size());
    for (const RankClass& rank : result_.ranks) {
      of_class.push_back(colours[at(instance_of(group.pattern, rank.representative))]);
    }
  }

  InstanceClass instance(std::size_t g, int i) {
    const GroupInstances& group = graph_.groups[g];
    InstanceClass added;
    added.multiplicity = 0;
    added.shape = graph_.shapes[at(group.shape[at(i)])];
    set_.begin();
    for (int k = 0; k < group.pattern.size; ++k) {
      set_.add(colouring_.ranks[at(rank_of(group.pattern, i, k))]);
    }
    added.ranks = set_.sorted();
    seen_.begin();
    for (std::size_t u = group.begin(i); u < group.end(i); ++u) {
      const Use& use = group.uses[u];
      if (!seen_.add(colouring_.links[at(use.link)])) continue;
      LinkShare share = graph_.shares[at(use.share)];
      share.link = shared_link(use.link);
      if (group.pattern.host) share.share *= copies_in_step(g, i, use.link);
      added.links.push_back(share);
    }
    if (sends_ && !group.pattern.host) add_sends(group, i, added);
    return added;
  }

  void add_sends(const GroupInstances& group, int i, InstanceClass& instance) {
    instance.sends = map_.ring_sends(group.pattern, i);
    for (RingSend& send : instance.sends) {
      for (LinkShare& link : send.links) link.link = shared_link(link.link);
    }
  }

  /// Copies of how many ranks of its class a link carries where rank `i` copies: GPUs of its node.
  [[nodiscard]] int copies_in_step(std::size_t g, int i, int link) const {
    const GroupInstances& group = graph_.groups[g];
    const Colours& colours = colouring_.instances[g];
    const int first = i - i % cluster_.gpus_per_node;
    const int last = std::min(group.count, first + cluster_.gpus_per_node);
    int ranks = 0;
    for (int k = first; k < last; ++k) {
      if (colours[at(k)] == colours[at(i)] && loads(group, k, link)) ++ranks;
    }
    return ranks;
  }

  int shared_link(int link) {
    const auto colour = at(colouring_.links[at(link)]);
    if (link_class_[colour] < 0) link_class_[colour] = add_shared_link(link);
    return link_class_[colour];
  }

  int add_shared_link(int link) {
    const SharedLink& kind = graph_.kinds[at(graph_.kind_of_link[at(link)])];
    const int added = add_link({kind.kind, map_.name(link), BytesPerSecond(kind.capacity),
                                links_of_colour_[at(colouring_.links[at(link)])],
                                BytesPerSecond(kind.nominal), map_.is_uplink(link)});
    for (const int job : kind.jobs) result_.bursts.push_back({added, job});
    return added;
  }

  const Cluster& cluster_;
  const Graph& graph_;
  InstanceMap& map_;
  Colouring colouring_;
  bool sends_;
  Folding result_;
  std::vector<int> link_class_;  ///< by colour: index into Folding::links
  std::vector<std::int64_t> links_of_colour_;
  NumberSet set_;
  NumberSet seen_;
};

/// Communicators of one size and stride lie alike and tell the same ranks apart: one of them is
/// refined.
struct DistinctPatterns {
  explicit DistinctPatterns(const std::vector<GroupPattern>& groups) {
    for (const GroupPattern& group : groups) {
      const auto known =
          std::find_if(patterns.begin(), patterns.end(), [&](const GroupPattern& other) {
            return other.size == group.size && other.stride == group.stride &&
                   other.host == group.host;
          });
      of_group.push_back(static_cast<std::size_t>(known - patterns.begin()));
      if (known == patterns.end()) {
        patterns.push_back(group);
      } else {
        known->all_to_all = known->all_to_all || group.all_to_all;
      }
    }
  }

  std::vector<GroupPattern> patterns;
  std::vector<std::size_t> of_group;
};

/// Whether anything can meet on slots and uplinks, or they are uneven.
bool slots_matter(const Cluster& cluster, const std::vector<GroupPattern>& groups) {
  if (cluster.node.host_link.per_second() <= 0) return false;  // nothing is known of them
  const auto copies = [](const GroupPattern& group) { return group.host; };
  const auto pcie = [](const LinkPerturbation& entry) {
    return entry.where == LinkPerturbation::Where::Pcie;
  };
  const std::vector<LinkPerturbation>& uneven = cluster.perturbations.links;
  return !has_nvlink(cluster.intra()) || std::any_of(groups.begin(), groups.end(), copies) ||
         std::any_of(uneven.begin(), uneven.end(), pcie);
}

Folding fold_settled(const Cluster& cluster, const std::vector<RankRun>& runs,
                     const std::vector<GroupPattern>& groups, FoldMode mode) {
  const DistinctPatterns distinct(groups);
  GraphBuilder builder(cluster, runs);
  InstanceMap map(cluster, builder.ranks(), slots_matter(cluster, groups));
  const Graph graph = builder.build(distinct.patterns, map);
  const bool all = mode == FoldMode::Off;
  Colouring colouring = all ? unfolded(graph) : refined(graph);
  Folding result = Quotient(cluster, graph, map, std::move(colouring), all).build();
  const auto instances = std::exchange(result.groups, {});
  const auto instance_of = std::exchange(result.instance_of, {});
  for (const std::size_t pattern : distinct.of_group) {
    if (distinct.patterns[pattern].host) {
      result.copies = instances[pattern];
      result.copies_of = instance_of[pattern];
      continue;
    }
    result.groups.push_back(instances[pattern]);
    result.instance_of.push_back(instance_of[pattern]);
  }
  return result;
}

}  // namespace

int class_of(const Folding& folding, int rank) {
  return folding.class_of_rank.empty() ? 0 : folding.class_of_rank[at(rank)];
}

Folding fold(const Cluster& cluster, const std::vector<RankRun>& runs,
             const std::vector<GroupPattern>& groups, FoldMode mode) {
  if (cluster.perturbations.links.empty() || cluster.settled) {
    return fold_settled(cluster, runs, groups, mode);
  }
  Cluster settled = cluster;
  settle_nccl(settled);
  return fold_settled(settled, runs, groups, mode);
}

}  // namespace zerosim
