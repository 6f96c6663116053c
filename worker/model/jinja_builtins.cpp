#include <algorithm>
#include <ctime>
#include <map>
#include <optional>

#include "worker/model/jinja_parts.h"
#include "worker/model/nfc.h"

namespace allot::jinja {
namespace {

// A call of a filter, a method or a global function.
struct In {
  Work& work;
  std::string name;
  const Value& self;
  const Arguments& arguments;

  // Returns an argument, or null if there are fewer.
  const Value* at(size_t i) const {
    return i < arguments.values.size() ? &arguments.values[i] : nullptr;
  }
};

struct Builtin {
  size_t least, most;  // arguments; they have no names, unless kOwn: `run` checks them
  Value (*run)(In& in);
};
constexpr size_t kOwn = SIZE_MAX;
using Table = std::map<std::string, Builtin>;

Value run(const Table::value_type& entry, Work& work, const Value& self,
          const Arguments& arguments) {
  const auto& [least, most, run] = entry.second;
  In in{work, entry.first.substr(entry.first.find(' ') + 1), self, arguments};
  work.spend(2 + (self.is(Kind::kString) ? self.text().size() / 4 : 0));
  const size_t count = arguments.values.size();
  if (most != kOwn && (count < least || count > most || !arguments.named.empty()))
    unsupported(in.name + " with such arguments");
  return run(in);
}

// Returns true if a text has one of these characters.
bool hasOneOf(const Text& text, std::u32string_view characters) {
  return std::any_of(text.begin(), text.end(), [&](char32_t c) {
    return characters.find(bare(c)) != std::u32string_view::npos;
  });
}

const Text& textIn(const Value& value, const std::string& what) {
  if (!value.is(Kind::kString))
    raise(FailureKind::kError, what + " wants a text, not " + typeName(value));
  return value.text();
}

int64_t integerIn(const Value* value, int64_t standard, const std::string& what) {
  if (value == nullptr) return standard;
  if (!value->isNumber())
    raise(FailureKind::kError, what + " wants an integer, not " + typeName(*value));
  if (value->number >> 40 != 0 && value->number >> 40 != -1)
    unsupported(what + " with such a number");
  return value->number;
}

Value lower(In& in) {
  Text out;
  const Text text = str(in.work, in.self);
  in.work.spend(text.size());
  for (const char32_t marked : text) {
    const char32_t c = bare(marked);
    if (c < 0x80) {
      out += c >= 'A' && c <= 'Z' ? marked + 32 : marked;
      continue;
    }
    in.work.spend(8);
    // A sigma's lower case depends on its neighbours.
    if (c == 0x3a3 || !nfcAvailable()) unsupported("lower case of " + utf8Of({c}));
    for (const char32_t low : textOf(lowerCase(utf8Of({c})))) out += low | (marked & kData);
  }
  return string(std::move(out));
}

Value upper(In& in) {
  Text out = str(in.work, in.self);
  for (char32_t& c : out) {
    if (bare(c) >= 0x80) unsupported("upper case of " + utf8Of({c}));
    if (bare(c) >= 'a' && bare(c) <= 'z') c -= 32;
  }
  return string(std::move(out));
}

// strip, lstrip, rstrip, and the filter trim
Value strip(In& in) {
  const Text text = str(in.work, in.self);
  const bool blanks = in.at(0) == nullptr || in.at(0)->is(Kind::kNone);
  const Text set = blanks ? Text() : textIn(*in.at(0), in.name);
  if (set.size() > 64) unsupported("strip of more than 64 characters");
  in.work.spend(text.size());
  const auto goes = [&](char32_t c) {
    if (blanks) return isSpace(c);
    return std::any_of(set.begin(), set.end(), [&](char32_t one) { return bare(one) == bare(c); });
  };
  size_t begin = 0, end = text.size();
  while (in.name != "rstrip" && begin < end && goes(text[begin])) ++begin;
  while (in.name != "lstrip" && end > begin && goes(text[end - 1])) --end;
  return string(text.substr(begin, end - begin));
}

// Splits at up to `most` places; below 0: at all.
std::vector<Text> pieces(Work& work, const Text& text, const Text& by, int64_t most) {
  std::vector<Text> parts;
  size_t at = 0;
  for (size_t found; most != 0 && (found = findText(text, by, at)) != Text::npos; --most) {
    work.spend(kObjectUnits + by.size() / 4);
    parts.push_back(text.substr(at, found - at));
    at = found + by.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

Value joined(Work& work, const Text& separator, const std::vector<Text>& parts) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    work.spend(1 + (separator.size() + parts[i].size()) / 4);
    out += (i > 0 ? separator : Text()) + parts[i];
  }
  return string(std::move(out));
}

Value split(In& in) {
  if (in.at(0)->is(Kind::kNone)) unsupported("split at blanks");
  const Text& by = textIn(*in.at(0), in.name);
  if (by.empty()) raise(FailureKind::kError, "split has an empty separator");
  Values parts;
  for (Text& part : pieces(in.work, in.self.text(), by, integerIn(in.at(1), -1, in.name)))
    parts.push_back(string(std::move(part)));
  return sequence(Kind::kList, std::move(parts));
}

// startswith and endswith
Value startsOrEnds(In& in) {
  const Text& own = in.self.text();
  if (in.at(0)->is(Kind::kTuple)) unsupported(in.name + " with a tuple");
  const Text& part = textIn(*in.at(0), in.name);
  if (part.size() > own.size()) return boolean(false);
  const size_t at = in.name == "startswith" ? 0 : own.size() - part.size();
  return boolean(findText(own.substr(at, part.size()), part) == 0);
}

// The method format with fields "{}" alone.
Value format(In& in) {
  std::vector<Text> parts = pieces(in.work, in.self.text(), U"{}", -1);
  const Values& values = in.arguments.values;
  if (!in.arguments.named.empty() || parts.size() != values.size() + 1)
    unsupported("format with such arguments");
  for (size_t i = 0; i < parts.size(); ++i) {
    if (hasOneOf(parts[i], U"{}")) unsupported("format with other fields than {}");
    if (i > 0) parts[i].insert(0, str(in.work, values[i - 1]));
    in.work.spend(parts[i].size() / 4);
  }
  return joined(in.work, {}, parts);
}

Value replace(In& in) {
  if (!in.at(0)->is(Kind::kString) || !in.at(1)->is(Kind::kString))
    unsupported("replace of other values than texts");
  const Text& old = in.at(0)->text();
  if (old.empty()) unsupported("replace of an empty text");
  return joined(in.work, in.at(1)->text(), pieces(in.work, str(in.work, in.self), old, -1));
}

// The method items of a dict.
Value view(In& in) {
  Values items;
  for (const auto& [key, value] : in.self.pairs()) {
    in.work.spend(kObjectUnits + 4);
    items.push_back(sequence(Kind::kTuple, {key, value}));
  }
  return sequence(Kind::kView, std::move(items));
}

Value get(In& in) {
  return find(in.work, in.self, *in.at(0)).value_or(in.at(1) != nullptr ? *in.at(1) : none());
}

Value dictsort(In& in) {
  checkDefined(in.self);
  if (!in.self.is(Kind::kDict))
    raise(FailureKind::kError, "dictsort wants a dict, not " + typeName(in.self));
  Values items;
  for (const auto& [key, value] : in.self.pairs()) {
    in.work.spend(kObjectUnits + 4);
    if (!key.isNumber()) unsupported("dictsort of keys that are not integers");
    items.push_back(sequence(Kind::kTuple, {key, value}));
  }
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    in.work.spend(1);
    return a.items()[0].number < b.items()[0].number;
  });
  return sequence(Kind::kList, std::move(items));
}

