#include "store/archive/exact_json.h"

#include <google/protobuf/util/json_util.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/json_text.h"

namespace allot {
namespace {

namespace util = google::protobuf::util;

constexpr size_t kLongestReason = 160;

// Writes each number -0, which a comma or bracket follows, as -0.0. Strings stay.
std::string withSignedZeros(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    out += c;
    if (in_string && c == '\\') {
      if (i + 1 < json.size()) out += json[++i];
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && c == '0' && i > 0 && json[i - 1] == '-' &&
               (i + 1 == json.size() || json[i + 1] == ',' || json[i + 1] == ']' ||
                json[i + 1] == '}')) {
      out += ".0";
    }
  }
  return out;
}

// Finds the first member that an object has twice. Protobuf's reader takes "policy_version" and
// "policyVersion" for the same.
class MemberNames final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool key(std::string& name) override {
    std::string field;
    for (const char c : name) {
      if (c != '_') field += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    if (objects_.back().insert(field).second) return true;
    twice = name;
    return false;
  }
  bool start_object(std::size_t) override {
    objects_.emplace_back();
    return true;
  }
  bool end_object() override {
    objects_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

  std::string twice;

 private:
  std::vector<std::set<std::string>> objects_;
};

}  // namespace

Result<std::string> exactJson(const google::protobuf::Message& message) {
  util::JsonPrintOptions print;
  print.preserve_proto_field_names = true;
  print.always_print_primitive_fields = true;
  std::string text;
  if (!util::MessageToJsonString(message, &text, print).ok()) {
    return fail(ErrorCode::kData,
                "a " + message.GetDescriptor()->name() + " cannot be written as JSON");
  }
  return withSignedZeros(text);
}

Status parseExactJson(const std::string& text, google::protobuf::Message* message) {
  if (const auto deep = tooDeep(text)) return fail(ErrorCode::kData, *deep);
  const auto parsed = util::JsonStringToMessage(text, message);
  const std::string no_such = "is no " + message->GetDescriptor()->name() + ": ";
  if (parsed.ok()) {
    MemberNames names;
    if (nlohmann::json::sax_parse(text, &names)) return {};
    if (names.twice.empty()) return fail(ErrorCode::kData, no_such + "not JSON by its standard");
    return fail(ErrorCode::kData, no_such + inQuotes(names.twice) + " stands twice in an object");
  }
  // The reason quotes the text: keeps its first line, in printable ASCII.
  std::string reason;
  for (const char c : std::string(parsed.message())) {
    if (c == '\n' || reason.size() == kLongestReason) break;
    reason += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return fail(ErrorCode::kData, no_such + reason);
}

}  // namespace allot
