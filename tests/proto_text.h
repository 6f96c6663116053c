#pragma once
// Messages from protobuf's text format, for tests that set many fields. Any thread.
#include <google/protobuf/text_format.h>

#include <stdexcept>
#include <string>

namespace allot {

// Sets the fields of a message that the text names. A text that is none ends the test.
inline void setFields(const std::string& text, google::protobuf::Message* message) {
  if (!google::protobuf::TextFormat::MergeFromString(text, message)) {
    throw std::runtime_error("no fields of " + message->GetTypeName() + ": " + text);
  }
}

template <typename Message>
Message messageFrom(const std::string& text) {
  Message message;
  setFields(text, &message);
  return message;
}

}  // namespace allot
