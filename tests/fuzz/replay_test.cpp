// The corpora of the fuzz targets, and every sample file, through the same functions without clang.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/base/text.h"
#include "tests/fuzz/targets.h"

namespace zerosim::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Replay : public testing::TestWithParam<Target> {};

TEST_P(Replay, CorpusOnlyEndsInErrors) {
  const std::vector<std::string> files =
      files_of(fs::path(ZEROSIM_TEST_DATA) / "fuzz" / GetParam().name);
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    ASSERT_NO_THROW(GetParam().run(read_file(file)));
  }
}

/// Whatever a file is, each reader either takes it or says why not.
TEST_P(Replay, SamplesOnlyEndInErrors) {
  for (const char* folder : {"accelerate", "cases", "ds_configs", "models", "topo"}) {
    const std::vector<std::string> files = files_of(fs::path(ZEROSIM_TEST_DATA) / folder);
    ASSERT_FALSE(files.empty()) << folder;
    for (const std::string& file : files) {
      SCOPED_TRACE(file);
      ASSERT_NO_THROW(GetParam().run(read_file(file)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parsers, Replay, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& parser) { return std::string(parser.param.name); });

}  // namespace
}  // namespace zerosim::fuzz
