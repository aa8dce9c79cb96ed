// Any bytes as a config.json or a module listing: only zerosim::Error may come out.

#include <cstddef>
#include <cstdint>
#include <string>

#include "sim/base/error.h"
#include "sim/model/model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)zerosim::parse_model(std::string(data, data + size), "fuzz.json");
  } catch (const zerosim::Error&) {
    return 0;
  }
  return 0;
}
