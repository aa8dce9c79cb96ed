#include "topology/topo_matrix.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "sim/base/hjson.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

constexpr int kMostNvLinks = 64;
constexpr std::size_t kMostDevices = 512;

using Kind = TopoCell::Kind;

/// A word, or the text between two tabs, and its column.
struct Piece {
  std::string text;
  int column = 0;
};

/// One line without escapes; `columns[i]` is where character i stands in the file.
struct Line {
  std::string text;
  std::vector<int> columns;
  int number = 0;
  [[nodiscard]] int column(std::size_t at) const {
    return at < columns.size() ? columns[at] : static_cast<int>(columns.size()) + 1;
  }
};

/// Length of the ANSI control sequence that begins at `at` ("ESC[4m"), 0 if none does.
std::size_t escape_length(std::string_view line, std::size_t at) {
  if (line[at] != '\x1b') return 0;
  if (at + 1 >= line.size() || line[at + 1] != '[') return 1;
  std::size_t end = at + 2;
  while (end < line.size() && (line[end] < '@' || line[end] > '~')) ++end;
  return std::min(end + 1, line.size()) - at;
}

Line readable(std::string_view raw, int number) {
  Line line;
  line.number = number;
  for (std::size_t i = 0; i < raw.size();) {
    const std::size_t escape = escape_length(raw, i);
    if (escape == 0 && raw[i] != '\r') {
      line.text += raw[i];
      line.columns.push_back(static_cast<int>(i) + 1);
    }
    i += std::max<std::size_t>(escape, 1);
  }
  return line;
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  int number = 1;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(readable(text.substr(begin, end - begin), number++));
    begin = end + 1;
  }
  return lines;
}

bool is_space(char c) {
  return c == ' ' || c == '\t';
}

std::vector<Piece> words_of(const Line& line) {
  std::vector<Piece> words;
  for (std::size_t i = 0; i < line.text.size();) {
    if (is_space(line.text[i])) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < line.text.size() && !is_space(line.text[i])) ++i;
    words.push_back({line.text.substr(begin, i - begin), line.column(begin)});
  }
  return words;
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 7 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_gpu_name(std::string_view text) {
  return text.starts_with("GPU") && is_number(text.substr(3));
}

struct CellWord {
  const char* text;
  Kind kind;
};
constexpr std::array<CellWord, 7> kCellWords = {{{"X", Kind::Self},
                                                 {"PIX", Kind::Pix},
                                                 {"PXB", Kind::Pxb},
                                                 {"PHB", Kind::Phb},
                                                 {"NODE", Kind::Node},
                                                 {"SYS", Kind::Sys},
                                                 {"SOC", Kind::Sys}}};  // of old drivers

/// The cell that a word stands for, without its place.
std::optional<TopoCell> cell_of(std::string_view word) {
  for (const CellWord& known : kCellWords) {
    if (word == known.text) return TopoCell{known.kind, 0, 0, 0};
  }
  if (!word.starts_with("NV") || !is_number(word.substr(2))) return std::nullopt;
  int links = 0;
  std::from_chars(word.data() + 2, word.data() + word.size(), links);
  if (links < 1 || links > kMostNvLinks) return std::nullopt;
  return TopoCell{Kind::NvLink, links, 0, 0};
}

