#include "sim/base/text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "sim/base/edit_distance.h"
#include "sim/base/error.h"

namespace zerosim {
namespace {

std::size_t length_difference(std::string_view a, std::string_view b) {
  return a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line;
  out += '\n';
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::size_t allowed = std::max<std::size_t>(2, name.size() / 3);
  const std::string* nearest = nullptr;
  for (const std::string& candidate : candidates) {
    if (length_difference(name, candidate) > allowed) continue;
    const std::size_t distance = edit_distance(name, candidate);
    // Replacing every character is no resemblance.
    if (distance > allowed || distance >= std::max(name.size(), candidate.size())) continue;
    if (nearest != nullptr && distance == allowed &&
        common_prefix(name, candidate) <= common_prefix(name, *nearest)) {
      continue;
    }
    nearest = &candidate;
    allowed = distance;
  }
  return nearest == nullptr ? std::string() : *nearest;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? std::string() : format("; did you mean \"{}\"?", nearest);
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (&part != parts.data()) text += separator;
    text += part;
  }
  return text;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

std::string upper_case(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return upper;
}

std::string wrap(std::string_view text, int width, std::string_view first) {
  const auto limit = static_cast<std::size_t>(width);
  const std::string margin(first.size(), ' ');
  std::string out;
  std::string line(first);
  bool empty_line = true;  // nothing but the margin yet
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    std::string_view word = text.substr(at, end - at);
    at = end + 1;
    while (!word.empty()) {
      const std::size_t needed = line.size() + (empty_line ? 0 : 1) + word.size();
      if (needed > limit && !empty_line) {
        append_line(out, std::exchange(line, margin));
        empty_line = true;
        continue;
      }
      const std::size_t room = limit > line.size() ? limit - line.size() : 1;
      const std::string_view piece = needed > limit ? word.substr(0, room) : word;
      if (!empty_line) line += ' ';
      line += piece;
      empty_line = false;
      word.remove_prefix(piece.size());
    }
  }
  append_line(out, std::move(line));
  return out;
}

std::string counted(std::int64_t count, std::string_view what) {
  return format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string read_file(const std::string& path) {
  const SourceLocation where{path, 0, 0};
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw ConfigError(where, "cannot read: it is a directory, expected a file");
  }
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw ConfigError(where, format("cannot read: {}", std::strerror(errno)));
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad()) throw ConfigError(where, "cannot read: input error");
  return text;
}

}  // namespace zerosim
