#include "traces/nccl_tests.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "traces/nccl_tests_meaning.h"

namespace zerosim {
namespace {

/// A word of a line and where it begins.
struct Token {
  std::string_view text;
  int column = 0;  ///< from 1
};
using Tokens = std::vector<Token>;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

Tokens tokens_of(std::string_view line, std::size_t from) {
  Tokens tokens;
  for (std::size_t i = from; i < line.size();) {
    if (is_space(line[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < line.size() && !is_space(line[end])) ++end;
    tokens.push_back({line.substr(i, end - i), static_cast<int>(i) + 1});
    i = end;
  }
  return tokens;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_count(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

/// Where a line begins behind the label of a launcher: mpirun's "[1,0]<stdout>:", srun's "0: ".
std::size_t after_label(std::string_view line) {
  std::size_t i = 0;
  while (i < line.size() && is_space(line[i])) ++i;
  if (i < line.size() && line[i] == '[') {
    const std::size_t close = line.find(">:", i);
    const std::size_t open = line.find("]<std", i);
    if (open != std::string_view::npos && close != std::string_view::npos && open < close) {
      return close + 2;
    }
  }
  std::size_t end = i;
  while (end < line.size() && is_digit(line[end])) ++end;
  const bool labelled = end > i && end < line.size() && line[end] == ':';
  return labelled ? end + 1 : 0;
}

/// Columns of a row: size, count, type, then `extra`, then blocks of four, then maybe a date and a
/// time.
struct Shape {
  std::size_t extra = 0;
  std::size_t blocks = 0;
  bool timestamp = false;
};

constexpr std::size_t kBlock = 4;
constexpr std::size_t kHead = 3;

/// By the number of columns from `size` on, which tells all: 3 + extra + 4 blocks.
std::optional<Shape> shape_of(const Tokens& row) {
  const bool dated = row.size() > kHead + kBlock + 1 &&
                     row[row.size() - 1].text.find(':') != std::string_view::npos &&
                     row[row.size() - 2].text.find('-') != std::string_view::npos;
  const std::size_t columns = row.size() - (dated ? 2 : 0);
  if (columns < kHead + kBlock || columns > kHead + 2 + 2 * kBlock) return std::nullopt;
  const Shape shape{(columns - kHead) % kBlock, (columns - kHead) / kBlock, dated};
  return shape.extra <= 2 ? std::optional(shape) : std::nullopt;
}

/// A test's name as a whole word that ends in "_perf".
std::vector<NcclTest> programs_in(std::string_view line) {
  std::vector<NcclTest> found;
  constexpr std::string_view kEnd = "_perf";
  for (std::size_t at = line.find(kEnd); at != std::string_view::npos;
       at = line.find(kEnd, at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && (line[begin - 1] == '_' ||
                         std::isalnum(static_cast<unsigned char>(line[begin - 1])) != 0)) {
      --begin;
    }
    const std::string_view word = line.substr(begin, at - begin);
    const std::optional<NcclTest> test = nccl_test_in(word);
    if (test && to_string(*test) == word) found.push_back(*test);
  }
  return found;
}

class Reader {
 public:
  Reader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  std::vector<NcclTestsLog> read() {
    last_line_ = last_written_line();
    std::size_t at = 0;
    for (line_ = 1; at < text_.size(); ++line_) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      read_line(text_.substr(at, end - at));
      at = end + 1;
    }
    finish_log();
    if (logs_.empty()) {
      throw TraceError(
          {file_, 0, 0},
          "found no row of nccl-tests' results, expected lines of \"size count type ... time "
          "algbw busbw\"");
    }
    return std::move(logs_);
  }

 private:
  /// What is told before a table.
  struct Head {
    std::string version;
    bool rccl = false;
    std::vector<NcclTestsEvidence::Program> programs;
  };

  /// Of the run that is read, or, once it has rows, of the next: a command line may stand between.
  Head& head() { return log_.points.empty() ? head_ : next_; }

  void finish_log() {
    if (log_.points.empty()) return;
    log_.file = file_;
    log_.nccl_version = head_.version;
    log_.rccl = head_.rccl;
    evidence_.programs = head_.programs;
    find_meaning(log_, evidence_);
    set_ranks_per_process();
    log_.before_root = shape_ && shape_->extra < 2;
    logs_.push_back(std::move(log_));
    log_ = {};
    evidence_ = {};
    shape_.reset();
    shares_ = 0;
    in_table_ = false;
    if (next_.version.empty()) next_.version = head_.version;
    next_.rccl = next_.rccl || head_.rccl;
    head_ = std::exchange(next_, {});
  }

  [[nodiscard]] SourceLocation at(const Token& token) const { return {file_, line_, token.column}; }

  /// Number of the last line that is not blank.
  [[nodiscard]] int last_written_line() const {
    const std::size_t last = text_.find_last_not_of(" \t\r\n\f\v");
    if (last == std::string_view::npos) return 0;
    return static_cast<int>(
               std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(last), '\n')) +
           1;
  }

  void read_line(std::string_view line) {
    const Tokens tokens = tokens_of(line, after_label(line));
    if (tokens.empty()) return;
    read_program(line);
    read_version(line);
    if (tokens.front().text.starts_with('#')) {
      read_comment(tokens, line);
    } else if (const std::optional<Tokens> row = row_in(tokens)) {
      read_row(*row);
    }
  }

  void read_program(std::string_view line) {
    for (const NcclTest test : programs_in(line)) head().programs.push_back({test, line_});
  }

  void read_version(std::string_view line) {
    const auto has = [&](std::string_view words) {
      return line.find(words) != std::string_view::npos;
    };
    if (has("rccl-tests") || has("RCCL version")) head().rccl = true;
    constexpr std::string_view kWords = "CCL version ";
    const std::size_t found = line.find(kWords);
    if (found == std::string_view::npos) return;
    const Tokens words = tokens_of(line, found + kWords.size());
    if (words.empty() || !is_digit(words.front().text.front())) return;
    head().version = words.front().text;
  }

  // Comments.

  void read_comment(const Tokens& tokens, std::string_view line) {
    if (line.find("nThread") != std::string_view::npos) {
      finish_log();
      read_threads(tokens);
    } else if (line.find("Using devices") != std::string_view::npos) {
      finish_log();
      log_.devices.clear();  // of a run that came to nothing
    } else if (is_header(tokens)) {
      finish_log();
      in_table_ = true;
    } else if (line.find("Out of bounds") != std::string_view::npos ||
               line.find("Avg bus bandwidth") != std::string_view::npos) {
      in_table_ = false;
    } else {
      read_device(tokens);
    }
  }

  static bool is_header(const Tokens& tokens) {
    const auto has = [&](std::string_view word) {
      return std::any_of(tokens.begin(), tokens.end(),
                         [&](const Token& t) { return t.text == word; });
    };
    return has("size") && has("count") && has("type");
  }

  void read_threads(const Tokens& tokens) {
    const auto after = [&](std::string_view word) {
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        if (tokens[i].text.ends_with(word)) return number_of<int>(tokens[i + 1].text).value_or(0);
      }
      return 0;
    };
    const int threads = std::clamp(after("nThread"), 0, 1024);
    const int gpus = std::clamp(after("nGpus"), 0, 1024);
    log_.ranks_per_process = threads * gpus;
  }

  /// "#  Rank  0 Group  0 Pid   1000 on node0 device  0 [0x07] NVIDIA H100 80GB HBM3"
  void read_device(const Tokens& tokens) {
    std::size_t i = tokens.front().text == "#" ? 1 : 0;
    const auto word = [&](std::size_t k) {
      return k < tokens.size() ? tokens[k].text : std::string_view();
    };
    const auto number = [&](std::size_t k) { return number_of<int>(word(k)); };
    if (!word(i).ends_with("Rank") || !number(i + 1)) return;
    NcclTestsDevice device;
    device.rank = *number(i + 1);
    i += 2;
    if (word(i) == "Group") {
      device.group = number(i + 1).value_or(0);
      i += 2;
    }
    if (word(i) != "Pid" || word(i + 2) != "on" || word(i + 4) != "device") return;
    device.process = number_of<std::int64_t>(word(i + 1)).value_or(0);
    device.host = word(i + 3);
    std::vector<std::string> name;
    for (std::size_t k = i + 7; k < tokens.size(); ++k) name.emplace_back(tokens[k].text);
    device.name = join(name, " ");
    finish_log();
    if (device.name.find("AMD") != std::string::npos) head_.rccl = true;
    log_.devices.push_back(std::move(device));
  }

  /// What the first line says, or how many ranks of a list share a process.
  void set_ranks_per_process() {
    NcclTestsLog& log = log_;
    if (log.ranks_per_process > 0 || log.devices.empty()) return;
    const NcclTestsDevice& first = log.devices.front();
    log.ranks_per_process = static_cast<int>(
        std::count_if(log.devices.begin(), log.devices.end(), [&](const NcclTestsDevice& d) {
          return d.host == first.host && d.process == first.process;
        }));
  }

  // Rows.

  /// The part of a line that is a row, or that is meant to be one.
  [[nodiscard]] std::optional<Tokens> row_in(const Tokens& tokens) {
    for (std::size_t i = 2; i < tokens.size(); ++i) {
      if (nccl_type_size(tokens[i].text) == 0) continue;
      const Tokens row(tokens.begin() + static_cast<std::ptrdiff_t>(i) - 2, tokens.end());
      const bool numbers = begins_like_number(row[0]) || begins_like_number(row[1]);
      if (i == 2 + label_ && numbers) return row;
      // Behind words of somebody else, the first time only what is a row throughout.
      if (!is_count(row[0].text) || !is_count(row[1].text) || !shape_of(row)) return std::nullopt;
      label_ = i - 2;
      return row;
    }
    return is_meant_as_row(tokens) ? std::optional(tokens) : std::nullopt;
  }

  /// Without a type that is known: in a table what begins with two numbers, and a last line that
  /// begins with one.
  [[nodiscard]] bool is_meant_as_row(const Tokens& tokens) const {
    if (!in_table_ || !is_count(tokens[0].text)) return false;
    if (line_ == last_line_) return true;
    return tokens.size() >= kHead + 2 && is_count(tokens[1].text);
  }

  static bool begins_like_number(const Token& token) {
    return is_digit(token.text.front()) || token.text.front() == '-';
  }

  void read_row(const Tokens& row) {
    const std::optional<Shape> shape = shape_of(row);
    const bool complete =
        shape && (!shape_ || (shape->extra == shape_->extra && shape->blocks == shape_->blocks));
    const bool shorter = !shape_ || row.size() < columns_of(*shape_);
    if (!complete && line_ == last_line_ && shorter) {
      log_.notes.push_back(format("line {}, the last, is cut off and left out", line_));
      return;
    }
    if (!complete) fail_columns(row);
    NcclTestsPoint point;
    point.line = line_;
    point.size = Bytes(whole(row[0], "size"));
    point.count = whole(row[1], "count");
    point.type = type_of(row[2]);
    const RowKind kind = kind_of(row, *shape, point);
    begin_next_if_other(kind);
    if (!shape_) shape_ = shape;
    evidence_.reduces = kind.reduces;
    evidence_.rooted = kind.rooted;
    read_blocks(row, *shape, point);
    log_.points.push_back(std::move(point));
  }

  static std::size_t columns_of(const Shape& shape) {
    return kHead + shape.extra + kBlock * shape.blocks + (shape.timestamp ? 2 : 0);
  }

  [[noreturn]] void fail_columns(const Tokens& row) const {
    const std::string expected =
        shape_ ? format("{} as in the rows before", columns_of(*shape_))
               : "7 to 13: size, count, type, maybe redop and root, then one or two times time, "
                 "algbw, busbw, #wrong";
    throw TraceError(at(row.back()),
                     format("found a row of {} columns, expected {}", row.size(), expected));
  }

  [[nodiscard]] std::int64_t whole(const Token& token, const char* column) const {
    const std::optional<std::int64_t> value = number_of<std::int64_t>(token.text);
    constexpr std::int64_t kMost = std::int64_t{1} << 45;  // 35 TB; times all ranks still a number
    if (!value || *value < 0 || *value > kMost) {
      throw TraceError(
          at(token), format("found \"{}\" under {}, expected a whole number", token.text, column));
    }
    return *value;
  }

  [[nodiscard]] std::string type_of(const Token& token) const {
    if (nccl_type_size(token.text) == 0) {
      throw TraceError(at(token), format("found \"{}\" under type, expected one of {}{}",
                                         token.text, join(nccl_type_names(), ", "),
                                         did_you_mean(token.text, nccl_type_names())));
    }
    return std::string(token.text);
  }

  [[nodiscard]] double figure(const Token& token, const char* column) const {
    const std::optional<double> value = number_of<double>(token.text);
    constexpr double kMost = 1e15;  // beyond anything, and its products stay finite
    if (!value || !(*value >= 0) || *value > kMost) {
      throw TraceError(at(token), format("found \"{}\" under {}, expected a number of at least 0",
                                         token.text, column));
    }
    return *value;
  }

  /// What all rows of one operation have in common.
  struct RowKind {
    bool reduces = false;
    bool rooted = false;
    std::int64_t shares = 0;  ///< size / count, in elements; 0: no whole number
  };

  [[nodiscard]] RowKind kind_of(const Tokens& row, const Shape& shape,
                                const NcclTestsPoint& point) const {
    RowKind kind;
    for (std::size_t i = kHead; i < kHead + shape.extra; ++i) {
      const std::string_view text = row[i].text;
      if (const std::optional<int> root = number_of<int>(text)) {
        kind.rooted = *root >= 0;
      } else if (i == kHead) {
        kind.reduces = text != "none";
      } else {
        throw TraceError(at(row[i]),
                         format("found \"{}\" under root, expected a rank or -1", text));
      }
    }
    const std::int64_t share = point.count * nccl_type_size(point.type);
    if (share > 0 && point.size.count() % share == 0) kind.shares = point.size.count() / share;
    return kind;
  }

  /// Whether the row is of another operation than those before it.
  [[nodiscard]] bool is_other(const RowKind& kind) const {
    const bool other_shares = kind.shares > 0 && shares_ > 0 && kind.shares != shares_;
    return kind.reduces != evidence_.reduces || kind.rooted != evidence_.rooted || other_shares;
  }

  void begin_next_if_other(const RowKind& kind) {
    if (!log_.points.empty() && is_other(kind)) {
      const bool in_table = in_table_;
      finish_log();
      in_table_ = in_table;
      log_.notes.push_back(
          format("line {}: rows of another operation without a header: a run of its own", line_));
    }
    if (kind.shares > 0) shares_ = kind.shares;
  }

  void read_blocks(const Tokens& row, const Shape& shape, NcclTestsPoint& point) {
    const std::size_t first = kHead + shape.extra;
    const std::optional<NcclTestsTiming> out_of_place = block(row, first);
    if (!out_of_place) {
      throw TraceError(at(row[first]), "found no out-of-place time, expected a number");
    }
    point.out_of_place = *out_of_place;
    evidence_.out_of_place_checked |= is_checked(row[first + kBlock - 1]);
    if (shape.blocks < 2) return;
    point.in_place = block(row, first + kBlock);
    evidence_.in_place_checked |= is_checked(row[first + 2 * kBlock - 1]);
  }

  /// Of all bandwidths the one with fewest decimals counts.
  void note_digits(std::string_view number) {
    const std::size_t point = number.find('.');
    const std::size_t decimals = point == std::string_view::npos ? 0 : number.size() - point - 1;
    if (decimals == 0) log_.bandwidth_step = 1;
    if (decimals == 1) log_.bandwidth_step = std::max(log_.bandwidth_step, 0.1);
  }

  [[nodiscard]] std::optional<NcclTestsTiming> block(const Tokens& row, std::size_t first) {
    if (row[first].text == "N/A") return std::nullopt;
    NcclTestsTiming timing;
    timing.time = Seconds(figure(row[first], "time") * 1e-6);
    timing.algbw = figure(row[first + 1], "algbw");
    timing.busbw = figure(row[first + 2], "busbw");
    note_digits(row[first + 1].text);
    note_digits(row[first + 2].text);
    static_cast<void>(is_checked(row[first + 3]));
    return timing;
  }

  /// Under #wrong or error: a number, or "N/A".
  [[nodiscard]] bool is_checked(const Token& token) const {
    if (token.text == "N/A") return false;
    if (!number_of<double>(token.text)) {
      throw TraceError(at(token), format("found \"{}\" under #wrong or error, expected a number or "
                                         "N/A",
                                         token.text));
    }
    return true;
  }

  std::string_view text_;
  std::string file_;
  int line_ = 0;
  int last_line_ = 0;
  bool in_table_ = false;
  std::size_t label_ = 0;  ///< words before each row
  std::optional<Shape> shape_;
  std::int64_t shares_ = 0;  ///< of the rows before, as in RowKind
  NcclTestsLog log_;
  NcclTestsEvidence evidence_;
  Head head_;
  Head next_;
  std::vector<NcclTestsLog> logs_;
};

}  // namespace

std::vector<NcclTestsLog> parse_nccl_tests(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

std::vector<NcclTestsLog> read_nccl_tests(const std::string& path) {
  return parse_nccl_tests(read_file(path), path);
}

}  // namespace zerosim
