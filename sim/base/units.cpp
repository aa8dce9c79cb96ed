#include "sim/base/units.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <vector>

#include "sim/base/text.h"

namespace zerosim {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Decimal (SI) and binary (IEC 80000-13) multiples. "KB" and "kB" are both 1000 bytes.
constexpr Unit kByteUnits[] = {
    {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
    {"GB", 1e9},     {"TB", 1e12},    {"PB", 1e15},    {"KiB", 0x1p10},
    {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50},
};
constexpr Unit kRateUnits[] = {
    {"B/s", 1},        {"kB/s", 1e3},     {"KB/s", 1e3},     {"MB/s", 1e6},
    {"GB/s", 1e9},     {"TB/s", 1e12},    {"KiB/s", 0x1p10}, {"MiB/s", 0x1p20},
    {"GiB/s", 0x1p30}, {"TiB/s", 0x1p40}, {"b/s", 1.0 / 8},  {"kb/s", 1e3 / 8},
    {"Kb/s", 1e3 / 8}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8}, {"Tb/s", 1e12 / 8},
};
constexpr Unit kTimeUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

[[noreturn]] void reject(std::string_view text, const std::string& reason,
                         std::string_view example) {
  throw std::invalid_argument(
      format(R"("{}": {}, expected a number with a unit such as "{}")", text, reason, example));
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

struct Quantity {
  std::string_view digits;
  double number = 0;
  double factor = 0;  ///< of the unit
};

/// Grammar: [spaces] decimal number [spaces] unit [spaces].
Quantity parse_quantity(std::string_view text, std::span<const Unit> units,
                        std::string_view example) {
  const std::string_view body = trimmed(text);
  if (body.empty()) reject(text, "nothing there", example);
  if (body.front() == '-') reject(text, "negative", example);
  Quantity quantity;
  const auto [end, error] =
      std::from_chars(body.data(), body.data() + body.size(), quantity.number);
  const bool begins_with_digit = body.front() >= '0' && body.front() <= '9';
  if (error == std::errc::result_out_of_range) reject(text, "number out of range", example);
  if (error != std::errc() || !begins_with_digit) reject(text, "no number", example);
  const auto length = static_cast<std::size_t>(end - body.data());
  quantity.digits = body.substr(0, length);
  const std::string_view name = trimmed(body.substr(length));
  if (name.empty()) reject(text, "no unit", example);
  std::vector<std::string> names;
  for (const Unit& unit : units) {
    if (unit.name == name) {
      quantity.factor = unit.factor;
      return quantity;
    }
    names.emplace_back(unit.name);
  }
  throw std::invalid_argument(
      format(R"("{}": unknown unit "{}", expected one of {})", text, name, join(names, ", ")));
}

/// Whole numbers stay exact beyond 2^53; fractions are rounded to the nearest byte.
std::int64_t byte_count(const Quantity& quantity, std::string_view text) {
  std::int64_t whole = 0;
  const char* last = quantity.digits.data() + quantity.digits.size();
  const auto [end, error] = std::from_chars(quantity.digits.data(), last, whole);
  if (error == std::errc() && end == last) {
    std::int64_t product = 0;
    if (!__builtin_mul_overflow(whole, static_cast<std::int64_t>(quantity.factor), &product)) {
      return product;
    }
  } else if (const double product = quantity.number * quantity.factor; product < 0x1p63) {
    return std::llround(product);
  }
  throw std::invalid_argument(format("\"{}\": does not fit 64 bits of bytes", text));
}

[[noreturn]] void overflow(const char* operation, std::int64_t a, std::int64_t b) {
  throw std::overflow_error(format("bytes: {} {} {} leaves 64 bits", a, operation, b));
}

struct Scale {
  double least;  ///< from this magnitude on
  double factor;
  int decimals;
  std::string_view name;
};

template <std::size_t N>
std::string scaled(double value, const Scale (&scales)[N]) {
  const Scale* scale = &scales[N - 1];
  for (const Scale& candidate : scales) {
    if (std::abs(value) >= candidate.least) {
      scale = &candidate;
      break;
    }
  }
  return format("{:.{}f} {}", value / scale->factor, scale->decimals, scale->name);
}

// A value that would print as 1024.0 of a unit is shown in the next one (0.99995 of it or more).
constexpr Scale kByteScales[] = {
    {0x1p50 * 0.99999, 0x1p50, 2, "PiB"}, {0x1p40 * 0.99999, 0x1p40, 2, "TiB"},
    {0x1p30 * 0.99996, 0x1p30, 2, "GiB"}, {0x1p20 * 0.99996, 0x1p20, 1, "MiB"},
    {0x1p10, 0x1p10, 1, "KiB"},           {0, 1, 0, "B"},
};
constexpr Scale kTimeScales[] = {
    {0.99995, 1, 3, "s"},
    {0.99995e-3, 1e-3, 1, "ms"},
    {0.99995e-6, 1e-6, 1, "us"},
    {0, 1e-9, 1, "ns"},
};

}  // namespace

Bytes& Bytes::operator+=(Bytes other) {
  if (std::int64_t sum = 0; !__builtin_add_overflow(count_, other.count_, &sum)) {
    count_ = sum;
    return *this;
  }
  overflow("+", count_, other.count_);
}

Bytes& Bytes::operator-=(Bytes other) {
  if (std::int64_t difference = 0; !__builtin_sub_overflow(count_, other.count_, &difference)) {
    count_ = difference;
    return *this;
  }
  overflow("-", count_, other.count_);
}

Bytes operator*(Bytes a, std::int64_t factor) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a.count_, factor, &product)) overflow("*", a.count_, factor);
  return Bytes(product);
}

Bytes parse_bytes(std::string_view text) {
  return Bytes(byte_count(parse_quantity(text, kByteUnits, "40GiB"), text));
}

BytesPerSecond parse_bytes_per_second(std::string_view text) {
  const Quantity quantity = parse_quantity(text, kRateUnits, "400Gb/s");
  return BytesPerSecond(quantity.number * quantity.factor);
}

Seconds parse_seconds(std::string_view text) {
  const Quantity quantity = parse_quantity(text, kTimeUnits, "5us");
  return Seconds(quantity.number * quantity.factor);
}

std::string to_string(Bytes bytes) {
  return scaled(static_cast<double>(bytes.count()), kByteScales);
}

std::string to_string(Seconds seconds) {
  return seconds.count() == 0 ? "0 s" : scaled(seconds.count(), kTimeScales);
}

}  // namespace zerosim
