#include "sim/analysis/environment_settings.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "sim/analysis/nccl_environment.h"
#include "sim/base/edit_distance.h"
#include "sim/base/text.h"

namespace zerosim {

namespace {

constexpr std::string_view kAllocConf = "PYTORCH_CUDA_ALLOC_CONF";
constexpr std::string_view kNewerAllocConf = "PYTORCH_ALLOC_CONF";
constexpr std::string_view kNccl = "NCCL_";
constexpr std::string_view kThreads = "OMP_NUM_THREADS";

/// Misspelt by at most so many edits. More would take MKL_NUM_THREADS for OMP_NUM_THREADS.
constexpr std::size_t kMostEdits = 2;

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names = nccl_variables();
  names.insert(names.end(), {kAllocConf, kNewerAllocConf, kThreads});
  return names;
}

/// The known name that `name` is a misspelling of; "" if it is one itself, or like none.
std::string_view meant(const std::string& name) {
  const std::vector<std::string_view> names = known_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return "";
  std::string_view nearest;
  std::size_t least = kMostEdits + 1;
  const std::string upper = upper_case(name);
  for (const std::string_view candidate : names) {
    const std::size_t distance = edit_distance(upper, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

void warn_of_misspellings(const Environment& environment, std::vector<Warning>& warnings) {
  for (const EnvironmentVariable& variable : environment.variables) {
    const std::string_view nearest = meant(variable.name);
    if (nearest.empty()) continue;
    warnings.push_back({"",
                        format("{}: {} is no known variable; did you mean \"{}\"?",
                               to_string(variable.named), variable.name, nearest),
                        variable.named});
  }
}

/// Names that pass `test`, each once, in the order of the file.
template <typename Test>
std::vector<std::string> names_that(const Environment& environment, Test test) {
  std::vector<std::string> names;
  for (const EnvironmentVariable& variable : environment.variables) {
    const std::string& name = variable.name;
    const bool told = std::find(names.begin(), names.end(), name) != names.end();
    if (!told && test(name)) names.push_back(name);
  }
  return names;
}

bool is_known_to_nccl(const std::string& name) {
  const std::vector<std::string_view>& known = nccl_variables();
  return std::find(known.begin(), known.end(), name) != known.end();
}

/// What is set and not followed: for each kind of names one sentence.
std::vector<std::string> unused_sentences(const Environment& environment) {
  std::vector<std::string> told;
  const auto tell = [&](const char* what, auto test) {
    const std::vector<std::string> names = names_that(environment, test);
    if (!names.empty()) told.push_back(format("environment: {}: {}", what, join(names, ", ")));
  };
  tell("without effect on time here", [](const std::string& name) {
    return is_known_to_nccl(name) && !is_followed_nccl_variable(name);
  });
  tell("not known of NCCL, so not used", [](const std::string& name) {
    return name.starts_with(kNccl) && !is_known_to_nccl(name) && meant(name).empty();
  });
  return told;
}

void read_alloc_conf(const EnvironmentVariable& variable, EnvironmentSettings& settings) {
  if (variable.needs_expansion) {
    throw ConfigError(variable.where, format("{}: found \"{}\", expected a value that no shell has "
                                             "to expand",
                                             variable.name, variable.value));
  }
  settings.alloc_conf = parse_alloc_conf(variable.value, variable.where);
  settings.warnings = settings.alloc_conf.warnings;
  settings.assumptions.push_back(
      format("allocator: {}={}, from {}", variable.name, variable.value, variable.where.file));
}

/// "8", or "8,2" of nested levels.
int number_of_threads(const EnvironmentVariable& variable) {
  const std::string first = variable.value.substr(0, variable.value.find(','));
  int threads = 0;
  const char* end = first.data() + first.size();
  const auto [rest, error] = std::from_chars(first.data(), end, threads);
  if (error != std::errc() || rest != end || threads < 1) {
    throw ConfigError(variable.where,
                      format("{}: found \"{}\", expected a whole number of at least "
                             "1",
                             variable.name, variable.value));
  }
  return threads;
}

void read_threads(const EnvironmentVariable& variable, EnvironmentSettings& settings) {
  if (variable.needs_expansion) {
    settings.assumptions.push_back(
        format("environment: {}=\"{}\" is not used: only a shell can expand it", variable.name,
               variable.value));
    return;
  }
  settings.host_threads = number_of_threads(variable);
}

}  // namespace

EnvironmentSettings environment_names(const Environment& environment) {
  EnvironmentSettings settings;
  warn_of_misspellings(environment, settings.warnings);
  settings.assumptions = unused_sentences(environment);
  return settings;
}

EnvironmentSettings environment_settings(const Environment& environment) {
  EnvironmentSettings settings;
  const EnvironmentVariable* first = environment.find(kAllocConf);
  const EnvironmentVariable* newer = environment.find(kNewerAllocConf);
  if (first != nullptr || newer != nullptr) {
    read_alloc_conf(first != nullptr ? *first : *newer, settings);
  }
  if (first != nullptr && newer != nullptr) {
    settings.warnings.push_back({"",
                                 format("{}: {} has no effect: PyTorch takes {}, which is set too",
                                        to_string(newer->named), kNewerAllocConf, kAllocConf),
                                 newer->named});
  }
  const EnvironmentVariable* threads = environment.find(kThreads);
  if (threads != nullptr) read_threads(*threads, settings);
  EnvironmentSettings names = environment_names(environment);
  std::move(names.warnings.begin(), names.warnings.end(), std::back_inserter(settings.warnings));
  std::move(names.assumptions.begin(), names.assumptions.end(),
            std::back_inserter(settings.assumptions));
  return settings;
}

}  // namespace zerosim
