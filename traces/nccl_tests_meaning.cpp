#include "traces/nccl_tests_meaning.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim {
namespace {

struct TestName {
  NcclTest test;
  std::string_view name;
};

// In the order of NcclTest.
constexpr auto kNames = std::to_array<TestName>({
    {NcclTest::AllReduce, "all_reduce"},
    {NcclTest::AllGather, "all_gather"},
    {NcclTest::ReduceScatter, "reduce_scatter"},
    {NcclTest::AllToAll, "alltoall"},
    {NcclTest::Broadcast, "broadcast"},
    {NcclTest::Reduce, "reduce"},
    {NcclTest::SendReceive, "sendrecv"},
    {NcclTest::Gather, "gather"},
    {NcclTest::Scatter, "scatter"},
    {NcclTest::HyperCube, "hypercube"},
});

// What names speak of once "_", "-" and capitals are gone: longer words before their parts.
constexpr auto kWords = std::to_array<TestName>({
    {NcclTest::AllReduce, "allreduce"},
    {NcclTest::AllGather, "allgather"},
    {NcclTest::ReduceScatter, "reducescatter"},
    {NcclTest::AllToAll, "alltoall"},
    {NcclTest::AllToAll, "all2all"},
    {NcclTest::Broadcast, "broadcast"},
    {NcclTest::Broadcast, "bcast"},
    {NcclTest::SendReceive, "sendrecv"},
    {NcclTest::HyperCube, "hypercube"},
    {NcclTest::Reduce, "reduce"},
    {NcclTest::Gather, "gather"},
    {NcclTest::Scatter, "scatter"},
});

struct TypeSize {
  std::string_view name;
  int bytes;
};
constexpr auto kTypes = std::to_array<TypeSize>({
    {"int8", 1},
    {"uint8", 1},
    {"char", 1},
    {"fp8_e4m3", 1},
    {"fp8_e5m2", 1},
    {"f8e4m3", 1},
    {"f8e5m2", 1},
    {"half", 2},
    {"float16", 2},
    {"bfloat16", 2},
    {"int32", 4},
    {"uint32", 4},
    {"int", 4},
    {"float", 4},
    {"int64", 8},
    {"uint64", 8},
    {"double", 8},
});

constexpr const char* kBySizeAndCount = "size / count";

/// Smallest algbw, GB/s, whose two decimals tell a ratio.
constexpr double kLegible = 1;
/// Half of the last printed digit, and a little.
constexpr double kHalfDigit = 0.51;
/// How far size / time may be from what it is taken for.
constexpr double kColumnTolerance = 0.02;

std::vector<const NcclTestsTiming*> legible_timings(const NcclTestsLog& log) {
  std::vector<const NcclTestsTiming*> timings;
  for (const NcclTestsPoint& point : log.points) {
    if (point.out_of_place.algbw >= kLegible) timings.push_back(&point.out_of_place);
    if (point.in_place && point.in_place->algbw >= kLegible) timings.push_back(&*point.in_place);
  }
  return timings;
}

struct Interval {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  [[nodiscard]] bool holds(double value) const { return low <= value && value <= high; }
};

/// busbw / algbw, as far as the digits go: of the largest algbw, which has most.
std::optional<Interval> bus_ratio(const NcclTestsLog& log) {
  const auto timings = legible_timings(log);
  const auto best =
      std::max_element(timings.begin(), timings.end(),
                       [](const auto* a, const auto* b) { return a->algbw < b->algbw; });
  if (best == timings.end()) return std::nullopt;
  const NcclTestsTiming& t = **best;
  const double off = kHalfDigit * log.bandwidth_step;
  return Interval{(t.busbw - off) / (t.algbw + off), (t.busbw + off) / (t.algbw - off)};
}

/// size / (count x element), if it is the same whole number in all rows; else 0.
std::int64_t shares(const NcclTestsLog& log) {
  std::int64_t found = 0;
  for (const NcclTestsPoint& point : log.points) {
    const std::int64_t share = point.count * nccl_type_size(point.type);
    if (share <= 0) continue;
    const std::int64_t here = point.size.count() / share;
    if (here * share != point.size.count() || (found != 0 && here != found)) return 0;
    found = here;
  }
  return found;
}

bool is_shared(NcclTest test) {
  return test == NcclTest::AllGather || test == NcclTest::ReduceScatter ||
         test == NcclTest::AllToAll || test == NcclTest::Gather || test == NcclTest::Scatter;
}

using Tests = std::set<NcclTest>;

Tests both(const Tests& a, const Tests& b) {
  Tests common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::inserter(common, common.end()));
  return common;
}

/// Those of which each rank holds a share, where nothing reduces and there is no root.
Tests gather_or_exchange(const NcclTestsEvidence& evidence) {
  if (evidence.in_place_checked) return {NcclTest::AllGather};
  if (evidence.out_of_place_checked) return {NcclTest::AllToAll};
  return {NcclTest::AllGather, NcclTest::AllToAll};
}

