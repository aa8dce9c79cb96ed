#include "topology/json_reading.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "sim/base/text.h"

namespace zerosim {

void expect_keys(JsonObject& object, std::initializer_list<const char*> known) {
  for (const char* key : known) static_cast<void>(object.has(key));
  object.reject_unknown_keys();
}

std::string one_of(JsonObject& object, const std::string& key,
                   const std::vector<std::string>& known, std::string_view what) {
  std::string name = object.string(key);
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  std::string hint = did_you_mean(name, known);
  if (hint.empty()) hint = format("; known: {}", join(known, ", "));
  object.fail(key, format("unknown {} \"{}\"{}", what, name, hint));
}

int bounded_integer(JsonObject& object, const std::string& key, std::int64_t minimum,
                    std::int64_t maximum) {
  const std::int64_t value = object.integer_at_least(key, minimum);
  if (value > maximum) {
    object.fail(key, format("found {}, expected at most {}", value, maximum), "out_of_range");
  }
  return static_cast<int>(value);
}

BytesPerSecond positive_rate(JsonObject& object, const std::string& key) {
  const BytesPerSecond rate = object.bytes_per_second(key);
  if (rate.per_second() <= 0) object.fail(key, "found a rate of 0, expected a positive one");
  return rate;
}

double watts(JsonObject& object, const std::string& key) {
  const std::string text = object.string(key);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  if (error != std::errc() || (unit != "W" && unit != " W") || !std::isfinite(value)) {
    object.fail(key, format(R"(found "{}", expected watts, for example "500W")", text));
  }
  return value;
}

double share_of_one(JsonObject& object, const std::string& key) {
  const double value = object.number(key);
  if (!(value > 0 && value <= 1)) {
    object.fail(key, format("found {}, expected a number above 0 and at most 1", value),
                "out_of_range");
  }
  return value;
}

}  // namespace zerosim
