#include <fstream>
#include <ostream>
#include <string>

#include "sim/base/error.h"
#include "sim/base/output_file.h"
#include "sim/base/text.h"
#include "sim/report/memory_course_text.h"

namespace zerosim {

namespace {

/// RFC 4180: in quotes if it has to be.
std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string header() {
  std::string line =
      "event,step,micro_step,phase,module,owner,class,stream,bytes,allocated,active,reserved";
  for (int i = 0; i < kMemoryClasses; ++i) {
    line += format(",{}", to_string(static_cast<MemoryClass>(i)));
  }
  return line + ",on_gpu\n";
}

std::string_view trouble(const MemoryEvent& event) {
  if (event.emptied) return "empty_cache";
  if (event.failed) return "out_of_memory";
  return event.flushed ? "flush" : "";
}

std::string row(const Program& program, std::size_t index, const MemoryEvent& event) {
  const std::string_view module =
      event.module.valid() ? program.module_names[event.module.index()] : std::string_view();
  std::string line = format("{},{},{},{},{},{}", index, event.step, event.micro_step,
                            to_string(event.phase), cell(module), cell(event.owner));
  if (event.emptied) {
    line += ",,";
  } else {
    const Stream& stream = program.ranks.front().streams[event.stream.index()];
    line += format(",{},{}", to_string(event.memory_class), cell(stream.name));
  }
  line += format(",{},{},{},{}", event.bytes.count(), event.allocated.count(), event.active.count(),
                 event.reserved.count());
  for (const Bytes bytes : event.by_class) line += format(",{}", bytes.count());
  return line + format(",{}\n", trouble(event));
}

}  // namespace

void write_memory_csv(const Program& program, const std::vector<MemoryEvent>& course,
                      std::ostream& out) {
  out << header();
  for (std::size_t i = 0; i < course.size(); ++i) out << row(program, i, course[i]);
  if (!out.flush()) {
    throw BackendError(
        "the timeline cannot be written: the output takes no more; is the disk full?");
  }
}

void write_memory_csv(const std::string& path, const Program& program,
                      const std::vector<MemoryEvent>& course) {
  std::ofstream out = open_for_writing(path);
  try {
    write_memory_csv(program, course, out);
  } catch (const BackendError& error) {
    throw BackendError(format("{}: {}", path, error.what()));
  }
}

}  // namespace zerosim
