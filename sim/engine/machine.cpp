#include "sim/engine/machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <exception>
#include <string>
#include <utility>

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>

#include "sim/base/error.h"
#include "sim/base/text.h"

namespace zerosim::internal {

namespace {

namespace s4u = simgrid::s4u;

constexpr int kLinkKinds = 5;

/// What a whole GPU computes in a second. SimGrid's solver drops remainders below 1e-5
/// ("maxmin/precision") whatever the scale, so the scale is that of the links (bytes per second).
constexpr double kSmUnitsPerSecond = 1e10;

std::size_t index_of(LinkClass::Kind kind) {
  return static_cast<std::size_t>(kind);
}

/// Settings of design.md section 3. surf/precision: of times, in seconds.
s4u::Engine* make_simgrid_engine() {
  if (s4u::Engine::has_instance()) {
    throw SimulationError(
        "this process already has a simulation engine: SimGrid allows one a process (runs on one "
        "cluster share an Engine; for another cluster, fork before the first one is made)");
  }
  std::array<std::string, 10> arguments = {"zerosim",
                                           "--log=root.thresh:critical",
                                           "--cfg=host/model:ptask_L07",
                                           "--cfg=network/TCP-gamma:0",
                                           "--cfg=network/bandwidth-factor:1",
                                           "--cfg=network/latency-factor:1",
                                           "--cfg=network/weight-S:0",
                                           "--cfg=network/crosstraffic:0",
                                           "--cfg=surf/precision:1e-12",
                                           "--cfg=contexts/stack-size:64"};
  std::array<char*, arguments.size() + 1> argv = {};
  std::transform(arguments.begin(), arguments.end(), argv.begin(),
                 [](std::string& argument) { return argument.data(); });
  int argc = static_cast<int>(arguments.size());
  return s4u::Engine::get_instance(&argc, argv.data());  // SimGrid's own: it outlives us
}

}  // namespace

struct Machine::Impl {
  /// One activity in flight; pooled.
  struct Record {
    s4u::ExecPtr exec;
    MachineEvent event;
  };

  Impl(const std::vector<LinkClass>& links, int sm_count, int rank_classes);

  void create_gpus(s4u::NetZone& zone);
  void create_pairs(s4u::NetZone& zone, const LinkClass& link);
  void on_completion(const s4u::Activity& activity);
  void dispatch(const MachineEvent& event);
  s4u::Exec& make_exec(const MachineEvent& event);

  [[nodiscard]] std::size_t row(int rank_class) const {
    return static_cast<std::size_t>(rank_class) / grid;
  }
  [[nodiscard]] std::size_t column(int rank_class) const {
    return static_cast<std::size_t>(rank_class) % grid;
  }

  s4u::Engine* engine = nullptr;
  int sms = 1;
  int classes = 1;
  std::size_t grid = 1;  ///< link r of a kind joins source r / grid and destination r % grid
  std::vector<s4u::Host*> gpus;
  std::vector<s4u::Host*> sources;
  std::array<std::vector<s4u::Host*>, kLinkKinds> destinations;  ///< empty: no such link
  std::vector<int> held_sms;                                     ///< by rank class

  std::deque<Record> records;
  std::vector<Record*> free_records;
  s4u::ExecPtr retired;  ///< SimGrid goes on inside an activity after its completion signal

  double clock_at_begin = 0;
  MachineListener* listener = nullptr;
  std::exception_ptr failure;

  // Reused by every activity.
  std::vector<s4u::Host*> hosts;
  std::vector<double> flops;
  std::vector<double> bytes;
};

Machine::Impl::Impl(const std::vector<LinkClass>& links, int sm_count, int rank_classes)
    : engine(make_simgrid_engine()), sms(sm_count), classes(rank_classes) {
  grid = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(classes))));
  held_sms.assign(static_cast<std::size_t>(classes), 0);
  s4u::NetZone* zone = s4u::create_full_zone("cluster");
  create_gpus(*zone);
  for (int r = 0; r < classes; r += static_cast<int>(grid)) {
    sources.push_back(zone->create_host(format("source{}", row(r)), kSmUnitsPerSecond));
  }
  for (const LinkClass& link : links) {
    create_pairs(*zone, link);
  }
  zone->seal();
  s4u::Activity::on_completion_cb(
      [this](const s4u::Activity& activity) { on_completion(activity); });
}

void Machine::Impl::create_gpus(s4u::NetZone& zone) {
  std::vector<double> speeds;
  for (int left = sms; left > 0; --left) {
    speeds.push_back(kSmUnitsPerSecond * left / sms);
  }
  for (int r = 0; r < classes; ++r) {
    gpus.push_back(zone.create_host(format("gpu{}", r), speeds));
  }
}

void Machine::Impl::create_pairs(s4u::NetZone& zone, const LinkClass& link) {
  std::vector<s4u::Host*>& to = destinations[index_of(link.kind)];
  ZS_CHECK(to.empty(), "one link class a kind");
  for (std::size_t c = 0; c < std::min(grid, static_cast<std::size_t>(classes)); ++c) {
    to.push_back(zone.create_host(format("{}.destination{}", link.name, c), kSmUnitsPerSecond));
  }
  for (int r = 0; r < classes; ++r) {
    s4u::Link* wire = zone.create_link(format("{}{}", link.name, r), link.capacity.per_second());
    zone.add_route(sources[row(r)]->get_netpoint(), to[column(r)]->get_netpoint(), nullptr, nullptr,
                   {s4u::LinkInRoute(wire)}, false);
  }
}

