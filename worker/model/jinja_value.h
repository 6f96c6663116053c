#pragma once
// Values of a chat template: those of Python that templates use, with Python's rules of equality,
// order, text and JSON. Strings remember which characters came from data. One rendering owns its
// values; one thread at a time. Private to worker/model/.
#include <cstdint>
#include <functional>
#include <memory>
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
bool equal(const Text& text, std::string_view ascii);
// Returns the first place of `part` at or behind `from`, or npos. Linear in the sizes.
size_t findText(const Text& text, const Text& part, size_t from = 0);

// Thrown inside the interpreter alone; Template catches it.
struct Fault {
  Failure failure;
};
[[noreturn]] void raise(FailureKind kind, const std::string& message);

// The rendering's bound on work and memory. Each unit is a step, an element or four characters.
class Work {
 public:
  explicit Work(size_t units) : left_(units) {}
  void spend(size_t units) {
    if (units > left_) raise(FailureKind::kLimit, "it takes too many steps or too much memory");
    left_ -= units;
  }

 private:
  size_t left_;
};

// kView is that of a dict's keys, values or items. kIterator is what map, select and others give,
// to be read once. kNamespace is the only value that changes. kFunction is a macro, a method or a
// global function, kLoop the variable loop of a for. kString to kRange have a length.
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

struct Value;
using Values = std::vector<Value>;
using Pairs = std::vector<std::pair<Value, Value>>;

struct Arguments {
  Values values;
  std::vector<std::pair<std::string, Value>> named;
};

struct Object {
  Text text = {};     // of a string; the name of an undefined value
  Values items = {};  // of a list, tuple, view, range, iterator
  Pairs pairs = {};   // of a dict, a namespace
  std::function<Value(Arguments&)> call = nullptr;
  std::function<Value(const std::string&)> attribute = nullptr;  // of a loop
  bool read = false;                                             // of an iterator
  int depth = 1;
};

struct Value {
  Kind kind = Kind::kUndefined;
  int64_t number = 0;  // a bool or an integer; of a string, 1 if it is safe HTML
  std::shared_ptr<Object> object = nullptr;

  bool is(Kind k) const { return kind == k; }
  bool isNumber() const { return is(Kind::kInt) || is(Kind::kBool); }
  const Text& text() const { return object->text; }
  const Values& items() const { return object->items; }
  const Pairs& pairs() const { return object->pairs; }
};

Value none();
Value boolean(bool value);
Value integer(int64_t value);
Value string(Text text);
// Makes a list, tuple, view, range or iterator. Fails beyond 64 levels, since text recurses.
Value sequence(Kind kind, Values items);
Value dict(Pairs pairs);
Value function(std::function<Value(Arguments&)> call);
Value undefined(const std::string& name);

std::string typeName(const Value& value);  // Python's
bool truth(const Value& value);
bool equals(Work& work, const Value& a, const Value& b);
// Returns a < b. Fails (kError) if Python has no order of the two.
bool less(Work& work, const Value& a, const Value& b);
// Returns the value of a key, or nullptr. Fails (kError) if a dict cannot have such a key.
Value* find(Work& work, const Value& dict, const Value& key);
// Sets a key of a dict or a namespace.
void put(Work& work, const Value& dict, const Value& key, Value value);
// Returns what an iteration gives. Fails (kError) if a value cannot be iterated.
Values listOf(Work& work, const Value& value);
size_t lengthOf(const Value& value);
Text str(Work& work, const Value& value);
Text repr(Work& work, const Value& value);

// As json.dumps with ensure_ascii=False; `indent` below 0: on one line.
Text toJson(Work& work, const Value& value, int64_t indent, int level = 0);

// Bounds a recursion.
struct Level {
  Level(int& depth, int most) : depth_(depth) {
    if (++depth_ > most) raise(FailureKind::kLimit, "it is nested too deep");
  }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  int& depth_;
};

[[noreturn]] void unsupported(const std::string& what);
// Fails (kUndefined) because a value is not defined.
[[noreturn]] void raiseUndefined(const Value& value);

}  // namespace allot::jinja
