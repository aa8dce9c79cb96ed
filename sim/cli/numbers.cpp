#include "sim/cli/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

/// A decimal number as written: digits x 10^exponent.
struct Decimal {
  bool negative = false;
  std::string digits;  ///< without leading or trailing zeros; empty: zero
  std::int64_t exponent = 0;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::optional<int> read_exponent(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int exponent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return exponent;
}

std::optional<Decimal> read_decimal(std::string_view text) {
  Decimal number;
  if (text.starts_with('-') || text.starts_with('+')) {
    number.negative = text.front() == '-';
    text.remove_prefix(1);
  }
  bool any = false;
  bool point = false;
  while (!text.empty() && (is_digit(text.front()) || (text.front() == '.' && !point))) {
    if (text.front() == '.') {
      point = true;
    } else {
      any = true;
      number.digits += text.front();
      if (point) --number.exponent;
    }
    text.remove_prefix(1);
  }
  if (!any) return std::nullopt;
  if (text.starts_with('e') || text.starts_with('E')) {
    const std::optional<int> exponent = read_exponent(text.substr(1));
    if (!exponent) return std::nullopt;
    number.exponent += *exponent;
    text = {};
  }
  if (!text.empty()) return std::nullopt;
  number.digits.erase(0, std::min(number.digits.find_first_not_of('0'), number.digits.size()));
  while (number.digits.ends_with('0')) {
    number.digits.pop_back();
    ++number.exponent;
  }
  return number;
}

/// Nothing if it is not whole. What exceeds 64 bits comes back as the largest magnitude.
std::optional<std::int64_t> whole(const Decimal& number) {
  constexpr std::int64_t kLargestDigits = 19;  // of a signed 64-bit number
  if (number.digits.empty()) return 0;
  if (number.exponent < 0) return std::nullopt;
  const std::int64_t limit = number.negative ? INT64_MIN : INT64_MAX;
  if (static_cast<std::int64_t>(number.digits.size()) + number.exponent > kLargestDigits) {
    return limit;
  }
  const std::string text = (number.negative ? "-" : "") + number.digits +
                           std::string(static_cast<std::size_t>(number.exponent), '0');
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : limit;
}

[[noreturn]] void fail(std::string_view text, std::string_view flag, const IntegerRange& range) {
  const std::string upper =
      range.maximum == INT64_MAX ? "" : format(" and at most {}", range.maximum);
  throw ConfigError(format("{}: found \"{}\", expected a whole number of at least {}{}", flag, text,
                           range.minimum, upper));
}

}  // namespace

std::int64_t parse_integer(std::string_view text, std::string_view flag,
                           const IntegerRange& range) {
  const std::optional<Decimal> number = read_decimal(text);
  const std::optional<std::int64_t> value = number ? whole(*number) : std::nullopt;
  if (!value || *value < range.minimum || *value > range.maximum) fail(text, flag, range);
  return *value;
}

double parse_non_negative(std::string_view text, std::string_view flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0) {
    throw ConfigError(format("{}: found \"{}\", expected a number of at least 0", flag, text));
  }
  return value;
}

}  // namespace zerosim
