#include "worker/model/jinja_builtins.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <sstream>

#include "worker/model/nfc.h"

namespace allot::jinja {
namespace {

// A call of a filter, a test, a method or a global function. `given` has one argument for each
// parameter; null where none is given.
struct In {
  Work& work;
  std::string name;
  const Value& self;
  const Arguments& arguments;
  bool method = false;  // it wants a text where a filter makes one
  std::vector<const Value*> given = {};
};

struct Builtin {
  // The names of the parameters; "_": it has a place alone. "*": `run` reads the arguments.
  std::string_view parameters;
  size_t required;
  Value (*run)(In& in);
};
using Table = std::map<std::string, Builtin, std::less<>>;

Value run(const Builtin& builtin, In in) {
  in.work.spend(2);
  if (builtin.parameters == "*") return builtin.run(in);
  const auto fail = [&] { unsupported(in.name + " with such arguments"); };
  std::vector<std::string> names;
  std::istringstream words{std::string(builtin.parameters)};
  for (std::string word; words >> word;) names.push_back(word);
  for (const Value& value : in.arguments.values) in.given.push_back(&value);
  if (in.given.size() > names.size()) fail();
  in.given.resize(names.size());
  for (const auto& [name, value] : in.arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end() || name == "_") fail();
    const Value*& place = in.given[static_cast<size_t>(at - names.begin())];
    if (std::exchange(place, &value) != nullptr) fail();
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (in.given[i] == nullptr) fail();
  }
  return builtin.run(in);
}

const Text& textIn(const Value& value, const std::string& what) {
  if (!value.is(Kind::kString))
    raise(FailureKind::kError, what + " wants a text, not " + typeName(value));
  if (value.number == 1) unsupported(what + " of safe text");
  return value.text();
}

int64_t integerIn(const Value* value, int64_t standard, const std::string& what) {
  if (value == nullptr) return standard;
  if (!value->isNumber())
    raise(FailureKind::kError, what + " wants an integer, not " + typeName(*value));
  if (std::abs(value->number) >> 40 != 0) unsupported(what + " with such a number");
  return value->number;
}

Value made(In& in, Text text) {
  in.work.spend(text.size() / 4);
  return string(std::move(text));
}

// The text of a filter's input.
Text own(In& in) {
  Text text = str(in.work, in.self);
  in.work.spend(text.size() / 4);
  return text;
}

Text lowered(const Text& text) {
  Text out;
  for (const char32_t marked : text) {
    const char32_t c = bare(marked), mark = marked & kData;
    if (c < 0x80) {
      out += (c >= 'A' && c <= 'Z' ? c + 32 : c) | mark;
    } else if (c == 0x3a3 || !nfcAvailable()) {
      unsupported("lower case of " + utf8Of(Text(1, c)));
    } else {
      for (const char32_t low : textOf(lowerCase(utf8Of(Text(1, c))))) out += low | mark;
    }
  }
  return out;
}

Text uppered(const Text& text) {
  Text out;
  for (const char32_t marked : text) {
    const std::optional<uint32_t> upper = upperCase(bare(marked));
    if (!upper) unsupported("upper case of " + utf8Of(Text(1, marked)));
    out += *upper | (marked & kData);
  }
  return out;
}

Text stripped(const Text& text, const Value* characters, bool left, bool right) {
  const bool blanks = characters == nullptr || characters->is(Kind::kNone);
  const Text set = blanks ? Text() : textIn(*characters, "strip");
  if (set.size() > 64) unsupported("strip of more than 64 characters");
  const auto goes = [&](char32_t c) {
    return blanks ? isSpace(c) : findText(set, Text(1, c)) != Text::npos;
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end && goes(text[begin])) ++begin;
  while (right && end > begin && goes(text[end - 1])) --end;
  return text.substr(begin, end - begin);
}

// strip, lstrip and rstrip
Value strip(In& in) {
  const bool left = in.name != "rstrip", right = in.name != "lstrip";
  return made(in, stripped(textIn(in.self, in.name), in.given[0], left, right));
}

// Splits at up to `most` places; below 0: at all.
std::vector<Text> pieces(Work& work, const Text& text, const Text& by, int64_t most) {
  std::vector<Text> parts;
  size_t at = 0;
  for (size_t found; most != 0 && (found = findText(text, by, at)) != Text::npos; --most) {
    work.spend(2 + (found - at + by.size()) / 4);
    parts.push_back(text.substr(at, found - at));
    at = found + by.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

Text joined(Work& work, const Text& separator, const std::vector<Text>& parts) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    work.spend(1 + (separator.size() + parts[i].size()) / 4);
    out += (i > 0 ? separator : Text()) + parts[i];
  }
  return out;
}

Value split(In& in) {
  const Text& own = textIn(in.self, in.name);
  if (in.given[0] == nullptr || in.given[0]->is(Kind::kNone)) unsupported("split at blanks");
  const Text& by = textIn(*in.given[0], in.name);
  if (by.empty()) raise(FailureKind::kError, "split has an empty separator");
  Values parts;
  for (Text& part : pieces(in.work, own, by, integerIn(in.given[1], -1, in.name)))
    parts.push_back(string(std::move(part)));
  return sequence(Kind::kList, std::move(parts));
}

// startswith and endswith
Value startsOrEnds(In& in) {
  const Text& own = textIn(in.self, in.name);
  if (in.given[0]->is(Kind::kTuple)) unsupported(in.name + " with a tuple");
  const Text& part = textIn(*in.given[0], in.name);
  if (part.size() > own.size()) return boolean(false);
  const size_t at = in.name == "startswith" ? 0 : own.size() - part.size();
  return boolean(findText(own.substr(at, part.size()), part) == 0);
}

// The method format with fields "{}" alone.
Value format(In& in) {
  const Text &own = textIn(in.self, in.name), field = U"{}";
  const std::vector<Text> parts = pieces(in.work, own, field, -1);
  const Values& values = in.arguments.values;
  if (!in.arguments.named.empty() || parts.size() != values.size() + 1)
    unsupported("format with such arguments");
  Text out = parts[0];
  for (size_t i = 0; i < parts.size(); ++i) {
    if (findText(parts[i], U"{") != Text::npos || findText(parts[i], U"}") != Text::npos)
      unsupported("format with other fields than {}");
    if (i > 0) out += str(in.work, values[i - 1]) + parts[i];
    in.work.spend(out.size() / 4);
  }
  return made(in, std::move(out));
}

Value lower(In& in) { return made(in, lowered(in.method ? textIn(in.self, in.name) : own(in))); }
Value upper(In& in) { return made(in, uppered(in.method ? textIn(in.self, in.name) : own(in))); }
Value replace(In& in) {
  const auto read = [&](const Value& v) {
    return in.method ? textIn(v, in.name) : str(in.work, v);
  };
  const Text old = read(*in.given[0]);
  if (old.empty()) unsupported("replace of an empty text");
  const std::vector<Text> parts = pieces(in.work, read(in.self), old, -1);
  return made(in, joined(in.work, read(*in.given[1]), parts));
}

const Table& textMethods() {
  static const Table kTable = {
      {"endswith", {"_", 1, startsOrEnds}},
      {"format", {"*", 0, format}},
      {"lower", {"", 0, lower}},
      {"lstrip", {"_", 0, strip}},
      {"replace", {"_ _", 2, replace}},
      {"rstrip", {"_", 0, strip}},
      {"split", {"sep maxsplit", 0, split}},
      {"startswith", {"_", 1, startsOrEnds}},
      {"strip", {"_", 0, strip}},
      {"upper", {"", 0, upper}},
  };
  return kTable;
}

// keys, values and items
Value view(In& in) {
  Values items;
  for (const auto& [key, value] : in.self.pairs()) {
    in.work.spend(3);
    items.push_back(in.name == "keys"     ? key
                    : in.name == "values" ? value
                                          : sequence(Kind::kTuple, {key, value}));
  }
  return sequence(Kind::kView, std::move(items));
}

Value get(In& in) {
  const Value* found = find(in.work, in.self, *in.given[0]);
  return found != nullptr ? *found : in.given[1] != nullptr ? *in.given[1] : none();
}

const Table& dictMethods() {
  static const Table kTable = {
      {"get", {"_ _", 1, get}},
      {"items", {"", 0, view}},
      {"keys", {"", 0, view}},
      {"values", {"", 0, view}},
  };
  return kTable;
}

bool among(const std::string& name, std::string_view words) {
  return (" " + std::string(words) + " ").find(" " + name + " ") != std::string::npos;
}

// What Python's values have beside the methods of the tables.
constexpr std::string_view
    kOfDicts = "copy fromkeys",
    kForbidden = "append clear extend insert pop popitem remove reverse setdefault sort update";
constexpr std::string_view kOfOthers =
    "capitalize casefold center count encode expandtabs find format_map index isalnum isalpha "
    "isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper "
    "join ljust maketrans partition removeprefix removesuffix rfind rindex rjust rpartition rsplit "
    "splitlines swapcase title translate zfill as_integer_ratio bit_count bit_length close "
    "conjugate copy denominator from_bytes fromhex gi_code gi_frame gi_running gi_suspended "
    "gi_yieldfrom hex imag is_integer isdisjoint mapping numerator real send start step stop throw "
    "to_bytes";

// Returns a Python attribute of the value, or nothing if Python has none of this name.
std::optional<Value> pythonAttribute(Work& work, const Value& value, const std::string& name) {
  const Kind kind = value.kind;
  const bool text = kind == Kind::kString;
  if (kind == Kind::kNamespace) {
    const Value* found = find(work, value, string(textOf(name)));
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (text || kind == Kind::kDict) {
    const Table& methods = text ? textMethods() : dictMethods();
    if (const auto found = methods.find(name); found != methods.end()) {
      return function([&work, &method = *found, value](Arguments& arguments) {
        return run(method.second, {work, method.first, value, arguments, true});
      });
    }
  }
  if ((kind == Kind::kDict || kind == Kind::kList) && among(name, kForbidden))
    raise(FailureKind::kForbidden, "the sandbox of templates forbids the method " + name);
  if (kind == Kind::kLoop) return value.object->attribute(name);
  if (name.starts_with("__") || kind == Kind::kFunction ||
      among(name, kind == Kind::kDict ? kOfDicts : kOfOthers))
    unsupported("the attribute " + name + " of a value of type " + typeName(value));
  return std::nullopt;
}

std::optional<Value> itemAt(Work& work, const Value& value, const Value& key) {
  if (value.is(Kind::kDict)) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) return std::nullopt;
    const Value* found = find(work, value, key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  const bool text = value.is(Kind::kString);
  if (!key.isNumber() ||
      !(text || value.is(Kind::kList) || value.is(Kind::kTuple) || value.is(Kind::kRange)))
    return std::nullopt;
  const auto size = static_cast<int64_t>(lengthOf(value));
  const int64_t index = key.number < 0 ? key.number + size : key.number;
  if (index < 0 || index >= size) return std::nullopt;
  const auto at = static_cast<size_t>(index);
  return text ? string(Text(1, value.text()[at])) : value.items()[at];
}

// An attribute as filters take it: a name alone.
Value pathOf(Work& work, const Value& value, const Value& path) {
  const Text name = textIn(path, "an attribute");
  const bool plain = std::none_of(name.begin(), name.end(), [](char32_t c) {
    return bare(c) == '.' || bare(c) == ',' || (bare(c) >= '0' && bare(c) <= '9');
  });
  if (!plain) unsupported("an attribute with dots, commas or digits");
  if (value.is(Kind::kNamespace)) unsupported("an attribute of a namespace in a filter");
  return itemOf(work, value, path);
}

Value withoutCase(const Value& value) {
  return value.is(Kind::kString) ? string(lowered(value.text())) : value;
}

Value dictsort(In& in) {
  if (in.self.is(Kind::kUndefined)) raiseUndefined(in.self);
  if (!in.self.is(Kind::kDict))
    raise(FailureKind::kError, "dictsort wants a dict, not " + typeName(in.self));
  Values items = view(in).items();
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return less(in.work, withoutCase(a.items()[0]), withoutCase(b.items()[0]));
  });
  return sequence(Kind::kList, std::move(items));
}