/// Operations that the rows admit.
Tests tests_by_rows(const NcclTestsLog& log, const NcclTestsEvidence& evidence) {
  const std::optional<Interval> ratio = bus_ratio(log);
  constexpr double kAlone = 0.25;  // (n - 1)/n is 0 of one rank, 1/2 of two
  const bool below_one = ratio && ratio->high < 1 && ratio->high > kAlone;
  if (shares(log) > 1 || below_one) {
    if (evidence.rooted) return {NcclTest::Gather, NcclTest::Scatter};
    if (evidence.reduces) return {NcclTest::ReduceScatter};
    return gather_or_exchange(evidence);
  }
  const bool above_one = ratio && ratio->low > 1;
  if (above_one) return {NcclTest::AllReduce};
  if (evidence.rooted) {
    return evidence.reduces ? Tests{NcclTest::Reduce} : Tests{NcclTest::Broadcast};
  }
  if (evidence.reduces) return {NcclTest::AllReduce};
  return {NcclTest::SendReceive, NcclTest::HyperCube};
}

void set_operation(NcclTestsLog& log, NcclTest test, std::string from) {
  log.operation = test;
  log.operation_from = std::move(from);
}

/// Where somebody says something else than the rows.
void note_contradiction(NcclTestsLog& log, const std::string& who, NcclTest test) {
  log.notes.push_back(format("{} says {}, which the rows are not", who, to_string(test)));
}

void find_operation(NcclTestsLog& log, const NcclTestsEvidence& evidence) {
  Tests left = tests_by_rows(log, evidence);
  if (left.size() == 1) set_operation(log, *left.begin(), "the rows");
  const auto narrow = [&](NcclTest test, const std::string& who) {
    if (both(left, {test}).empty()) {
      note_contradiction(log, who, test);
    } else if (!log.operation) {
      set_operation(log, test, who);
    }
  };
  Tests named;
  for (const NcclTestsEvidence::Program& program : evidence.programs) named.insert(program.test);
  if (named.size() == 1) {
    const NcclTestsEvidence::Program& program = evidence.programs.front();
    narrow(program.test, format("line {}: {}_perf", program.line, to_string(program.test)));
  }
  const std::string stem = std::filesystem::path(log.file).stem().string();
  if (const std::optional<NcclTest> test = nccl_test_in(stem)) narrow(*test, "the file's name");
}

/// Numbers of ranks whose factor is in `ratio`: of all-reduce 2(n - 1)/n, else (n - 1)/n.
Interval ranks_of_ratio(const Interval& ratio, NcclTest test) {
  const double steps = test == NcclTest::AllReduce ? 2 : 1;
  const auto ranks = [&](double factor) {
    return factor < steps ? steps / (steps - factor) : std::numeric_limits<double>::infinity();
  };
  return {ranks(ratio.low), ranks(ratio.high)};
}

std::optional<Interval> ranks_by_ratio(const NcclTestsLog& log) {
  if (!log.operation) return std::nullopt;
  const bool tells = *log.operation == NcclTest::AllReduce || is_shared(*log.operation);
  const std::optional<Interval> ratio = bus_ratio(log);
  if (!tells || !ratio) return std::nullopt;
  if (is_shared(*log.operation) && ratio->holds(1) && shares(log) > 1) return std::nullopt;
  return ranks_of_ratio(*ratio, *log.operation);
}

/// Ranks of the first communicator in the list of devices.
int listed_ranks(const NcclTestsLog& log) {
  if (log.devices.empty()) return 0;
  const int group = log.devices.front().group;
  return static_cast<int>(std::count_if(log.devices.begin(), log.devices.end(),
                                        [&](const auto& d) { return d.group == group; }));
}

void set_ranks(NcclTestsLog& log, std::int64_t ranks, const char* from) {
  constexpr std::int64_t kMostRanks = 131'072;
  if (ranks < 1 || ranks > kMostRanks) return;
  log.ranks = static_cast<int>(ranks);
  log.ranks_from = from;
}

void find_ranks(NcclTestsLog& log) {
  const int listed = listed_ranks(log);
  const std::optional<Interval> by_ratio = ranks_by_ratio(log);
  if (log.operation && is_shared(*log.operation) && shares(log) > 1) {
    set_ranks(log, shares(log), kBySizeAndCount);
  } else if (listed > 0 && (!by_ratio || by_ratio->holds(listed))) {
    set_ranks(log, listed, "the list of devices");
  } else if (by_ratio && std::isfinite(by_ratio->high) &&
             std::ceil(by_ratio->low) == std::floor(by_ratio->high)) {
    set_ranks(log, static_cast<std::int64_t>(std::floor(by_ratio->high)), "busbw / algbw");
  }
  if (listed > 0 && log.ranks && *log.ranks != listed) {
    log.notes.push_back(format("the list of devices has {} ranks, but {} says {}", listed,
                               log.ranks_from, *log.ranks));
  }
}

