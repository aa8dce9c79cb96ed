// Nasty inputs: whatever the bytes, a reader returns a document or throws ConfigError with a place.

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/json.h"

namespace zerosim {
namespace {

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> kSeeds = {
      "// note\n{\n  \"train_micro_batch_size_per_gpu\": 4,\n  \"bf16\": {\"enabled\": true},\n"
      "  \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 5e8,},\n}\n",
      "{\n  a: 1 # c\n  b: [1\n 2]\n  'c': 'it\\'s'\n  d: text to the end\n  e: '''\n  x\n  '''\n}",
      "{\"\\u00e9\": [\"\\ud83d\\ude00\", -0.0e-0, null, false], \"é\": \"\\\"\\\\\\/\\b\"}",
  };
  return kSeeds;
}

const std::vector<std::string>& corpus() {
  static const std::vector<std::string> kCorpus = {
      "",
      " ",
      "\n",
      "{",
      "}",
      "[",
      "]",
      "{]",
      "[}",
      ":",
      ",",
      "\"",
      "'",
      "'''",
      "''''",
      "'''''",
      "\\",
      "/",
      "/*",
      "/*/",
      "//",
      "#",
      "-",
      "--1",
      "1e",
      "1e99999999999999999999",
      "-1e999",
      "1e-99999",
      "nul",
      "NaN",
      "Infinity",
      "\"\\",
      "\"\\u",
      "\"\\u12\"",
      "\"\\ud800\"",
      "\"\\ud800\\u0020\"",
      "\"\\u0000\"",
      "{\"a\"",
      "{\"a\":",
      "{\"a\":1",
      "{\"a\":1,",
      "{\"a\":1,,}",
      "{:1}",
      "{\"a\":1 \"b\":2}",
      "{a:}",
      "{a:\n}",
      "{a",
      "a",
      "a:",
      "a:1}",
      "[1,2",
      "[,]",
      "[1,,2]",
      "{\"a\":1,\"a\":2}",
      "{\"\":{\"\":{\"\":1}}}",
      "\xEF\xBB\xBF",
      "\xEF\xBB\xBF{}",
      "\xFE\xFF",
      "{\"\xC3\x28\":1}",
      std::string("\0", 1),
      std::string("{\"a\0b\":1}", 9),
      std::string("{}\0", 3),
      repeated("[", 100'000),
      repeated("{\"a\":", 100'000),
      repeated("{a:", 100'000),
      repeated("[{\"a\":", 50'000),
      repeated("[", 201) + repeated("]", 201),
      repeated("9", 100'000),
      "1." + repeated("0", 100'000),
      "\"" + repeated("x", 1'000'000) + "\"",
      repeated("\n", 100'000) + "{",
      repeated("/**/", 50'000),
      repeated("# x\r", 50'000) + "{}",
      "{'a': '" + repeated("\\", 999) + "'}",
  };
  return kCorpus;
}

/// Reads `text` in every way and walks what came out.
void read_all(const std::string& text) {
  using Reader = JsonDocument (*)(std::string, const std::string&);
  const Reader readers[] = {JsonDocument::from_text, JsonDocument::from_hjson,
                            JsonDocument::from_strict_json};
  for (const Reader reader : readers) {
    try {
      const JsonDocument document = reader(text, "corpus");
      static_cast<void>(to_text(document.root()));
      EXPECT_GE(document.location(document.root()).line, 1);
      if (!document.root().isObject()) continue;
      JsonObject object(document, document.root(), "");
      for (const std::string& key : object.keys()) {
        EXPECT_GE(document.key_location(document.root(), key).column, 1);
      }
    } catch (const ConfigError& error) {
      EXPECT_GE(error.location().line, 1) << error.what();
      EXPECT_GE(error.location().column, 1) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
}

TEST(JsonCorpus, NastyInputsEndInADocumentOrAConfigError) {
  for (const std::string& text : corpus()) read_all(text);
}

TEST(JsonCorpus, EveryPrefixAndEverySuffixOfASeed) {
  for (const std::string& seed : seeds()) {
    for (std::size_t i = 0; i <= seed.size(); ++i) {
      read_all(seed.substr(0, i));
      read_all(seed.substr(i));
    }
  }
}

TEST(JsonCorpus, SeedsWithRandomBytesReplaced) {
  std::mt19937_64 random(20240607);
  constexpr char kAlphabet[] = "{}[]:,\"'\\/*#\n\r\t -+.eE019tfnua\xC3\xA9\xFF";
  for (int round = 0; round < 3000; ++round) {
    std::string text = seeds()[random() % seeds().size()];
    const std::uint64_t edits = 1 + random() % 8;
    for (std::uint64_t i = 0; i < edits; ++i) {
      text[random() % text.size()] = kAlphabet[random() % sizeof(kAlphabet)];
    }
    read_all(text);
  }
}

}  // namespace
}  // namespace zerosim
