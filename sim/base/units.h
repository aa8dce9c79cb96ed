/// \file
/// Quantities with units: seconds, bytes, FLOPs and their rates.
///
/// GB is 10^9 and GiB is 2^30; a rate in "Gb/s" is gigabits. Constructors are explicit and only
/// meaningful operators exist, so that adding bytes to seconds does not compile.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace zerosim {

/// Time; a double count of seconds. `std::chrono` literals (`2us`) convert by themselves.
using Seconds = std::chrono::duration<double>;

/// A count of bytes, exact: memory accounting is integer from end to end.
///
/// Sums and products that leave the signed 64-bit range throw `std::overflow_error`.
class Bytes {
 public:
  constexpr Bytes() = default;
  explicit constexpr Bytes(std::int64_t count) : count_(count) {}

  [[nodiscard]] constexpr std::int64_t count() const { return count_; }
  [[nodiscard]] constexpr double gib() const { return static_cast<double>(count_) / (1 << 30); }
  [[nodiscard]] constexpr double gb() const { return static_cast<double>(count_) / 1e9; }

  Bytes& operator+=(Bytes other);
  Bytes& operator-=(Bytes other);
  friend Bytes operator+(Bytes a, Bytes b) { return a += b; }
  friend Bytes operator-(Bytes a, Bytes b) { return a -= b; }
  friend Bytes operator*(Bytes a, std::int64_t factor);
  friend Bytes operator*(std::int64_t factor, Bytes a) { return a * factor; }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;

 private:
  std::int64_t count_ = 0;
};

/// A rate of transfer, one direction of a link unless said otherwise.
class BytesPerSecond {
 public:
  constexpr BytesPerSecond() = default;
  explicit constexpr BytesPerSecond(double per_second) : per_second_(per_second) {}
  [[nodiscard]] constexpr double per_second() const { return per_second_; }
  [[nodiscard]] constexpr double gb_per_second() const { return per_second_ / 1e9; }
  friend constexpr auto operator<=>(BytesPerSecond, BytesPerSecond) = default;

 private:
  double per_second_ = 0;
};

/// A count of floating-point operations; a multiply-add counts as two.
class Flops {
 public:
  constexpr Flops() = default;
  explicit constexpr Flops(double count) : count_(count) {}
  [[nodiscard]] constexpr double count() const { return count_; }
  constexpr Flops& operator+=(Flops other) {
    count_ += other.count_;
    return *this;
  }
  friend constexpr Flops operator+(Flops a, Flops b) { return a += b; }
  friend constexpr Flops operator*(double factor, Flops a) { return Flops(factor * a.count_); }
  friend constexpr auto operator<=>(Flops, Flops) = default;

 private:
  double count_ = 0;
};

/// A rate of arithmetic.
class FlopsPerSecond {
 public:
  constexpr FlopsPerSecond() = default;
  explicit constexpr FlopsPerSecond(double per_second) : per_second_(per_second) {}
  [[nodiscard]] constexpr double per_second() const { return per_second_; }
  [[nodiscard]] constexpr double tflops() const { return per_second_ / 1e12; }
  friend constexpr auto operator<=>(FlopsPerSecond, FlopsPerSecond) = default;

 private:
  double per_second_ = 0;
};

[[nodiscard]] constexpr Seconds operator/(Bytes bytes, BytesPerSecond rate) {
  return Seconds(static_cast<double>(bytes.count()) / rate.per_second());
}
[[nodiscard]] constexpr Seconds operator/(Flops flops, FlopsPerSecond rate) {
  return Seconds(flops.count() / rate.per_second());
}

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n));
}
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 30);
}
constexpr Bytes operator""_GB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) * 1'000'000'000);
}
constexpr BytesPerSecond operator""_GBps(long double n) {
  return BytesPerSecond(static_cast<double>(n) * 1e9);
}
constexpr BytesPerSecond operator""_GBps(unsigned long long n) {
  return BytesPerSecond(static_cast<double>(n) * 1e9);
}
constexpr BytesPerSecond operator""_Gbps(unsigned long long n) {
  return BytesPerSecond(static_cast<double>(n) * 1e9 / 8);
}
}  // namespace literals

/// Reads "40GiB", "24 GB", "512MiB", "80000000B".
/// \throws std::invalid_argument  saying what is wrong, if the number or the unit is missing or
///                                unknown, or if the size is negative.
[[nodiscard]] Bytes parse_bytes(std::string_view text);

/// Reads "400Gb/s" (bits), "450GB/s" (bytes), "24 GiB/s".
/// \throws std::invalid_argument  as `parse_bytes`.
[[nodiscard]] BytesPerSecond parse_bytes_per_second(std::string_view text);

/// Reads "5us", "130ns", "1.5 ms", "2s".
/// \throws std::invalid_argument  as `parse_bytes`.
[[nodiscard]] Seconds parse_seconds(std::string_view text);

/// "13.04 GiB", "512.0 MiB", "96 B": the largest fitting unit; two decimals from GiB on, one for
/// MiB and KiB.
[[nodiscard]] std::string to_string(Bytes bytes);
/// "1.234 s", "12.3 ms", "4.5 us": three decimals of a second, one of a smaller unit.
[[nodiscard]] std::string to_string(Seconds seconds);

}  // namespace zerosim