Value toInteger(In& in) {
  checkDefined(in.self);
  if (!in.self.isNumber()) unsupported("int of a value of type " + typeName(in.self));
  return integer(in.self.number);
}

Value json(In& in) {
  const auto& [values, named] = in.arguments;
  const bool plain = named.empty() || (named.size() == 1 && named[0].first == "ensure_ascii" &&
                                       !truth(named[0].second));
  if (!values.empty() || !plain) unsupported("tojson with other arguments than ensure_ascii=false");
  return string(toJson(in.work, in.self));
}

// selectattr and rejectattr. Jinja fails when the result is read; this cannot wait.
Value selectAttribute(In& in) try {
  const Values& values = in.arguments.values;
  const Text& name = textIn(*in.at(0), in.name);
  if (hasOneOf(name, U".,0123456789")) unsupported("its attribute has dots, commas or digits");
  Arguments rest;
  for (size_t i = 2; i < values.size(); ++i) rest.values.push_back(values[i]);
  Values items;
  for (const Value& item : truth(in.self) ? listOf(in.work, in.self) : Values()) {
    in.work.spend(4);
    if (item.is(Kind::kNamespace)) unsupported("an item is a namespace");
    const Value value = itemOf(in.work, item, values[0]);
    const bool is = values.size() < 2
                        ? truth(value)
                        : applyTest(in.work, utf8Of(textIn(values[1], in.name)), value, rest);
    if (is == (in.name == "selectattr")) items.push_back(item);
  }
  return sequence(Kind::kIterator, std::move(items));
} catch (const Fault& fault) {
  if (fault.failure.kind == FailureKind::kLimit) throw;
  unsupported(in.name + ", since " + fault.failure.message);
}