void Machine::Impl::on_completion(const s4u::Activity& activity) {
  auto* record = activity.get_data<Record>();
  const MachineEvent event = record->event;
  retired = std::move(record->exec);
  free_records.push_back(record);
  dispatch(event);
}

/// SimGrid cannot be unwound from within: after a failure the rest of the run goes by unheard.
void Machine::Impl::dispatch(const MachineEvent& event) {
  if (failure) {
    return;
  }
  try {
    listener->on_event(event);
  } catch (...) {
    failure = std::current_exception();
  }
}

s4u::Exec& Machine::Impl::make_exec(const MachineEvent& event) {
  if (free_records.empty()) {
    free_records.push_back(&records.emplace_back());
  }
  Record& record = *free_records.back();
  free_records.pop_back();
  record.event = event;
  record.exec = s4u::Exec::init();
  record.exec->set_data(&record);
  return *record.exec;
}

Machine::Machine(const std::vector<LinkClass>& links, int sm_count, int rank_classes)
    : impl_(std::make_unique<Impl>(links, sm_count, rank_classes)) {}

Machine::~Machine() = default;

Seconds Machine::now() const {
  return Seconds(s4u::Engine::get_clock() - impl_->clock_at_begin);
}

void Machine::begin() {
  impl_->clock_at_begin = s4u::Engine::get_clock();
  impl_->failure = nullptr;
  for (int r = 0; r < impl_->classes; ++r) {
    hold_sms(r, -impl_->held_sms[static_cast<std::size_t>(r)]);
  }
}

void Machine::run(MachineListener& listener) {
  impl_->listener = &listener;
  impl_->engine->run();
  impl_->listener = nullptr;
  if (impl_->failure) {
    std::rethrow_exception(std::exchange(impl_->failure, nullptr));
  }
}

void Machine::at(Seconds time, const MachineEvent& event) {
  // SimGrid refuses dates in the past, and adding the offset may round to one.
  const double date = std::max(impl_->clock_at_begin + time.count(), s4u::Engine::get_clock());
  simgrid::kernel::timer::Timer::set(date, [impl = impl_.get(), event] { impl->dispatch(event); });
}

void Machine::start_kernel(int rank_class, Seconds sm_time, Bytes memory,
                           const MachineEvent& event) {
  Impl& m = *impl_;
  s4u::Host* gpu = m.gpus[static_cast<std::size_t>(rank_class)];
  const double arithmetic = sm_time.count() * kSmUnitsPerSecond;
  const auto traffic = static_cast<double>(memory.count());
  s4u::Exec& exec = m.make_exec(event);
  if (traffic <= 0) {
    exec.set_flops_amount(arithmetic)->set_host(gpu);
  } else {
    m.hosts = {m.sources[m.row(rank_class)],
               m.destinations[index_of(LinkClass::Kind::DeviceMemory)][m.column(rank_class)]};
    if (arithmetic <= 0) {
      m.bytes = {0, traffic, 0, 0};
    } else {
      m.hosts.push_back(gpu);
      m.flops = {0, 0, arithmetic};
      m.bytes = {0, traffic, 0, 0, 0, 0, 0, 0, 0};
      exec.set_flops_amounts(m.flops);
    }
    exec.set_bytes_amounts(m.bytes)->set_hosts(m.hosts);
  }
  exec.vetoable_start();
}

void Machine::start_copy(int rank_class, LinkClass::Kind link, Bytes bytes,
                         const MachineEvent& event) {
  Impl& m = *impl_;
  m.hosts = {m.sources[m.row(rank_class)], m.destinations[index_of(link)][m.column(rank_class)]};
  m.bytes = {0, static_cast<double>(bytes.count()), 0, 0};
  m.make_exec(event).set_bytes_amounts(m.bytes)->set_hosts(m.hosts)->vetoable_start();
}

void Machine::start_collective(std::span<const LinkLoad> loads, int rank_classes,
                               const MachineEvent& event) {
  Impl& m = *impl_;
  const std::size_t rows = m.row(rank_classes - 1) + 1;
  const std::size_t columns = std::min(m.grid, static_cast<std::size_t>(rank_classes));
  const std::size_t size = rows + columns * loads.size();
  m.hosts.assign(m.sources.begin(), m.sources.begin() + static_cast<std::ptrdiff_t>(rows));
  m.bytes.assign(size * size, 0.0);
  for (const LinkLoad& load : loads) {
    const std::size_t first = m.hosts.size();
    const auto& to = m.destinations[index_of(load.kind)];
    m.hosts.insert(m.hosts.end(), to.begin(), to.begin() + static_cast<std::ptrdiff_t>(columns));
    for (int r = 0; r < rank_classes; ++r) {
      m.bytes[m.row(r) * size + first + m.column(r)] = static_cast<double>(load.bytes.count());
    }
  }
  m.make_exec(event).set_bytes_amounts(m.bytes)->set_hosts(m.hosts)->vetoable_start();
}

void Machine::hold_sms(int rank_class, int sms) {
  const auto r = static_cast<std::size_t>(rank_class);
  impl_->held_sms[r] += sms;
  const int state = std::clamp(impl_->held_sms[r], 0, impl_->sms - 1);
  if (static_cast<unsigned long>(state) != impl_->gpus[r]->get_pstate()) {
    impl_->gpus[r]->set_pstate(static_cast<unsigned long>(state));
  }
}

bool Machine::has_link(LinkClass::Kind kind) const {
  return !impl_->destinations[index_of(kind)].empty();
}

int Machine::rank_classes() const {
  return impl_->classes;
}

}  // namespace zerosim::internal
