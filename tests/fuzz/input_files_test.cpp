// What fuzzing starts from, replayed in every build: accepted-* is accepted, refused-* is not.
#include "tests/fuzz/input_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/temp_folder.h"

namespace allot::fuzz {
namespace {

bool feed(const std::string& bytes) {
  return feedInputFile(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

TEST(InputFiles, TheCorpusIsTakenAsItsNamesSay) {
  std::set<std::string> met;
  for (const auto& item :
       std::filesystem::directory_iterator(ALLOT_BIN_DIR "/../seeds/fuzz-input-files")) {
    const std::string bytes = readFile(item.path()), name = item.path().filename();
    const bool taken = feed(bytes);
    EXPECT_EQ(taken, name.starts_with("accepted-")) << name;
    met.insert(bytes.substr(0, 1) + (taken ? "+" : "-"));
  }
  EXPECT_EQ(met.size(), 18u) << "each kind is accepted once, and refused once";
}

}  // namespace
}  // namespace allot::fuzz
