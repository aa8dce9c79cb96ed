#include "sim/memory/alloc_conf.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <span>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::int64_t kLargeBufferMebibytes = 20;  // kLargeBuffer of CUDACachingAllocator.h
constexpr std::int64_t kMostMebibytes = INT64_MAX / kMebibyte;

struct Token {
  std::string text;
  int column = 0;  ///< from 0
};

/// One of `, : [ ]`, or what is between them without spaces.
std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  bool open = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool separator = c == ',' || c == ':' || c == '[' || c == ']';
    if (separator || (c != ' ' && !open)) {
      tokens.push_back({std::string(1, c), static_cast<int>(i)});
    } else if (c != ' ') {
      tokens.back().text += c;
    }
    open = !separator && (c != ' ' || open);
  }
  return tokens;
}

class Reader {
 public:
  Reader(std::string_view text, SourceLocation where)
      : tokens_(tokens_of(text)), end_(static_cast<int>(text.size())), where_(std::move(where)) {}

  AllocConf read();

 private:
  /// A value of 0 to 1, both out, or with 1 in.
  enum class Upper : std::uint8_t { Excluded, Included };

  [[nodiscard]] bool at_end() const { return next_ >= tokens_.size(); }
  [[nodiscard]] bool at(std::string_view text) const {
    return !at_end() && tokens_[next_].text == text;
  }
  [[noreturn]] void fail(const std::string& message, std::string code = "") const;
  [[noreturn]] void fail_expected(const std::string& expected) const;
  void take(std::string_view text, const std::string& expected);

  void read_option();
  void unknown_option(const std::string& name);
  std::int64_t integer(const std::string& what);
  double fraction(const std::string& name, Upper upper);
  bool boolean(const std::string& name);
  Bytes mebibytes_above_20(const std::string& name);
  void read_backend();
  void read_divisions();
  void read_divisions_by_size();
  std::int64_t divisions();
  void note_rest(std::size_t used, const std::string& what);
  [[nodiscard]] SourceLocation location(std::size_t token) const;

  std::vector<Token> tokens_;
  int end_;
  SourceLocation where_;
  std::size_t next_ = 0;
  AllocConf conf_;
};

enum class Option : std::uint8_t {
  Backend,
  ExpandableSegments,
  GarbageCollection,
  MaxNonSplitRounding,
  MaxSplitSize,
  MemoryFraction,
  Roundup,
  IgnoredBoolean,
  IgnoredInteger,
};

struct OptionName {
  std::string_view name;
  Option option;
};

// Those of CUDAAllocatorConfig.cpp and AcceleratorAllocatorConfig.h up to PyTorch 2.9.
constexpr std::array<OptionName, 13> kOptions = {{
    {"backend", Option::Backend},
    {"expandable_segments", Option::ExpandableSegments},
    {"garbage_collection_threshold", Option::GarbageCollection},
    {"graph_capture_record_stream_reuse", Option::IgnoredBoolean},
    {"max_non_split_rounding_mb", Option::MaxNonSplitRounding},
    {"max_split_size_mb", Option::MaxSplitSize},
    {"per_process_memory_fraction", Option::MemoryFraction},
    {"pinned_num_register_threads", Option::IgnoredInteger},
    {"pinned_reserve_segment_size_mb", Option::IgnoredInteger},
    {"pinned_use_background_threads", Option::IgnoredBoolean},
    {"pinned_use_cuda_host_register", Option::IgnoredBoolean},
    {"release_lock_on_cudamalloc", Option::IgnoredBoolean},
    {"roundup_power2_divisions", Option::Roundup},
}};

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  names.reserve(kOptions.size());
  for (const OptionName& option : kOptions) names.emplace_back(option.name);
  return names;
}

bool power_of_two(std::int64_t value) {
  return value > 0 && std::has_single_bit(static_cast<std::uint64_t>(value));
}

int floor_log2(std::int64_t value) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value))) - 1;
}

SourceLocation Reader::location(std::size_t token) const {
  SourceLocation place = where_;
  if (place.column > 0) place.column += token < tokens_.size() ? tokens_[token].column : end_;
  return place;
}

