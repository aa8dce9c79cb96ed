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

/// What a whole GPU computes in a second. SimGrid's solver takes what is left of a resource for
/// nothing below "maxmin/precision", whatever the scale, so the scale is that of the links (bytes
/// per second).
constexpr double kSmUnitsPerSecond = 1e10;

std::size_t at_index(int index) {
  return static_cast<std::size_t>(index);
}

/// Settings of design.md section 3. surf/precision: of times, in seconds. maxmin/precision: of
/// rates. Its default of 1e-5 is below the rounding of what is left of a device memory (1e12 x
/// 2^-53 is 1e-4): whether a resource counts as full then depends on the last bits, and the solver
/// gives equal GPUs shares that differ by percents. 0.1 byte/s is above that, and 1e-10 of the
/// slowest links.
s4u::Engine* make_simgrid_engine() {
  if (s4u::Engine::has_instance()) {
    throw SimulationError(
        "this process already has a simulation engine: SimGrid allows one a process (runs on one "
        "cluster share an Engine; for another cluster, fork before the first one is made)");
  }
  std::array<std::string, 11> arguments = {"zerosim",
                                           "--log=root.thresh:critical",
                                           "--cfg=host/model:ptask_L07",
                                           "--cfg=network/TCP-gamma:0",
                                           "--cfg=network/bandwidth-factor:1",
                                           "--cfg=network/latency-factor:1",
                                           "--cfg=network/weight-S:0",
                                           "--cfg=network/crosstraffic:0",
                                           "--cfg=surf/precision:1e-12",
                                           "--cfg=maxmin/precision:0.1",
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
  struct Gpu {
    s4u::Host* host = nullptr;
    int kind = 0;
    int held_sms = 0;
  };
  struct Wire {
    s4u::Link* link = nullptr;
    double capacity = 0;
  };

  void create_gpus(s4u::NetZone& zone, int count);
  void create_links(s4u::NetZone& zone, int count);
  void on_completion(const s4u::Activity& activity);
  void drop_left_overs();
  void dispatch(const MachineEvent& event);
  s4u::Exec& make_exec(const MachineEvent& event);
  void set_speed(Gpu& gpu) const;

  [[nodiscard]] std::size_t row(int link) const { return at_index(link) / sources.size(); }
  [[nodiscard]] std::size_t column(int link) const { return at_index(link) % sources.size(); }
  void add_host(std::vector<std::size_t>& places, std::size_t index, s4u::Host* host);

  s4u::Engine* engine = make_simgrid_engine();
  std::vector<int> sm_counts;             ///< by kind
  std::vector<std::size_t> first_pstate;  ///< by kind
  std::vector<Gpu> gpus;
  std::vector<Wire> wires;
  std::vector<s4u::Host*> sources, destinations;  ///< the grid's rows and columns

  std::deque<Record> records;
  std::vector<Record*> free_records;
  s4u::ExecPtr retired;  ///< SimGrid goes on inside an activity after its completion signal

  double clock_at_begin = 0;
  MachineListener* listener = nullptr;
  std::exception_ptr failure;
  bool begun = false;  ///< and not known to have come to its end

  // Reused by every activity.
  std::vector<s4u::Host*> hosts;
  std::vector<double> flops;
  std::vector<double> bytes;
  std::vector<std::size_t> row_places, column_places;  ///< in `hosts`, + 1; 0: not there
};

void Machine::Impl::create_gpus(s4u::NetZone& zone, int count) {
  std::vector<double> speeds;
  for (const int sms : sm_counts) {
    first_pstate.push_back(speeds.size());
    for (int left = sms; left > 0; --left) speeds.push_back(kSmUnitsPerSecond * left / sms);
  }
  for (int i = 0; i < count; ++i) {
    gpus.push_back({zone.create_host(format("gpu{}", i), speeds), 0, 0});
  }
}

void Machine::Impl::create_links(s4u::NetZone& zone, int count) {
  const auto grid = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  for (int i = 0; i < grid; ++i) {
    sources.push_back(zone.create_host(format("source{}", i), kSmUnitsPerSecond));
    destinations.push_back(zone.create_host(format("destination{}", i), kSmUnitsPerSecond));
  }
  row_places.assign(sources.size(), 0);
  column_places.assign(sources.size(), 0);
  for (int i = 0; i < count; ++i) {
    s4u::Link* link = zone.create_link(format("link{}", i), 1.0);
    zone.add_route(sources[row(i)]->get_netpoint(), destinations[column(i)]->get_netpoint(),
                   nullptr, nullptr, {s4u::LinkInRoute(link)}, false);
    wires.push_back({link, 1.0});
  }
}

void Machine::Impl::set_speed(Gpu& gpu) const {
  const auto kind = at_index(gpu.kind);
  const int held = std::clamp(gpu.held_sms, 0, sm_counts[kind] - 1);
  const unsigned long state = first_pstate[kind] + static_cast<unsigned long>(held);
  if (state != gpu.host->get_pstate()) gpu.host->set_pstate(state);
}

void Machine::Impl::on_completion(const s4u::Activity& activity) {
  auto* record = activity.get_data<Record>();
  if (!record->exec) return;  // what is cancelled completes twice: at once, and in the next run
  const MachineEvent event = record->event;
  retired = std::move(record->exec);
  free_records.push_back(record);
  dispatch(event);
}

/// Ends what a run that failed before or within `run`, or that stands still, has left. SimGrid's
/// exit handler crashes on activities that are alive: it frees their resources before them.
void Machine::Impl::drop_left_overs() {
  if (!begun) return;
  begun = false;
  for (Record& record : records) {
    const s4u::ExecPtr exec = record.exec;
    if (exec) exec->cancel();
  }
  engine->run();  // nobody listens: it takes away what is cancelled, and timers
  retired = nullptr;
}

/// SimGrid cannot be unwound from within: after a failure the rest of the run goes by unheard.
void Machine::Impl::dispatch(const MachineEvent& event) {
  if (failure || listener == nullptr) {
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

/// Puts a row or column in `hosts` if it is not there.
void Machine::Impl::add_host(std::vector<std::size_t>& places, std::size_t index, s4u::Host* host) {
  if (places[index] != 0) return;
  hosts.push_back(host);
  places[index] = hosts.size();
}

Machine::Machine() : impl_(std::make_unique<Impl>()) {}

Machine::~Machine() {
  impl_->drop_left_overs();
}

void Machine::build(int gpus, int links, const std::vector<int>& sm_counts) {
  Impl& m = *impl_;
  ZS_CHECK(!is_built(), "one platform a machine");
  m.sm_counts = sm_counts;
  s4u::NetZone* cluster = s4u::create_full_zone("cluster");
  s4u::NetZone* gpu_zone = s4u::create_empty_zone("gpus")->set_parent(cluster);
  m.create_gpus(*gpu_zone, gpus);
  gpu_zone->seal();
  s4u::NetZone* link_zone = s4u::create_full_zone("links")->set_parent(cluster);
  m.create_links(*link_zone, links);
  link_zone->seal();
  cluster->seal();
  s4u::Activity::on_completion_cb(
      [impl = impl_.get()](const s4u::Activity& activity) { impl->on_completion(activity); });
}

bool Machine::is_built() const {
  return !impl_->gpus.empty();
}
int Machine::gpus() const {
  return static_cast<int>(impl_->gpus.size());
}
int Machine::links() const {
  return static_cast<int>(impl_->wires.size());
}

Seconds Machine::now() const {
  return Seconds(s4u::Engine::get_clock() - impl_->clock_at_begin);
}

void Machine::begin(std::span<const double> capacities, std::span<const int> gpu_kinds) {
  Impl& m = *impl_;
  m.drop_left_overs();
  m.begun = true;
  m.clock_at_begin = s4u::Engine::get_clock();
  m.failure = nullptr;
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    Impl::Wire& wire = m.wires[i];
    if (wire.capacity == capacities[i]) continue;
    wire.capacity = capacities[i];
    wire.link->set_bandwidth(capacities[i]);
  }
  for (std::size_t i = 0; i < m.gpus.size(); ++i) {
    m.gpus[i].held_sms = 0;
    if (i < gpu_kinds.size()) m.gpus[i].kind = gpu_kinds[i];
    m.set_speed(m.gpus[i]);
  }
}

void Machine::run(MachineListener& listener) {
  impl_->listener = &listener;
  impl_->engine->run();
  impl_->listener = nullptr;
  impl_->begun = impl_->free_records.size() < impl_->records.size();
  if (impl_->failure) {
    std::rethrow_exception(std::exchange(impl_->failure, nullptr));
  }
}

void Machine::at(Seconds time, const MachineEvent& event) {
  // SimGrid refuses dates in the past, and adding the offset may round to one.
  const double date = std::max(impl_->clock_at_begin + time.count(), s4u::Engine::get_clock());
  simgrid::kernel::timer::Timer::set(date, [impl = impl_.get(), event] { impl->dispatch(event); });
}

void Machine::start_kernel(int gpu, Seconds sm_time, int memory_link, double memory,
                           const MachineEvent& event) {
  Impl& m = *impl_;
  s4u::Host* host = m.gpus[at_index(gpu)].host;
  const double arithmetic = sm_time.count() * kSmUnitsPerSecond;
  s4u::Exec& exec = m.make_exec(event);
  if (memory <= 0) {
    exec.set_flops_amount(arithmetic)->set_host(host);
  } else {
    m.hosts = {m.sources[m.row(memory_link)], m.destinations[m.column(memory_link)]};
    if (arithmetic <= 0) {
      m.bytes = {0, memory, 0, 0};
    } else {
      m.hosts.push_back(host);
      m.flops = {0, 0, arithmetic};
      m.bytes = {0, memory, 0, 0, 0, 0, 0, 0, 0};
      exec.set_flops_amounts(m.flops);
    }
    exec.set_bytes_amounts(m.bytes)->set_hosts(m.hosts);
  }
  exec.vetoable_start();
}

void Machine::start_transfer(std::span<const LinkBytes> loads, const MachineEvent& event) {
  Impl& m = *impl_;
  m.hosts.clear();
  for (const LinkBytes& load : loads) {
    const std::size_t row = m.row(load.link);
    const std::size_t column = m.column(load.link);
    m.add_host(m.row_places, row, m.sources[row]);
    m.add_host(m.column_places, column, m.destinations[column]);
  }
  const std::size_t size = m.hosts.size();
  m.bytes.assign(size * size, 0.0);
  for (const LinkBytes& load : loads) {
    const std::size_t from = m.row_places[m.row(load.link)] - 1;
    const std::size_t to = m.column_places[m.column(load.link)] - 1;
    m.bytes[from * size + to] = load.bytes;
  }
  for (const LinkBytes& load : loads) {
    m.row_places[m.row(load.link)] = 0;
    m.column_places[m.column(load.link)] = 0;
  }
  m.make_exec(event).set_bytes_amounts(m.bytes)->set_hosts(m.hosts)->vetoable_start();
}

void Machine::hold_sms(int gpu, int sms) {
  Impl::Gpu& own = impl_->gpus[at_index(gpu)];
  own.held_sms += sms;
  impl_->set_speed(own);
}

}  // namespace zerosim::internal
