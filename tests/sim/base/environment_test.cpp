#include "sim/base/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<std::string, std::string>> read(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const EnvironmentVariable& variable : parse_environment(text, "job.env").variables) {
    pairs.emplace_back(variable.name, variable.value);
  }
  return pairs;
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_environment(text, "job.env"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(Environment, AsEnvAndDockerHaveIt) {
  // The value is the rest of the line: spaces, "=", "#" and "$" belong to it.
  EXPECT_THAT(read("# comment\n\nA=1\nB=x y = z # no comment\r\nC=\nD=$HOME\n_e2=5"),
              ElementsAre(Pair("A", "1"), Pair("B", "x y = z # no comment"), Pair("C", ""),
                          Pair("D", "$HOME"), Pair("_e2", "5")));
  EXPECT_THAT(read(""), IsEmpty());
  EXPECT_THAT(read("\xEF\xBB\xBF"
                   "A=1\n"),
              ElementsAre(Pair("A", "1")));
}

TEST(Environment, QuotesAroundAllOfAValueFallAway) {
  EXPECT_THAT(read("A=\"x y\"\nB='x'  # comment\nC=\"\"\n"),
              ElementsAre(Pair("A", "x y"), Pair("B", "x"), Pair("C", "")));
  // Not around all of it: as `env` prints it.
  EXPECT_THAT(read("A=\"x\" y\nB='x'y\nC=x\"y\""),
              ElementsAre(Pair("A", "\"x\" y"), Pair("B", "'x'y"), Pair("C", "x\"y\"")));
  EXPECT_THAT(read("A=\"say \\\"x\\\" for \\$5\\n\""),
              ElementsAre(Pair("A", "say \"x\" for $5\\n")));
  EXPECT_THAT(read("A='two\nlines'\nB=1"), ElementsAre(Pair("A", "two\nlines"), Pair("B", "1")));
}

TEST(Environment, AsShellsHaveIt) {
  EXPECT_THAT(
      read("  export A=1 B=\"x y\"'z' # comment\nset C=a\\ b; export D=4\ndeclare -x E=\"5\"\n"),
      ElementsAre(Pair("A", "1"), Pair("B", "x yz"), Pair("C", "a b"), Pair("D", "4"),
                  Pair("E", "5")));
  // What is only marked, as `export -p` prints it.
  EXPECT_THAT(read("declare -x OLDPWD\nexport A B=2\n"), ElementsAre(Pair("B", "2")));
  // A variable whose name begins like a word of the shell.
  EXPECT_THAT(read("exported=1\nset=2"), ElementsAre(Pair("exported", "1"), Pair("set", "2")));
}

TEST(Environment, FunctionsAreSkipped) {
  EXPECT_THAT(
      read("A=1\nBASH_FUNC_module%%=() {  eval `modulecmd bash $*`\n}\nB=2\n"
           "BASH_FUNC_which()=() { echo; }\nC=3\nBASH_FUNC_READS=8"),
      ElementsAre(Pair("A", "1"), Pair("B", "2"), Pair("C", "3"), Pair("BASH_FUNC_READS", "8")));
}

TEST(Environment, PlacesAreThoseOfTheValue) {
  const Environment environment =
      parse_environment("A=1\n export LONG=\"x\" B=y\nC='z'\n", "job.env");
  std::vector<std::string> places;
  for (const EnvironmentVariable& variable : environment.variables) {
    places.push_back(to_string(variable.named) + " " + to_string(variable.where));
  }
  EXPECT_THAT(places, ElementsAre("job.env:1:1 job.env:1:3", "job.env:2:9 job.env:2:15",
                                  "job.env:2:18 job.env:2:20", "job.env:3:1 job.env:3:4"));
}

TEST(Environment, SaysWhatAShellWouldExpand) {
  const Environment environment = parse_environment(
      "A=$X\nB=\"$X\"\nC='$X'\nexport D=$X E='$X' F=`x` G=\\$X H=\"\\$X\"\n", "job.env");
  std::string expanded;
  for (const EnvironmentVariable& variable : environment.variables) {
    if (variable.needs_expansion) expanded += variable.name;
  }
  EXPECT_EQ(expanded, "BDF");
}

TEST(Environment, TheLastOfAName) {
  const Environment environment = parse_environment("A=1\nA=2\n", "job.env");
  ASSERT_NE(environment.find("A"), nullptr);
  EXPECT_EQ(environment.find("A")->value, "2");
  EXPECT_EQ(environment.find("B"), nullptr);
}

TEST(Environment, SaysWhereALineIsNone) {
  const std::string expected = "\", expected NAME=VALUE, export NAME=VALUE or a comment";
  EXPECT_EQ(error_of("A=1\n  module load cuda\n"),
            "job.env:2:3: found \"module load cuda" + expected);
  EXPECT_EQ(error_of("PYTORCH_CUDA_ALLOC_CONF: x"),
            "job.env:1:1: found \"PYTORCH_CUDA_ALLOC_CONF: x" + expected);
  EXPECT_EQ(error_of("NAME\n"), "job.env:1:1: found \"NAME" + expected);
  EXPECT_EQ(error_of("1A=2"), "job.env:1:1: found \"1A=2" + expected);
  EXPECT_EQ(error_of("=2"), "job.env:1:1: found \"=2" + expected);
  EXPECT_EQ(error_of("export A=1 2B=1"), "job.env:1:12: found \"2B=1" + expected);
  EXPECT_EQ(error_of("set -e"), "job.env:1:5: found \"-e" + expected);
  EXPECT_EQ(error_of(std::string(50, '-')),
            "job.env:1:1: found \"" + std::string(40, '-') + "..." + expected);
}

TEST(Environment, SaysWhereSomethingDoesNotEnd) {
  EXPECT_EQ(error_of("A=1\nexport B=\"x\n\n"),
            "job.env:2:10: found a value without its closing \"");
  EXPECT_EQ(error_of("A='x"), "job.env:1:3: found a value without its closing '");
  EXPECT_EQ(error_of("\nBASH_FUNC_f%%=() {\n x\n"),
            "job.env:2:1: found a function that does not end, expected a line \"}\"");
  EXPECT_EQ(error_of("A='x\ny' z"),
            "job.env:2:3: found \" z\", expected NAME=VALUE, export NAME=VALUE or a comment");
}

TEST(Environment, AMissingFileIsAnError) {
  EXPECT_THROW(static_cast<void>(read_environment("no_such.env")), ConfigError);
}

}  // namespace
}  // namespace zerosim
