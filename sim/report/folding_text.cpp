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

/// A GPU's slot, as copies from the host see it; -1: nobody copies.
int slot_of(const Folding& folding, const RankClass& ranks) {
  if (folding.copies.empty()) return -1;
  const auto index = static_cast<std::size_t>(&ranks - folding.ranks.data());
  const auto copies = static_cast<std::size_t>(folding.copies_of[index]);
  for (const LinkShare& share : folding.copies[copies].links) {
    const auto link = static_cast<std::size_t>(share.link);
    if (folding.links[link].kind == LinkClass::Kind::HostToDevice) return share.link;
  }
  return -1;
}

std::string gb_per_second(const Folding& folding, int link) {
  if (link < 0) return "none";
  const BytesPerSecond rate = folding.links[static_cast<std::size_t>(link)].capacity;
  return format("{:.4g} GB/s", rate.gb_per_second());
}

/// "micro batch 4" where that differs, else "program 1".
std::string program_difference(const FoldingNames& names, int program, int usual) {
  if (names.micro_batches.empty()) return format("program {}", program);
  const std::int64_t samples = names.micro_batches[static_cast<std::size_t>(program)];
  if (samples == names.micro_batches[static_cast<std::size_t>(usual)]) {
    return format("program {}", program);
  }
  return samples == 0 ? "micro batch of the strategy" : format("micro batch {}", samples);
}

/// Figures of the ranks themselves.
std::vector<std::string> own_differences(const Folding& folding, const FoldingNames& names,
                                         const RankClass& ranks, const RankClass& usual) {
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
  link("host to device", slot_of(folding, ranks), slot_of(folding, usual));
  if (ranks.program != usual.program) {
    all.push_back(program_difference(names, ranks.program, usual.program));
  }
  return all;
}

bool differs_by_itself(const Folding& folding, int rank_class, int usual) {
  return !own_differences(folding, {}, rank_class_of(folding, rank_class),
                          rank_class_of(folding, usual))
              .empty();
}

const InstanceClass& instance(const Folding& folding, std::size_t group, int rank_class) {
  const int index = folding.instance_of[group][static_cast<std::size_t>(rank_class)];
  return folding.groups[group][static_cast<std::size_t>(index)];
}

/// "with rank 17 in node": the smallest communicator in which it meets a class that is special by
/// itself, where the usual ranks' instance holds none such.
std::string by_company(const Folding& folding, const FoldingNames& names, int rank_class,
                       int usual) {
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
                    names.groups[group]);
    }
  }
  return text;
}

/// The capacity of the slowest link of a kind that an instance loads; 0: none.
double slowest(const Folding& folding, const InstanceClass& members, LinkClass::Kind kind) {
  double least = 0;
  for (const LinkShare& share : members.links) {
    const FoldedLink& link = folding.links[static_cast<std::size_t>(share.link)];
    const double rate = link.capacity.per_second();
    if (link.kind == kind && (least == 0 || rate < least)) least = rate;
  }
  return least;
}

/// "DP goes by node5.nic1, 24 GB/s": the link that is slowest beside those of its kind that the
/// usual ranks' instance loads.
std::string by_links(const Folding& folding, const FoldingNames& names, int rank_class, int usual) {
  double least = 1;
  std::string text = "goes by links that are shared otherwise";
  for (std::size_t group = 0; group < folding.groups.size(); ++group) {
    const InstanceClass& others = instance(folding, group, usual);
    for (const LinkShare& share : instance(folding, group, rank_class).links) {
      const FoldedLink& link = folding.links[static_cast<std::size_t>(share.link)];
      const double usual_rate = slowest(folding, others, link.kind);
      if (usual_rate <= 0 || link.capacity.per_second() >= least * usual_rate) continue;
      least = link.capacity.per_second() / usual_rate;
      text = format("{} goes by {}, {}", names.groups[group], link.name,
                    gb_per_second(folding, share.link));
    }
  }
  return text;
}

std::string more(std::size_t all) {
  return all > kMostRows ? format("  and {} more; --json lists them\n", all - kMostRows) : "";
}

std::string rank_table(const Folding& folding, const FoldingNames& names) {
  TextTable table({Align::Right, Align::Right, Align::Left, Align::Left});
  table.add_row({"ranks", "such as", "GPU", "differs by"});
  const std::size_t rows = std::min(folding.ranks.size(), kMostRows);
  for (std::size_t i = 0; i < rows; ++i) {
    const RankClass& ranks = folding.ranks[i];
    table.add_row({grouped(ranks.multiplicity), format("{}", ranks.representative),
                   folding.gpus[static_cast<std::size_t>(ranks.gpu)],
                   difference(folding, names, static_cast<int>(i))});
  }
  return table.text() + more(folding.ranks.size());
}

