#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/json.h"

namespace zerosim {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string json_of(const std::string& yaml) {
  return to_text(JsonDocument::from_yaml(yaml, "f.yaml").root(), false);
}

std::string error_of(const std::string& yaml) {
  try {
    return "no error: " + json_of(yaml);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

struct Scalar {
  std::string yaml;
  std::string json;
};

/// What yaml.safe_load of PyYAML 6.0 gives, as json.dumps prints it.
const std::vector<Scalar>& scalars() {
  static const std::vector<Scalar> kScalars = {
      // null, bool
      {"", "null"},
      {"~", "null"},
      {"Null", "null"},
      {"yes", "true"},
      {"On", "true"},
      {"TRUE", "true"},
      {"no", "false"},
      {"OFF", "false"},
      {"y", "\"y\""},
      {"tRUE", "\"tRUE\""},
      // int: octal has a leading 0 in YAML 1.1, and 0o17 is text
      {"0", "0"},
      {"+7", "7"},
      {"-12", "-12"},
      {"1_000_000", "1000000"},
      {"010", "8"},
      {"08", "\"08\""},
      {"0o17", "\"0o17\""},
      {"0x1F", "31"},
      {"0b101", "5"},
      {"1:30", "90"},
      {"-1:00:01", "-3601"},
      {"1:60", "\"1:60\""},
      {"_1", "\"_1\""},
      {"0x", "\"0x\""},
      // float: a dot, and a sign after the e
      {"1.5", "1.5"},
      {".5", "0.5"},
      {"-.5", "\"-.5\""},
      {"5.", "5.0"},
      {"00.5", "0.5"},
      {"1.0e+3", "1000.0"},
      {"1.e-1", "0.1"},
      {"1.0e3", "\"1.0e3\""},
      {"5e8", "\"5e8\""},
      {"1e-5", "\"1e-5\""},
      {".", "\".\""},
      // text
      {"'5'", "\"5\""},
      {"\"true\"", "\"true\""},
      {"bf16", "\"bf16\""},
      {"full_shard auto_wrap", "\"full_shard auto_wrap\""},
      {"|\n  a\n  b", "\"a\\nb\""},
      // tags
      {"!!str 5", "\"5\""},
      {"!!float 5e8", "500000000.0"},
      {"!!int \"5\"", "5"},
      {"!!bool yes", "true"},
      {"!!null ''", "null"},
      // what JSON has no form for
      {".inf", "\".inf\""},
      {".NaN", "\".NaN\""},
      {"2024-01-01", "\"2024-01-01\""},
  };
  return kScalars;
}

TEST(Yaml, ScalarsAreThoseOfPyYaml) {
  for (const Scalar& scalar : scalars()) {
    EXPECT_EQ(json_of("a: " + scalar.yaml), "{\"a\": " + scalar.json + "}") << scalar.yaml;
  }
}

TEST(Yaml, CollectionsNest) {
  EXPECT_EQ(json_of("# note\na:\n  b: [1, {c: d}]\n  e:\n  - 2\n  - f: null\n"),
            R"({"a": {"b": [1, {"c": "d"}], "e": [2, {"f": null}]}})");
}

TEST(Yaml, ContainsJson) {
  EXPECT_EQ(json_of(R"({"a": [1, 2.5, true, "x\ny"], "b": null})"),
            R"({"a": [1, 2.5, true, "x\ny"], "b": null})");
}

TEST(Yaml, KeysAreText) {
  EXPECT_EQ(json_of("on: 1\n2: 3\n\"q\": 4\n"), R"({"2": 3, "on": 1, "q": 4})");
}

TEST(Yaml, AliasesRepeatWhatTheyName) {
  EXPECT_EQ(json_of("a: &x {b: 1}\nc: *x\nd: [*x]\n"),
            R"({"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}]})");
}

TEST(Yaml, MergedMembersYieldToOwnOnesAndToEarlierOnes) {
  EXPECT_EQ(json_of("x: &x {p: 1, q: 1}\ny: &y {q: 2, r: 2}\nz: {r: 3, <<: [*x, *y]}\n"),
            R"({"x": {"p": 1, "q": 1}, "y": {"q": 2, "r": 2}, "z": {"p": 1, "q": 1, "r": 3}})");
  EXPECT_EQ(error_of("a: {<<: 5}"),
            "f.yaml:1:9: <<: expected a mapping or a list of mappings to "
            "merge");
  EXPECT_EQ(error_of("a: {<<: [5]}"), "f.yaml:1:10: <<: expected a mapping in the list");
}

TEST(Yaml, TheLastOfDuplicateKeysWinsAndIsListed) {
  const JsonDocument document = JsonDocument::from_yaml("a: 1\nb: {c: 1}\na: 2\n", "f.yaml");
  EXPECT_EQ(to_text(document.root(), false), R"({"a": 2, "b": {"c": 1}})");
  ASSERT_EQ(document.duplicates().size(), 1);
  EXPECT_EQ(document.duplicates()[0].code, "duplicate_keys");
  EXPECT_EQ(document.duplicates()[0].what, "a");
  EXPECT_EQ(to_string(document.duplicates()[0].where), "f.yaml:3:1");
}

