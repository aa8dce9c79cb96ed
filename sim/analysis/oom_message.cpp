#include "sim/analysis/oom_message.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr std::string_view kTried = "Tried to allocate ";
constexpr double kLargestSize = 1125899906842624.0;  // 2^50: no device has a pebibyte

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array<Unit, 5> kUnits = {
    {{"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}, {"bytes", 1.0}, {"byte", 1.0}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Bytes that half a unit of the last of `decimals` digits stand for.
Bytes half_digit(int decimals, double unit) {
  if (unit == 1.0) return Bytes(0);
  return Bytes(static_cast<std::int64_t>(std::ceil(0.5 * std::pow(10.0, -decimals) * unit)));
}

SourceLocation place_of(std::string_view text, std::size_t position, const std::string& name) {
  const std::string_view before = text.substr(0, position);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t last = before.rfind('\n');
  const std::size_t column = last == std::string_view::npos ? position + 1 : position - last;
  return {name, static_cast<int>(line), static_cast<int>(column)};
}

// ---- prefixes of ranks -------------------------------------------------------------------------

/// Length of "[rank3]: ", "rank3: ", "[default3]:" or "[3]: " at the beginning of `line`, and the
/// number in it.
struct RankPrefix {
  std::size_t length = 0;
  std::optional<int> rank;
};

RankPrefix rank_prefix(std::string_view line) {
  const bool bracket = !line.empty() && line.front() == '[';
  std::size_t at = bracket ? 1 : 0;
  bool named = false;
  for (const std::string_view word : {"default", "rank"}) {
    if (line.substr(at).starts_with(word)) {
      at += word.size();
      named = true;
      break;
    }
  }
  if (!bracket && !named) return {};
  int rank = 0;
  const char* begin = line.data() + at;
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), rank);
  if (error != std::errc()) return {};
  at += static_cast<std::size_t>(end - begin);
  if (bracket) {
    if (at >= line.size() || line[at] != ']') return {};
    ++at;
  }
  if (at >= line.size() || line[at] != ':') return {};
  ++at;
  if (at < line.size() && line[at] == ' ') ++at;
  return {at, rank};
}

std::string_view line_at(std::string_view text, std::size_t begin) {
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::size_t line_begin(std::string_view text, std::size_t position) {
  const std::size_t newline = text.substr(0, position).rfind('\n');
  return newline == std::string_view::npos ? 0 : newline + 1;
}

/// One line of words: line breaks become spaces, prefixes of ranks go, runs of spaces are one.
std::string flattened(std::string_view text) {
  std::string flat;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_space(text[i])) {
      flat += text[i];
      continue;
    }
    if (text[i] == '\n') i += rank_prefix(line_at(text, i + 1)).length;
    if (flat.empty() || flat.back() != ' ') flat += ' ';
  }
  return flat;
}

// ---- figures -----------------------------------------------------------------------------------

/// The words of one message after "Tried to allocate ", and where they stand.
struct Words {
  std::string text;
  SourceLocation where;
};

[[noreturn]] void fail(const Words& words, std::string_view found, std::string_view what) {
  constexpr std::size_t kShown = 40;
  throw TraceError(words.where, format(R"(found "{}" as {}, expected a size such as "3.14 GiB")",
                                       found.substr(0, kShown), what));
}

/// What stands before `phrase`: "28.24 GiB" of "28.24 GiB already allocated"; empty if it is
/// absent.
std::string_view words_before(std::string_view text, std::string_view phrase) {
  const std::size_t at = text.find(phrase);
  if (at == std::string_view::npos) return {};
  // A size is two words: the number and its unit.
  std::string_view before = text.substr(0, at);
  const std::size_t unit = before.rfind(' ');
  if (unit == std::string_view::npos) return before;
  const std::size_t number = before.substr(0, unit).find_last_of(" ;(");
  return number == std::string_view::npos ? before : before.substr(number + 1);
}

bool is_unknown_to_driver(std::string_view text) {
  return text.starts_with("17179869184.00 GiB");  // 2^64 bytes: NVML did not tell
}

std::optional<PrintedSize> size_before(const Words& words, std::string_view phrase,
                                       std::string_view what) {
  const std::string_view found = words_before(words.text, phrase);
  if (found.empty() || is_unknown_to_driver(found)) return std::nullopt;
  const std::optional<PrintedSize> size = parse_printed_size(found);
  if (!size) fail(words, found, what);
  return size;
}

