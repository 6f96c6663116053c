#include "worker/model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "core/digest.h"
#include "core/json_text.h"
#include "worker/model/gguf_blocks.h"
#include "worker/model/tensor_parts.h"

namespace allot {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kMostEntries = uint64_t{1} << 20;   // of metadata; also of tensors
constexpr uint64_t kMostElements = uint64_t{1} << 24;  // of an array
constexpr uint64_t kMostText = uint64_t{1} << 24;      // bytes of a text
constexpr uint64_t kMostDimensions = 4;
constexpr int64_t kMostFiles = 99999;  // names of split models have five digits

// The types of metadata, by the numbers of the format.
enum MetadataType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kFloat,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kDouble
};

// Returns an integer, or `fallback` if there is none of this name.
int64_t integerOr(const Gguf::Metadata& metadata, std::string_view key, int64_t fallback) {
  const auto found = metadata.find(key);
  const auto* value = found == metadata.end() ? nullptr : std::get_if<int64_t>(&found->second);
  return value ? *value : fallback;
}

}  // namespace

// A reading position that never leaves the file.
class Gguf::Reader {
 public:
  Reader(const MappedFile& file, std::string where) : file_(file), where_(std::move(where)) {}

  size_t at() const { return at_; }
  tl::unexpected<Error> cut() const {
    return badInput(where_ + " is cut short at byte " + std::to_string(file_.size()) +
                    "; download it again");
  }
  tl::unexpected<Error> wrong(const std::string& what) const {
    return badInput(where_ + ": " + what);
  }

  template <typename T>
  Result<T> number() {
    if (file_.size() - at_ < sizeof(T)) return cut();
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof(T);
    return value;
  }
  Result<std::string> text() {
    ALLOT_ASSIGN(const auto size, number<uint64_t>());
    if (size > kMostText) return wrong("a text of " + std::to_string(size) + " bytes is too long");
    if (file_.size() - at_ < size) return cut();
    std::string value(reinterpret_cast<const char*>(file_.data()) + at_, size);
    at_ += size;
    return value;
  }
  Result<uint64_t> count(const char* of, uint64_t most) {
    ALLOT_ASSIGN(const auto value, number<uint64_t>());
    if (value > most) {
      return wrong(std::to_string(value) + " " + of + " are too many; at most " +
                   std::to_string(most) + " are read");
    }
    return value;
  }

  Result<Value> value(uint32_t type, const std::string& key) {
    switch (type) {
      case kString:
        return as<Value>(text());
      case kArray:
        return array(key);
      case kBool: {
        ALLOT_ASSIGN(const auto byte, number<uint8_t>());
        return Value(byte != 0);
      }
      case kFloat:
      case kDouble: {
        ALLOT_ASSIGN(const double real, realOf(type));
        return Value(real);
      }
      default: {
        ALLOT_ASSIGN(const int64_t integer, integerOf(type, key));
        return Value(integer);
      }
    }
  }

 private:
  template <typename To, typename From>
  static Result<To> as(Result<From> from) {
    if (!from) return tl::unexpected<Error>(std::move(from.error()));
    return To(std::move(*from));
  }
  template <typename T>
  Result<int64_t> integer() {
    return as<int64_t>(number<T>());
  }
  Result<int64_t> integerOf(uint32_t type, const std::string& key) {
    switch (type) {
      case kU8:
        return integer<uint8_t>();
      case kI8:
        return integer<int8_t>();
      case kU16:
        return integer<uint16_t>();
      case kI16:
        return integer<int16_t>();
      case kU32:
        return integer<uint32_t>();
      case kI32:
        return integer<int32_t>();
      case kI64:
        return integer<int64_t>();
      case kBool:
        return integer<uint8_t>();
      case kU64: {
        ALLOT_ASSIGN(const auto value, number<uint64_t>());
        if (value > INT64_MAX) return wrong(inQuotes(key) + " is too large");
        return static_cast<int64_t>(value);
      }
      default:
        return wrong(inQuotes(key) + " is of type " + std::to_string(type) +
                     ", which is not one of the format's");
    }
  }
  Result<double> realOf(uint32_t type) {
    return type == kFloat ? as<double>(number<float>()) : number<double>();
  }
  // Reads an array. Each element takes at least a byte of the file, so that its count cannot
  // request more memory than a few times the file.
  Result<Value> array(const std::string& key) {
    ALLOT_ASSIGN(const auto type, number<uint32_t>());
    ALLOT_ASSIGN(const uint64_t size, count("entries of an array", kMostElements));
    if (size > file_.size() - at_) return cut();
    if (type == kString) return listOf<std::string>(size, [&] { return text(); });
    if (type == kFloat || type == kDouble) {
      return listOf<double>(size, [&] { return realOf(type); });
    }
    return listOf<int64_t>(size, [&] { return integerOf(type, key); });
  }