/// Printed algbw over size / time; nothing if no row has digits enough.
std::optional<double> algbw_share(const NcclTestsLog& log) {
  std::vector<double> found;
  for (const NcclTestsPoint& point : log.points) {
    const NcclTestsTiming& t = point.out_of_place;
    if (t.algbw < kLegible || point.size <= Bytes()) continue;
    found.push_back(t.algbw * 1e9 * t.time.count() / static_cast<double>(point.size.count()));
  }
  if (found.empty()) return std::nullopt;
  const auto middle = found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2);
  std::nth_element(found.begin(), middle, found.end());
  return *middle;
}

/// What the columns show, the nearest of all possibilities.
NcclTestsColumns columns_of(double share, double factor, int ranks) {
  struct Meaning {
    NcclTestsColumns columns;
    double share;
  };
  const std::array<Meaning, 3> meanings = {
      {{NcclTestsColumns::Current, 1},
       {NcclTestsColumns::BusbwTwice, factor},
       {NcclTestsColumns::SizeOfARank, static_cast<double>(ranks)}}};
  const auto distance = [&](const Meaning& m) { return std::abs(share / m.share - 1); };
  const auto* const nearest = std::min_element(
      meanings.begin(), meanings.end(),
      [&](const Meaning& a, const Meaning& b) { return distance(a) < distance(b); });
  return distance(*nearest) <= kColumnTolerance ? nearest->columns : NcclTestsColumns::Inconsistent;
}

void undo_busbw_twice(NcclTestsLog& log, double factor) {
  for (NcclTestsPoint& point : log.points) {
    point.out_of_place.algbw = point.out_of_place.busbw / factor;
    if (point.in_place) point.in_place->algbw = point.in_place->busbw / factor;
  }
  log.notes.emplace_back(
      "the algbw column shows busbw, as old nccl-tests print it: algbw here is size / time");
}

void undo_size_of_a_rank(NcclTestsLog& log) {
  for (NcclTestsPoint& point : log.points) point.size = *log.ranks * point.size;
  log.notes.push_back(
      format("the size column shows one rank's share (algbw is {} x size / time): sizes here are "
             "of the whole vector",
             *log.ranks));
}

/// Only operations of which each rank holds a share were ever counted in another way.
void find_columns(NcclTestsLog& log) {
  const std::optional<double> share = algbw_share(log);
  if (!share || !log.operation || !log.ranks || *log.ranks < 2) return;
  const bool shared = is_shared(*log.operation);
  const double factor = shared ? bus_factor(*log.operation, *log.ranks) : 1;
  log.columns = columns_of(*share, factor, shared ? *log.ranks : 1);
  switch (log.columns) {
    case NcclTestsColumns::BusbwTwice:
      undo_busbw_twice(log, factor);
      break;
    case NcclTestsColumns::SizeOfARank:
      undo_size_of_a_rank(log);
      break;
    case NcclTestsColumns::Inconsistent:
      log.notes.push_back(format(
          "algbw is {:.3g} x size / time, which no release of nccl-tests prints; times are taken "
          "as they are",
          *share));
      break;
    case NcclTestsColumns::Current:
      break;
  }
}

}  // namespace

std::vector<std::string> nccl_test_names() {
  std::vector<std::string> names;
  names.reserve(kNames.size());
  for (const TestName& entry : kNames) names.emplace_back(entry.name);
  return names;
}

std::string_view to_string(NcclTest test) {
  return kNames[static_cast<std::size_t>(test)].name;
}

std::optional<NcclTest> nccl_test_in(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) letters += static_cast<char>(std::tolower(byte));
  }
  for (const TestName& word : kWords) {
    if (letters.find(word.name) != std::string::npos) return word.test;
  }
  return std::nullopt;
}

double bus_factor(NcclTest test, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (test == NcclTest::AllReduce) return 2 * others;
  return is_shared(test) ? others : 1;
}

int nccl_type_size(std::string_view type) {
  for (const TypeSize& known : kTypes) {
    if (known.name == type) return known.bytes;
  }
  return 0;
}

const std::vector<std::string>& nccl_type_names() {
  static const std::vector<std::string> kAll = [] {
    std::vector<std::string> names;
    names.reserve(kTypes.size());
    for (const TypeSize& type : kTypes) names.emplace_back(type.name);
    return names;
  }();
  return kAll;
}

bool admits_ranks(const NcclTestsLog& log, int ranks) {
  if (log.ranks_from == kBySizeAndCount) return ranks == *log.ranks;
  const std::optional<Interval> by_ratio = ranks_by_ratio(log);
  return !by_ratio || by_ratio->holds(ranks);
}

void find_meaning(NcclTestsLog& log, const NcclTestsEvidence& evidence) {
  find_operation(log, evidence);
  find_ranks(log);
  find_columns(log);
}

}  // namespace zerosim
