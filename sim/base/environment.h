/// \file
/// Environment variables from a file: what `env` prints, `docker run --env-file` takes, or a shell
/// sources.
///
///     # a comment
///     NCCL_P2P_DISABLE=1
///     PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
///     export OMP_NUM_THREADS=8 NCCL_DEBUG="WARN"   # several words, as shells have them
///     declare -x HOME="/root"
///
/// - Without a word in front the value is the rest of the line, as `env` and Docker have it; quotes
///   around all of it fall away, and then a comment may follow.
/// - Behind `export`, `declare -x` or `set` there are shell words: a value ends at a space, `;` or
///   its closing quote. A name alone, which would only be marked, is skipped. Nothing is expanded:
///   see `needs_expansion`.
/// - A value in quotes may go over several lines. Shell functions (`BASH_FUNC_module%%=() {` to a
///   line `}`), which `env` prints on most clusters, are skipped.
///
/// Columns count bytes, from 1. Not read: `unset`, other commands, NAME alone (Docker would look
/// into the environment it runs in).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace zerosim {

struct EnvironmentVariable {
  std::string name;
  std::string value;       ///< without quotes
  SourceLocation where{};  ///< of the value's first character
  SourceLocation named{};  ///< of the name
  /// Whether a shell would replace parts of it: `$` or a backquote outside single quotes, behind
  /// `export` and the like or in double quotes.
  bool needs_expansion = false;
};

struct Environment {
  std::vector<EnvironmentVariable> variables;  ///< in the order of the file

  /// The last one of this name, which is the one that counts; null if there is none.
  [[nodiscard]] const EnvironmentVariable* find(std::string_view name) const;
};

/// \param name  stands for the file in messages.
/// \throws ConfigError  with line and column where a line is none of the above, or a quote or a
///                      function does not end.
[[nodiscard]] Environment parse_environment(std::string_view text, const std::string& name);
/// \throws ConfigError  also if the file cannot be read.
[[nodiscard]] Environment read_environment(const std::string& path);

}  // namespace zerosim
