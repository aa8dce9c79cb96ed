#include "sim/report/folding_text.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/base/text.h"
#include "sim/report/text_table.h"

namespace zerosim {
namespace {

using Align = TextTable::Align;

constexpr std::size_t kMostRows = 20;  // of a table; JSON has all

const RankClass& rank_class_of(const Folding& folding, int index) {
  return folding.ranks[static_cast<std::size_t>(index)];
}

std::string gb_per_second(const Folding& folding, int link) {
  if (link < 0) return "none";
  const BytesPerSecond rate = folding.links[static_cast<std::size_t>(link)].capacity;
  return format("{:.4g} GB/s", rate.gb_per_second());
}

/// Figures of the ranks themselves.
std::vector<std::string> own_differences(const Folding& folding, const RankClass& ranks,
                                         const RankClass& usual) {
  std::vector<std::string> all;
  if (ranks.gpu != usual.gpu) all.push_back(folding.gpus[static_cast<std::size_t>(ranks.gpu)]);
  const auto speed = [&](const char* what, double value, double other) {
    if (value != other) all.push_back(format("{} speed {:.4g}", what, value));
  };
  speed("arithmetic", ranks.gpu_speed, usual.gpu_speed);
  speed("memory", ranks.memory_speed, usual.memory_speed);
  speed("host", ranks.host_speed, usual.host_speed);
  const auto link = [&](const char* what, int own, int other) {
    const std::string rate = gb_per_second(folding, own);
    if (rate != gb_per_second(folding, other)) all.push_back(format("{} {}", what, rate));
  };
  link("rings", ranks.intra_link, usual.intra_link);
  link("host to device", ranks.host_to_device, usual.host_to_device);
  if (ranks.program != usual.program) all.push_back(format("program {}", ranks.program));
  return all;
}

bool differs_by_itself(const Folding& folding, int rank_class, int usual) {
  return !own_differences(folding, rank_class_of(folding, rank_class),
                          rank_class_of(folding, usual))
              .empty();
}

const InstanceClass& instance(const Folding& folding, std::size_t group, int rank_class) {
  const int index = folding.instance_of[group][static_cast<std::size_t>(rank_class)];
  return folding.groups[group][static_cast<std::size_t>(index)];
}

/// "with rank 17 in node": the smallest communicator in which it meets a class that is special by
/// itself, where the usual ranks' instance holds none such.
std::string by_company(const Folding& folding, const std::vector<std::string>& groups,
                       int rank_class, int usual) {
  std::size_t fewest = 0;
  std::string text;
  for (std::size_t group = 0; group < folding.groups.size(); ++group) {
    const InstanceClass& own = instance(folding, group, rank_class);
    const InstanceClass& others = instance(folding, group, usual);
    const std::set<int> known(others.ranks.begin(), others.ranks.end());
    for (const int member : own.ranks) {
      const bool is_special = known.count(member) == 0 && differs_by_itself(folding, member, usual);
      const auto size = static_cast<std::size_t>(own.shape.ranks);
      if (!is_special || (!text.empty() && size >= fewest)) continue;
      fewest = size;
      text = format("with rank {} in {}", rank_class_of(folding, member).representative,
                    groups[group]);
    }
  }
  return text;
}

std::string by_links(const Folding& folding, const std::vector<std::string>& groups, int rank_class,
                     int usual) {
  for (std::size_t group = 0; group < folding.groups.size(); ++group) {
    std::set<int> usual_links;
    for (const LinkShare& share : instance(folding, group, usual).links) {
      usual_links.insert(share.link);
    }
    for (const LinkShare& share : instance(folding, group, rank_class).links) {
      if (usual_links.count(share.link) > 0) continue;
      const FoldedLink& link = folding.links[static_cast<std::size_t>(share.link)];
      return format("{} goes by {}, {}", groups[group], link.name,
                    gb_per_second(folding, share.link));
    }
  }
  return "stands elsewhere among the nodes";
}

const char* kind_word(LinkClass::Kind kind) {
  switch (kind) {
    case LinkClass::Kind::IntraNode:
      return "rings in a node";
    case LinkClass::Kind::Network:
      return "NIC";
    case LinkClass::Kind::HostToDevice:
      return "host to device";
    case LinkClass::Kind::DeviceToHost:
      return "device to host";
    case LinkClass::Kind::DeviceMemory:
      return "device memory";
    case LinkClass::Kind::Fabric:
      return "fabric";
  }
  return "";
}

std::string more(std::size_t all) {
  return all > kMostRows ? format("  and {} more; --json lists them\n", all - kMostRows) : "";
}

std::string rank_table(const Folding& folding, const std::vector<std::string>& groups) {
  TextTable table({Align::Right, Align::Right, Align::Left, Align::Left});
  table.add_row({"ranks", "such as", "GPU", "differs by"});
  const std::size_t rows = std::min(folding.ranks.size(), kMostRows);
  for (std::size_t i = 0; i < rows; ++i) {
    const RankClass& ranks = folding.ranks[i];
    table.add_row({grouped(ranks.multiplicity), format("{}", ranks.representative),
                   folding.gpus[static_cast<std::size_t>(ranks.gpu)],
                   difference(folding, groups, static_cast<int>(i))});
  }
  return table.text() + more(folding.ranks.size());
}

std::string link_table(const Folding& folding) {
  TextTable table({Align::Right, Align::Left, Align::Left, Align::Right});
  table.add_row({"links", "such as", "kind", "GB/s"});
  const std::size_t rows = std::min(folding.links.size(), kMostRows);
  for (std::size_t i = 0; i < rows; ++i) {
    const FoldedLink& link = folding.links[i];
    table.add_row({grouped(link.multiplicity), link.name, kind_word(link.kind),
                   format("{:.4g}", link.capacity.gb_per_second())});
  }
  return table.text() + more(folding.links.size());
}

}  // namespace

int usual_class(const Folding& folding) {
  const auto most = std::max_element(
      folding.ranks.begin(), folding.ranks.end(),
      [](const RankClass& a, const RankClass& b) { return a.multiplicity < b.multiplicity; });
  return static_cast<int>(most - folding.ranks.begin());
}

std::string difference(const Folding& folding, const std::vector<std::string>& groups,
                       int rank_class) {
  const int usual = usual_class(folding);
  if (rank_class == usual) return "";
  const std::vector<std::string> own =
      own_differences(folding, rank_class_of(folding, rank_class), rank_class_of(folding, usual));
  if (!own.empty()) return join(own, ", ");
  const std::string company = by_company(folding, groups, rank_class, usual);
  return company.empty() ? by_links(folding, groups, rank_class, usual) : company;
}

std::string folding_text(const Folding& folding, const std::vector<std::string>& groups) {
  std::int64_t ranks = 0;
  for (const RankClass& rank_class : folding.ranks) ranks += rank_class.multiplicity;
  return format("{} ranks in {} classes; communicators: {}\n", grouped(ranks), folding.ranks.size(),
                join(groups, ", ")) +
         rank_table(folding, groups) + "\n" + link_table(folding);
}

JsonValue folding_json(const Folding& folding, const std::vector<std::string>& groups) {
  JsonValue json(Json::objectValue);
  JsonValue& names = json["communicators"] = JsonValue(Json::arrayValue);
  for (const std::string& group : groups) names.append(group);
  JsonValue& ranks = json["ranks"] = JsonValue(Json::arrayValue);
  for (std::size_t i = 0; i < folding.ranks.size(); ++i) {
    const RankClass& rank_class = folding.ranks[i];
    JsonValue entry(Json::objectValue);
    entry["representative"] = rank_class.representative;
    entry["multiplicity"] = rank_class.multiplicity;
    entry["gpu"] = folding.gpus[static_cast<std::size_t>(rank_class.gpu)];
    entry["difference"] = difference(folding, groups, static_cast<int>(i));
    ranks.append(std::move(entry));
  }
  JsonValue& links = json["links"] = JsonValue(Json::arrayValue);
  for (const FoldedLink& link : folding.links) {
    JsonValue entry(Json::objectValue);
    entry["name"] = link.name;
    entry["kind"] = kind_word(link.kind);
    entry["bandwidth"] = link.capacity.per_second();
    entry["multiplicity"] = Json::Int64{link.multiplicity};
    links.append(std::move(entry));
  }
  return json;
}

}  // namespace zerosim