Value toInteger(In& in) {
  if (in.self.is(Kind::kUndefined)) raiseUndefined(in.self);
  if (in.self.isNumber()) return integer(in.self.number);
  if (!in.self.is(Kind::kString)) unsupported("int of a value of type " + typeName(in.self));
  const std::string plain = utf8Of(stripped(in.self.text(), nullptr, true, true));
  const bool digits = !plain.empty() && plain.size() < 18 &&
                      plain.find_first_not_of("0123456789", plain[0] == '-') == std::string::npos;
  if (!digits || plain == "-") unsupported("int of a text that is not an integer");
  return integer(std::stoll(plain));
}

Value json(In& in) {
  if (in.given[0] != nullptr && truth(*in.given[0])) unsupported("tojson with ensure_ascii");
  const bool indented = in.given[1] != nullptr && !in.given[1]->is(Kind::kNone);
  const int64_t width = indented ? integerIn(in.given[1], 0, in.name) : -1;
  if (indented && (width < 0 || width > 100)) unsupported("tojson with such an indent");
  return made(in, toJson(in.work, in.self, width));
}

// Gives what `items` makes, to be read once. Jinja fails when it is read; this cannot wait.
template <typename Items>
Value iterator(In& in, const Items& items) {
  try {
    return sequence(Kind::kIterator, items());
  } catch (const Fault& fault) {
    if (fault.failure.kind == FailureKind::kLimit) throw;
    unsupported(in.name + ", since " + fault.failure.message);
  }
}

