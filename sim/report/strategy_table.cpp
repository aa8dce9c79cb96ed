#include "sim/report/strategy_table.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "sim/base/text.h"
#include "sim/report/text_table.h"

namespace zerosim {

namespace {

using Align = TextTable::Align;

constexpr int kLabelColumns = 30;  // room for the labels
constexpr int kGap = 2;
constexpr int kNarrowest = 8;  // "no fit", "12345.67"
constexpr int kWidest = 24;
constexpr int kNameLines = 3;

/// Width that the strategies' columns may have so that `count` of them fit.
int column_width(std::size_t count) {
  return std::min(kWidest, (kReportColumns - kLabelColumns) / static_cast<int>(count) - kGap);
}

/// How many strategies fit side by side.
std::size_t strategies_per_block() {
  std::size_t count = 1;
  while (column_width(count + 1) >= kNarrowest) ++count;
  return count;
}

void add_names(TextTable& table, std::span<const StrategyReport> strategies, int width) {
  std::vector<std::vector<std::string>> names;
  std::size_t height = 1;
  for (const StrategyReport& report : strategies) {
    names.push_back(wrap_name(report.name, width, kNameLines));
    height = std::max(height, names.back().size());
  }
  for (std::size_t line = 0; line < height; ++line) {
    std::vector<std::string> cells = {""};
    for (const std::vector<std::string>& name : names) {
      // Names stand on the rule below them.
      const std::size_t above = height - name.size();
      cells.push_back(line < above ? "" : name[line - above]);
    }
    table.add_row(std::move(cells));
  }
}

std::string table_block(std::span<const StrategyReport> strategies, const Metrics& metrics) {
  const int width = column_width(strategies.size());
  std::vector<Align> columns(strategies.size() + 1, Align::Right);
  columns[0] = Align::Left;
  TextTable table(columns, kGap);
  add_names(table, strategies, width);
  table.add_rule();
  for (const Metric& metric : metrics) {
    if (!metric.value) {
      table.add_heading(metric.label);
      continue;
    }
    std::vector<std::string> cells = {metric.label};
    for (const StrategyReport& report : strategies) cells.push_back(metric.value(report, width));
    table.add_row(std::move(cells));
  }
  return table.text();
}

// ---- assumptions and warnings ----------------------------------------------------------------

std::string bullet(std::string_view text) {
  return wrap(text, kReportColumns, "  - ");
}

bool contains(const std::vector<std::string>& sentences, const std::string& sentence) {
  return std::find(sentences.begin(), sentences.end(), sentence) != sentences.end();
}

/// Each sentence once, in order of first appearance; after the name of the strategies that it holds
/// for unless it holds for all.
std::string sentences_by_strategy(
    std::string_view heading, std::span<const StrategyReport> strategies,
    const std::function<std::vector<std::string>(const StrategyReport&)>& sentences_of) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // sentence, strategies
  for (const StrategyReport& report : strategies) {
    std::vector<std::string> seen;
    for (const std::string& sentence : sentences_of(report)) {
      if (contains(seen, sentence)) continue;
      seen.push_back(sentence);
      const auto found = std::find_if(lines.begin(), lines.end(),
                                      [&](const auto& line) { return line.first == sentence; });
      if (found == lines.end()) {
        lines.push_back({sentence, {report.name}});
      } else {
        found->second.push_back(report.name);
      }
    }
  }
  if (lines.empty()) return "";
  std::string common;
  std::string own;
  for (const auto& [sentence, names] : lines) {
    if (names.size() == strategies.size()) {
      common += bullet(sentence);
    } else {
      own += bullet(join(names, ", ") + ": " + sentence);
    }
  }
  return "\n" + std::string(heading) + "\n" + common + own;
}

std::vector<std::string> warning_sentences(const StrategyReport& report) {
  std::vector<std::string> sentences;
  for (const Warning& warning : report.warnings) {
    sentences.push_back(warning.code.empty() ? warning.message
                                             : warning.message + " [" + warning.code + "]");
  }
  return sentences;
}

}  // namespace

std::string strategy_table(std::span<const StrategyReport> strategies, const Metrics& metrics) {
  std::string out;
  const std::size_t block = strategies_per_block();
  for (std::size_t first = 0; first < strategies.size(); first += block) {
    if (first > 0) out += "\n";
    out +=
        table_block(strategies.subspan(first, std::min(block, strategies.size() - first)), metrics);
  }
  return out;
}

std::string warnings_text(std::span<const StrategyReport> strategies) {
  return sentences_by_strategy("Warnings", strategies, warning_sentences);
}

std::string assumptions_text(std::span<const StrategyReport> strategies) {
  return sentences_by_strategy("Assumptions", strategies,
                               [](const StrategyReport& report) { return report.assumptions; });
}

std::string assumptions_count(std::span<const StrategyReport> strategies) {
  std::set<std::string> sentences;
  for (const StrategyReport& report : strategies) {
    sentences.insert(report.assumptions.begin(), report.assumptions.end());
  }
  return format("\n{} assumptions (defaults, sources of constants): --assumptions lists them\n",
                sentences.size());
}

}  // namespace zerosim
