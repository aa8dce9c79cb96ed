#include "sim/base/json.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

template <typename Function>
std::string message_of(Function function) {
  try {
    static_cast<void>(function());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of(const std::string& text) {
  return message_of([&] { return JsonDocument::from_text(text, "f"); });
}

JsonObject object_of(const std::string& text) {
  const JsonDocument document = JsonDocument::from_text(text, "f");
  return JsonObject(document, document.root(), "");
}

TEST(JsonDocument, TakesCommentsAndTrailingCommas) {
  const JsonDocument document = JsonDocument::from_text("// a\n{\"x\": /* b */ [1, 2,], }", "f");
  EXPECT_EQ(to_text(document.root(), false), "{\"x\": [1, 2]}");
}

TEST(JsonDocument, TellsWhereThingsAre) {
  const JsonDocument document = JsonDocument::from_text(
      "// a\n{ \"x\": /* \"y\": 1 */\n  {\"y\": \"x: \\\"y\\\"\", \"\\u007a\": [\r\n 7]}}", "f");
  const JsonValue& root = document.root();
  EXPECT_EQ(to_string(document.location(root)), "f:2:1");
  EXPECT_EQ(to_string(document.key_location(root, "x")), "f:2:3");
  EXPECT_EQ(to_string(document.location(root["x"])), "f:3:3");
  EXPECT_EQ(to_string(document.key_location(root["x"], "y")), "f:3:4");
  EXPECT_EQ(to_string(document.location(root["x"]["y"])), "f:3:9");
  EXPECT_EQ(to_string(document.key_location(root["x"], "z")), "f:3:21");
  EXPECT_EQ(to_string(document.location(root["x"]["z"][0])), "f:4:2");
  EXPECT_EQ(to_string(document.key_location(root["x"], "none")), "f:3:3");
}

TEST(JsonDocument, CountsCharactersAndSkipsAByteOrderMark) {
  const JsonDocument document =
      JsonDocument::from_text("\xEF\xBB\xBF{\"é\": \"日本\", \"x\": 1}", "f");
  EXPECT_EQ(to_string(document.location(document.root()["x"])), "f:1:18");
}

TEST(JsonDocument, RefusesWhatIsNotJson) {
  EXPECT_EQ(error_of(""), "f:1:1: Syntax error: value, object or array expected");
  EXPECT_EQ(error_of("{\n \"a\": 1\n \"b\": 2}"),
            "f:3:2: Missing ',' or '}' in object declaration");
  EXPECT_EQ(error_of("{\"a\": 1} {"), "f:1:10: Extra non-whitespace after JSON value");
  EXPECT_EQ(error_of("{\"a\": 1, \"a\": 2}"), "f:1:10: Duplicate key: 'a'");
  EXPECT_EQ(error_of("{\"a\": tru}"), "f:1:7: Syntax error: value, object or array expected");
  EXPECT_EQ(error_of("{\"a\": -}"), "f:1:7: found -, which is not a JSON number");
  EXPECT_EQ(error_of("{\"a\": 012}"), "f:1:7: found 012, which is not a JSON number");
  EXPECT_THAT(error_of("{\"a\": 1e999}"), StartsWith("f:1:7: "));
  EXPECT_EQ(error_of(std::string("{\"a\": 1\0}", 9)), "f:1:8: found a NUL byte, expected text");
  EXPECT_EQ(error_of("{\n\"a\": \"\xFF\"}"), "f:2:7: found byte 0xff that is not UTF-8");
  EXPECT_EQ(error_of(std::string(201, '[')), "f:1:201: found nesting deeper than 200 levels");
  EXPECT_THAT(message_of([] { return JsonDocument::from_file("/nonexistent"); }),
              HasSubstr("/nonexistent: cannot read: No such file or directory"));
}

TEST(JsonDocument, TakesEveryKindOfUtf8AndRefusesWhatOnlyLooksLikeIt) {
  EXPECT_EQ(error_of("[\"$ ¢ € \xF0\x90\x8D\x88\"]"), "no error");
  for (const char* text : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                           "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80"}) {
    EXPECT_THAT(error_of(std::string("[\"") + text + "\"]"), HasSubstr("that is not UTF-8"));
  }
}

TEST(JsonDocument, StrictNamesTheFirstThingBeyondJson) {
  const auto code_of = [](const std::string& text) -> std::string {
    try {
      static_cast<void>(JsonDocument::from_strict_json(text, "f"));
      return "none";
    } catch (const ConfigError& error) {
      return error.code() + " " + to_string(error.location());
    }
  };
  EXPECT_EQ(code_of("{\"a\": 1}"), "none");
  EXPECT_EQ(code_of("// x\n{\"a\": 1}"), "json_comments f:1:1");
  EXPECT_EQ(code_of("{\"a\": 1, # x\n}"), "json_comments f:1:10");
  EXPECT_EQ(code_of("{\"a\": [1,\n2,]}"), "json_trailing_comma f:2:2");
  EXPECT_EQ(code_of("{a: 1}"), "json_unquoted_keys f:1:2");
  EXPECT_EQ(code_of("{\"a\": 1\n\"b\": 2}"), "json_unquoted_keys f:2:1");
  EXPECT_EQ(code_of("{\"a\": 'b'}"), "json_unquoted_keys f:1:7");
  EXPECT_EQ(code_of("{\"a\" 1}"), " f:1:6");
}

TEST(JsonDocument, StrictKeepsTheLastOfDuplicates) {
  const JsonDocument document =
      JsonDocument::from_strict_json("{\"a\": {\"s\": 2},\n \"a\": {\"s\": 3}}", "f");
  EXPECT_EQ(document.root()["a"]["s"].asInt(), 3);
  ASSERT_EQ(document.duplicates().size(), 1U);
  EXPECT_EQ(document.duplicates()[0].what, "a");
  EXPECT_EQ(to_string(document.duplicates()[0].where), "f:2:2");
  EXPECT_EQ(to_string(document.key_location(document.root(), "a")), "f:2:2");
}

TEST(JsonObject, ReadsTypedMembers) {
  JsonObject object = object_of(R"({"s": "x", "i": 5, "f": 5e8, "n": 1.5, "b": true,
      "bytes": "40GiB", "rate": "400Gb/s", "time": "5us", "o": {"k": 1}, "os": [{"k": 2}],
      "is": [1, 2e0], "ss": ["a", "b"], "null": null})");
  EXPECT_EQ(object.string("s"), "x");
  EXPECT_EQ(object.integer("i"), 5);
  EXPECT_EQ(object.integer("f"), 500'000'000);
  EXPECT_DOUBLE_EQ(object.number("n"), 1.5);
  EXPECT_DOUBLE_EQ(object.number("i"), 5);
  EXPECT_TRUE(object.boolean("b"));
  EXPECT_EQ(object.bytes("bytes"), Bytes(40LL << 30));
  EXPECT_DOUBLE_EQ(object.bytes_per_second("rate").per_second(), 50e9);
  EXPECT_DOUBLE_EQ(object.seconds("time").count(), 5e-6);
  EXPECT_EQ(object.object("o").integer("k"), 1);
  EXPECT_EQ(object.objects("os").at(0).path(), "os[0]");
  EXPECT_THAT(object.integers("is"), ElementsAre(1, 2));
  EXPECT_THAT(object.strings("ss"), ElementsAre("a", "b"));
  EXPECT_EQ(object.optional_integer("null"), std::nullopt);
  EXPECT_EQ(object.optional_string("absent"), std::nullopt);
  EXPECT_EQ(object.optional_number("n"), 1.5);
  EXPECT_EQ(object.optional_boolean("b"), true);
  EXPECT_EQ(object.optional_object("o")->integer("k"), 1);
  EXPECT_TRUE(object.optional_seconds("time").has_value());
  EXPECT_TRUE(object.optional_bytes_per_second("rate").has_value());
  EXPECT_TRUE(object.has("null"));
  EXPECT_FALSE(object.has("absent"));
  EXPECT_EQ(object.integer_at_least("i", 5), 5);
  EXPECT_NO_THROW(object.reject_unknown_keys());
}