std::optional<PrintedSize> size_after(const Words& words, std::string_view phrase,
                                      std::string_view what) {
  const std::size_t at = words.text.find(phrase);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view found = std::string_view(words.text).substr(at + phrase.size());
  if (is_unknown_to_driver(found)) return std::nullopt;
  const std::optional<PrintedSize> size = parse_printed_size(found);
  if (!size) fail(words, found, what);
  return size;
}

std::optional<PrintedSize> sum(const std::optional<PrintedSize>& a,
                               const std::optional<PrintedSize>& b) {
  if (!a || !b) return std::nullopt;
  return PrintedSize{a->bytes + b->bytes, a->tolerance + b->tolerance};
}

/// "(GPU 0; 31.75 GiB total capacity; 28.24 GiB already allocated; ...)"
void read_old(const Words& words, OomMessage& message) {
  message.total = size_before(words, " total capacity", "the total capacity");
  message.allocated = size_before(words, " already allocated", "what is allocated");
  message.free = size_before(words, " free", "what is free");
  message.allowed = size_before(words, " allowed", "what is allowed");
  message.reserved = size_before(words, " reserved in total", "what is reserved");
  // Before 1.4 "cached" was what PyTorch held beyond what is allocated.
  if (const auto cached = size_before(words, " cached", "what is cached")) {
    message.reserved = sum(message.allocated, cached);
  }
}

/// "Process 123 has 4.00 GiB memory in use." of each.
std::vector<PrintedSize> listed_processes(const Words& words) {
  constexpr std::string_view kProcess = "Process ";
  std::vector<PrintedSize> all;
  std::string_view rest = words.text;
  for (std::size_t at = rest.find(kProcess); at != std::string_view::npos;
       at = rest.find(kProcess)) {
    rest.remove_prefix(at + kProcess.size());
    const std::size_t has = rest.find(" has ");
    if (has == std::string_view::npos) break;
    if (const auto size = parse_printed_size(rest.substr(has + 5))) all.push_back(*size);
  }
  return all;
}

std::optional<PrintedSize> sum_of(const std::vector<PrintedSize>& sizes) {
  std::optional<PrintedSize> all;
  for (const PrintedSize& size : sizes) all = all ? sum(all, size) : size;
  return all;
}

/// Whether what is listed leaves no room for what this PyTorch has: then it is listed too.
bool lists_own(const OomMessage& message, const PrintedSize& listed) {
  if (!message.total || !message.free || !message.reserved) return false;
  const PrintedSize& total = *message.total;
  const PrintedSize& free = *message.free;
  const PrintedSize& reserved = *message.reserved;
  const Bytes rounding = listed.tolerance + total.tolerance + free.tolerance + reserved.tolerance;
  return listed.bytes + reserved.bytes + free.bytes > total.bytes + rounding;
}

/// In a container PyTorch does not know its own process by the host's number, and lists it among
/// the others: it is the one that is as large as what PyTorch has reserved. Where several are,
/// nobody knows what others hold.
void read_processes(const Words& words, OomMessage& message) {
  constexpr std::string_view kOwn = "this process has ";
  message.process = size_after(words, kOwn, "what this process uses");
  std::vector<PrintedSize> listed = listed_processes(words);
  message.others = sum_of(listed);
  const bool names_own = words.text.find(kOwn) != std::string::npos;
  if (names_own || !message.others || !lists_own(message, *message.others)) return;
  const auto may_be_own = [&](const PrintedSize& size) {
    return size.bytes + size.tolerance + message.reserved->tolerance >= message.reserved->bytes;
  };
  const auto own = std::find_if(listed.begin(), listed.end(), may_be_own);
  if (own == listed.end()) return;
  if (std::count_if(listed.begin(), listed.end(), may_be_own) == 1) {
    message.process = *own;
    listed.erase(own);
    message.others = sum_of(listed);
  } else {
    message.others.reset();
  }
}

/// "GPU 0 has a total capacity of 31.75 GiB of which 1.95 GiB is free. Including ..."
void read_new(const Words& words, OomMessage& message) {
  message.total = size_before(words, " of which", "the total capacity");
  message.free = size_before(words, " is free", "what is free");
  message.allowed = size_before(words, " allowed", "what is allowed");
  message.allocated = size_before(words, " is allocated by PyTorch", "what is allocated");
  message.reserved =
      sum(message.allocated, size_before(words, " is reserved by PyTorch but unallocated",
                                         "what is reserved but unallocated"));
  read_processes(words, message);
}