  template <typename T, typename Read>
  static Result<Value> listOf(uint64_t size, const Read& read) {
    std::vector<T> list;
    for (uint64_t i = 0; i < size; ++i) {
      ALLOT_ASSIGN(T entry, read());
      list.push_back(std::move(entry));
    }
    return Value(std::move(list));
  }

  const MappedFile& file_;
  const std::string where_;
  size_t at_ = 0;
};

Result<Gguf> Gguf::open(const std::string& path) {
  Gguf gguf;
  ALLOT_TRY(gguf.read(path, &gguf.metadata_));
  ALLOT_TRY(gguf.readOthers());
  return gguf;
}

// Reads the other files of a split model, by the names that llama.cpp gives them.
Status Gguf::readOthers() {
  const int64_t count = integerOr(metadata_, "split.count", 1);
  if (count <= 1) return {};
  const std::string first = path();
  if (count > kMostFiles) return badInput(first + ": split.count is too large");
  const auto ending = [&](int64_t number) {
    char text[40];
    std::snprintf(text, sizeof text, "-%05d-of-%05d.gguf", static_cast<int>(number),
                  static_cast<int>(count));
    return std::string(text);
  };
  const int64_t part = integerOr(metadata_, "split.no", 0) + 1;
  const std::string where =
      first + " is part " + std::to_string(part) + " of " + std::to_string(count);
  if (part != 1) {
    return badInput(where + ", which has no metadata: name the part that ends with " + ending(1));
  }
  if (!first.ends_with(ending(1))) {
    return badInput(where + ": name it ..." + ending(1) + ", and the others like it beside it");
  }
  const std::string stem = first.substr(0, first.size() - ending(1).size());
  for (int64_t number = 2; number <= count; ++number) {
    const std::string next = stem + ending(number);
    Metadata metadata;
    if (const Status status = read(next, &metadata); !status) {
      return fail(status.error().code, where + ": " + status.error().message);
    }
    if (integerOr(metadata, "split.no", -1) + 1 != number ||
        integerOr(metadata, "split.count", -1) != count) {
      return badInput(where + ", but " + next + " is not part " + std::to_string(number) +
                      ": download it again");
    }
  }
  const auto tensors = static_cast<int64_t>(tensors_.size());
  if (integerOr(metadata_, "split.tensors.count", tensors) == tensors) return {};
  return badInput(where + ", whose parts have " + std::to_string(tensors) +
                  " tensors, but split.tensors.count is another: download all parts again");
}

Status Gguf::read(const std::string& path, Metadata* metadata) {
  ALLOT_ASSIGN(MappedFile content, MappedFile::open(path));
  files_.push_back({path, std::move(content)});
  File& file = files_.back();
  Reader reader(file.content, path);
  ALLOT_ASSIGN(const auto magic, reader.number<uint32_t>());
  if (magic != 0x46554747) return reader.wrong("is no GGUF file");
  ALLOT_ASSIGN(const auto version, reader.number<uint32_t>());
  if (const uint32_t swapped = __builtin_bswap32(version); swapped == 2 || swapped == 3) {
    return reader.wrong(
        "its numbers are big-endian, which is not supported; name a little-endian file");
  }
  if (version != 2 && version != 3) {
    return reader.wrong("GGUF version " + std::to_string(version) +
                        " is not supported; supported: 2, 3");
  }
  ALLOT_ASSIGN(const uint64_t tensors, reader.count("tensors", kMostEntries));
  ALLOT_ASSIGN(const uint64_t entries, reader.count("metadata entries", kMostEntries));
  for (uint64_t i = 0; i < entries; ++i) {
    ALLOT_ASSIGN(const std::string key, reader.text());
    ALLOT_ASSIGN(const auto type, reader.number<uint32_t>());
    ALLOT_ASSIGN(Value value, reader.value(type, key));
    if (!metadata->emplace(key, std::move(value)).second) {
      return reader.wrong(inQuotes(key) + " is there twice");
    }
  }
  // 0, which is refused: it is no integer.
  const int64_t alignment =
      integerOr(*metadata, "general.alignment", metadata->contains("general.alignment") ? 0 : 32);
  if (alignment < 1 || alignment > 1 << 20 ||
      !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return reader.wrong("general.alignment is no power of two of at most 1048576");
  }
  for (uint64_t i = 0; i < tensors; ++i) ALLOT_TRY(readTensor(reader));
  file.data_begin = (reader.at() + static_cast<size_t>(alignment) - 1) /
                    static_cast<size_t>(alignment) * static_cast<size_t>(alignment);
  return checkTensors(files_.size() - 1, static_cast<uint64_t>(alignment));
}

