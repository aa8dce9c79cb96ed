/// \file
/// Errors that a user or a caller can act on, and the check for promises of our own code.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace zerosim {

/// A place in a file that somebody gave us. `line` and `column` count from 1; 0: not known.
struct SourceLocation {
  std::string file;
  int line = 0;
  int column = 0;
};

/// "ds_config.json:4:12", "ds_config.json" without a line, "" without a file.
[[nodiscard]] std::string to_string(const SourceLocation& location);

/// Base of all errors of this library.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bad input: a file, a flag, a model, a cluster, a strategy. The message names the place, what was
/// found and what was expected. `code` is one of the codes of data/ds_configs/README.md, or empty.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message);
  ConfigError(const SourceLocation& location, const std::string& message, std::string code = "");
  [[nodiscard]] const SourceLocation& location() const { return location_; }
  [[nodiscard]] const std::string& code() const { return code_; }

 private:
  SourceLocation location_;
  std::string code_;
};

/// A trace or a table of measurements that cannot be read.
class TraceError : public Error {
 public:
  TraceError(const SourceLocation& location, const std::string& message);
};

/// A simulation that cannot end: a wait that nothing satisfies, for example.
class SimulationError : public Error {
 public:
  using Error::Error;
};

/// The environment lacks something: a GPU, MPI, disk space.
class BackendError : public Error {
 public:
  using Error::Error;
};

/// Something that the reader should know although the work goes on. `code` as in ConfigError.
/// `message` begins with the place, if there is one.
struct Warning {
  std::string code;
  std::string message;
  SourceLocation where{};
};

namespace internal {
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               std::string_view message);
}  // namespace internal

}  // namespace zerosim

/// Aborts with file, line and expression if a promise of our own code is broken. Never for input.
#define ZS_CHECK(condition, message)                                              \
  do {                                                                            \
    if (!(condition)) {                                                           \
      ::zerosim::internal::check_failed(__FILE__, __LINE__, #condition, message); \
    }                                                                             \
  } while (false)
