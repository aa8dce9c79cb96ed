#include "sim/strategy/config_codes.h"

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "sim/base/text.h"

namespace zerosim {
namespace {

const std::string kData = ZEROSIM_TEST_DATA;

TEST(ConfigCodes, HoldEachCodeOfTheData) {
  std::ifstream list(kData + "/ds_configs/codes.txt");
  std::string code;
  int count = 0;
  while (list >> code) {
    ++count;
    EXPECT_NE(find_config_code(code), nullptr) << code;
  }
  EXPECT_EQ(count, 48);
}

/// Those of sim/strategy are checked when it is compiled (KnownCode); sim/base lies below the
/// table.
TEST(ConfigCodes, HoldEachCodeOfTheJsonReaders) {
  const std::regex literal("\"([a-z0-9]+(_[a-z0-9]+)+)\"");
  std::set<std::string> found;
  for (const char* file : {"json.cpp", "hjson.cpp"}) {
    const std::string source = read_file(kData + "/../../sim/base/" + file);
    for (std::sregex_iterator i(source.begin(), source.end(), literal), end; i != end; ++i) {
      found.insert((*i)[1].str());
    }
  }
  for (const std::string& code : found) EXPECT_NE(find_config_code(code), nullptr) << code;
  EXPECT_EQ(found, (std::set<std::string>{"duplicate_keys", "fractional_int", "json_comments",
                                          "json_trailing_comma", "json_unquoted_keys",
                                          "out_of_range", "string_not_int"}));
}

TEST(ConfigCodes, AreUniqueAndHaveOneSentenceEach) {
  std::set<std::string_view> codes;
  for (const ConfigCode& row : kConfigCodes) {
    EXPECT_TRUE(codes.insert(row.code).second) << row.code;
    EXPECT_GT(row.meaning.size(), 10U) << row.code;
    EXPECT_FALSE(row.meaning.ends_with('.')) << row.code;
  }
  EXPECT_EQ(find_config_code("bad_stagee"), nullptr);
}

TEST(ConfigVerdict, IsThatOfTheWorstWarning) {
  EXPECT_EQ(config_verdict({}), ConfigVerdict::Ok);
  const std::vector<Warning> lints = {{"quoted_number", "m"}, {"prefetch_disabled", "m"}};
  EXPECT_EQ(config_verdict(lints), ConfigVerdict::Ok);
  const std::vector<Warning> warns = {{"quoted_number", "m"}, {"unknown_key_top", "m"}};
  EXPECT_EQ(config_verdict(warns), ConfigVerdict::Warn);
  EXPECT_EQ(to_string(ConfigVerdict::Ok), "ok");
  EXPECT_EQ(to_string(ConfigVerdict::Error), "error");
  EXPECT_EQ(to_string(CodeKind::Lint), "lint");
  EXPECT_EQ(to_string(CodeKind::Warning), "warning");
  EXPECT_EQ(to_string(CodeKind::Error), "error");
}

}  // namespace
}  // namespace zerosim
