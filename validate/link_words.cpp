#include "validate/link_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <vector>

#include "sim/base/text.h"

namespace zerosim {
namespace {

bool has_any(const std::string& text, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

/// Words of letters and digits.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  bool open = false;
  for (const char c : text) {
    const bool inside = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.';
    if (inside && !open) words.emplace_back();
    if (inside) words.back() += c;
    open = inside;
  }
  return words;
}

/// A number at the front of `text`, taken off it.
std::optional<double> take_number(std::string_view& text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || value < 0 || value > 1e6) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Gb/s of what `unit` begins with; 0: it is no rate.
double rate_unit(std::string_view unit) {
  if (unit.starts_with("gb")) return 1;
  return unit.starts_with("tb") ? 1000 : 0;
}

/// "8x2x100gb", "25gb", "3.2tb": what a word says of adapters.
std::optional<NetworkWords> adapters_in(std::string_view word) {
  double product = 1;
  double last = 1;
  int factors = 0;
  for (;;) {
    const std::optional<double> number = take_number(word);
    if (!number || *number <= 0) return std::nullopt;
    if (const double unit = rate_unit(word); unit > 0) {
      NetworkWords network;
      network.count = factors > 0 ? static_cast<int>(product) : 0;
      network.ports = factors > 1 ? static_cast<int>(last) : 1;
      network.bandwidth = BytesPerSecond(*number * unit * 1e9 / 8);
      return network;
    }
    if (!word.starts_with("x") || product * *number > 1024) return std::nullopt;
    word.remove_prefix(1);
    product *= *number;
    last = *number;
    ++factors;
  }
}

std::string without(std::string text, std::string_view words) {
  const std::size_t found = text.find(words);
  return found == std::string::npos ? text : text.erase(found, words.size());
}

/// "8 x 400 Gb/s" as "8x400gb/s".
std::string without_gaps(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool gap = text[i] == ' ';
    const std::string_view rest = std::string_view(text).substr(std::min(i + 1, text.size()));
    const bool after_number =
        !out.empty() && std::isdigit(static_cast<unsigned char>(out.back())) != 0;
    const bool times = rest.starts_with("x ") || rest.starts_with("gb") || rest.starts_with("tb");
    const bool after_times = out.size() >= 2 && out.back() == 'x' &&
                             std::isdigit(static_cast<unsigned char>(out[out.size() - 2])) != 0 &&
                             !rest.empty() &&
                             std::isdigit(static_cast<unsigned char>(rest[0])) != 0;
    if (gap && ((after_number && times) || after_times)) continue;
    out += text[i];
  }
  return out;
}

std::optional<NetworkKind> kind_in(const std::string& text) {
  struct Kind {
    NetworkKind kind;
    std::vector<std::string> words;
  };
  // RoCE before Ethernet, which it is; names before names that they hold.
  static const std::vector<Kind> kKinds = {
      {NetworkKind::Tcpxo, {"tcpxo", "fastrak"}},
      {NetworkKind::Tcpx, {"tcpx"}},
      {NetworkKind::EfaV1, {"efa v1", "efav1"}},
      {NetworkKind::EfaV3, {"efa v3", "efav3", "efa v4", "efav4"}},
      {NetworkKind::Efa, {"efa", "srd"}},
      {NetworkKind::Roce, {"roce"}},
      {NetworkKind::Tcp, {"tcp", "gbe", "ethernet", "socket"}},
      {NetworkKind::InfiniBand, {"infiniband", "ndr", "hdr", "edr", "xdr", "quantum"}}};
  for (const Kind& kind : kKinds) {
    if (has_any(text, kind.words)) return kind.kind;
  }
  const std::vector<std::string> words = words_of(text);
  const bool ib = std::find(words.begin(), words.end(), "ib") != words.end();
  return ib ? std::optional(NetworkKind::InfiniBand) : std::nullopt;
}

std::optional<IntraNode> intra_in(const std::string& text) {
  if (has_any(text, {"nvswitch", "nvl72", "nvl36"})) return IntraNode::NvSwitch;
  if (has_any(text, {"mesh", "bridge"})) return IntraNode::NvLinkMesh;
  if (has_any(text,
              {"host memory", "no p2p", "p2p_disable=1", "shm", "dual socket", "through host"})) {
    return IntraNode::PcieHostStaged;
  }
  if (has_any(text, {"pcie"})) return IntraNode::Pcie;
  return std::nullopt;
}

int number_after(const std::string& text, const std::string& word) {
  const std::size_t found = text.find(word);
  if (found == std::string::npos) return 0;
  std::string_view rest = std::string_view(text).substr(found + word.size());
  if (rest.starts_with(" gen")) rest.remove_prefix(4);
  const bool digit = !rest.empty() && std::isdigit(static_cast<unsigned char>(rest.front())) != 0;
  return digit ? rest.front() - '0' : 0;
}

/// "20x nvl72" -> 20; "nvl72, one rack" -> 1.
int racks_in(const std::string& text) {
  const std::size_t found = text.find("nvl");
  if (found == std::string::npos || !has_any(text, {"nvl72", "nvl36"})) return 0;
  std::string_view before = std::string_view(text).substr(0, found);
  const std::optional<double> count = take_number(before);
  return count && before.starts_with("x") ? static_cast<int>(*count) : 1;
}

/// What stands behind the first " + " (or comma) that a rate or a kind of network follows.
std::optional<NetworkWords> network_in(const std::string& text) {
  std::optional<NetworkWords> network;
  std::string word;
  for (const char c : text + " ") {
    if (c != ' ' && c != ',' && c != '(' && c != ')') {
      word += c;
      continue;
    }
    const std::optional<NetworkWords> adapters = adapters_in(word);
    if (!network || (adapters && adapters->count > 0 && network->count == 0)) network = adapters;
    word.clear();
  }
  const std::optional<NetworkKind> kind = kind_in(without(text, "efa off"));
  if (!network && kind) network.emplace();
  if (network) network->kind = kind;
  return network;
}

}  // namespace

LinkWords read_link_words(std::string_view text) {
  const std::string words = without_gaps(lower_case(text));
  LinkWords link;
  link.intra = intra_in(words);
  link.pcie_generation = number_after(words, "pcie");
  link.racks = racks_in(words);
  link.sockets = has_any(words, {"dual socket", "dual-socket", "two sockets"}) ? 2 : 0;
  link.in_network_reduction = has_any(words, {"sharp"});
  link.network = network_in(words);
  if (link.network && !link.network->kind) {
    const std::size_t plus = text.find(" + ");
    link.unknown = plus == std::string_view::npos ? text : text.substr(plus + 3);
  }
  return link;
}

}  // namespace zerosim
