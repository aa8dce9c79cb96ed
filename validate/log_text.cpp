#include "validate/log_text.h"

#include <filesystem>

#include "sim/base/text.h"

namespace zerosim {

std::string short_name(const std::string& log) {
  const std::filesystem::path path(log);
  return (path.extension() == ".txt" ? path.stem() : path.filename()).string();
}

std::string cut(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

std::string percent(const std::optional<double>& share) {
  return share ? format("{:.1f}", *share * 100) : "-";
}

std::string told_line(const char* what, const std::string& sentence) {
  return wrap(sentence, kReportColumns, format("{}: ", what));
}

std::string warnings_text(const std::vector<Warning>& warnings) {
  std::string out;
  for (const Warning& warning : warnings) out += told_line("warning", warning.message);
  return out;
}

JsonValue number_json(const std::optional<double>& value) {
  return value ? JsonValue(*value) : JsonValue();
}

JsonValue strings_json(const std::vector<std::string>& strings) {
  JsonValue json(Json::arrayValue);
  for (const std::string& string : strings) json.append(string);
  return json;
}

JsonValue warnings_json(const std::vector<Warning>& warnings) {
  JsonValue json(Json::arrayValue);
  for (const Warning& warning : warnings) {
    JsonValue entry(Json::objectValue);
    entry["code"] = warning.code.empty() ? JsonValue() : JsonValue(warning.code);
    entry["message"] = warning.message;
    json.append(entry);
  }
  return json;
}

void put_summary(JsonValue& json, const ValidationSummary& summary) {
  json["count"] = summary.count;
  json["skipped"] = summary.skipped;
  json["median"] = number_json(summary.median);
  json["p90"] = number_json(summary.p90);
  json["worst"] = number_json(summary.worst);
}

}  // namespace zerosim
