#include "validate/gpu_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "sim/base/text.h"

namespace zerosim {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Pieces of letters and digits in capitals: "A100-SXM4-40GB" -> A100, SXM4, 40GB.
std::vector<std::string> pieces_of(std::string_view words) {
  std::vector<std::string> pieces;
  bool open = false;
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0) {
      open = false;
      continue;
    }
    if (!open) pieces.emplace_back();
    open = true;
    pieces.back() += static_cast<char>(std::toupper(byte));
  }
  return pieces;
}

/// A name without what does not tell kinds apart.
struct Name {
  std::string letters;        ///< "A100SXM4"
  std::optional<int> memory;  ///< GB of the product name
};

bool is_filler(const std::string& piece) {
  constexpr std::array kFillers = {"NVIDIA", "TESLA", "GEFORCE", "GPU",   "GB",    "HBM2",
                                   "HBM2E",  "HBM3",  "HBM3E",   "GDDR6", "GDDR6X"};
  return std::any_of(kFillers.begin(), kFillers.end(),
                     [&](const char* filler) { return piece == filler; });
}

/// "80GB", or "80" before "GB", or the last number of a name in the way of gpus.csv.
std::optional<int> memory_in(const std::vector<std::string>& pieces, std::size_t i, bool of_table) {
  const std::string& piece = pieces[i];
  const std::string digits = piece.substr(0, piece.find_first_not_of("0123456789"));
  if (digits.empty() || digits.size() > 4) return std::nullopt;
  const std::string rest = piece.substr(digits.size());
  const bool before_gb = rest.empty() && i + 1 < pieces.size() && pieces[i + 1] == "GB";
  const auto is_number = [](const std::string& p) {
    return std::all_of(p.begin(), p.end(), is_digit);
  };
  const bool last_number =
      of_table && i > 0 && rest.empty() &&
      std::none_of(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1, pieces.end(), is_number);
  if (rest != "GB" && !before_gb && !last_number) return std::nullopt;
  return std::stoi(digits);
}

Name name_of(std::string_view words, bool of_table) {
  const std::vector<std::string> pieces = pieces_of(words);
  Name name;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (const std::optional<int> memory = memory_in(pieces, i, of_table)) {
      name.memory = memory;
    } else if (!is_filler(pieces[i])) {
      name.letters += pieces[i];
    }
  }
  return name;
}

/// The same, or one names only the family of a board: "H100" of "H100SXM5".
bool is_same(const std::string& words, const std::string& kind) {
  if (words == kind) return true;
  if (words.empty() || !kind.starts_with(words)) return false;
  const std::string rest = kind.substr(words.size());
  return rest.starts_with("SXM") && rest.size() <= 4;
}

}  // namespace

NamedGpu gpu_by_words(std::string_view words) {
  const Name name = name_of(words, false);
  NamedGpu found;
  int nearest = std::numeric_limits<int>::max();
  for (const GpuSpec& spec : gpu_specs()) {
    const Name kind = name_of(spec.name, true);
    if (!is_same(name.letters, kind.letters)) continue;
    const int distance = name.memory && kind.memory ? std::abs(*name.memory - *kind.memory) : 0;
    if (distance >= nearest) continue;
    nearest = distance;
    found.gpu = &spec;
  }
  if (found.gpu != nullptr && (nearest != 0 || !name.memory)) {
    found.assumption = format("GPU \"{}\": {}", words, found.gpu->name);
  }
  return found;
}

bool is_amd_gpu(std::string_view words) {
  const std::vector<std::string> pieces = pieces_of(words);
  return std::any_of(pieces.begin(), pieces.end(), [](const std::string& piece) {
    return piece == "AMD" || piece == "RADEON" || piece.starts_with("GFX") ||
           (piece.starts_with("MI") && piece.size() > 2 && is_digit(piece[2]));
  });
}

std::string gpu_family(const GpuSpec& gpu) {
  const std::vector<std::string> pieces = pieces_of(gpu.name);
  if (pieces.front() == "RTX" || pieces.front() == "QUADRO" || pieces.front() == "TITAN") {
    return gpu.name.substr(0, gpu.name.rfind('-'));
  }
  return gpu.name.substr(0, gpu.name.find('-'));
}

}  // namespace zerosim
