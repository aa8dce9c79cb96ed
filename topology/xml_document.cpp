#include "topology/xml_document.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "sim/base/hjson.h"
#include "sim/base/text.h"

namespace zerosim {

XmlDocument::XmlDocument(std::string_view text, std::string file)
    : file_(std::move(file)), text_(text) {
  internal::check_characters(text_, file_);
  const pugi::xml_parse_result result =
      document_.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result) {
    throw ConfigError(place(static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0))),
                      format("not XML: {}", result.description()));
  }
  for (const pugi::xml_node child : document_.children()) {
    if (child.type() != pugi::node_element) continue;
    if (root_) {
      fail(child, format("found a second root element <{}>, expected one", child.name()));
    }
    root_ = child;
  }
}

SourceLocation XmlDocument::place(std::size_t offset) const {
  const std::size_t end = std::min(offset, text_.size());
  const std::string_view before = std::string_view(text_).substr(0, end);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  return {file_, static_cast<int>(lines) + 1, static_cast<int>(end - begin) + 1};
}

SourceLocation XmlDocument::location(pugi::xml_node element) const {
  // pugixml tells where the name stands; the element begins one character before.
  const std::ptrdiff_t name = element.offset_debug();
  return place(static_cast<std::size_t>(std::max<std::ptrdiff_t>(name - 1, 0)));
}

void XmlDocument::fail(pugi::xml_node element, const std::string& message) const {
  throw ConfigError(location(element), message);
}

void XmlDocument::expect_children(pugi::xml_node element, std::initializer_list<const char*> known,
                                  std::string_view inside) const {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const pugi::xml_node child : element.children()) {
    if (child.type() != pugi::node_element) continue;
    const std::string name = child.name();
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string expected = names.empty() ? "nothing" : join(names, " or ");
    fail(child, format("found <{}> in {}, expected {}{}", name, inside, expected,
                       did_you_mean(name, names)));
  }
}

std::string XmlDocument::text(pugi::xml_node element, const char* attribute) const {
  return element.attribute(attribute).value();
}

std::optional<int> XmlDocument::integer(pugi::xml_node element, const char* attribute, int minimum,
                                        int maximum) const {
  const std::string value = text(element, attribute);
  if (value.empty()) return std::nullopt;
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  if (!whole || number < minimum || number > maximum) {
    fail(element, format("{}: found \"{}\", expected an integer from {} to {}", attribute, value,
                         minimum, maximum));
  }
  return number;
}

double XmlDocument::number(pugi::xml_node element, const char* attribute, double minimum,
                           double maximum) const {
  const std::string value = text(element, attribute);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  if (!whole || !(number >= minimum && number <= maximum)) {
    fail(element, format("{}: found \"{}\", expected a number from {:g} to {:g}", attribute, value,
                         minimum, maximum));
  }
  return number;
}

}  // namespace zerosim
