#include "sim/base/hjson.h"

#include <string>

#include <gtest/gtest.h>

#include "sim/base/json.h"

namespace zerosim {
namespace {

std::string error_of(const std::string& text) {
  try {
    const JsonDocument document = JsonDocument::from_hjson(text, "f");
    return "read as " + to_text(document.root(), false);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Hjson, JsonStaysAsItIs) {
  EXPECT_EQ(hjson_to_json(R"({"a":[1,-2.5e3,true,null],"b":{"c":"x\ny"}})"),
            R"({"a":[1,-2.5e3,true,null],"b":{"c":"x\ny"}})");
}

TEST(Hjson, CommentsOfAllKindsGo) {
  EXPECT_EQ(hjson_to_json("// first\n{ # second\n\"a\": 1 /* third\n*/, \"b\": \"#//\" }\n# last"),
            R"({"a":1,"b":"#//"})");
}

TEST(Hjson, KeysWithoutQuotesAndLineEndsForCommas) {
  EXPECT_EQ(hjson_to_json("{\n stage: 3\n on: true # yes\n list: [\n 1\n 2\n ]\n}"),
            R"({"stage":3,"on":true,"list":[1,2]})");
  EXPECT_EQ(hjson_to_json("stage: 3\nname: zero"), R"({"stage":3,"name":"zero"})");
}

TEST(Hjson, TrailingCommasGo) {
  EXPECT_EQ(hjson_to_json("{\"a\": [1, 2,], \"b\": {},}"), R"({"a":[1,2],"b":{}})");
}

TEST(Hjson, StringsWithoutQuotesReachTheEndOfTheLine) {
  EXPECT_EQ(hjson_to_json("{\n type: Adam W, \"x\" # not a comment \\ \n v: 5e8 // number\n}"),
            "{\"type\":\"Adam W, \\\"x\\\" # not a comment \\\\\",\"v\":5e8}");
  EXPECT_EQ(hjson_to_json("{a: 01\nb: 1.2.3\nc: trueish\n}"),
            R"({"a":"01","b":"1.2.3","c":"trueish"})");
}

TEST(Hjson, SingleQuotesAndSeveralLines) {
  EXPECT_EQ(hjson_to_json(R"({'a': 'it\'s "so"'})"), R"({"a":"it's \"so\""})");
  EXPECT_EQ(hjson_to_json("{\n  a:\n    '''\n    one\n      two\n    '''\n}"),
            R"({"a":"one\u000a  two"})");
}

TEST(Hjson, NamesThePlaceOfAnError) {
  EXPECT_EQ(error_of(""), "f:1:1: found nothing, expected an object");
  EXPECT_EQ(error_of("{\n  a 1\n}"), "f:2:5: found '1', expected ':' after the key");
  EXPECT_EQ(error_of("{\n  \"a\": ,\n}"), "f:2:8: found ',', expected a value");
  EXPECT_EQ(error_of("{\"a\": 1} x"), "f:1:10: found text after the end of the JSON value");
  EXPECT_EQ(error_of("\n {\"a\": [1, 2}"), "f:2:13: found '}', expected a value");
  EXPECT_EQ(error_of("{\"a\": {\"b\": 1}"), "f:1:1: found '{' that is never closed");
  EXPECT_EQ(error_of("{\"a\": [\n1\n"), "f:1:7: found '[' that is never closed");
  EXPECT_EQ(error_of("{\"a\": \"b\n\"}"), "f:1:7: found a string that is not closed on its line");
  EXPECT_EQ(error_of("{ /* \n"), "f:1:3: found a comment that is never closed");
  EXPECT_EQ(error_of("{a: '''x"), "f:1:5: found ''' that is never closed");
  EXPECT_EQ(error_of("{,}"), "f:1:2: found ',', expected a key");
  EXPECT_EQ(error_of("a: 1\n}"), "f:2:1: found '}' without '{'");
  EXPECT_EQ(error_of("{\"a\": \"\\q\"}"), "f:1:7: Bad escape sequence in string");
}

TEST(Hjson, DuplicateKeysAreRefusedAtTheSecond) {
  try {
    static_cast<void>(JsonDocument::from_hjson("{\n a: 1\n b: {a: 2}\n \"a\": 3\n}", "f"));
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "f:4:2: Duplicate key: 'a'");
    EXPECT_EQ(error.code(), "duplicate_keys");
  }
}

TEST(Hjson, PlacesAreThoseOfTheGivenText) {
  const JsonDocument document = JsonDocument::from_hjson(
      "# note\n{\n  zero: {  # c\n    stage: 3\n  }\n  x: é y\n  z: 1\n}", "f");
  const JsonValue& root = document.root();
  EXPECT_EQ(to_string(document.location(root)), "f:2:1");
  EXPECT_EQ(to_string(document.key_location(root, "zero")), "f:3:3");
  EXPECT_EQ(to_string(document.location(root["zero"])), "f:3:9");
  EXPECT_EQ(to_string(document.key_location(root["zero"], "stage")), "f:4:5");
  EXPECT_EQ(to_string(document.location(root["zero"]["stage"])), "f:4:12");
  EXPECT_EQ(root["x"].asString(), "é y");
  EXPECT_EQ(to_string(document.location(root["z"])), "f:7:6");
}

TEST(IsJsonNumber, FollowsTheGrammar) {
  for (const char* text : {"0", "-0", "12", "1.5", "1e9", "1E-9", "-1.25e+3"}) {
    EXPECT_TRUE(internal::is_json_number(text)) << text;
  }
  for (const char* text : {"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "1 ", "inf"}) {
    EXPECT_FALSE(internal::is_json_number(text)) << text;
  }
}

}  // namespace
}  // namespace zerosim
