#include "store/archive/exact_json.h"

#include <google/protobuf/util/json_util.h>

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
  if (parsed.ok()) return {};
  // The reason quotes the text: keeps its first line, in printable ASCII.
  std::string reason;
  for (const char c : std::string(parsed.message())) {
    if (c == '\n' || reason.size() == kLongestReason) break;
    reason += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return fail(ErrorCode::kData, "is no " + message->GetDescriptor()->name() + ": " + reason);
}

}  // namespace allot
