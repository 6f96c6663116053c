#pragma once
// The methods' parameters: who takes each, what it may be, and how it is read and written. Private
// to kernels/; pure functions, any thread.
#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/method.h"

namespace allot::kernels {

// `read` returns false for a bad value.
struct Parameter {
  std::string_view key;
  std::vector<Method> methods;
  std::string allowed;
  std::string_view meaning;
  bool (*read)(std::string_view text, MethodOptions* options);
  std::string (*write)(const MethodOptions& options);
};

// All of them, in the order in which a method's text and the documents have them.
const std::vector<Parameter>& methodParameters();

}  // namespace allot::kernels
