#include "topology/import.h"

#include <filesystem>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

constexpr std::size_t kLargestText = 16U << 20;  // a matrix of 512 devices has 1 MB

bool is_xml(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '<';
}

std::string default_name(const std::string& file) {
  const std::string stem = std::filesystem::path(file).stem().string();
  return stem.empty() || file == "stdin" ? "imported" : stem;
}

}  // namespace

ImportedNode import_topology(const std::string& text, const std::string& file,
                             const ImportOptions& options) {
  if (text.size() > kLargestText) {
    throw ConfigError(SourceLocation{file, 0, 0},
                      format("found {} bytes, expected at most {}", text.size(), kLargestText));
  }
  const bool xml = is_xml(text);
  ImportedNode node =
      xml ? import_nccl_xml(text, file, options) : import_nvidia_smi(text, file, options);
  node.machine.name = options.name.empty() ? default_name(file) : options.name;
  const std::string source =
      format("imported from {}, {}", std::filesystem::path(file).filename().string(),
             xml ? "a topology file of NCCL's" : "`nvidia-smi topo -m`");
  node.assumptions.insert(node.assumptions.begin(), source);
  return node;
}

}  // namespace zerosim