std::string word_of(const TopoCell& cell) {
  if (cell.kind == Kind::NvLink) return format("NV{}", cell.nvlinks);
  for (const CellWord& known : kCellWords) {
    if (known.kind == cell.kind) return known.text;
  }
  return "nothing";
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : lines_(lines_of(text)) {
    matrix_.file = file;
  }

  TopoMatrix parse() {
    find_header();
    read_rows();
    read_nic_legend();
    check_rows();
    check_symmetry();
    sort_gpus_first();
    return std::move(matrix_);
  }

 private:
  [[noreturn]] void fail(int line, int column, const std::string& message) const {
    throw ConfigError(SourceLocation{matrix_.file, line, column}, message);
  }

  /// "  GPU0  GPU1 ... CPU Affinity": a name of a GPU that no cell follows.
  static bool is_header(const std::vector<Piece>& words) {
    if (words.empty() || !is_gpu_name(words[0].text)) return false;
    return words.size() == 1 || !cell_of(words[1].text);
  }

  void find_header() {
    for (next_ = 0; next_ < lines_.size(); ++next_) {
      const std::vector<Piece> words = words_of(lines_[next_]);
      if (!is_header(words)) continue;
      read_header(words);
      ++next_;
      return;
    }
    fail(1, 0, "found no header with GPU0, expected the output of `nvidia-smi topo -m`");
  }

  void read_header(const std::vector<Piece>& words) {
    header_line_ = lines_[next_].number;
    std::size_t i = 0;
    for (; i < words.size() && words[i].text != "CPU" && words[i].text != "NUMA"; ++i) {
      const std::string& name = words[i].text;
      // "GPU NUMA ID" right behind the devices.
      if (name == "GPU") break;
      if (find(name)) fail(header_line_, words[i].column, format("column {} is there twice", name));
      matrix_.devices.push_back({name, "", "", ""});
    }
    if (matrix_.devices.size() > kMostDevices) {
      fail(header_line_, 0,
           format("found {} columns, expected at most {}", matrix_.devices.size(), kMostDevices));
    }
    read_affinity_header(words, i);
    const std::size_t count = matrix_.devices.size();
    matrix_.cells.assign(count, std::vector<TopoCell>(count));
    has_row_.assign(count, 0);
  }

  /// "CPU Affinity", "NUMA Affinity" (or "NUMA ID"), "GPU NUMA ID", each or none.
  void read_affinity_header(const std::vector<Piece>& words, std::size_t i) {
    std::string tail;
    for (std::size_t k = i; k < words.size(); ++k) tail += words[k].text + " ";
    std::string_view rest = tail;
    const auto take = [&](std::string_view title) {
      const bool found = rest.starts_with(title);
      if (found) rest.remove_prefix(title.size());
      return found;
    };
    has_cpu_affinity_ = take("CPU Affinity ");
    has_numa_affinity_ = take("NUMA Affinity ") || take("NUMA ID ");
    take("GPU NUMA ID ");
    if (!rest.empty()) {
      const auto left = static_cast<std::size_t>(std::count(rest.begin(), rest.end(), ' '));
      fail(header_line_, words[words.size() - left].column,
           format("found \"{}\", expected the columns CPU Affinity, NUMA Affinity, GPU NUMA ID",
                  trimmed(rest)));
    }
  }

  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const {
    for (std::size_t i = 0; i < matrix_.devices.size(); ++i) {
      if (matrix_.devices[i].name == name) return i;
    }
    return std::nullopt;
  }

  void read_rows() {
    for (; next_ < lines_.size(); ++next_) {
      const std::vector<Piece> words = words_of(lines_[next_]);
      if (words.empty()) return;
      const std::optional<std::size_t> row = find(words[0].text);
      if (!row) {
        if (!looks_like_row(words)) return;
        fail(lines_[next_].number, words[0].column,
             format("row {} has no column{}", words[0].text, did_you_mean(words[0].text, names())));
      }
      read_row(*row, lines_[next_], words);
    }
  }

  static bool looks_like_row(const std::vector<Piece>& words) {
    return words.size() > 1 && (is_gpu_name(words[0].text) || cell_of(words[1].text));
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const TopoDevice& device : matrix_.devices) all.push_back(device.name);
    return all;
  }

  void read_row(std::size_t row, const Line& line, const std::vector<Piece>& words) {
    const std::string& name = words[0].text;
    if (has_row_[row] != 0)
      fail(line.number, words[0].column, format("row {} is there twice", name));
    has_row_[row] = line.number;
    const std::size_t count = matrix_.devices.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (i + 1 >= words.size()) {
        fail(line.number, words.back().column,
             format("row {} has {} cells, expected {}", name, words.size() - 1, count));
      }
      matrix_.cells[row][i] = cell(row, i, line.number, words[i + 1]);
    }
    read_affinity(matrix_.devices[row], line, words);
  }

  [[nodiscard]] TopoCell cell(std::size_t row, std::size_t column, int line,
                              const Piece& word) const {
    static const std::vector<std::string> kKnown = {"X", "PIX", "PXB", "PHB", "NODE", "SYS", "NV#"};
    std::optional<TopoCell> found = cell_of(word.text);
    const std::string place =
        format("{} to {}", matrix_.devices[row].name, matrix_.devices[column].name);
    if (!found) {
      const std::string hint = did_you_mean(word.text, kKnown);
      fail(line, word.column,
           format("{}: found \"{}\", expected one of {}{}", place, word.text, join(kKnown, ", "),
                  hint));
    }
    if ((row == column) != (found->kind == Kind::Self)) {
      fail(line, word.column,
           format("{}: found {}, expected {}", place, word.text,
                  row == column ? "X" : "a connection"));
    }
    const bool gpus =
        is_gpu_name(matrix_.devices[row].name) && is_gpu_name(matrix_.devices[column].name);
    if (found->kind == Kind::NvLink && !gpus) {
      fail(line, word.column, format("{}: found {}, but NICs have no NVLink", place, word.text));
    }
    found->line = line;
    found->column = word.column;
    return *found;
  }

  /// What follows the cells. Between tabs a cell may be empty, and the drivers print two tabs
  /// before a NUMA column; the CPU column comes first.
  void read_affinity(TopoDevice& device, const Line& line, const std::vector<Piece>& words) const {
    const std::vector<std::string> cells = affinity_cells(line, words);
    std::size_t i = 0;
    if (has_cpu_affinity_ && i < cells.size()) device.cpu_affinity = cells[i++];
    while (i < cells.size() && cells[i].empty()) ++i;
    if (has_numa_affinity_ && i < cells.size()) device.numa_affinity = cells[i];
    if (device.cpu_affinity == "N/A") device.cpu_affinity.clear();
    if (device.numa_affinity == "N/A") device.numa_affinity.clear();
  }

  [[nodiscard]] std::vector<std::string> affinity_cells(const Line& line,
                                                        const std::vector<Piece>& words) const {
    const std::size_t last = matrix_.devices.size();
    std::vector<std::string> cells;
    if (line.text.find('\t') == std::string::npos) {
      for (std::size_t i = last + 1; i < words.size(); ++i) cells.push_back(words[i].text);
      return cells;
    }
    const auto at = std::find(line.columns.begin(), line.columns.end(), words[last].column);
    std::string_view rest = line.text;
    rest.remove_prefix(static_cast<std::size_t>(at - line.columns.begin()) +
                       words[last].text.size());
    for (std::size_t tab = rest.find('\t'); tab != std::string_view::npos; tab = rest.find('\t')) {
      rest.remove_prefix(tab + 1);
      cells.push_back(trimmed(rest.substr(0, rest.find('\t'))));
    }
    return cells;
  }

  /// "  NIC0: mlx5_0"
  void read_nic_legend() {
    for (; next_ < lines_.size(); ++next_) {
      const std::vector<Piece> words = words_of(lines_[next_]);
      if (words.size() != 2 || !words[0].text.ends_with(":")) continue;
      const std::string_view name = words[0].text;
      const std::optional<std::size_t> device = find(name.substr(0, name.size() - 1));
      if (device && !is_gpu_name(matrix_.devices[*device].name)) {
        matrix_.devices[*device].legend = words[1].text;
      }
    }
  }

  void check_rows() {
    int last = header_line_;
    for (const int line : has_row_) last = std::max(last, line);
    for (std::size_t i = 0; i < has_row_.size(); ++i) {
      if (is_gpu_name(matrix_.devices[i].name) && has_row_[i] == 0) {
        fail(last + 1, 0, format("row {} is missing", matrix_.devices[i].name));
      }
    }
  }

  /// Each pair is there twice, but NICs may have no rows.
  void check_symmetry() {
    const std::size_t count = matrix_.devices.size();
    for (std::size_t a = 0; a < count; ++a) {
      matrix_.cells[a][a].kind = Kind::Self;
      for (std::size_t b = 0; b < a; ++b) {
        TopoCell& below = matrix_.cells[a][b];
        TopoCell& above = matrix_.cells[b][a];
        if (below.kind == Kind::Unknown) below = above;
        if (above.kind == Kind::Unknown) above = below;
        if (below.kind != above.kind || below.nvlinks != above.nvlinks) fail_asymmetric(a, b);
      }
    }
  }

  [[noreturn]] void fail_asymmetric(std::size_t a, std::size_t b) const {
    const TopoCell* first = &matrix_.cells[a][b];
    const TopoCell* second = &matrix_.cells[b][a];
    if (first->line > second->line) {
      std::swap(first, second);
      std::swap(a, b);
    }
    fail(second->line, second->column,
         format("{} to {}: found {}, but line {} has {} for the same pair", matrix_.devices[b].name,
                matrix_.devices[a].name, word_of(*second), first->line, word_of(*first)));
  }

  void sort_gpus_first() {
    std::vector<std::size_t> order(matrix_.devices.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_partition(order.begin(), order.end(),
                          [&](std::size_t i) { return is_gpu_name(matrix_.devices[i].name); });
    TopoMatrix sorted;
    sorted.file = matrix_.file;
    for (const std::size_t i : order) {
      sorted.gpus += is_gpu_name(matrix_.devices[i].name) ? 1 : 0;
      sorted.devices.push_back(matrix_.devices[i]);
      sorted.cells.emplace_back();
      for (const std::size_t k : order) sorted.cells.back().push_back(matrix_.cells[i][k]);
    }
    matrix_ = std::move(sorted);
  }

  std::vector<Line> lines_;
  std::size_t next_ = 0;  ///< line to read
  int header_line_ = 0;
  bool has_cpu_affinity_ = false, has_numa_affinity_ = false;
  TopoMatrix matrix_;
  std::vector<int> has_row_;  ///< its line; 0: none yet
};

}  // namespace

TopoMatrix parse_topo_matrix(std::string_view text, const std::string& file) {
  internal::check_characters(text, file);
  return Parser(text, file).parse();
}

}  // namespace zerosim