/// Reads "GPU 3".
int device_of(const Words& words) {
  constexpr std::string_view kGpu = "GPU ";
  const std::size_t at = words.text.find(kGpu);
  int device = 0;
  if (at != std::string::npos) {
    const char* begin = words.text.data() + at + kGpu.size();
    std::from_chars(begin, words.text.data() + words.text.size(), device);
  }
  return std::max(device, 0);
}

/// The end of the words of a message within `flat`.
std::size_t end_of_message(const std::string& flat, bool old) {
  constexpr std::string_view kLast = "but unallocated";
  const std::size_t end = old ? flat.find(')') : flat.find(kLast);
  if (end == std::string::npos) return flat.size();
  return old ? end : end + kLast.size();
}

// ---- tracebacks --------------------------------------------------------------------------------

/// 'File "torch/optim/adam.py", line 419, in _single_tensor_adam'
std::optional<TracebackFrame> parse_frame(std::string_view line) {
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = ", in ";
  if (!line.starts_with(kFile)) return std::nullopt;
  line.remove_prefix(kFile.size());
  const std::size_t number = line.find(kLine);
  if (number == std::string_view::npos) return std::nullopt;
  TracebackFrame frame;
  frame.file = std::string(line.substr(0, number));
  line.remove_prefix(number + kLine.size());
  std::from_chars(line.data(), line.data() + line.size(), frame.line);
  const std::size_t in = line.find(kIn);
  if (in != std::string_view::npos) frame.function = std::string(line.substr(in + kIn.size()));
  return frame;
}

/// The traceback above a message: frames of the same rank since the last "Traceback".
std::vector<TracebackFrame> traceback_before(std::string_view text, std::optional<int> rank) {
  constexpr std::size_t kFarthest =
      65536;  // no traceback is longer: logs are, and have many messages
  if (text.size() > kFarthest) text.remove_prefix(text.size() - kFarthest);
  std::vector<TracebackFrame> frames;
  bool code_follows = false;
  for (std::size_t at = 0; at < text.size();) {
    std::string_view line = line_at(text, at);
    at += line.size() + 1;
    const RankPrefix prefix = rank_prefix(line);
    if (prefix.rank != rank) continue;
    line = trimmed(line.substr(prefix.length));
    if (line.starts_with("Traceback (most recent call last)")) {
      frames.clear();
      code_follows = false;
    } else if (auto frame = parse_frame(line)) {
      frames.push_back(std::move(*frame));
      code_follows = true;
    } else if (code_follows) {
      frames.back().code = std::string(line);
      code_follows = false;
    }
  }
  return frames;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_of_setup(const TracebackFrame& frame) {
  return contains(frame.function, "initialize_optimizer_states") ||
         contains(frame.function, "_configure_") || contains(frame.function, "from_pretrained");
}
bool is_of_step(const TracebackFrame& frame) {
  const bool of_optimizer = contains(frame.file, "optim") || contains(frame.file, "deepspeed") ||
                            contains(frame.file, "accelerate");
  return (frame.function == "step" && of_optimizer) || contains(frame.code, "optimizer.step(");
}
bool is_of_backward(const TracebackFrame& frame) {
  return contains(frame.function, "backward") || contains(frame.code, ".backward(");
}
bool is_of_forward(const TracebackFrame& frame) {
  return frame.function == "forward" || frame.function == "compute_loss";
}

/// Setting up may step; DeepSpeed's step is called inside of accelerate's `backward`; a recomputed
/// forward is part of the backward: the first kind that any frame is of.
std::optional<Phase> phase_of(const std::vector<TracebackFrame>& frames) {
  using Test = bool (*)(const TracebackFrame&);
  constexpr std::array<std::pair<Test, Phase>, 4> kTests = {{{is_of_setup, Phase::Init},
                                                             {is_of_step, Phase::Step},
                                                             {is_of_backward, Phase::Backward},
                                                             {is_of_forward, Phase::Forward}}};
  for (const auto& [test, phase] : kTests) {
    if (std::any_of(frames.begin(), frames.end(), test)) return phase;
  }
  return std::nullopt;
}

// ---- messages ----------------------------------------------------------------------------------

std::optional<int> rank_at(std::string_view text, std::size_t position) {
  return rank_prefix(line_at(text, line_begin(text, position))).rank;
}

OomMessage read_message(std::string_view text, std::size_t at, const std::string& name) {
  constexpr std::size_t kLongest = 1500;  // the longest wording has about 700 characters
  const std::size_t begin = at + kTried.size();
  const std::size_t next = std::min(text.find(kTried, begin), text.size());
  const std::string_view raw = text.substr(begin, std::min(next - begin, kLongest));
  Words words{flattened(raw), place_of(text, at, name)};
  const bool old =
      contains(words.text.substr(0, std::min<std::size_t>(words.text.size(), 40)), "(GPU ");
  words.text.resize(end_of_message(words.text, old));

  OomMessage message;
  message.where = words.where;
  message.rank = rank_at(text, at);
  const auto request = parse_printed_size(words.text);
  if (!request) fail(words, words.text, "what was tried to allocate");
  message.request = *request;
  message.device = device_of(words);
  (old ? read_old : read_new)(words, message);
  message.traceback = traceback_before(text.substr(0, line_begin(text, at)), message.rank);
  message.phase = phase_of(message.traceback);
  return message;
}

/// What a text without a message says instead.
[[noreturn]] void no_message(std::string_view text, const std::string& name) {
  constexpr std::string_view kExpected =
      "expected PyTorch's \"CUDA out of memory. Tried to allocate ...\"";
  struct Other {
    std::string_view phrase;
    std::string_view meaning;
  };
  constexpr std::array<Other, 4> kOthers = {{
      {"DefaultCPUAllocator", "a message about host memory"},
      {"CUDA error: out of memory", "a driver's error without figures"},
      {"would exceed allowed memory", "the message of cudaMallocAsync"},
      {"out of memory", "\"out of memory\" without figures"},
  }};
  for (const Other& other : kOthers) {
    const std::size_t at = text.find(other.phrase);
    if (at != std::string_view::npos) {
      throw TraceError(place_of(text, at, name), format("found {}, {}", other.meaning, kExpected));
    }
  }
  const std::string_view found = trimmed(text).empty() ? "nothing" : "no out-of-memory message";
  throw TraceError({name}, format("found {}, {}", found, kExpected));
}

}  // namespace

