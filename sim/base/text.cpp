#include "sim/base/text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

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
