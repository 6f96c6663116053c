#pragma once
// Writes messages as one line of JSON, and reads them back bit for bit. Pure functions, any thread.
//
// The form is protobuf's JSON with the proto's field names and every primitive field, even with its
// default value; only `optional` and oneof fields that are not set are left out. Protobuf prints
// doubles exactly, but its reader drops the sign of -0, which is therefore written as -0.0.
#include <google/protobuf/message.h>

#include <string>

#include "core/result.h"

namespace allot {

// Returns the line, without a newline. kData if protobuf refuses the message.
// Requires: strings of the message are UTF-8.
Result<std::string> exactJson(const google::protobuf::Message& message);
// Parses a line. kData: "is no RunExport: ..." without a subject if the text is no such message or
// an object has a member twice, the sentence of tooDeep() (core/json_text.h) if it is nested too
// deep.
Status parseExactJson(const std::string& text, google::protobuf::Message* message);

}  // namespace allot
