#pragma once
// WrittenAgain: writes the files of an export that people read again, in memory, from the records,
// and compares (`allot verify` of an export). One thread.
#include <fstream>
#include <string>
#include <vector>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "store/archive/run_source.h"

namespace allot {

class WrittenAgain {
 public:
  // Opens updates.csv, episodes.csv and evaluations.csv; a file that is not there is not compared.
  explicit WrittenAgain(std::string folder);

  // Compare the record's rows.
  // Requires: records are added in the order of the export.
  void add(const v1::IterationRecord& record);
  void add(const v1::EvaluationResult& result);

  // Compares what is left of the tables, and the report's files except report.html. Returns the
  // names of the files that are there and equal. kData names those that differ. summary.json
  // and policy.json count as equal if only the time of writing or the build differs.
  // Requires: all records of the export at `head` were added.
  Result<std::vector<std::string>> end(const RunHead& head);

 private:
  // A file that is read along with the text that it should have.
  struct Table {
    Table(const std::string& folder, const std::string& name);
    void expect(const std::string& text);
    bool isEqual();

    std::string name;
    std::ifstream file;
    bool is_there;
    bool equal = true;
    bool begun = false;
  };

  const std::string folder_;
  Table updates_, episodes_, evaluations_;
};

}  // namespace allot
