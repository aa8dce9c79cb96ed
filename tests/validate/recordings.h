/// \file
/// Recorded runs of tests/data/deepspeed_golden, whole and changed.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim::test {

inline std::string recording_path(const std::string& name) {
  return std::string(ZEROSIM_TEST_DATA) + "/deepspeed_golden/" + name + ".json";
}

inline std::string recording_text(const std::string& name) {
  return read_file(recording_path(name));
}

/// Names of all of them, in alphabetical order.
inline std::vector<std::string> recording_names() {
  std::vector<std::string> names;
  const std::string folder = std::string(ZEROSIM_TEST_DATA) + "/deepspeed_golden";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// `text` with the first `was` turned into `is`; fails if it has none.
inline std::string changed(std::string text, const std::string& was, const std::string& is) {
  const std::size_t place = text.find(was);
  if (place == std::string::npos) {
    ADD_FAILURE() << "nothing to change: " << was;
    return text;
  }
  return text.replace(place, was.size(), is);
}

/// The text without its last member, `events`.
inline std::string without_events(const std::string& text) {
  const std::size_t place = text.find(",\n\"events\"");
  EXPECT_NE(place, std::string::npos);
  return text.substr(0, place) + "}\n";
}

template <typename Action>
std::string config_error_of(Action action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace zerosim::test