TEST(Yaml, PlacesAreThoseOfTheGivenText) {
  const std::string text =
      "\xEF\xBB\xBF# é\r\n"
      "fsdp:\r\n"
      "  \xC3\xA9: yes\r\n"
      "  size: 5e8\r\n"
      "list: [1, x]\r\n";
  const JsonDocument document = JsonDocument::from_yaml(text, "f.yaml");
  const JsonValue& fsdp = document.root()["fsdp"];
  EXPECT_EQ(to_string(document.location(fsdp["size"])), "f.yaml:4:9");
  EXPECT_EQ(to_string(document.key_location(fsdp, "size")), "f.yaml:4:3");
  EXPECT_EQ(to_string(document.location(fsdp["\xC3\xA9"])), "f.yaml:3:6");
  EXPECT_EQ(to_string(document.key_location(document.root(), "list")), "f.yaml:5:1");
  EXPECT_EQ(to_string(document.location(document.root()["list"][1])), "f.yaml:5:11");
}

TEST(Yaml, TypedReadersNameThePlace) {
  const JsonDocument document = JsonDocument::from_yaml("a: 1\nb: 5e8\nc: on\n", "f.yaml");
  JsonObject object(document, document.root(), "");
  EXPECT_EQ(object.integer("a"), 1);
  EXPECT_TRUE(object.boolean("c"));
  try {
    static_cast<void>(object.integer("b"));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "f.yaml:2:4: b: found \"5e8\", expected an integer");
    EXPECT_EQ(error.code(), "string_not_int");
  }
}

TEST(YamlErrors, NameThePlace) {
  EXPECT_EQ(error_of(""), "f.yaml:1:1: found nothing, expected a mapping");
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"), "f.yaml:2:1: found a second document, expected one");
  EXPECT_EQ(error_of("? [1]\n: 2\n"), "f.yaml:1:3: found a list as a key, expected text");
  EXPECT_EQ(error_of("? {a: 1}\n: 2\n"), "f.yaml:1:3: found a mapping as a key, expected text");
  EXPECT_EQ(error_of(": 1\n"), "f.yaml:1:1: found nothing as a key, expected text");
  EXPECT_EQ(error_of("a: !!python/object:x {}\n"),
            "f.yaml:1:4: found the tag tag:yaml.org,2002:python/object:x, expected a plain value");
  EXPECT_EQ(error_of("a: !mine 5\n"), "f.yaml:1:4: found the tag !mine, expected a plain value");
  EXPECT_EQ(error_of("a: !!int x\n"), "f.yaml:1:4: found \"x\", expected an integer after !!int");
  EXPECT_EQ(error_of("a: *x\n"), "f.yaml:1:4: not YAML: the referenced anchor is not defined");
  EXPECT_EQ(error_of("a: [1\n"), "f.yaml:2:1: not YAML: end of sequence flow not found");
  EXPECT_EQ(error_of("a: 1\n b: 2\n"), "f.yaml:2:3: not YAML: illegal map value");
  EXPECT_EQ(error_of("a: \"\\0\"\n"), "f.yaml:1:4: found a NUL character, expected text");
}

/// yaml-cpp alone takes "," for documents without end.
TEST(YamlErrors, TextThatBelongsToNoValue) {
  EXPECT_EQ(error_of(","), "f.yaml:1:1: found text that belongs to no value");
  EXPECT_EQ(error_of("{a: 1}\n]"), "f.yaml:2:1: not YAML: illegal flow end");
}

TEST(YamlErrors, BytesThatAreNoText) {
  EXPECT_EQ(error_of("a: \xFF\n"), "f.yaml:1:4: found byte 0xff that is not UTF-8");
  EXPECT_EQ(error_of(std::string("a: \0\n", 5)), "f.yaml:1:4: found a NUL byte, expected text");
  // yaml-cpp alone would take it for the end of the text.
  EXPECT_EQ(error_of("a: 1\nb: \x04\n"),
            "f.yaml:2:4: found control character 0x04, which YAML does not allow");
}

TEST(YamlErrors, NestingIsBounded) {
  const auto nested = [](std::size_t depth) {
    return "a: " + std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_THAT(error_of(nested(199)), StartsWith("no error"));
  EXPECT_THAT(error_of(nested(201)), HasSubstr("found nesting deeper than 200 levels"));
  EXPECT_THAT(error_of(nested(100'000)), HasSubstr("found nesting deeper than 200 levels"));
  EXPECT_THAT(error_of("a: &x [*x]\n"), HasSubstr("found nesting deeper than 200 levels"));
}

/// Each line names ten times the one before: 10^9 values from 9 lines.
TEST(YamlErrors, AliasesThatMultiplyAreRefused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  std::string merged = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 60; ++i) {
    const std::string name = "a" + std::to_string(i);
    const std::string before = "*a" + std::to_string(i - 1);
    if (i < 9) {
      text += name + ": &" + name + " [" + before;
      for (int j = 1; j < 10; ++j) text += ", " + before;
      text += "]\n";
    }
    merged += name + ": &" + name + " {<<: [" + before + ", " + before + "]}\n";
  }
  EXPECT_THAT(error_of(text), HasSubstr("found more than 100000 values"));
  EXPECT_THAT(error_of(merged), HasSubstr("found more than 100000 values"));
  const std::string big(100'000, 'x');
  EXPECT_THAT(error_of("a: &a " + big + "\nb: [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"),
              HasSubstr("found more than 1 MiB once all aliases are written out"));
  EXPECT_THAT(error_of(std::string(2'000'000, 'x')), HasSubstr("found more than 1 MiB of YAML"));
}

}  // namespace
}  // namespace zerosim
