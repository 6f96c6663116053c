#pragma once
// Writes messages as one line of JSON, and reads them back bit for bit. Pure functions, any thread.
//
// The form is protobuf's JSON with the proto's field names and every primitive field. Protobuf
// prints doubles exactly, but its reader drops the sign of -0, which is therefore written as -0.0.
#include <google/protobuf/message.h>

#include <string>

#include "core/result.h"

namespace allot {

// Returns the line, without a newline. kData if a string of the message is not UTF-8.
Result<std::string> exactJson(const google::protobuf::Message& message);
// Parses a line. kData, as the end of a sentence ("is no RunExport: ..."), if it is no such message
// or nested too deep (core/json_text.h).
Status parseExactJson(const std::string& text, google::protobuf::Message* message);

}  // namespace allot
