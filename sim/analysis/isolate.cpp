#include "sim/analysis/isolate.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "sim/base/text.h"

namespace zerosim {

namespace {

/// First byte of what a child sends. After it: the result, or the fields of an error, each ended by
/// NUL.
enum class Outcome : char {
  Result = 'r',
  Config = 'c',
  Trace = 't',
  Simulation = 's',
  Backend = 'b',
  OtherOfOurs = 'e',
  Unknown = 'u',
};

std::string message(Outcome outcome, const std::vector<std::string>& fields) {
  std::string bytes(1, static_cast<char>(outcome));
  for (const std::string& field : fields) {
    bytes += field;
    bytes += '\0';
  }
  return bytes;
}

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return std::string(1, static_cast<char>(Outcome::Result)) + work();
  } catch (const ConfigError& error) {
    const SourceLocation& where = error.location();
    return message(Outcome::Config, {error.what(), error.code(), where.file,
                                     std::to_string(where.line), std::to_string(where.column)});
  } catch (const TraceError& error) {
    return message(Outcome::Trace, {error.what()});
  } catch (const SimulationError& error) {
    return message(Outcome::Simulation, {error.what()});
  } catch (const BackendError& error) {
    return message(Outcome::Backend, {error.what()});
  } catch (const Error& error) {
    return message(Outcome::OtherOfOurs, {error.what()});
  } catch (const std::exception& error) {
    return message(Outcome::Unknown, {error.what()});
  } catch (...) {
    return message(Outcome::Unknown, {"the isolated run threw something that is no exception"});
  }
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string read_all(int descriptor) {
  std::string bytes;
  std::vector<char> chunk(1 << 16);
  while (true) {
    const ssize_t count = read(descriptor, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return bytes;
    bytes.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::vector<std::string> fields_of(std::string_view bytes) {
  std::vector<std::string> fields;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\0');
    fields.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  }
  return fields;
}

[[noreturn]] void throw_config_error(const std::vector<std::string>& fields) {
  const SourceLocation where{fields.at(2), std::stoi(fields.at(3)), std::stoi(fields.at(4))};
  // The message begins with the place, which ConfigError puts there.
  const std::string place = to_string(where);
  std::string text = fields.at(0);
  if (!place.empty() && text.rfind(place + ": ", 0) == 0) text.erase(0, place.size() + 2);
  throw ConfigError(where, text, fields.at(1));
}

[[noreturn]] void throw_as_child_did(Outcome outcome, const std::vector<std::string>& fields) {
  const std::string text = fields.empty() ? "" : fields.front();
  switch (outcome) {
    case Outcome::Config:
      throw_config_error(fields);
    case Outcome::Trace:
      throw TraceError({}, text);
    case Outcome::Simulation:
      throw SimulationError(text);
    case Outcome::Backend:
      throw BackendError(text);
    case Outcome::OtherOfOurs:
      throw Error(text);
    default:
      throw std::runtime_error(text);
  }
}

std::string death(int status) {
  if (WIFSIGNALED(status)) {
    return format("the isolated run was ended by signal {} ({})", WTERMSIG(status),
                  strsignal(WTERMSIG(status)));
  }
  return format("the isolated run ended with status {} and no result", WEXITSTATUS(status));
}

}  // namespace

std::string run_isolated(const std::function<std::string()>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw BackendError(format("no pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);  // else the child would hold a copy of what is buffered
  const pid_t child = fork();
  if (child < 0) {
    const int reason = errno;
    close(ends[0]);
    close(ends[1]);
    throw BackendError(format("no child process: {}", std::strerror(reason)));
  }
  if (child == 0) {
    close(ends[0]);
    const bool sent = write_all(ends[1], outcome_of(work));
    std::fflush(nullptr);
    _exit(sent ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  close(ends[1]);
  std::string bytes = read_all(ends[0]);
  close(ends[0]);
  const int status = wait_for(child);
  if (bytes.empty() || !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS) {
    throw SimulationError(death(status));
  }
  const auto outcome = static_cast<Outcome>(bytes.front());
  bytes.erase(0, 1);
  if (outcome == Outcome::Result) return bytes;
  throw_as_child_did(outcome, fields_of(bytes));
}

}  // namespace zerosim