Status Gguf::readTensor(Reader& reader) {
  ALLOT_ASSIGN(const std::string name, reader.text());
  const std::string where = "tensor " + inQuotes(name);
  ALLOT_ASSIGN(const auto dimensions, reader.number<uint32_t>());
  if (dimensions > kMostDimensions) {
    return reader.wrong(where + " has " + std::to_string(dimensions) + " dimensions");
  }
  Entry entry;
  entry.file = files_.size() - 1;
  int64_t elements = 1;
  for (uint32_t d = 0; d < dimensions; ++d) {
    ALLOT_ASSIGN(const auto size, reader.number<uint64_t>());
    if (size == 0) return reader.wrong(where + " has a size of 0 in its shape");
    if (size > INT64_MAX ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements)) {
      return reader.wrong(where + ": the product of its shape overflows");
    }
    entry.shape.insert(entry.shape.begin(), static_cast<int64_t>(size));  // the fastest comes first
  }
  ALLOT_ASSIGN(entry.type, reader.number<uint32_t>());
  ALLOT_ASSIGN(entry.offset, reader.number<uint64_t>());
  if (!tensors_.emplace(name, std::move(entry)).second) {
    return reader.wrong(where + " is there twice");
  }
  return {};
}

// Checks the sizes and places of a file's tensors whose type is supported. tensor() refuses the
// others.
Status Gguf::checkTensors(size_t number, uint64_t alignment) const {
  struct Span {
    uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Span> spans;
  bool known = true;  // all sizes
  const File& file = files_[number];
  const size_t size = file.content.size();
  const uint64_t room = size > file.data_begin ? size - file.data_begin : 0;
  for (const auto& [name, entry] : tensors_) {
    const BlockLayout* layout = blockLayout(entry.type);
    if (entry.file != number) continue;
    known = known && layout;
    if (!layout) continue;
    const std::string where = file.path + ": tensor " + inQuotes(name);
    int64_t elements = 1;
    for (const int64_t size : entry.shape) elements *= size;  // no overflow: see readTensor()
    if (!entry.shape.empty() && entry.shape.back() % layout->elements != 0) {
      return badInput(where + ": rows of " + std::to_string(entry.shape.back()) +
                      " are no blocks of " + layout->name);
    }
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(elements / layout->elements), layout->bytes,
                               &bytes) ||
        entry.offset > room || bytes > room - entry.offset) {
      return badInput(where + " ends beyond the file; it is cut short, download it again");
    }
    if (bytes > 0) spans.push_back({entry.offset, entry.offset + bytes, &name});
  }
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i - 1].end > spans[i].begin) {
      return badInput(file.path + ": tensors " + inQuotes(*spans[i - 1].name) + " and " +
                      inQuotes(*spans[i].name) + " overlap");
    }
  }
  const uint64_t end = spans.empty() ? 0 : spans.back().end;
  const std::string_view all(reinterpret_cast<const char*>(file.content.data()), size);
  for (const uint64_t next : {end, (end + alignment - 1) / alignment * alignment}) {
    if (!known || !all.substr(std::min(file.data_begin + next, size)).starts_with("GGUF")) continue;
    return badInput(file.path + " has another GGUF file behind its last tensor; make two of it");
  }
  return {};
}

Result<GgufTensor> Gguf::tensor(const std::string& name, const std::vector<int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return badInput(path() + ": tensor " + inQuotes(name) + " is not there");
  }
  const Entry& entry = found->second;
  const File& file = files_[entry.file];
  const std::string where = file.path + ": tensor " + inQuotes(name);
  if (!blockLayout(entry.type)) {
    return badInput(where + " is of ggml's type " + std::to_string(entry.type) +
                    ", which is not supported; supported: " + blockTypesText());
  }
  if (entry.shape != shape) {
    return badInput(where + " has shape " + shapeText(entry.shape) + ", but the model needs " +
                    shapeText(shape));
  }
  return GgufTensor{static_cast<GgmlType>(entry.type), entry.shape,
                    file.content.data() + file.data_begin + entry.offset};
}

std::vector<std::string> Gguf::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : tensors_) names.push_back(name);
  return names;
}

std::string Gguf::digest() const {
  std::string digests;
  for (const File& file : files_) {
    digests += sha256Hex({reinterpret_cast<const char*>(file.content.data()), file.content.size()});
  }
  return files_.size() == 1 ? digests : sha256Hex(digests);
}

int64_t GgufTensor::elements() const { return elementsOf(shape); }

}  // namespace allot
