// What fuzzing starts from, replayed in every build: accepted-* is accepted, refused-* is not.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/fuzz/model_files.h"
#include "tests/temp_folder.h"

namespace allot::fuzz {
namespace {

TEST(ModelFiles, TheCorpusIsTakenAsItsNamesSay) {
  size_t accepted = 0, refused = 0;
  for (const auto& item :
       std::filesystem::directory_iterator(ALLOT_BIN_DIR "/../seeds/fuzz-model-files")) {
    const std::string bytes = readFile(item.path()), name = item.path().filename();
    const bool taken = feedModelFile(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    EXPECT_EQ(taken, name.starts_with("accepted-")) << name;
    ++(taken ? accepted : refused);
  }
  EXPECT_GE(accepted, 7u);
  EXPECT_GE(refused, 7u);
}

}  // namespace
}  // namespace allot::fuzz
