#include "sim/engine/link_meter.h"

#include <algorithm>

#include "sim/base/text.h"

namespace zerosim {

double utilisation(const LinkTraffic& link, Seconds step) {
  const double most = link.capacity.per_second() * step.count();
  return most > 0 ? link.bytes / most : 0;
}

namespace internal {

void LinkMeter::begin(std::span<const LinkBytes> loads, Seconds now) {
  for (const LinkBytes& load : loads) {
    if (load.bytes <= 0) continue;
    Counter& counter = counters_[static_cast<std::size_t>(load.link)];
    if (counter.now++ == 0) counter.since = now;
    counter.most = std::max(counter.most, counter.now);
    counter.bytes += load.bytes;
  }
}

void LinkMeter::end(std::span<const LinkBytes> loads, Seconds now) {
  for (const LinkBytes& load : loads) {
    if (load.bytes <= 0) continue;
    Counter& counter = counters_[static_cast<std::size_t>(load.link)];
    if (--counter.now == 0) counter.busy += now - counter.since;
  }
}

std::vector<LinkTraffic> LinkMeter::traffic(const Folding& folding,
                                            const std::vector<int>& machine_links,
                                            const std::vector<double>& capacities,
                                            int ranks_of_a_node) const {
  std::vector<LinkTraffic> result;
  result.reserve(folding.links.size() + folding.ranks.size());
  const auto add = [&](LinkClass::Kind kind, std::string name, std::int64_t multiplicity,
                       std::size_t machine_link, bool uplink) {
    const Counter& counter = counters_[machine_link];
    result.push_back({kind, std::move(name), multiplicity, BytesPerSecond(capacities[machine_link]),
                      counter.bytes, counter.busy, counter.most, uplink});
  };
  for (std::size_t i = 0; i < folding.links.size(); ++i) {
    const FoldedLink& link = folding.links[i];
    add(link.kind, link.name, link.multiplicity, static_cast<std::size_t>(machine_links[i]),
        link.uplink);
  }
  for (std::size_t i = 0; i < folding.ranks.size(); ++i) {
    const RankClass& rank = folding.ranks[i];
    add(LinkClass::Kind::DeviceMemory,
        format("node{}.gpu{}.hbm", rank.representative / ranks_of_a_node,
               rank.representative % ranks_of_a_node),
        rank.multiplicity, i, false);
  }
  return result;
}

}  // namespace internal
}  // namespace zerosim