void Reader::fail(const std::string& message, std::string code) const {
  throw ConfigError(location(next_), message, std::move(code));
}

void Reader::fail_expected(const std::string& expected) const {
  const std::string found = at_end() ? "the end" : "\"" + tokens_[next_].text + "\"";
  fail(format("found {}, expected {}", found, expected));
}

void Reader::take(std::string_view text, const std::string& expected) {
  if (!at(text)) fail_expected(expected);
  ++next_;
}

AllocConf Reader::read() {
  while (!at_end()) {
    read_option();
    if (!at_end()) take(",", "\",\" before the next option");
  }
  return std::move(conf_);
}

void Reader::unknown_option(const std::string& name) {
  const std::vector<std::string> names = option_names();
  const std::string hint = did_you_mean(name, names);
  fail(format("unknown option \"{}\"{}", name,
              hint.empty() ? "; expected one of " + join(names, ", ") : hint));
}

void Reader::read_option() {
  const std::string name = tokens_[next_].text;
  const auto* const known = std::find_if(kOptions.begin(), kOptions.end(),
                                         [&](const OptionName& o) { return o.name == name; });
  if (known == kOptions.end()) unknown_option(name);
  ++next_;
  take(":", format("\":\" after {}", name));
  switch (known->option) {
    case Option::Backend:
      read_backend();
      break;
    case Option::ExpandableSegments:
      conf_.expandable_segments = boolean(name);
      break;
    case Option::GarbageCollection:
      conf_.garbage_collection_threshold = fraction(name, Upper::Excluded);
      break;
    case Option::MaxNonSplitRounding:
      conf_.max_non_split_rounding = mebibytes_above_20(name);
      break;
    case Option::MaxSplitSize:
      conf_.max_split_size = mebibytes_above_20(name);
      break;
    case Option::MemoryFraction:
      conf_.memory_fraction = fraction(name, Upper::Included);
      break;
    case Option::Roundup:
      read_divisions();
      break;
    case Option::IgnoredBoolean:
      static_cast<void>(boolean(name));
      conf_.without_effect.push_back(name);
      break;
    case Option::IgnoredInteger:
      static_cast<void>(integer("a whole number for " + name));
      conf_.without_effect.push_back(name);
      break;
  }
}

/// std::stoi and std::stod stop where the number does.
void Reader::note_rest(std::size_t used, const std::string& what) {
  const std::string& text = tokens_[next_].text;
  if (used < text.size()) {
    const SourceLocation place = location(next_);
    conf_.warnings.push_back({"",
                              format("{}: \"{}\" is read as {}; expected {}", to_string(place),
                                     text, text.substr(0, used), what),
                              place});
  }
}

std::int64_t Reader::integer(const std::string& what) {
  if (at_end()) fail_expected(what);
  const std::string& text = tokens_[next_].text;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > INT32_MAX) fail_expected(what);
  note_rest(static_cast<std::size_t>(end - text.data()), what);
  ++next_;
  return value;
}

double Reader::fraction(const std::string& name, Upper upper) {
  const std::string what = upper == Upper::Included
                               ? format("a number above 0 and at most 1 for {}", name)
                               : format("a number above 0 and below 1 for {}", name);
  if (at_end()) fail_expected(what);
  const std::string& text = tokens_[next_].text;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool in_range = value > 0 && (value < 1 || (upper == Upper::Included && value == 1));
  if (error != std::errc() || !in_range) fail_expected(what);
  note_rest(static_cast<std::size_t>(end - text.data()), what);
  ++next_;
  return value;
}

bool Reader::boolean(const std::string& name) {
  if (!at("True") && !at("False")) fail_expected("True or False for " + name);
  return tokens_[next_++].text == "True";
}

Bytes Reader::mebibytes_above_20(const std::string& name) {
  const std::string what = format("a whole number of MiB above 20 for {}", name);
  const std::size_t place = next_;
  const std::int64_t value = integer(what);
  if (value <= kLargeBufferMebibytes) {
    next_ = place;
    fail_expected(what);
  }
  return Bytes(std::min(value, kMostMebibytes) * kMebibyte);
}

