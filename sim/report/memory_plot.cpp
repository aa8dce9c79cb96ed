#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "sim/analysis/memory_report.h"
#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/report/memory_course_text.h"

namespace zerosim {

namespace {

using Course = std::vector<MemoryEvent>;

constexpr int kLabelColumns = 8;  // "  79.3 |"
constexpr int kLeastColumnsOfAPart = 6;
constexpr int kRowsPerLabel = 4;
/// Of the limit: if less is ever reserved the plot ends above that.
constexpr double kLittle = 0.5;
/// Free space above the highest value.
constexpr double kAir = 1.05;

struct ClassStyle {
  char letter;
  const char* name;
};
/// By MemoryClass.
constexpr std::array<ClassStyle, kMemoryClasses> kStyles = {{{'P', "parameters"},
                                                             {'G', "gradients"},
                                                             {'O', "optimizer states"},
                                                             {'A', "activations"},
                                                             {'L', "logits"},
                                                             {'T', "temporary buffers"},
                                                             {'W', "gathered parameters"}}};
constexpr char kReserved = '.';
constexpr char kLimit = '=';
constexpr char kPeak = '*';

// ---- columns ---------------------------------------------------------------------------------

/// Initialisation or one step: the events [begin, end).
struct Part {
  std::string name;
  std::size_t begin = 0, end = 0;
  int columns = 0;
};

bool same_part(const MemoryEvent& a, const MemoryEvent& b) {
  const bool init = a.phase == Phase::Init;
  return init == (b.phase == Phase::Init) && (init || a.step == b.step);
}

std::vector<Part> parts_of(const Course& course) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < course.size(); ++i) {
    if (i > 0 && same_part(course[i], course[i - 1])) continue;
    if (!parts.empty()) parts.back().end = i;
    const MemoryEvent& event = course[i];
    const std::string name =
        event.phase == Phase::Init ? "init" : job_part(event.phase, event.step);
    parts.push_back({name, i, course.size(), 0});
  }
  return parts;
}

/// By the number of events, but some at least.
void share_columns(std::vector<Part>& parts, int columns) {
  std::size_t events = 0;
  for (const Part& part : parts) events += part.end - part.begin;
  int left = columns;
  const auto least = std::min(kLeastColumnsOfAPart, columns / static_cast<int>(parts.size()));
  for (Part& part : parts) {
    const double share = static_cast<double>(part.end - part.begin) / static_cast<double>(events);
    part.columns = std::max(least, static_cast<int>(share * columns));
    left -= part.columns;
  }
  Part& largest = *std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.columns < b.columns;
  });
  largest.columns = std::max(1, largest.columns + left);  // what rounding leaves
}

/// What a column shows.
struct Column {
  const MemoryEvent* event = nullptr;  ///< at which most is allocated
  Bytes reserved;                      ///< at most
  bool flushed = false, failed = false, has_peak = false;
};

Column column_of(const Course& course, std::size_t begin, std::size_t end, std::size_t peak) {
  Column column;
  for (std::size_t i = begin; i < end; ++i) {
    const MemoryEvent& event = course[i];
    if (column.event == nullptr || event.allocated > column.event->allocated) column.event = &event;
    column.reserved = std::max(column.reserved, event.reserved);
    column.flushed = column.flushed || event.flushed;
    column.failed = column.failed || event.failed;
  }
  column.has_peak = begin <= peak && peak < end;
  return column;
}

/// A part with fewer events than columns repeats them.
std::vector<Column> columns_of(const Course& course, const std::vector<Part>& parts) {
  const std::size_t peak = peak_of(course);
  std::vector<Column> columns;
  for (const Part& part : parts) {
    const std::size_t events = part.end - part.begin;
    const auto count = static_cast<std::size_t>(part.columns);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t begin = part.begin + i * events / count;
      const std::size_t end = std::max(begin + 1, part.begin + (i + 1) * events / count);
      columns.push_back(column_of(course, begin, end, peak));
    }
  }
  bool marked = false;  // once
  for (Column& column : columns) {
    column.has_peak = column.has_peak && !marked;
    marked = marked || column.has_peak;
  }
  return columns;
}

// ---- rows ------------------------------------------------------------------------------------

/// From bytes to rows, counted from below.
struct Scale {
  double top = 1;  ///< bytes
  int rows = 1;

  [[nodiscard]] double lower(int row) const { return top * row / rows; }
  [[nodiscard]] double middle(int row) const { return top * (row + 0.5) / rows; }
  [[nodiscard]] int row_of(Bytes bytes) const {
    return static_cast<int>(static_cast<double>(bytes.count()) / top * rows);
  }
};

Scale scale_of(const std::vector<Column>& columns, Bytes limit, int rows) {
  Bytes most;
  for (const Column& column : columns) most = std::max(most, column.reserved);
  const bool little =
      static_cast<double>(most.count()) < kLittle * static_cast<double>(limit.count());
  if (!little) most = std::max(most, limit);
  return {std::max(1.0, kAir * static_cast<double>(most.count())), rows};
}

/// The class at `height` of the stack; 0 above it.
char letter_at(const MemoryEvent& event, double height) {
  double top = 0;
  for (std::size_t i = 0; i < kStyles.size(); ++i) {
    top += static_cast<double>(event.by_class[i].count());
    if (height < top) return kStyles[i].letter;
  }
  return '\0';
}

