#include "topology/fabric_link.h"

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {

int checked_link_count(std::int64_t links) {
  if (links > kMostFabricLinks) {
    throw ConfigError(format("fabric: {} links, expected at most {}", links, kMostFabricLinks));
  }
  return static_cast<int>(links);
}

}  // namespace zerosim