TEST(JsonObject, SaysWhatWasFoundAndWhatWasExpected) {
  JsonObject root = object_of(
      "{\"zero\": {\n\"a\": \"x\", \"b\": 1.5, \"c\": [1], \"d\": \"4\", \"e\": -1,\n"
      "\"f\": 1e30, \"g\": \"40 GoB\", \"h\": [\"x\"], \"i\": true}}");
  JsonObject object = root.object("zero");
  EXPECT_EQ(message_of([&] { return object.integer("a"); }),
            "f:2:6: zero.a: found \"x\", expected an integer");
  EXPECT_EQ(message_of([&] { return object.integer("b"); }),
            "f:2:16: zero.b: found 1.5, expected an integer");
  EXPECT_EQ(message_of([&] { return object.string("c"); }),
            "f:2:26: zero.c: found an array, expected a string");
  EXPECT_EQ(message_of([&] { return object.number("d"); }),
            "f:2:36: zero.d: found \"4\", expected a number");
  EXPECT_EQ(message_of([&] { return object.integer_at_least("e", 0); }),
            "f:2:46: zero.e: found -1, expected an integer of at least 0");
  EXPECT_EQ(message_of([&] { return object.integer("f"); }),
            "f:3:6: zero.f: found 1e+30, expected an integer of 64 bits");
  EXPECT_THAT(message_of([&] { return object.bytes("g"); }),
              StartsWith("f:3:17: zero.g: \"40 GoB\": unknown unit \"GoB\", expected one of B, "));
  EXPECT_EQ(message_of([&] { return object.integers("h"); }),
            "f:3:33: zero.h[0]: found \"x\", expected an integer");
  EXPECT_EQ(message_of([&] { return object.integer("i"); }),
            "f:3:44: zero.i: found true, expected an integer");
  EXPECT_EQ(message_of([&] { return object.bytes("e"); }),
            "f:2:46: zero.e: found -1, expected text with a unit such as \"40GiB\"");
  EXPECT_EQ(message_of([&] { return object.string("absent"); }),
            "f:1:10: zero.absent: missing, expected a string");
  EXPECT_EQ(message_of([&] { return object.object("a").path(); }),
            "f:2:6: zero.a: found \"x\", expected an object");
  EXPECT_EQ(message_of([&] { return object.boolean("e"); }),
            "f:2:46: zero.e: found -1, expected true or false");
  EXPECT_EQ(message_of([&] { return object_of("[1]").path(); }),
            "f:1:1: found an array, expected an object");
}

