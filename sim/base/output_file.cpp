#include "sim/base/output_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

std::ofstream open_for_writing(const std::string& path) {
  errno = 0;
  std::ofstream stream(path, std::ios::binary);
  if (!stream) {
    // A stream need not leave errno.
    const char* reason = errno != 0 ? std::strerror(errno) : "unknown reason";
    throw ConfigError({path, 0, 0}, format("cannot be opened for writing: {}", reason));
  }
  return stream;
}

}  // namespace zerosim
