#include "sim/report/check_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <system_error>
#include <vector>

#include "sim/base/text.h"
#include "sim/report/report_text.h"
#include "sim/report/text_table.h"

namespace zerosim {
namespace {

using Align = TextTable::Align;

// Columns of the table of settings; JSON has what is cut or broken there.
constexpr int kValueColumns = 20;
constexpr int kOriginColumns = 32;

std::string_view to_string(Framework framework) {
  switch (framework) {
    case Framework::Single:
      return "single";
    case Framework::Ddp:
      return "ddp";
    case Framework::DeepSpeed:
      return "deepspeed";
    case Framework::Fsdp:
      break;
  }
  return "fsdp";
}

std::string_view kind_of(const std::string& code) {
  const ConfigCode* row = find_config_code(code);
  return row == nullptr ? "warning" : to_string(row->kind);
}

/// "file, line 4", "default", "auto: hidden^2 with hidden 4096".
std::string origin_text(const Setting& setting) {
  std::string text(to_string(setting.origin));
  if (setting.origin == Origin::File && setting.where.line > 0) {
    text += format(", line {}", setting.where.line);
  }
  const bool says_more = setting.origin != Origin::File && setting.origin != Origin::Default;
  return says_more && !setting.reason.empty() ? text + ": " + setting.reason : text;
}

std::string shortened(const std::string& value) {
  std::string shown = value;
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  if (static_cast<int>(shown.size()) <= kValueColumns) return shown;
  std::size_t end = kValueColumns - 2;
  while ((static_cast<unsigned char>(shown[end]) & 0xC0U) == 0x80U) --end;  // whole characters
  return shown.substr(0, end) + "..";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// "zero_optimization" of "zero_optimization.stage"; "" of a key at top level.
std::string section_of(const std::string& key) {
  const std::size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

std::string settings_table(const Strategy& strategy) {
  TextTable table({Align::Left, Align::Left, Align::Left});
  table.add_row({"key", "value", "origin"});
  table.add_rule();
  std::string section;
  for (const Setting& setting : strategy.settings) {
    const std::string own = section_of(setting.key);
    if (own != section && !own.empty()) table.add_heading(own);
    section = own;
    const std::string key = own.empty() ? setting.key : "  " + setting.key.substr(own.size() + 1);
    const std::vector<std::string> origin = lines_of(wrap(origin_text(setting), kOriginColumns));
    table.add_row({key, shortened(setting.value), origin.front()});
    for (std::size_t i = 1; i < origin.size(); ++i) table.add_row({"", "", "  " + origin[i]});
  }
  return table.text();
}

std::string verdict_text(const ConfigCheck& check) {
  std::string text = format("{}: {}, for {} GPU{}", check.file, to_string(check.verdict()),
                            check.world_size, check.world_size == 1 ? "" : "s");
  if (!check.model.empty()) text += " and " + check.model;
  return text + "\n";
}

std::string warnings_text(const Strategy& strategy) {
  std::string out;
  for (const bool lints : {false, true}) {
    for (const Warning& warning : strategy.warnings) {
      if ((kind_of(warning.code) == to_string(CodeKind::Lint)) != lints) continue;
      out += wrap(format("{} {}: {}", kind_of(warning.code), warning.code, warning.message),
                  kReportColumns, "  - ");
    }
  }
  return out.empty() ? out : "\nWarnings\n" + out;
}

JsonValue integer(std::int64_t value) {
  return static_cast<Json::Int64>(value);
}

template <typename Number>
std::optional<Number> whole_number(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

JsonValue typed(const std::string& value) {
  if (value == "true") return true;
  if (value == "false") return false;
  const auto whole = whole_number<std::int64_t>(value);
  if (whole && std::to_string(*whole) == value) return integer(*whole);  // "007" is text
  const auto number = whole_number<double>(value);
  const bool fraction =
      value.find_first_of(".e") != std::string::npos && std::isfinite(number.value_or(NAN));
  if (fraction) return *number;
  return value;
}

JsonValue place_json(const SourceLocation& where) {
  if (where.line == 0) return {};
  JsonValue json(Json::objectValue);
  json["file"] = where.file;
  json["line"] = where.line;
  json["column"] = where.column;
  return json;
}

JsonValue setting_json(const Setting& setting) {
  JsonValue json(Json::objectValue);
  json["key"] = setting.key;
  json["value"] = typed(setting.value);
  json["origin"] = std::string(to_string(setting.origin));
  json["reason"] = setting.reason;
  json["unit"] = setting.unit;
  json["where"] = place_json(setting.where);
  return json;
}

JsonValue error_json(const ConfigError& error) {
  JsonValue json(Json::objectValue);
  json["code"] = error.code();
  json["message"] = error.what();
  json["where"] = place_json(error.location());
  return json;
}

void add_strategy(JsonValue& json, const Strategy& strategy) {
  json["framework"] = std::string(to_string(strategy.framework));
  for (const Setting& setting : strategy.settings) {
    json["settings"].append(setting_json(setting));
    json["resolved"][setting.key] = typed(setting.value);
  }
  for (const Warning& warning : strategy.warnings) {
    JsonValue& entry = json["warnings"].append(JsonValue(Json::objectValue));
    entry["code"] = warning.code;
    entry["kind"] = std::string(kind_of(warning.code));
    entry["message"] = warning.message;
  }
  for (const std::string& sentence : strategy.assumptions) json["assumptions"].append(sentence);
  if (strategy.not_simulated) json["not_simulated"] = strategy.not_simulated->what();
}

}  // namespace

std::string check_text(const ConfigCheck& check) {
  std::string out = verdict_text(check);
  if (check.error) {
    const std::string code = check.error->code().empty() ? "" : check.error->code() + ": ";
    return out + "\n" + wrap(code + check.error->what(), kReportColumns, "  ");
  }
  out += warnings_text(*check.strategy);
  if (check.strategy->not_simulated) {
    out += "\n" + wrap(check.strategy->not_simulated->what(), kReportColumns, "Not simulated: ");
  }
  return out + "\n" + settings_table(*check.strategy);
}

JsonValue check_json(const ConfigCheck& check) {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  json["file"] = check.file;
  json["world_size"] = check.world_size;
  json["verdict"] = std::string(to_string(check.verdict()));
  json["error"] = check.error ? error_json(*check.error) : JsonValue();
  json["framework"] = JsonValue();
  json["resolved"] = JsonValue(Json::objectValue);
  for (const char* list : {"settings", "warnings", "assumptions"}) {
    json[list] = JsonValue(Json::arrayValue);
  }
  json["not_simulated"] = JsonValue();
  if (check.strategy) add_strategy(json, *check.strategy);
  return json;
}

std::string config_codes_text() {
  TextTable table({Align::Left, Align::Left, Align::Left});
  for (const ConfigCode& row : kConfigCodes) {
    table.add_row(
        {std::string(row.code), std::string(to_string(row.kind)), std::string(row.meaning)});
  }
  return table.text();
}

JsonValue config_codes_json() {
  JsonValue json(Json::objectValue);
  json["version"] = kJsonVersion;
  for (const ConfigCode& row : kConfigCodes) {
    JsonValue& entry = json["codes"].append(JsonValue(Json::objectValue));
    entry["code"] = std::string(row.code);
    entry["kind"] = std::string(to_string(row.kind));
    entry["meaning"] = std::string(row.meaning);
  }
  return json;
}

}  // namespace zerosim