TEST(JsonObject, CodesTheWaysNotToBeAnInteger) {
  JsonObject object = object_of(R"({"a": "5e8", "b": 1.5, "c": 1e30, "d": -1})");
  const auto code_of = [&](const std::string& key) -> std::string {
    try {
      static_cast<void>(object.integer_at_least(key, 0));
      return "none";
    } catch (const ConfigError& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code_of("a"), "string_not_int");
  EXPECT_EQ(code_of("b"), "fractional_int");
  EXPECT_EQ(code_of("c"), "out_of_range");
  EXPECT_EQ(code_of("d"), "out_of_range");
}

TEST(JsonObject, NamesAnUnknownKeyAndTheNearestKnownOne) {
  JsonObject object = object_of("{\"gpu\": 1,\n  \"nodse\": 2, \"a\": 3}");
  static_cast<void>(object.raw("gpu"));
  static_cast<void>(object.raw("nodes"));
  EXPECT_THAT(object.unknown_keys(), ElementsAre("nodse", "a"));  // in the order of the file
  EXPECT_EQ(message_of([&] {
              object.reject_unknown_keys();
              return 0;
            }),
            "f:2:3: nodse: unknown key; did you mean \"nodes\"?");
  static_cast<void>(object.raw("nodse"));
  EXPECT_EQ(message_of([&] {
              object.reject_unknown_keys();
              return 0;
            }),
            "f:2:15: a: unknown key; expected one of: gpu, nodes, nodse");
}

// A name of a file may be any bytes; what is written is read back.
TEST(ToText, WritesUtf8Alone) {
  JsonValue value(Json::objectValue);
  value["a\xffz"] = "\xc3\xa4\xc3\xff";  // "ä", and the beginning of another
  EXPECT_EQ(to_text(value, false), "{\"a\xEF\xBF\xBDz\": \"\xc3\xa4\xEF\xBF\xBD\xEF\xBF\xBD\"}");
  EXPECT_NO_THROW(static_cast<void>(JsonDocument::from_text(to_text(value), "f")));
}

TEST(ToText, WritesShortestNumbersAndNullForWhatJsonLacks) {
  JsonValue value;
  value["b"] = 0.1;
  value["a"] = 1.0;
  value["big"] = 1e300;
  value["count"] = Json::Value(Json::Int64{9007199254740993});
  value["nan"] = std::numeric_limits<double>::quiet_NaN();
  value["inf"] = -std::numeric_limits<double>::infinity();
  value["text"] = "q\"\\\n\x01 é";
  value["empty"] = Json::Value(Json::arrayValue);
  EXPECT_EQ(to_text(value, false),
            "{\"a\": 1.0, \"b\": 0.1, \"big\": 1e+300, \"count\": 9007199254740993, \"empty\": [], "
            "\"inf\": null, \"nan\": null, \"text\": \"q\\\"\\\\\\n\\u0001 é\"}");
}

TEST(ToText, Indents) {
  const JsonDocument document = JsonDocument::from_text(R"({"a": [1, {"b": null}], "c": {}})", "f");
  EXPECT_EQ(to_text(document.root()),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": null\n    }\n  ],\n  \"c\": {}\n}");
}

TEST(ToText, ReadsBackAsItWas) {
  for (const double number : {0.1, 1.0 / 3.0, 1e-300, 5e-324, 1.7976931348623157e308, -0.0}) {
    JsonValue value;
    value["x"] = number;
    const JsonDocument document = JsonDocument::from_text(to_text(value), "f");
    EXPECT_EQ(document.root()["x"].asDouble(), number);
  }
}

}  // namespace
}  // namespace zerosim