// map, select and reject, of values or of their attributes.
Value each(In& in) {
  return iterator(in, [&] {
    const bool map = in.name == "map", attributes = in.name.ends_with("attr");
    const Values& values = in.arguments.values;
    const auto& named = in.arguments.named;
    if (map ? values.size() + named.size() != 1 || (!named.empty() && named[0].first != "attribute")
            : !named.empty() || values.size() < (attributes ? 1 : 0))
      unsupported("such arguments");
    Values items;
    if (!truth(in.self)) return items;
    for (const Value& item : listOf(in.work, in.self)) {
      in.work.spend(2);
      Arguments rest;
      if (map) {
        items.push_back(named.empty()
                            ? applyFilter(in.work, utf8Of(textIn(values[0], in.name)), item, rest)
                            : pathOf(in.work, item, named[0].second));
        continue;
      }
      const Value value = attributes ? pathOf(in.work, item, values[0]) : item;
      const size_t test = attributes ? 1 : 0;
      for (size_t i = test + 1; i < values.size(); ++i) rest.values.push_back(values[i]);
      const bool is = values.size() <= test
                          ? truth(value)
                          : applyTest(in.work, utf8Of(textIn(values[test], in.name)), value, rest);
      if (is == in.name.starts_with("select")) items.push_back(item);
    }
    return items;
  });
}

