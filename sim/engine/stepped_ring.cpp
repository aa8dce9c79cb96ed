#include "sim/engine/stepped_ring.h"

#include <algorithm>
#include <cmath>

#include "sim/base/error.h"

namespace zerosim::internal {

namespace {

/// Of the delay, what the pieces of a chain fill it with at most.
constexpr double kFillOfDelay = 0.5;
/// Pieces of a chain for each rank between its ends, at most.
constexpr int kMostPiecesPerRank = 2000;

/// Of a channel in a step, by protocol: nccl_cost.md section 4.
constexpr double chunk(Protocol protocol) {
  if (protocol == Protocol::LowLatency) return 32 * 1024;
  return protocol == Protocol::LowLatency128 ? 576e3 : 2 * 1024 * 1024;
}

/// Of a ring whose ranks send `sent` bytes each in `steps` steps.
int loops(const CollectiveCost& cost, int steps) {
  const double part = static_cast<double>(cost.sent_per_rank.count()) / steps;
  return std::max(
      1, static_cast<int>(std::ceil(part / (std::max(1, cost.ctas) * chunk(cost.protocol)))));
}

bool is_chain(CollectiveKind kind) {
  return kind == CollectiveKind::Broadcast || kind == CollectiveKind::Reduce;
}

}  // namespace

bool has_ring_steps(const Collective& call, const CollectiveCost& cost) {
  return cost.algorithm == Algorithm::Ring && call.kind != CollectiveKind::AllToAll &&
         !cost.loads.empty();
}

SteppedRing::SteppedRing(const InstanceClass& instance, const Collective& call,
                         const CollectiveCost& cost, const CallLoads& loads,
                         const LinkNumbers& links)
    : instance_(instance),
      cost_(cost),
      loads_(loads),
      links_(links),
      places_(instance.ranks.size()) {
  ZS_CHECK(places_.size() > 1 && instance.sends.size() == places_.size(),
           "a ring of several ranks, each a class of its own");
  const auto ranks = static_cast<int>(places_.size());
  chain_ = is_chain(call.kind);
  if (chain_) {
    // A broadcast begins at its root, a reduction ends there.
    const int root = call.root < 0 ? 0 : call.root;
    cut_chain(call.kind == CollectiveKind::Broadcast ? root : root + 1);
  } else {
    loop_ = call.kind == CollectiveKind::AllReduce ? 2 * (ranks - 1) : ranks - 1;
    steps_ = loop_ * loops(cost, loop_);
    delay_ = cost.delay;
    for (Place& place : places_) place.sends = steps_;
  }
  for (const Place& place : places_) sends_left_ += place.sends;
  delay_ = std::max(delay_, Seconds(0));
}

/// \param first  number of the rank in the group, one behind the last is the first
void SteppedRing::cut_chain(int first) {
  const std::size_t ranks = places_.size();
  first_ = static_cast<std::size_t>(first) % ranks;
  const std::size_t last = (first_ + ranks - 1) % ranks;
  Seconds slowest{0};
  Seconds all{0};
  for (std::size_t place = 0; place < ranks; ++place) {
    if (place == last) continue;
    const Seconds own = whole_send(place);
    slowest = std::max(slowest, own);
    all += own;
  }
  const Seconds fill = all - slowest;  // of one piece
  const Seconds room = std::max(cost_.delay, Seconds(0)) * kFillOfDelay;
  const int most = std::max<int>(1, kMostPiecesPerRank * (static_cast<int>(ranks) - 2));
  const bool fits = room > Seconds(0) && fill / room < most;
  steps_ = fits ? std::max(1, static_cast<int>(std::ceil(fill / room))) : most;
  delay_ = cost_.delay - fill / steps_;
  for (std::size_t place = 0; place < ranks; ++place)
    places_[place].sends = place == last ? 0 : steps_;
}

/// Of all of the bytes at once, alone.
Seconds SteppedRing::whole_send(std::size_t place) const {
  std::vector<LinkBytes> loads;
  find_loads(instance_.ranks[place], loads);
  double longest = 0;
  for (const LinkBytes& load : loads) {
    longest =
        std::max(longest, load.bytes / links_.capacities[static_cast<std::size_t>(load.link)]);
  }
  return Seconds(longest * steps_);
}

std::size_t SteppedRing::place_of(int rank_class) const {
  const auto found = std::lower_bound(instance_.ranks.begin(), instance_.ranks.end(), rank_class);
  return static_cast<std::size_t>(found - instance_.ranks.begin());
}

void SteppedRing::begin(std::vector<int>& senders) {
  for (std::size_t place = 0; place < places_.size(); ++place) start_if_ready(place, senders);
}

void SteppedRing::sent(int rank_class, std::vector<int>& senders) {
  const std::size_t place = place_of(rank_class);
  const std::size_t receiver = next(place);
  places_[place].sending = false;
  ++places_[place].sent;
  ++places_[receiver].received;
  --sends_left_;
  start_if_ready(place, senders);
  start_if_ready(receiver, senders);
  start_if_ready(previous(place), senders);
}

void SteppedRing::start_if_ready(std::size_t place, std::vector<int>& senders) {
  Place& own = places_[place];
  if (own.sending || own.sent == own.sends) return;
  // In the first step of a loop a ring's rank sends its own part, later what has come in the step
  // before.
  const bool own_part = chain_ ? place == first_ : own.sent % loop_ == 0;
  const int needed = own_part ? 0 : own.sent + (chain_ ? 1 : 0);
  if (own.received < needed || !next_has_room(place)) return;
  own.sending = true;
  senders.push_back(instance_.ranks[place]);
}

bool SteppedRing::next_has_room(std::size_t place) const {
  const Place& receiver = places_[next(place)];
  if (receiver.sends == 0) return true;  // the end of a chain keeps all
  return places_[place].sent <= receiver.sent + (chain_ ? 1 : 0);
}

void SteppedRing::find_loads(int rank_class, std::vector<LinkBytes>& loads) const {
  using Kind = LinkClass::Kind;
  const RingSend& send = instance_.sends[place_of(rank_class)];
  const auto add = [&](int link, double bytes) {
    if (bytes > 0) loads.push_back({link, bytes / steps_});
  };
  add(LinkNumbers::device_memory(rank_class), loads_.of(Kind::DeviceMemory));
  if (!send.leaves_node && loads_.of(Kind::IntraNode) > 0) {
    add(links_.intra(rank_class), loads_.of(Kind::IntraNode));
  }
  for (const LinkShare& link : send.links) {
    add(links_.of(link.link),
        loads_.on(link, links_.folding.links[static_cast<std::size_t>(link.link)]));
  }
}

}  // namespace zerosim::internal
