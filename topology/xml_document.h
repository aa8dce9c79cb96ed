/// \file
/// XML that people have, read by pugixml, with line and column of every element for messages.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <pugixml.hpp>

#include "sim/base/error.h"

namespace zerosim {

/// \throws ConfigError  from every member, with the place of the element.
class XmlDocument {
 public:
  /// Takes text with exactly one root element. \param file  stands for it in messages.
  XmlDocument(std::string_view text, std::string file);

  [[nodiscard]] pugi::xml_node root() const { return root_; }
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] SourceLocation location(pugi::xml_node element) const;
  [[noreturn]] void fail(pugi::xml_node element, const std::string& message) const;

  /// Refuses child elements that are not in the list; `inside` names the parent in the message.
  void expect_children(pugi::xml_node element, std::initializer_list<const char*> known,
                       std::string_view inside) const;

  [[nodiscard]] std::string text(pugi::xml_node element, const char* attribute) const;
  /// An integer within the bounds; nothing if the attribute is missing or empty.
  [[nodiscard]] std::optional<int> integer(pugi::xml_node element, const char* attribute,
                                           int minimum, int maximum) const;
  /// A number within the bounds; the attribute must be there.
  [[nodiscard]] double number(pugi::xml_node element, const char* attribute, double minimum,
                              double maximum) const;

 private:
  [[nodiscard]] SourceLocation place(std::size_t offset) const;

  std::string file_;
  std::string text_;
  pugi::xml_document document_;
  pugi::xml_node root_;
};

}  // namespace zerosim
