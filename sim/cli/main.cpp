// The executable: subcommands from the table of commands.cpp, errors to exit codes.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/text.h"
#include "sim/cli/command.h"

namespace zerosim {

namespace {

/// A subcommand with its flags.
struct Registered {
  CLI::App* app = nullptr;
  std::unique_ptr<Command> command;
};

int report(ExitCode code, std::string_view message) {
  std::fprintf(stderr, "zerosim: error: %.*s\n", static_cast<int>(message.size()), message.data());
  return code;
}

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(child->get_name());
  }
  return names;
}

/// The innermost subcommand that the command line names.
const CLI::App& parsed_app(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : parsed_app(*parsed.front());
}

/// Longest flags of `app`: "--nodes", "--num_nodes".
std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::string unknown_argument(const CLI::App& root) {
  const CLI::App& app = parsed_app(root);
  const std::vector<std::string> extras = root.remaining(true);
  const auto flag = std::find_if(extras.begin(), extras.end(),
                                 [](const std::string& text) { return text.starts_with("-"); });
  if (flag == extras.end()) {
    return format("unexpected argument \"{}\"{}", extras.empty() ? "" : extras.front(),
                  did_you_mean(extras.empty() ? "" : extras.front(), names_of(app)));
  }
  const std::string name = flag->substr(0, flag->find('='));
  return format("unknown flag {} of `zerosim {}`{}", name, app.get_name(),
                did_you_mean(name, flags_of(app)));
}

/// The deepest app that `words` lead to, if they lead to a command; else throws.
void check_command(const CLI::App& app, const std::vector<std::string>& words, std::size_t at,
                   const std::string& path) {
  const std::vector<std::string> names = names_of(app);
  if (names.empty()) return;
  if (at >= words.size()) {
    throw ConfigError(format("`{}` needs a command: {}", path, join(names, ", ")));
  }
  const std::string& word = words[at];
  if (word.starts_with("-")) return;  // --help, or an unknown flag
  if (std::find(names.begin(), names.end(), word) == names.end()) {
    throw ConfigError(format("`{}` knows no command \"{}\"{}; expected {}", path, word,
                             did_you_mean(word, names), join(names, ", ")));
  }
  check_command(*app.get_subcommand(word), words, at + 1, path + " " + word);
}

CLI::App* group_app(CLI::App& root, std::map<std::string, CLI::App*>& groups,
                    const std::string& name) {
  if (name.empty()) return &root;
  auto [entry, added] = groups.try_emplace(name, nullptr);
  if (added) {
    entry->second = root.add_subcommand(
        name, name == "validate" ? "Published figures against the simulator" : "Clusters");
  }
  return entry->second;
}

/// What help and messages call the value of a flag; flags without one keep it so.
void name_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0) option->type_name("VALUE");
  }
}

std::vector<Registered> register_commands(CLI::App& root) {
  std::vector<Registered> registered;
  std::map<std::string, CLI::App*> groups;
  for (const CommandEntry& entry : commands()) {
    CLI::App* app =
        group_app(root, groups, entry.group)->add_subcommand(entry.name, entry.description);
    app->footer(std::string("Example:\n  ") + entry.example);
    registered.push_back({app, entry.make()});
    registered.back().command->add_flags(*app);
    name_values(*app);
  }
  return registered;
}

int run(int argc, char** argv) {
  CLI::App root("Simulates ZeRO, DDP and DeepSpeed training steps on GPU clusters", "zerosim");
  root.set_version_flag("--version", std::string("zerosim ") + ZEROSIM_VERSION);
  root.footer(
      "Example:\n  zerosim compare --model llama-2-7b --cluster dgx-a100-80 --micro-batch 4");
  const std::vector<Registered> registered = register_commands(root);
  check_command(root, {argv + 1, argv + argc}, 0, "zerosim");
  try {
    root.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    throw ConfigError(unknown_argument(root));
  } catch (const CLI::Success& request) {  // --help, --version
    return root.exit(request);
  } catch (const CLI::ParseError& error) {
    throw ConfigError(error.what());
  }
  for (const Registered& entry : registered) {
    if (entry.app->parsed()) return entry.command->run();
  }
  throw ConfigError("no command given; see `zerosim --help`");
}

}  // namespace

}  // namespace zerosim

int main(int argc, char** argv) {
  using namespace zerosim;  // NOLINT(google-build-using-namespace): main is outside the namespace
  try {
    return run(argc, argv);
  } catch (const BackendError& error) {
    return report(kEnvironment, error.what());
  } catch (const SimulationError& error) {
    return report(kInternalFailure, error.what());
  } catch (const Error& error) {
    return report(kBadInput, error.what());
  } catch (const std::overflow_error& error) {
    return report(kBadInput, format("a size leaves the range of 64 bits: {}", error.what()));
  } catch (const std::exception& error) {
    return report(kInternalFailure, format("unexpected: {}", error.what()));
  }
}