Value itemsOf(In& in) {
  return iterator(in, [&] {
    if (!in.self.is(Kind::kDict) && !in.self.is(Kind::kUndefined))
      unsupported("a value of type " + typeName(in.self) + " has none");
    return in.self.is(Kind::kDict) ? view(in).items() : Values();
  });
}

Value join(In& in) {
  std::vector<Text> parts;
  for (const Value& item : listOf(in.work, in.self)) {
    parts.push_back(str(in.work, item));
    in.work.spend(parts.back().size() / 4);
  }
  const Text separator = in.given[0] == nullptr ? Text() : str(in.work, *in.given[0]);
  return made(in, joined(in.work, separator, parts));
}

Value standard(In& in) {
  const bool if_false = in.given[1] != nullptr && truth(*in.given[1]);
  if (!in.self.is(Kind::kUndefined) && !(if_false && !truth(in.self))) return in.self;
  return in.given[0] == nullptr ? string({}) : *in.given[0];
}

// string and safe
Value toText(In& in) {
  if (in.name == "string" && in.self.is(Kind::kString)) return in.self;
  Value out = made(in, own(in));
  out.number = in.name == "safe";
  return out;
}

Value length(In& in) { return integer(static_cast<int64_t>(lengthOf(in.self))); }
Value list(In& in) { return sequence(Kind::kList, listOf(in.work, in.self)); }
Value trim(In& in) { return made(in, stripped(own(in), in.given[0], true, true)); }

