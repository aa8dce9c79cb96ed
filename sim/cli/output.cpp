#include "sim/cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "sim/base/error.h"
#include "sim/base/output_file.h"
#include "sim/base/text.h"

namespace zerosim {

void print(const std::string& text) {
  const std::size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written != text.size() || std::fflush(stdout) != 0) {
    throw BackendError(std::string("stdout: ") + std::strerror(errno));
  }
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream stream = open_for_writing(path);
  errno = 0;
  stream << text;
  stream.close();
  if (!stream) {
    throw BackendError(format("{}: cannot write: {}", path, std::strerror(errno)));
  }
}

void print(const JsonValue& json) {
  std::string text = to_text(json);
  if (!text.ends_with('\n')) text += '\n';
  print(text);
}

}  // namespace zerosim