Value join(In& in) {
  std::vector<Text> parts;
  for (const Value& item : listOf(in.work, in.self)) {
    parts.push_back(str(in.work, item));
    in.work.spend(parts.back().size() / 4);
  }
  return joined(in.work, in.at(0) == nullptr ? Text() : str(in.work, *in.at(0)), parts);
}

Value standard(In& in) {
  const bool if_false = in.at(1) != nullptr && truth(*in.at(1));
  if (!in.self.is(Kind::kUndefined) && !(if_false && !truth(in.self))) return in.self;
  return in.at(0) == nullptr ? string(Text()) : *in.at(0);
}

Value length(In& in) { return integer(static_cast<int64_t>(lengthOf(in.self))); }
Value list(In& in) { return sequence(Kind::kList, listOf(in.work, in.self)); }
Value toText(In& in) { return string(str(in.work, in.self)); }

Value range(In& in) {
  const bool one = in.at(1) == nullptr;
  const int64_t first = integerIn(in.at(0), 0, in.name);
  const int64_t begin = one ? 0 : first, end = integerIn(in.at(1), first, in.name);
  const int64_t step = integerIn(in.at(2), 1, in.name);
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
  for (const auto& [key, value] : in.arguments.named) put(in.work, space, string(key), value);
  space.kind = Kind::kNamespace;
  return space;
}

Value today(In& in) {
  const std::string format = utf8Of(textIn(*in.at(0), in.name));
  // Time zones and parts of a second are Python's own.
  for (size_t at = 0; (at = format.find('%', at)) != std::string::npos; ++at) {
    at = format.find_first_not_of("-_0^#123456789EO:", at + 1);
    if (at == std::string::npos || std::string_view("fszZ").find(format[at]) != std::string::npos)
      unsupported("strftime_now with the format " + format);
  }
  std::tm day{};
  day.tm_mday = 26, day.tm_mon = 6, day.tm_year = 124, day.tm_wday = 5, day.tm_yday = 207;
  char buffer[256];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &day);
  if (size == 0) unsupported("strftime_now with the format " + format);
  return string(std::string_view(buffer, size));
}

Value raiseException(In& in) {
  raise(FailureKind::kRaised, "it says: " + utf8Of(str(in.work, *in.at(0))));
}

const Table& builtins() {
  static const Table kTable = {
      {"dict get", {1, 2, get}},
      {"dict items", {0, 0, view}},
      {"filter default", {0, 2, standard}},
      {"filter dictsort", {0, 0, dictsort}},
      {"filter int", {0, 0, toInteger}},
      {"filter join", {0, 1, join}},
      {"filter length", {0, 0, length}},
      {"filter list", {0, 0, list}},
      {"filter lower", {0, 0, lower}},
      {"filter rejectattr", {1, 3, selectAttribute}},
      {"filter replace", {2, 2, replace}},
      {"filter selectattr", {1, 3, selectAttribute}},
      {"filter string", {0, 0, toText}},
      {"filter tojson", {0, kOwn, json}},
      {"filter trim", {0, 1, strip}},
      {"filter upper", {0, 0, upper}},
      {"namespace", {0, kOwn, makeNamespace}},
      {"raise_exception", {1, 1, raiseException}},
      {"range", {1, 3, range}},
      {"str endswith", {1, 1, startsOrEnds}},
      {"str format", {0, kOwn, format}},
      {"str lower", {0, 0, lower}},
      {"str lstrip", {0, 1, strip}},
      {"str replace", {2, 2, replace}},
      {"str rstrip", {0, 1, strip}},
      {"str split", {1, 2, split}},
      {"str startswith", {1, 1, startsOrEnds}},
      {"str strip", {0, 1, strip}},
      {"str upper", {0, 0, upper}},
      {"strftime_now", {1, 1, today}},
  };
  return kTable;
}

