#include "core/spec/profile_file.h"

#include <charconv>

namespace allot {
namespace {

std::string mendOf(const ProfileKind& kind) {
  return std::string("make one with `allot calibrate ") + kind.name + "`";
}

std::string ownMendOf(const ProfileKind& kind) {
  return std::string(": make its own with `allot calibrate ") + kind.name + "`";
}

Result<double> readNumber(const YamlValue& value, const std::string& where, bool (*accepts)(double),
                          const std::string& what) {
  double number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto parsed = std::from_chars(value.text.data(), end, number);
  const bool read =
      value.kind == YamlValue::Kind::kScalar && parsed.ec == std::errc() && parsed.ptr == end;
  if (read && accepts(number)) return number + 0.0;  // -0 becomes 0
  return badInput(where + " = " +
                  (value.kind == YamlValue::Kind::kScalar ? escaped(value.text) : "a list") +
                  " is not " + what);
}

}  // namespace

Result<ProfileFile> ProfileFile::parse(const std::string& json, const ProfileKind& kind,
                                       const std::string& place) {
  if (json.size() > kMostProfileBytes) {
    return badInput(place + ": has more than " + std::to_string(kMostProfileBytes) + " bytes");
  }
  // A profile is JSON, and is read as YAML because that reader refuses deep and huge texts.
  ALLOT_ASSIGN(YamlValue root, parseYaml(json, place));
  if (root.kind != YamlValue::Kind::kMap) {
    return badInput(place + ": is no profile of " + kind.name + "; " + mendOf(kind));
  }
  ProfileFile file(kind, place, std::move(root));
  ALLOT_TRY(file.checkWord("kind", kind.kind));
  return file;
}

Result<const YamlValue*> ProfileFile::find(const std::string& member,
                                           YamlValue::Kind wanted) const {
  const YamlValue* value = root_.find(member);
  if (value == nullptr) {
    return badInput(place_ + ": is no profile of " + kind_->name + ": it has no " + member + "; " +
                    mendOf(*kind_));
  }
  if (value->kind == wanted) return value;
  return badInput(place_ + ": " + member +
                  (wanted == YamlValue::Kind::kList ? " is no list" : " is no text or number"));
}

Status ProfileFile::checkWord(const std::string& member, const std::string& wanted) const {
  ALLOT_ASSIGN(const YamlValue* value, find(member, YamlValue::Kind::kScalar));
  if (value->text == wanted) return {};
  return badInput(place_ + ": " + member + " is " + doubleQuoted(value->text) +
                  ", and this build reads profiles with " + doubleQuoted(wanted));
}

Result<std::string> ProfileFile::digest() const {
  ALLOT_ASSIGN(const YamlValue* value, find("weightsSha256", YamlValue::Kind::kScalar));
  if (value->text.size() == 64 &&
      value->text.find_first_not_of("0123456789abcdef") == std::string::npos) {
    return value->text;
  }
  return badInput(place_ + ": weightsSha256 is " + doubleQuoted(value->text) +
                  ", which is no SHA-256 of 64 digits");
}

Result<LayerNumbers> ProfileFile::numbers(const std::string& member, bool (*accepts)(double),
                                          const std::string& what) const {
  ALLOT_ASSIGN(const YamlValue* list, find(member, YamlValue::Kind::kList));
  LayerNumbers numbers;
  size_t heads = 0;
  for (const YamlValue& row : list->items) {
    const std::string where = place_ + ": " + member + "[" + std::to_string(numbers.size()) + "]";
    if (row.kind != YamlValue::Kind::kList || row.items.empty() ||
        row.items.size() != list->items.front().items.size()) {
      return badInput(where + " is not a list of a number for each head, as many as in " + member +
                      "[0]");
    }
    heads += row.items.size();
    if (heads > kMostProfileHeads) {
      return badInput(place_ + ": " + member + " has more than " +
                      std::to_string(kMostProfileHeads) + " heads in all");
    }
    std::vector<double>& layer = numbers.emplace_back();
    for (const YamlValue& item : row.items) {
      ALLOT_ASSIGN(
          const double number,
          readNumber(item, where + "[" + std::to_string(layer.size()) + "]", accepts, what));
      layer.push_back(number);
    }
  }
  if (numbers.empty()) {
    return badInput(place_ + ": " + member + " is empty; it needs a list for each layer");
  }
  return numbers;
}

std::string numbersText(const LayerNumbers& numbers) {
  std::string text = "[";
  for (size_t l = 0; l < numbers.size(); ++l) {
    text += l == 0 ? "[" : ",[";
    for (size_t h = 0; h < numbers[l].size(); ++h) {
      char digits[32];
      const auto end = std::to_chars(digits, digits + sizeof digits, numbers[l][h]);
      text.append(h == 0 ? "" : ",").append(digits, end.ptr);
    }
    text += "]";
  }
  return text + "]";
}

Status checkProfileShape(const ProfileKind& kind, const LayerNumbers& numbers, int64_t layers,
                         int64_t heads) {
  if (numbers.empty()) return {};
  const auto of = [&](size_t layer_count, size_t head_count) {
    return std::to_string(layer_count) + " layers of " + std::to_string(head_count) + " " +
           kind.heads;
  };
  const size_t own_layers = numbers.size(), own_heads = numbers.front().size();
  if (static_cast<int64_t>(own_layers) == layers && static_cast<int64_t>(own_heads) == heads) {
    return {};
  }
  return badInput(std::string(kind.key) + ": the profile is for " + of(own_layers, own_heads) +
                  ", and the model has " +
                  of(static_cast<size_t>(layers), static_cast<size_t>(heads)) + ownMendOf(kind));
}

Status checkProfileModel(const ProfileKind& kind, const std::string& own,
                         const std::string& weights_sha256) {
  if (own.empty() || own == weights_sha256) return {};
  return badInput(std::string(kind.key) + ": the profile is of another model (" +
                  own.substr(0, 12) + ") than this one (" + weights_sha256.substr(0, 12) + ")" +
                  ownMendOf(kind));
}

tl::unexpected<Error> profileNotRead(const ProfileKind& kind, const std::string& text) {
  return badInput(std::string(kind.key) + ": " + escaped(text) +
                  " was not read when the experiment was stored");
}

}  // namespace allot
