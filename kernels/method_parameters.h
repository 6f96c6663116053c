#pragma once
// The table of the methods' parameters. A row says which methods have a parameter, its allowed
// values, and how its value is read and written. Private to kernels/. Pure functions, any thread.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "allot/kernels/method.h"

namespace allot::kernels {

// One parameter. `read` returns false for a bad value, and may then have changed the options.
struct Parameter {
  std::string_view key;
  std::vector<Method> methods;
  std::string allowed;
  std::string_view meaning;
  std::function<bool(std::string_view text, MethodOptions* options)> read;
  std::function<std::string(const MethodOptions& options)> write;
};

// Returns the names, such as "s2anta-prop, s2anta-flash".
std::string namesOf(const std::vector<Method>& methods);

// Returns all parameters, in the order of a method's text and of the documents.
const std::vector<Parameter>& methodParameters();

}  // namespace allot::kernels