const Table& filters() {
  static const Table kTable = {
      {"default", {"default_value boolean", 0, standard}},
      {"dictsort", {"", 0, dictsort}},
      {"int", {"", 0, toInteger}},
      {"items", {"", 0, itemsOf}},
      {"join", {"d", 0, join}},
      {"length", {"", 0, length}},
      {"list", {"", 0, list}},
      {"lower", {"", 0, lower}},
      {"map", {"*", 0, each}},
      {"reject", {"*", 0, each}},
      {"rejectattr", {"*", 0, each}},
      {"replace", {"old new", 2, replace}},
      {"safe", {"", 0, toText}},
      {"select", {"*", 0, each}},
      {"selectattr", {"*", 0, each}},
      {"string", {"", 0, toText}},
      {"tojson", {"ensure_ascii indent", 0, json}},
      {"trim", {"chars", 0, trim}},
      {"upper", {"", 0, upper}},
  };
  return kTable;
}

Value equalto(In& in) { return boolean(equals(in.work, in.self, *in.given[0])); }

// Each other test looks at the kind of a value, and some at the value.
Value kindTest(In& in) {
  const Kind kind = in.self.kind;
  const std::string& name = in.name;
  if (name == "boolean") return boolean(kind == Kind::kBool);
  if (name == "true" || name == "false")
    return boolean(kind == Kind::kBool && truth(in.self) == (name == "true"));
  if (name == "defined") return boolean(kind != Kind::kUndefined);
  if (name == "undefined") return boolean(kind == Kind::kUndefined);
  if (name == "none") return boolean(kind == Kind::kNone);
  if (name == "number") return boolean(kind >= Kind::kBool && kind <= Kind::kInt);
  if (name == "string") return boolean(kind == Kind::kString);
  if (name == "mapping") return boolean(kind == Kind::kDict);
  const bool lazy = kind == Kind::kView || kind == Kind::kIterator || kind == Kind::kLoop;
  const bool sized = kind >= Kind::kString && kind <= Kind::kRange;
  return boolean(kind == Kind::kUndefined || (lazy ? name == "iterable" : sized));
}

const Table& tests() {
  static const Table kTable = [] {
    Table table = {{"equalto", {"_", 1, equalto}}};
    for (const char* name : {"boolean", "defined", "false", "iterable", "mapping", "none", "number",
                             "sequence", "string", "true", "undefined"})
      table[name] = {"", 0, kindTest};
    return table;
  }();
  return kTable;
}

