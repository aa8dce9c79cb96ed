// libFuzzer's entry for the target that ZEROSIM_FUZZ_TARGET names.

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  zerosim::fuzz::ZEROSIM_FUZZ_TARGET(std::string(data, data + size));
  return 0;
}
