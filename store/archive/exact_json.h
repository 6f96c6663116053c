#pragma once
// Messages as one line of JSON, from which they come back bit for bit.
//
// Protobuf's own JSON with the proto's field names and every field written. It prints doubles so
// that they come back, except -0, whose sign its reader drops: here it is written as -0.0. Pure
// functions, any thread.
#include <google/protobuf/message.h>

#include <string>

#include "core/result.h"

namespace allot {

// kData if a string in it is no UTF-8.
Result<std::string> exactJson(const google::protobuf::Message& message);
// kData if the text is something else; a sentence without a subject ("is no ...").
Status parseExactJson(const std::string& text, google::protobuf::Message* message);

}  // namespace allot
