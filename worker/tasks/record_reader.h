#pragma once
// Files of questions: JSON lines, a JSON array, or CSV, record by record.
//
// What these files hold was written by strangers: whatever is wrong with one is a sentence with
// file and line. Functions without state: any thread.
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// Where a record begins, for messages.
struct RecordPlace {
  std::string file;
  size_t line = 1;

  std::string text() const;  // "FILE: line 3"
  tl::unexpected<Error> refuse(const std::string& what) const;
};

// One JSON object.
class JsonRecord {
 public:
  JsonRecord(RecordPlace place, nlohmann::json object)
      : place_(std::move(place)), object_(std::move(object)) {}

  const RecordPlace& place() const { return place_; }
  bool has(const std::string& field) const { return object_.contains(field); }
  // A string that is not blank; kUsage if it is missing or something else.
  Result<std::string> text(const std::string& field) const;
  // A string, a number, or a list of them, at least one: each as text.
  Result<std::vector<std::string>> texts(const std::string& field, bool may_be_blank = false) const;
  // A string, which may be blank; "" if it is missing or null.
  Result<std::string> textOrNone(const std::string& field) const;
  // Answers as they stand, blanks included, for graders that look at these: a string, a number or a
  // list of them. Blank ones are left out; at least one is left.
  Result<std::vector<std::string>> answersAsTheyStand(const std::string& field) const;
  // The value, whatever it is.
  Result<const nlohmann::json*> value(const std::string& field) const;

 private:
  RecordPlace place_;
  nlohmann::json object_;
};

// Calls `use` with every object of a file of JSON lines, or of a file that is one JSON array. Blank
// lines, a byte order mark and CRLF are no matter.
Status readJson(const std::string& file, const std::function<Status(const JsonRecord&)>& use);

// Calls `use` with every row of a CSV file without a header (RFC 4180), `columns` fields each.
Status readCsv(
    const std::string& file, size_t columns,
    const std::function<Status(const RecordPlace&, const std::vector<std::string>&)>& use);

// Without blanks at either end.
std::string trimmed(const std::string& text);

}  // namespace allot