Value range(In& in) {
  const bool one = in.given[1] == nullptr;
  const int64_t first = integerIn(in.given[0], 0, in.name);
  const int64_t begin = one ? 0 : first, end = integerIn(in.given[1], first, in.name);
  const int64_t step = integerIn(in.given[2], 1, in.name);
  if (step == 0) raise(FailureKind::kError, "range has the step 0");
  Values items;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    if (items.size() == 100'000) raise(FailureKind::kError, "a range of more than 100000 numbers");
    in.work.spend(1);
    items.push_back(integer(i));
  }
  return sequence(Kind::kRange, std::move(items));
}

Value makeNamespace(In& in) {
  if (!in.arguments.values.empty()) unsupported("namespace of a dict");
  Value space = dict({});
  for (const auto& [key, value] : in.arguments.named)
    put(in.work, space, string(textOf(key)), value);
  space.kind = Kind::kNamespace;
  return space;
}

Value today(In& in) {
  const std::string format = utf8Of(textIn(*in.given[0], in.name));
  std::tm day{};
  day.tm_mday = 26, day.tm_mon = 6, day.tm_year = 124, day.tm_wday = 5, day.tm_yday = 207;
  char buffer[256];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &day);
  if (size == 0) unsupported("strftime_now with the format " + format);
  return string(textOf({buffer, size}));
}

Value raiseException(In& in) {
  raise(FailureKind::kRaised, "it says: " + utf8Of(str(in.work, *in.given[0])));
}

const Table& functions() {
  static const Table kTable = {
      {"namespace", {"*", 0, makeNamespace}},
      {"raise_exception", {"message", 1, raiseException}},
      {"range", {"_ _ _", 1, range}},
      {"strftime_now", {"format", 1, today}},
  };
  return kTable;
}

}  // namespace

bool isFilter(const std::string& name) { return filters().contains(name); }
bool isTest(const std::string& name) { return tests().contains(name); }

Value applyFilter(Work& work, const std::string& name, const Value& input, Arguments& arguments) {
  const auto filter = filters().find(name);
  if (filter == filters().end()) unsupported("the filter " + name);
  if (input.is(Kind::kString) && input.number == 1 && !among(name, "safe string length tojson"))
    unsupported("the filter " + name + " of safe text");
  return run(filter->second, {work, name, input, arguments});
}

bool applyTest(Work& work, const std::string& name, const Value& value, Arguments& arguments) {
  const auto test = tests().find(name);
  if (test == tests().end()) unsupported("the test " + name);
  return truth(run(test->second, {work, name, value, arguments}));
}

bool contains(Work& work, const Value& container, const Value& item) {
  if (container.is(Kind::kString)) {
    if (!item.is(Kind::kString))
      raise(FailureKind::kError, "a text cannot hold a value of type " + typeName(item));
    work.spend((container.text().size() + item.text().size()) / 4);
    return findText(container.text(), item.text()) != Text::npos;
  }
  if (container.is(Kind::kDict)) return find(work, container, item) != nullptr;
  const Values items = listOf(work, container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& one) { return equals(work, one, item); });
}

Value attributeOf(Work& work, const Value& value, const std::string& name) {
  if (value.is(Kind::kUndefined)) raiseUndefined(value);
  if (auto found = pythonAttribute(work, value, name)) return *found;
  return itemAt(work, value, string(textOf(name))).value_or(undefined(name));
}

Value itemOf(Work& work, const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) raiseUndefined(value);
  if (auto found = itemAt(work, value, key)) return *found;
  if (!key.is(Kind::kString)) return undefined("an item");
  const std::string name = utf8Of(key.text());
  return pythonAttribute(work, value, name).value_or(undefined(name));
}

Value globalFunction(Work& work, const std::string& name) {
  const auto found = functions().find(name);
  if (found == functions().end()) {
    if (among(name, "cycler dict joiner lipsum")) unsupported("the function " + name);
    return undefined(name);
  }
  return function([&work, &builtin = *found](Arguments& arguments) {
    return run(builtin.second, {work, builtin.first, {}, arguments});
  });
}

}  // namespace allot::jinja