char cell_of(const Column& column, const Scale& scale, int row, int limit_row) {
  const double height = scale.middle(row);
  if (const char letter = letter_at(*column.event, height)) return letter;
  const bool above_peak = row == 0 || letter_at(*column.event, scale.middle(row - 1)) != '\0';
  if (column.has_peak && above_peak) return kPeak;
  if (row == limit_row) return kLimit;
  return height < static_cast<double>(column.reserved.count()) ? kReserved : ' ';
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

/// Of every fourth row: where it begins.
std::string row_label(const Scale& scale, int row) {
  if (row % kRowsPerLabel != 0) return "";
  return format("{:.1f}", Bytes(std::llround(scale.lower(row))).gib());
}

std::string area(const std::vector<Column>& columns, const Scale& scale, Bytes limit) {
  const int limit_row = scale.row_of(limit);
  std::string out;
  for (int row = scale.rows - 1; row >= 0; --row) {
    const std::string label =
        row == limit_row ? format("{:.1f}", limit.gib()) : row_label(scale, row);
    std::string line = format("{:>{}} |", label, kLabelColumns - 2);
    for (const Column& column : columns) line += cell_of(column, scale, row, limit_row);
    out += trimmed(std::move(line));
  }
  return out;
}

// ---- below the plot --------------------------------------------------------------------------

/// A mark at the first column of each part but the first.
std::string axis(const std::vector<Part>& parts) {
  std::string line = std::string(kLabelColumns - 1, ' ') + "+";
  for (const Part& part : parts) {
    line += &part == parts.data() ? '-' : '+';
    line += std::string(static_cast<std::size_t>(part.columns) - 1, '-');
  }
  return line + "\n";
}

/// Names of the parts, each below its first column.
std::string part_names(const std::vector<Part>& parts) {
  std::string line = std::string(kLabelColumns, ' ');
  for (const Part& part : parts) {
    line +=
        format("{:<{}}", part.name.substr(0, static_cast<std::size_t>(part.columns)), part.columns);
  }
  return trimmed(std::move(line));
}

char letter_of(Phase phase) {
  constexpr std::array<char, 4> kLetters = {'i', 'f', 'b', 's'};
  return kLetters[static_cast<std::size_t>(phase)];
}

std::string phases(const std::vector<Column>& columns) {
  std::string line = format("{:>{}} ", "phase", kLabelColumns - 1);
  for (const Column& column : columns) line += letter_of(column.event->phase);
  return trimmed(std::move(line));
}

/// What the GPU as it is goes through; "" if nothing.
std::string trouble(const std::vector<Column>& columns) {
  std::string line = format("{:>{}} ", "GPU", kLabelColumns - 1);
  bool any = false;
  for (const Column& column : columns) {
    line += column.failed ? 'X' : column.flushed ? '!' : ' ';
    any = any || column.failed || column.flushed;
  }
  return any ? trimmed(std::move(line)) : "";
}

std::string legend(bool any_trouble) {
  std::vector<std::string> entries;
  entries.reserve(kStyles.size() + 1);
  for (const ClassStyle& style : kStyles)
    entries.push_back(format("{} {}", style.letter, style.name));
  entries.push_back(format("{} reserved beyond that", kReserved));
  std::string out = wrap(join(entries, ", "), kReportColumns);
  out += "phase: i init, f forward, b backward, s step";
  if (any_trouble) out += "; GPU: ! cache flushed, X out of memory";
  return out + "\n";
}

std::string peak_sentence(const Program& program, const Course& course) {
  const std::size_t index = peak_of(course);
  const MemoryEvent& peak = course[index];
  const Buffer buffer{peak.bytes, peak.memory_class, peak.stream, peak.owner, MemoryPlace::Device};
  return wrap(format("{} peak: {:.2f} GiB allocated, {:.2f} GiB reserved then, at event {} of {}: "
                     "{} ({}, phase \"{}\")",
                     kPeak, peak.allocated.gib(), peak.reserved.gib(), index, course.size(),
                     request_text(program, buffer, peak.module), job_part(peak.phase, peak.step),
                     to_string(peak.phase)),
              kReportColumns);
}

std::string title(const Program& program, Bytes limit, bool shows_limit, std::size_t events,
                  std::size_t columns) {
  const std::string of_limit =
      shows_limit ? format("{} what the GPU has for it: {:.1f} GiB", kLimit, limit.gib())
                  : format("the GPU has {:.1f} GiB for it, above the plot", limit.gib());
  return wrap(format("{}: memory of the job, GiB; about {} events a column; {}", program.strategy,
                     std::max<std::size_t>(1, events / columns), of_limit),
              kReportColumns);
}

}  // namespace

std::string memory_plot(const Program& program, const std::vector<MemoryEvent>& course, Bytes limit,
                        const MemoryPlotOptions& options) {
  constexpr int kLeastColumns = 40;
  constexpr int kLeastRows = 4;
  ZS_CHECK(options.columns >= kLeastColumns && options.rows >= kLeastRows, "there is room");
  if (course.empty()) return "nothing is allocated on the device\n";
  std::vector<Part> parts = parts_of(course);
  share_columns(parts, options.columns - kLabelColumns);
  const std::vector<Column> columns = columns_of(course, parts);
  const Scale scale = scale_of(columns, limit, options.rows);
  const std::string on_gpu = trouble(columns);
  return title(program, limit, scale.row_of(limit) < scale.rows, course.size(), columns.size()) +
         "\n" + area(columns, scale, limit) + axis(parts) + part_names(parts) + phases(columns) +
         on_gpu + "\n" + peak_sentence(program, course) + legend(!on_gpu.empty());
}

}  // namespace zerosim