bool PrintedSize::covers(Bytes exact) const {
  return exact >= bytes - tolerance && exact <= bytes + tolerance;
}

std::optional<PrintedSize> parse_printed_size(std::string_view text) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || length == 0 || !is_digit(text.front())) return std::nullopt;
  const std::string_view digits = text.substr(0, length);
  const std::string_view rest = trimmed(text.substr(length));
  const auto* unit = std::find_if(kUnits.begin(), kUnits.end(),
                                  [&](const Unit& u) { return rest.starts_with(u.name); });
  if (unit == kUnits.end() || number * unit->bytes >= kLargestSize) return std::nullopt;
  const std::size_t point = digits.find('.');
  const std::size_t decimals = point == std::string_view::npos ? 0 : digits.size() - point - 1;
  constexpr std::size_t kMostDecimals = 12;
  return PrintedSize{Bytes(std::llround(number * unit->bytes)),
                     half_digit(static_cast<int>(std::min(decimals, kMostDecimals)), unit->bytes)};
}

PrintedSize printed_gib(double gib) {
  const std::string shortest = format("{}", gib);
  const std::optional<PrintedSize> size = parse_printed_size(shortest + " GiB");
  if (!size) {
    throw ConfigError(
        format("found {} GiB, expected a size of at least 0 and below 2^20 GiB", gib));
  }
  return *size;
}

std::vector<OomMessage> parse_oom_messages(std::string_view text, const std::string& name) {
  std::vector<OomMessage> messages;
  for (std::size_t at = text.find(kTried); at != std::string_view::npos;
       at = text.find(kTried, at + kTried.size())) {
    messages.push_back(read_message(text, at, name));
  }
  if (messages.empty()) no_message(text, name);
  return messages;
}

OomMessage parse_oom_message(std::string_view text, const std::string& name) {
  return parse_oom_messages(text, name).front();
}

}  // namespace zerosim
