#pragma once
// Jinja's filters, tests and global functions, and the attributes and methods of Python's values
// that templates use. Those that are not here fail by name (kUnsupported, or kSyntax if Jinja does
// not know them either). Private to worker/model/.
#include <string>

#include "worker/model/jinja_value.h"

namespace allot::jinja {

// Returns true if Jinja has a filter or a test of this name, whether it is here or not.
bool isFilter(const std::string& name);
bool isTest(const std::string& name);

// `work` outlives the results: functions and iterators keep it.
Value applyFilter(Work& work, const std::string& name, const Value& input, Arguments& arguments);
bool applyTest(Work& work, const std::string& name, const Value& value, Arguments& arguments);
// value.name, which looks for an attribute first, then for an item.
Value attributeOf(Work& work, const Value& value, const std::string& name);
// value[key], which looks for an item first.
Value itemOf(Work& work, const Value& value, const Value& key);
// Returns the function that templates know by this name, or an undefined value.
Value globalFunction(Work& work, const std::string& name);
bool contains(Work& work, const Value& container, const Value& item);

}  // namespace allot::jinja
