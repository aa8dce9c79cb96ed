/// \file
/// A DeepSpeed configuration that another file holds or implies: written as JSON, read by
/// `parse_deepspeed_config`, with every place in the result turned back into one of the other file.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/strategy/strategy.h"

namespace zerosim::internal {

class ImpliedDeepSpeed {
 public:
  /// \param whole  what is blamed for anything that has no place of its own
  /// \param filler who fills in what the file does not state: "accelerate"
  ImpliedDeepSpeed(SourceLocation whole, std::string filler);

  /// Opens an object under `key`.
  void open(const std::string& key, const SourceLocation& place);
  void close();
  /// A member that the file states at `place`.
  void state(const std::string& key, const JsonValue& value, const SourceLocation& place);
  /// A member that the tool fills in.
  void fill(const std::string& key, const JsonValue& value);
  /// All members of an object of `document`, places included. \throws ConfigError for thousands.
  void copy(const JsonDocument& document, const JsonValue& object);

  /// \throws ConfigError  as parse_deepspeed_config, with places of the file.
  [[nodiscard]] Strategy read(const TrainingFlags& flags, const Model& model, int world_size) const;

 private:
  /// One member a line.
  struct Line {
    std::string text;
    SourceLocation key;
    SourceLocation value;
    bool stated = true;
  };

  void add(const std::string& key, const std::string& value, const SourceLocation& key_place,
           const SourceLocation& value_place, bool stated);
  void copy_members(const JsonDocument& document, const JsonValue& object);
  void copy_value(const std::string& key, const JsonDocument& document, const JsonValue& value,
                  const SourceLocation& key_place);
  [[nodiscard]] const Line* line_of(const SourceLocation& where) const;
  [[nodiscard]] SourceLocation place_in_file(const SourceLocation& where) const;
  /// `message` with the place at its front replaced.
  [[nodiscard]] std::string moved(const std::string& message, const SourceLocation& where) const;
  [[nodiscard]] ConfigError moved(const ConfigError& error) const;
  void move_places(Strategy& strategy) const;

  SourceLocation whole_;
  std::string filler_;
  std::vector<Line> lines_;
};

}  // namespace zerosim::internal
