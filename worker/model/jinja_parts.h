#pragma once
// The parts of the interpreter of chat templates: values with Python's rules of equality, text and
// JSON, and Jinja's filters, tests and functions. Strings remember which characters came from data.
// One rendering owns its values; one thread at a time. Private to worker/model/.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/model/jinja.h"

namespace allot::jinja {

// Code points. The mark kData is set on characters of data and stays with them through every
// operation. Bytes that are not UTF-8 are U+DC80 and up, as in Python's surrogateescape.
using Text = std::u32string;
constexpr char32_t kData = 0x80000000;
inline char32_t bare(char32_t c) { return c & ~kData; }

Text textOf(std::string_view utf8, bool data = false);
std::string utf8Of(const Text& text);  // without the marks
bool isSpace(char32_t c);              // Python's str.isspace
// Returns the first place of `part` at or behind `from`, or npos. Linear in the sizes.
size_t findText(const Text& text, const Text& part, size_t from = 0);
// Returns true if a name is one of the words, which have blanks between them.
bool among(std::string_view name, std::string_view words);

// Thrown inside the interpreter alone; Template catches it.
struct Fault {
  Failure failure;
};
[[noreturn]] void raise(FailureKind kind, const std::string& message);
[[noreturn]] void unsupported(const std::string& what);

// The rendering's bound on work and memory. Each unit is a step, half an element or four
// characters: some 16 bytes.
constexpr size_t kObjectUnits = 16;  // of a value, beside its characters and elements
struct Work {
  size_t left;
  void spend(size_t units) {
    if (units > left) raise(FailureKind::kLimit, "it takes too many steps or too much memory");
    left -= units;
  }
};

// kView is that of a dict's keys, values or items. kIterator is what selectattr gives, to be
// read once. kNamespace is the only value that changes. kFunction is a macro, a method or a
// global function; kLoop is the variable loop, whose `call` returns an attribute.
// kString to kRange have a length.
enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kString,
  kList,
  kTuple,
  kDict,
  kView,
  kRange,
  kIterator,
  kNamespace,
  kFunction,
  kLoop
};

struct Object;
struct Value;
using Values = std::vector<Value>;
using Pairs = std::vector<std::pair<Value, Value>>;

struct Value {
  Kind kind = Kind::kUndefined;
  int64_t number = 0;  // of a bool or an integer
  std::shared_ptr<Object> object = nullptr;

  bool is(Kind k) const { return kind == k; }
  bool isNumber() const { return is(Kind::kInt) || is(Kind::kBool); }
  bool isSized() const { return kind >= Kind::kString && kind <= Kind::kRange; }
  const Text& text() const;
  const Values& items() const;
  const Pairs& pairs() const;
};

struct Arguments {
  Values values;
  std::vector<std::pair<std::string, Value>> named;
};
using Function = std::function<Value(const Arguments&)>;

struct Object {
  Text text = {};     // of a string; the name of an undefined value
  Values items = {};  // of a list, tuple, view, range, iterator
  Pairs pairs = {};   // of a dict, a namespace
  Function call = nullptr;
  bool read = false;  // of an iterator
  int depth = 1;
};
inline const Text& Value::text() const { return object->text; }
inline const Values& Value::items() const { return object->items; }
inline const Pairs& Value::pairs() const { return object->pairs; }

Value none();
Value boolean(bool value);
Value integer(int64_t value);
Value string(Text text);
Value string(std::string_view utf8);
// Makes a list, tuple, view, range or iterator. Fails beyond 64 levels, since text recurses.
Value sequence(Kind kind, Values items);
Value dict(Pairs pairs);
Value function(Function call, Kind kind = Kind::kFunction);
Value undefined(const std::string& name);

std::string typeName(const Value& value);  // Python's
// Fails (kUndefined) if a value is not defined.
void checkDefined(const Value& value);
bool truth(const Value& value);
// Returns the number of characters, elements or pairs. Fails (kError) if a value has none.
size_t lengthOf(const Value& value);
bool equals(Work& work, const Value& a, const Value& b);
bool contains(Work& work, const Value& container, const Value& item);
// Returns the value of a key of a dict or a namespace, if there is one.
std::optional<Value> find(Work& work, const Value& dict, const Value& key);
void put(Work& work, const Value& dict, const Value& key, Value value);
// Returns what an iteration gives. Fails (kError) if a value cannot be iterated.
Values listOf(Work& work, const Value& value);
Text str(Work& work, const Value& value);
// As json.dumps with ensure_ascii=False.
Text toJson(Work& work, const Value& value);

// The operators +, -, *, %, ~, ==, !=, <, <=, >, >=, in, and not for "not in".
Value operated(Work& work, const std::string& op, const Value& left, const Value& right);
// value[first:last], or value[::-1].
Value slice(const Value& value, const Value& first, const Value& last, bool backwards);

// Filters and tests that are not here fail by name (kUnsupported). `work` outlives the results:
// functions and iterators keep it.
Value applyFilter(Work& work, const std::string& name, const Value& input,
                  const Arguments& arguments);
bool applyTest(Work& work, const std::string& name, const Value& value, const Arguments& arguments);
// value.name, which looks for an attribute first, then for an item.
Value attributeOf(Work& work, const Value& value, const std::string& name);
// value[key], which looks for an item first.
Value itemOf(Work& work, const Value& value, const Value& key);
// Returns the function that templates know by this name, or an undefined value.
Value globalFunction(Work& work, const std::string& name);

}  // namespace allot::jinja
