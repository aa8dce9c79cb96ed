#include "sim/report/traffic_text.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/base/text.h"
#include "sim/report/folding_text.h"
#include "sim/report/text_table.h"

namespace zerosim {
namespace {

using Align = TextTable::Align;

constexpr std::size_t kMostRows = 30;  // of a table; JSON has all

/// Classes of one kind that print alike.
struct Row {
  LinkTraffic link;  ///< the first
  std::int64_t links = 0;
  std::vector<std::string> figures;
};

std::vector<std::string> figures_of(const LinkTraffic& link, Seconds step) {
  const double busy = step.count() > 0 ? link.busy / step : 0;
  return {format("{:.4g}", link.capacity.gb_per_second()), format("{:.4g}", link.bytes / 1e9),
          format("{:.1f}", 100 * utilisation(link, step)), format("{:.1f}", 100 * busy),
          format("{}", link.most_at_once)};
}

std::vector<Row> rows_of(const Timeline& timeline) {
  const Seconds step = last_step(timeline);
  std::vector<Row> rows;
  for (const LinkTraffic& link : timeline.links) {
    const std::vector<std::string> figures = figures_of(link, step);
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.link.kind == link.kind && row.link.uplink == link.uplink && row.figures == figures;
    });
    Row& row = same == rows.end() ? rows.emplace_back(Row{link, 0, figures}) : *same;
    row.links += link.multiplicity;
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    return std::tuple(a.link.kind, a.link.uplink, -utilisation(a.link, step)) <
           std::tuple(b.link.kind, b.link.uplink, -utilisation(b.link, step));
  });
  return rows;
}

/// Four digits, and whole ones above.
std::string milliseconds(Seconds time) {
  const double value = time.count() * 1e3;
  return value < 1e4 ? format("{:.4g}", value) : format("{:.0f}", value);
}

}  // namespace

std::string traffic_text(const Timeline& timeline) {
  TextTable table({Align::Right, Align::Left, Align::Left, Align::Right, Align::Right, Align::Right,
                   Align::Right, Align::Right});
  table.add_row({"links", "such as", "kind", "GB/s", "GB", "% used", "% busy", "at once"});
  table.add_rule();
  const std::vector<Row> rows = rows_of(timeline);
  for (std::size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) {
    std::vector<std::string> cells = {grouped(rows[i].links), rows[i].link.name,
                                      link_kind_word(rows[i].link.kind, rows[i].link.uplink)};
    cells.insert(cells.end(), rows[i].figures.begin(), rows[i].figures.end());
    table.add_row(std::move(cells));
  }
  std::string out =
      wrap(format("links in a step of {} ms; of each: GB that it carries one way, how much that "
                  "is of what it could, and for how much of the step there is anything on it",
                  milliseconds(last_step(timeline))),
           kReportColumns) +
      table.text();
  if (rows.size() > kMostRows) {
    out += format("  and {} more rows; --json lists all links\n", rows.size() - kMostRows);
  }
  return out;
}

JsonValue traffic_json(const Timeline& timeline) {
  const Seconds step = last_step(timeline);
  JsonValue json(Json::arrayValue);
  for (const LinkTraffic& link : timeline.links) {
    JsonValue entry(Json::objectValue);
    entry["name"] = link.name;
    entry["kind"] = link_kind_word(link.kind, link.uplink);
    entry["multiplicity"] = Json::Int64{link.multiplicity};
    entry["bandwidth"] = link.capacity.per_second();
    entry["bytes"] = Json::Int64{std::llround(link.bytes)};
    entry["utilisation"] = utilisation(link, step);
    entry["busy"] = link.busy.count();
    entry["most_at_once"] = link.most_at_once;
    json.append(std::move(entry));
  }
  return json;
}

}  // namespace zerosim
