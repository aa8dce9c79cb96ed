#include "sim/program/builder.h"

#include <utility>

#include "sim/base/error.h"

namespace zerosim {

RankProgramBuilder::RankProgramBuilder(Rank representative, int multiplicity) {
  program_.representative = representative;
  program_.multiplicity = multiplicity;
  add_stream("compute");
}

StreamId RankProgramBuilder::add_stream(const std::string& name) {
  program_.streams.push_back({name, GroupId()});
  last_.emplace_back();
  return StreamId(program_.streams.size() - 1);
}

void RankProgramBuilder::add_communicator(GroupId group, const std::string& name) {
  if (communicators_.size() <= group.index()) {
    communicators_.resize(group.index() + 1);
  }
  const StreamId stream = add_stream("nccl:" + name);
  program_.streams[stream.index()].communicator = group;
  communicators_[group.index()] = stream;
}

void RankProgramBuilder::set_step(int step, int micro_step) {
  step_ = step;
  micro_step_ = micro_step;
}

Op& RankProgramBuilder::append(OpKind kind, HostCost cost, std::string_view rule) {
  Op& op = program_.ops.emplace_back();
  op.kind = kind;
  op.phase = phase_;
  op.host_work = cost.work;
  op.host_count = static_cast<std::uint16_t>(cost.count);
  op.module = module_;
  op.step = static_cast<std::int16_t>(step_);
  op.micro_step = static_cast<std::int16_t>(micro_step_);
  op.rule = rule;
  op.first_dependency = static_cast<std::uint32_t>(program_.dependencies.size());
  return op;
}

void RankProgramBuilder::depend_on(Op& op, OpId dependency) {
  program_.dependencies.push_back(dependency);
  ++op.dependency_count;
}

OpId RankProgramBuilder::enqueue(Op& op, StreamId stream) {
  op.stream = stream;
  const OpId id(program_.ops.size() - 1);
  last_[stream.index()] = id;
  return id;
}

OpId RankProgramBuilder::host(HostCost cost, std::string_view rule) {
  append(OpKind::Host, cost, rule);
  return OpId(program_.ops.size() - 1);
}

OpId RankProgramBuilder::host_pass(const HostPass& pass, std::string_view rule) {
  append(OpKind::Host, {HostWork::KernelLaunch}, rule).payload =
      static_cast<std::int32_t>(program_.host_passes.size());
  program_.host_passes.push_back(pass);
  return OpId(program_.ops.size() - 1);
}

OpId RankProgramBuilder::kernel(StreamId stream, const Kernel& kernel, HostWork work,
                                std::string_view rule) {
  // The optimizer's have neither modules nor a graph, whoever calls it.
  const bool of_model = kernel.kernel_class != KernelClass::Optimizer;
  const HostWork launch = of_model ? work : HostWork::OptimizerLaunch;
  Op& op = append(OpKind::Kernel, {launch, kernel.launches}, rule);
  op.payload = static_cast<std::int32_t>(program_.kernels.size());
  program_.kernels.push_back(kernel);
  return enqueue(op, stream);
}

OpId RankProgramBuilder::copy(StreamId stream, const Copy& copy, std::string_view rule) {
  Op& op = append(OpKind::Copy, {HostWork::KernelLaunch}, rule);
  op.payload = static_cast<std::int32_t>(program_.copies.size());
  program_.copies.push_back(copy);
  const OpId id = enqueue(op, stream);
  if (!copy.pinned) {
    host_wait(id, rule);
  }
  return id;
}

OpId RankProgramBuilder::collective(StreamId caller, const Collective& collective,
                                    std::string_view rule) {
  Op& op = append(OpKind::Collective, {HostWork::CollectiveLaunch}, rule);
  op.payload = static_cast<std::int32_t>(program_.collectives.size());
  program_.collectives.push_back(collective);
  if (last(caller).valid()) {
    depend_on(op, last(caller));
  }
  const OpId id = enqueue(op, communicators_[collective.group.index()]);
  if (!collective.async) {
    stream_wait(caller, id, "0.4");
  }
  if (synchronize_after_collectives_) {
    device_synchronize("0.7");
  }
  return id;
}

OpId RankProgramBuilder::all_reduce(StreamId caller, GroupId group, std::int64_t elements,
                                    Dtype dtype, std::string_view rule, ReduceOp reduction) {
  Collective call;
  call.kind = CollectiveKind::AllReduce;
  call.input_elements = call.output_elements = elements;
  call.dtype = dtype;
  call.group = group;
  call.reduction = reduction;
  return collective(caller, call, rule);
}

OpId RankProgramBuilder::all_gather(StreamId caller, GroupId group, std::int64_t input,
                                    std::int64_t output, Dtype dtype, std::string_view rule) {
  Collective call;
  call.kind = CollectiveKind::AllGather;
  call.input_elements = input;
  call.output_elements = output;
  call.dtype = dtype;
  call.group = group;
  return collective(caller, call, rule);
}

OpId RankProgramBuilder::reduce_scatter(StreamId caller, GroupId group, std::int64_t input,
                                        std::int64_t output, Dtype dtype, std::string_view rule,
                                        ReduceOp reduction) {
  Collective call;
  call.kind = CollectiveKind::ReduceScatter;
  call.input_elements = input;
  call.output_elements = output;
  call.dtype = dtype;
  call.group = group;
  call.reduction = reduction;
  return collective(caller, call, rule);
}

void RankProgramBuilder::stream_wait(StreamId stream, OpId op, std::string_view rule) {
  if (!op.valid() || program_.ops[op.index()].stream == stream) {
    return;
  }
  Op& wait = append(OpKind::StreamWait, {HostWork::EventRecord}, rule);
  depend_on(wait, op);
  enqueue(wait, stream);
}

void RankProgramBuilder::stream_wait_stream(StreamId stream, StreamId other,
                                            std::string_view rule) {
  stream_wait(stream, last(other), rule);
}

void RankProgramBuilder::host_wait(OpId op, std::string_view rule) {
  if (op.valid()) {
    depend_on(append(OpKind::HostWait, {HostWork::None, 0}, rule), op);
  }
}

void RankProgramBuilder::host_wait_stream(StreamId stream, std::string_view rule) {
  host_wait(last(stream), rule);
}

void RankProgramBuilder::device_synchronize(std::string_view rule) {
  Op& wait = append(OpKind::HostWait, {HostWork::None, 0}, rule);
  for (const OpId op : last_) {
    if (op.valid()) {
      depend_on(wait, op);
    }
  }
}

BufferId RankProgramBuilder::allocate(Bytes bytes, MemoryClass memory_class, std::string_view owner,
                                      StreamId pool, std::string_view rule) {
  Op& op = append(OpKind::Allocate, {HostWork::None, 0}, rule);
  op.payload = static_cast<std::int32_t>(program_.buffers.size());
  program_.buffers.push_back({bytes, memory_class, pool, owner});
  return BufferId(program_.buffers.size() - 1);
}

BufferId RankProgramBuilder::allocate_on_host(Bytes bytes, MemoryClass memory_class,
                                              std::string_view owner, bool pinned,
                                              std::string_view rule) {
  const BufferId id = allocate(bytes, memory_class, owner, kComputeStream, rule);
  program_.buffers.back().place = pinned ? MemoryPlace::PinnedHost : MemoryPlace::Host;
  return id;
}

BufferId RankProgramBuilder::allocate_on_node(Bytes bytes, MemoryClass memory_class,
                                              std::string_view owner, std::string_view rule) {
  const BufferId id = allocate(bytes, memory_class, owner, kComputeStream, rule);
  program_.buffers.back().place = MemoryPlace::NodeHost;
  return id;
}

void RankProgramBuilder::visit_allocator(std::string_view owner, StreamId pool,
                                         std::string_view rule) {
  BufferId nothing = allocate(Bytes(), MemoryClass::TemporaryBuffers, owner, pool, rule);
  free(nothing, rule);
}

void RankProgramBuilder::empty_cache(std::string_view rule) {
  append(OpKind::EmptyCache, {HostWork::None, 0}, rule);
}

void RankProgramBuilder::free(BufferId& buffer, std::string_view rule) {
  if (!buffer.valid()) {
    return;
  }
  append(OpKind::Free, {HostWork::None, 0}, rule).payload = buffer.value();
  buffer = BufferId();
}

void RankProgramBuilder::free_recorded(BufferId& buffer, std::span<const StreamId> streams,
                                       std::string_view rule) {
  if (!buffer.valid()) {
    return;
  }
  const StreamId own = program_.buffers[buffer.index()].stream;
  free(buffer, rule);
  for (const StreamId stream : streams) {
    if (stream != own && last(stream).valid()) {
      depend_on(program_.ops.back(), last(stream));
    }
  }
}

void RankProgramBuilder::annotate(AnnotationKind kind, std::int64_t elements,
                                  const std::vector<ParameterId>& parameters) {
  program_.annotations.push_back({kind, OpId(program_.ops.size()), elements,
                                  static_cast<std::uint32_t>(program_.annotated.size()),
                                  static_cast<std::uint32_t>(parameters.size()), module_, phase_,
                                  static_cast<std::int16_t>(step_),
                                  static_cast<std::int16_t>(micro_step_)});
  program_.annotated.insert(program_.annotated.end(), parameters.begin(), parameters.end());
}

Kernel memory_kernel(std::string_view name, Bytes bytes, int launches) {
  Kernel kernel;
  kernel.kernel_class = KernelClass::Memory;
  kernel.name = name;
  kernel.bytes = bytes;
  kernel.launches = launches;
  return kernel;
}

Kernel optimizer_kernel(std::string_view name, Bytes bytes, int launches) {
  Kernel kernel = memory_kernel(name, bytes, launches);
  kernel.kernel_class = KernelClass::Optimizer;
  return kernel;
}

}  // namespace zerosim