/// Link classes of one kind and capacity share a row.
struct LinkRow {
  LinkClass::Kind kind = LinkClass::Kind::IntraNode;
  bool uplink = false;
  BytesPerSecond capacity;
  std::string first;
  std::int64_t links = 0;
  int classes = 0;
};

std::vector<LinkRow> link_rows(const Folding& folding) {
  std::vector<LinkRow> rows;
  for (const FoldedLink& link : folding.links) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const LinkRow& row) {
      return row.kind == link.kind && row.uplink == link.uplink && row.capacity == link.capacity;
    });
    LinkRow& row = same == rows.end() ? rows.emplace_back() : *same;
    if (row.classes == 0) row = {link.kind, link.uplink, link.capacity, link.name, 0, 0};
    row.links += link.multiplicity;
    ++row.classes;
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const LinkRow& a, const LinkRow& b) { return a.kind < b.kind; });
  return rows;
}

std::string link_table(const Folding& folding) {
  TextTable table({Align::Right, Align::Right, Align::Left, Align::Left, Align::Right});
  table.add_row({"links", "classes", "such as", "kind", "GB/s"});
  const std::vector<LinkRow> all = link_rows(folding);
  for (std::size_t i = 0; i < std::min(all.size(), kMostRows); ++i) {
    const LinkRow& row = all[i];
    table.add_row({grouped(row.links), format("{}", row.classes), row.first,
                   link_kind_word(row.kind, row.uplink),
                   format("{:.4g}", row.capacity.gb_per_second())});
  }
  return table.text() + more(all.size());
}

int usual_class(const Folding& folding) {
  const auto most = std::max_element(
      folding.ranks.begin(), folding.ranks.end(),
      [](const RankClass& a, const RankClass& b) { return a.multiplicity < b.multiplicity; });
  return static_cast<int>(most - folding.ranks.begin());
}

}  // namespace

const char* link_kind_word(LinkClass::Kind kind, bool uplink) {
  if (uplink) return kind == LinkClass::Kind::HostToDevice ? "uplink, down" : "uplink, up";
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

std::string difference(const Folding& folding, const FoldingNames& names, int rank_class) {
  const int usual = usual_class(folding);
  if (rank_class == usual) return "";
  const std::vector<std::string> own = own_differences(
      folding, names, rank_class_of(folding, rank_class), rank_class_of(folding, usual));
  if (!own.empty()) return join(own, ", ");
  const std::string company = by_company(folding, names, rank_class, usual);
  return company.empty() ? by_links(folding, names, rank_class, usual) : company;
}

std::string folding_text(const Folding& folding, const FoldingNames& names) {
  std::int64_t ranks = 0;
  for (const RankClass& rank_class : folding.ranks) ranks += rank_class.multiplicity;
  const std::string classes =
      folding.ranks.size() == 1 ? "one class" : format("{} classes", folding.ranks.size());
  return wrap(format("{} ranks in {}; communicators: {}", grouped(ranks), classes,
                     join(names.groups, ", ")),
              kReportColumns) +
         rank_table(folding, names) + "\n" + link_table(folding);
}

JsonValue folding_json(const Folding& folding, const FoldingNames& names) {
  JsonValue json(Json::objectValue);
  JsonValue& groups = json["communicators"] = JsonValue(Json::arrayValue);
  for (const std::string& group : names.groups) groups.append(group);
  JsonValue& ranks = json["ranks"] = JsonValue(Json::arrayValue);
  for (std::size_t i = 0; i < folding.ranks.size(); ++i) {
    const RankClass& rank_class = folding.ranks[i];
    JsonValue entry(Json::objectValue);
    entry["representative"] = rank_class.representative;
    entry["multiplicity"] = rank_class.multiplicity;
    entry["gpu"] = folding.gpus[static_cast<std::size_t>(rank_class.gpu)];
    entry["difference"] = difference(folding, names, static_cast<int>(i));
    ranks.append(std::move(entry));
  }
  JsonValue& links = json["links"] = JsonValue(Json::arrayValue);
  for (const FoldedLink& link : folding.links) {
    JsonValue entry(Json::objectValue);
    entry["name"] = link.name;
    entry["kind"] = link_kind_word(link.kind, link.uplink);
    entry["bandwidth"] = link.capacity.per_second();
    entry["multiplicity"] = Json::Int64{link.multiplicity};
    links.append(std::move(entry));
  }
  return json;
}

}  // namespace zerosim