void Reader::read_backend() {
  if (!at("native") && !at("cudaMallocAsync")) {
    fail_expected("native or cudaMallocAsync for backend");
  }
  const bool native = tokens_[next_++].text == "native";
  conf_.backend = native ? AllocConf::Backend::Native : AllocConf::Backend::CudaMallocAsync;
}

/// A power of two, or 0 by size: off.
std::int64_t Reader::divisions() {
  const std::string what = "0 or a power of two as divisions";
  const std::size_t place = next_;
  const std::int64_t value = integer(what);
  if (value != 0 && !power_of_two(value)) {
    next_ = place;
    fail_expected(what);
  }
  return value;
}

void Reader::read_divisions() {
  if (at("[")) {
    ++next_;
    read_divisions_by_size();
    return;
  }
  const std::size_t place = next_;
  const std::int64_t value = divisions();
  if (value == 0) {  // c10 takes 0 within brackets only
    next_ = place;
    fail_expected("a power of two for roundup_power2_divisions");
  }
  conf_.roundup_power2_divisions.fill(value);
}

/// `256:1,512:2,>:8`: sizes from 256 MiB on and, of the first one, all below; ">" all intervals
/// behind the one before it; intervals that are not named keep what they had.
void Reader::read_divisions_by_size() {
  auto& table = conf_.roundup_power2_divisions;
  std::size_t last = 0;
  bool first = true;
  while (!at("]")) {
    const bool rest = at(">");
    const std::size_t place = next_;
    const std::int64_t size = rest ? 1 : integer(R"(a size in MiB, ">" or "]")");
    if (!power_of_two(size)) {
      next_ = place;
      fail_expected("a power of two as size in MiB");
    }
    if (rest) ++next_;
    take(":", "\":\" after a size");
    const std::int64_t value = divisions();
    if (rest) {
      std::fill(table.begin() + static_cast<std::ptrdiff_t>(last) + 1, table.end(), value);
    } else {
      last = std::min(static_cast<std::size_t>(floor_log2(size)), table.size() - 1);
      if (first) std::fill(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(last), value);
      table[last] = value;
      first = false;
    }
    if (!at("]")) take(",", R"("," or "]")");
  }
  ++next_;
}

std::string divisions_text(const AllocConf& conf) {
  std::vector<std::string> parts;
  parts.reserve(kRoundupIntervals);
  for (int i = 0; i < kRoundupIntervals; ++i) {
    parts.push_back(format("{}:{}", std::int64_t{1} << i,
                           conf.roundup_power2_divisions[static_cast<std::size_t>(i)]));
  }
  return "[" + join(parts, ",") + "]";
}

}  // namespace

std::int64_t AllocConf::roundup_divisions(Bytes size) const {
  if (size <= Bytes(0)) return roundup_power2_divisions.front();
  const int interval = floor_log2(size.count()) - floor_log2(kMebibyte);
  return roundup_power2_divisions[static_cast<std::size_t>(
      std::clamp(interval, 0, kRoundupIntervals - 1))];
}

AllocConf parse_alloc_conf(std::string_view text, const SourceLocation& where) {
  return Reader(text, where).read();
}

std::vector<std::string> describe(const AllocConf& conf) {
  const auto mebibytes = [](Bytes bytes) { return bytes.count() / kMebibyte; };
  return {
      conf.backend == AllocConf::Backend::Native ? "backend:native" : "backend:cudaMallocAsync",
      conf.max_split_size ? format("max_split_size_mb:{}", mebibytes(*conf.max_split_size))
                          : "max_split_size_mb:unlimited",
      format("max_non_split_rounding_mb:{}", mebibytes(conf.max_non_split_rounding)),
      format("garbage_collection_threshold:{}", conf.garbage_collection_threshold),
      "roundup_power2_divisions:" + divisions_text(conf),
      conf.expandable_segments ? "expandable_segments:True" : "expandable_segments:False",
      conf.memory_fraction ? format("per_process_memory_fraction:{}", *conf.memory_fraction)
                           : "per_process_memory_fraction:unlimited",
  };
}

}  // namespace zerosim