// Returns the function of this name, which is in the table, with its first value.
std::optional<Value> bound(Work& work, const std::string& name, const Value& self) {
  const auto found = builtins().find(name);
  if (found == builtins().end()) return std::nullopt;
  Value made = function([&work, &builtin = *found, self](const Arguments& arguments) {
    return run(builtin, work, self, arguments);
  });
  if (self.object) made.object->depth += self.object->depth;
  return made;
}

// Returns a Python attribute of the value, or nothing if Python has none of this name.
std::optional<Value> pythonAttribute(Work& work, const Value& value, const std::string& name) {
  constexpr std::string_view kOfDicts =
      "clear copy fromkeys keys pop popitem setdefault update values";
  constexpr std::string_view kOfOthers =
      "append as_integer_ratio bit_count bit_length capitalize casefold center clear conjugate "
      "copy "
      "count denominator encode expandtabs extend find format_map from_bytes imag index insert "
      "isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable "
      "isspace "
      "istitle isupper is_integer join ljust maketrans numerator partition pop real remove "
      "removeprefix removesuffix reverse rfind rindex rjust rpartition rsplit sort splitlines "
      "swapcase title to_bytes translate zfill";
  const Kind kind = value.kind;
  if (kind == Kind::kLoop) return value.object->call({{string(name)}, {}});
  if (kind == Kind::kNamespace) return find(work, value, string(name));
  if (auto method = bound(work, typeName(value) + " " + name, value)) return method;
  if (name.starts_with("__") || among(name, kind == Kind::kDict ? kOfDicts : kOfOthers) ||
      kind > Kind::kDict)
    unsupported("the attribute " + name + " of a value of type " + typeName(value));
  return std::nullopt;
}

std::optional<Value> itemAt(Work& work, const Value& value, const Value& key) {
  if (value.is(Kind::kDict)) return find(work, value, key);
  if (!key.isNumber() || !value.isSized() || value.is(Kind::kView)) return std::nullopt;
  const auto size = static_cast<int64_t>(lengthOf(value));
  const int64_t index = key.number < 0 ? key.number + size : key.number;
  if (index < 0 || index >= size) return std::nullopt;
  const auto at = static_cast<size_t>(index);
  return value.is(Kind::kString) ? string(Text(1, value.text()[at])) : value.items()[at];
}

}  // namespace

Value applyFilter(Work& work, const std::string& name, const Value& input,
                  const Arguments& arguments) {
  const auto filter = builtins().find("filter " + name);
  if (filter == builtins().end()) unsupported("the filter " + name);
  return run(*filter, work, input, arguments);
}

bool applyTest(Work& work, const std::string& name, const Value& value,
               const Arguments& arguments) {
  const Kind kind = value.kind;
  if (!arguments.named.empty() || arguments.values.size() != (name == "equalto" ? 1 : 0))
    unsupported("the test " + name + " with such arguments");
  if (name == "equalto") return equals(work, value, arguments.values[0]);
  if (name == "boolean") return kind == Kind::kBool;
  if (name == "true" || name == "false")
    return kind == Kind::kBool && truth(value) == (name == "true");
  if (name == "defined") return kind != Kind::kUndefined;
  if (name == "undefined") return kind == Kind::kUndefined;
  if (name == "none") return kind == Kind::kNone;
  if (name == "number") return value.isNumber();
  if (name == "string") return kind == Kind::kString;
  if (name == "mapping") return kind == Kind::kDict;
  if (!among(name, "iterable sequence")) unsupported("the test " + name);
  const bool lazy = kind == Kind::kView || kind == Kind::kIterator || kind == Kind::kLoop;
  return kind == Kind::kUndefined || (lazy ? name == "iterable" : value.isSized());
}

Value attributeOf(Work& work, const Value& value, const std::string& name) {
  checkDefined(value);
  if (auto found = pythonAttribute(work, value, name)) return *found;
  return itemAt(work, value, string(name)).value_or(undefined(name));
}

Value itemOf(Work& work, const Value& value, const Value& key) {
  checkDefined(value);
  if (auto found = itemAt(work, value, key)) return *found;
  if (!key.is(Kind::kString)) return undefined("an item");
  const std::string name = utf8Of(key.text());
  return pythonAttribute(work, value, name).value_or(undefined(name));
}

Value globalFunction(Work& work, const std::string& name) {
  if (among(name, "cycler dict joiner lipsum varargs kwargs caller self super"))
    unsupported("the name " + name);
  return bound(work, name, {}).value_or(undefined(name));
}

}  // namespace allot::jinja
