#pragma once
// Writes messages as one line of JSON, and reads them back bit for bit. Pure functions, any thread.
//
// It is protobuf's JSON with the proto's field names, with every field written. Protobuf prints
// doubles exactly, but its reader drops the sign of -0: here that is written as -0.0.
#include <google/protobuf/message.h>

#include <string>

#include "core/result.h"

namespace allot {

// Returns the line. kData if a string of the message is not UTF-8.
Result<std::string> exactJson(const google::protobuf::Message& message);
// Parses a line. kData, as a sentence without a subject ("is no ..."), if it is no such message.
Status parseExactJson(const std::string& text, google::protobuf::Message* message);

}  // namespace allot
