// The aggregator's parts stand apart: who includes what.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace allot {
namespace {

// What the sources of aggregator/PART include of aggregator/, as parts or as headers above them.
std::set<std::string> includedBy(const std::string& part) {
  static const std::regex kInclude("#include \"aggregator/([a-z_.]+)(/.*)?\"");
  std::set<std::string> found;
  const std::string folder = std::string(ALLOT_SOURCE_DIR) + "/aggregator/" + part;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (std::regex_match(line, match, kInclude)) found.insert(match[1]);
    }
  }
  found.erase(part);
  return found;
}

TEST(AggregatorParts, OfTheLearnerPageAndReportKnowTheSnapshotAlone) {
  const std::map<std::string, std::set<std::string>> may = {
      {"learner", {"snapshot.h"}}, {"page", {"snapshot.h"}}, {"report", {"page", "snapshot.h"}}};
  for (const auto& [part, included] : may) {
    EXPECT_THAT(includedBy(part), testing::ElementsAreArray(included)) << "by aggregator/" << part;
  }
}

}  // namespace
}  // namespace allot
