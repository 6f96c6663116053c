#include "worker/model/safetensors.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "core/digest.h"
#include "worker/model/json_file.h"
#include "worker/model/mapped_file.h"
#include "worker/model/tensor_parts.h"

namespace allot {
namespace {

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr uint64_t kMaxHeaderBytes = uint64_t{100} << 20;
constexpr size_t kMaxDimensions = 16;

struct Dtype {
  std::string_view name;
  uint64_t bytes;
  std::optional<TensorType> type;  // none: checked, but not handed out
};
constexpr Dtype kDtypes[] = {
    {"F32", 4, TensorType::kF32}, {"F16", 2, TensorType::kF16}, {"BF16", 2, TensorType::kBF16},
    {"F64", 8, std::nullopt},     {"I64", 8, std::nullopt},     {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},     {"I8", 1, std::nullopt},      {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},     {"U16", 2, std::nullopt},     {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
};

struct Entry {
  std::string file;   // for messages
  std::string dtype;  // as the header has it
  std::optional<TensorType> type;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};
using Entries = std::map<std::string, Entry>;

Status readShape(const nlohmann::json& value, const std::string& where, Entry& entry,
                 int64_t& elements) {
  const nlohmann::json* shape = member(value, "shape");
  if (shape == nullptr || !shape->is_array() || shape->size() > kMaxDimensions) {
    return badInput(where + " has no shape (a list of at most " + std::to_string(kMaxDimensions) +
                    " sizes)");
  }
  elements = 1;
  for (const nlohmann::json& size : *shape) {
    int64_t extent = 0;
    if (!integerIn(size, 0, INT64_MAX, extent)) {
      return badInput(where + ": shape: " + described(size) + " is not a size");
    }
    if (__builtin_mul_overflow(elements, extent, &elements)) {
      return badInput(where + ": the product of its shape overflows");
    }
    entry.shape.push_back(extent);
  }
  return {};
}

// Reads one tensor of a header. data: data_bytes bytes, from which data_offsets count.
Result<Entry> readEntry(const nlohmann::json& value, const std::string& where,
                        const std::byte* data, uint64_t data_bytes) {
  Entry entry;
  const nlohmann::json* dtype = member(value, "dtype");
  if (dtype == nullptr || !dtype->is_string()) return badInput(where + " has no dtype");
  entry.dtype = dtype->get<std::string>();
  int64_t elements = 0;
  ALLOT_TRY(readShape(value, where, entry, elements));

  const nlohmann::json* offsets = member(value, "data_offsets");
  int64_t begin = 0;
  int64_t end = 0;
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
      !integerIn((*offsets)[0], 0, INT64_MAX, begin) ||
      !integerIn((*offsets)[1], 0, INT64_MAX, end)) {
    return badInput(where + " has no data_offsets (begin and end)");
  }
  if (begin > end) {
    return badInput(where + ": data_offsets begin at " + std::to_string(begin) + " and end at " +
                    std::to_string(end));
  }
  if (static_cast<uint64_t>(end) > data_bytes) {
    return badInput(where + " ends at byte " + std::to_string(end) + " of the data, but the file " +
                    "has " + std::to_string(data_bytes) + "; it is cut short, download it again");
  }
  entry.bytes = static_cast<size_t>(end - begin);
  entry.data = data + begin;

  const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const Dtype& d) { return d.name == entry.dtype; });
  if (known == std::end(kDtypes)) return entry;  // of unknown size; never handed out
  entry.type = known->type;
  uint64_t needed = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(elements), known->bytes, &needed) ||
      needed != entry.bytes) {
    return badInput(where + ": data_offsets span " + std::to_string(entry.bytes) +
                    " bytes, but shape " + shapeText(entry.shape) + " of " + entry.dtype +
                    " does not take as many");
  }
  return entry;
}

Status refuseOverlaps(const Entries& entries, const std::string& path) {
  std::vector<const Entries::value_type*> order;
  for (const auto& item : entries) {
    if (item.second.bytes > 0) order.push_back(&item);
  }
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->second.data < b->second.data; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Entry& before = order[i - 1]->second;
    if (before.data + before.bytes > order[i]->second.data) {
      return badInput(path + ": tensors " + inQuotes(order[i - 1]->first) + " and " +
                      inQuotes(order[i]->first) + " overlap");
    }
  }
  return {};
}

// Reads and checks the tensors of one file.
Result<Entries> readHeader(const MappedFile& file, const std::string& path) {
  if (file.size() < 8) {
    return badInput(path + " has " + std::to_string(file.size()) +
                    " bytes, too few for a safetensors file; download it again");
  }
  uint64_t header_bytes = 0;
  for (size_t i = 8; i-- > 0;)
    header_bytes = header_bytes << 8 | static_cast<uint8_t>(file.data()[i]);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - 8) {
    return badInput(path + " says that its header has " + std::to_string(header_bytes) +
                    " bytes, more than the file has or than is accepted; it is cut short or not a "
                    "safetensors file");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  ALLOT_ASSIGN(const nlohmann::json header, parseJson(text, path + ": its header"));
  if (!header.is_object()) return badInput(path + ": its header is not a JSON object");

  const std::byte* data = file.data() + 8 + header_bytes;
  const uint64_t data_bytes = file.size() - 8 - header_bytes;
  Entries entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string where = path + ": tensor " + inQuotes(name);
    ALLOT_ASSIGN(Entry entry, readEntry(value, where, data, data_bytes));
    entry.file = path;
    entries.emplace(name, std::move(entry));
  }
  ALLOT_TRY(refuseOverlaps(entries, path));
  return entries;
}

// Returns the shard of each tensor, from the index: a plain file name, so that it is in the folder.
Result<std::map<std::string, std::string>> readIndex(const std::string& path) {
  ALLOT_ASSIGN(const nlohmann::json index, readJsonFile(path, kMaxHeaderBytes));
  const nlohmann::json* weights = member(index, "weight_map");
  if (weights == nullptr || !weights->is_object() || weights->empty()) {
    return badInput(path + " has no weight_map (an object of tensor: file)");
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, value] : weights->items()) {
    const std::string* shard = value.get_ptr<const std::string*>();
    if (shard == nullptr || shard->empty() || *shard == "." || *shard == ".." ||
        shard->find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return badInput(path + ": tensor " + inQuotes(name) + ": " + described(value) +
                      " is not a plain file name");
    }
    shard_of.emplace(name, *shard);
  }
  return shard_of;
}

}  // namespace

struct Safetensors::Impl {
  Status addFile(const std::string& folder, const std::string& name);

  std::map<std::string, MappedFile> files;  // by file name, in the order of the digest
  Entries entries;
};

Status Safetensors::Impl::addFile(const std::string& folder, const std::string& name) {
  const std::string path = (std::filesystem::path(folder) / name).string();
  ALLOT_ASSIGN(MappedFile file, MappedFile::open(path));
  ALLOT_ASSIGN(Entries found, readHeader(file, path));
  for (auto& [tensor, entry] : found) {
    const auto [place, added] = entries.try_emplace(tensor, std::move(entry));
    if (!added) {
      return badInput("tensor " + inQuotes(tensor) + " is in " + place->second.file + " and in " +
                      path + "; remove one");
    }
  }
  files.emplace(name, std::move(file));
  return {};
}

Result<Safetensors> Safetensors::open(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  auto impl = std::make_unique<Impl>();
  if (fs::exists(fs::path(folder) / kSingleName, error)) {
    ALLOT_TRY(impl->addFile(folder, kSingleName));
    return Safetensors(std::move(impl));
  }
  const fs::path index = fs::path(folder) / kIndexName;
  if (!fs::exists(index, error)) {
    return badInput("the model folder lacks model.safetensors: " + folder + " has neither " +
                    kSingleName + " nor " + kIndexName);
  }
  ALLOT_ASSIGN(const auto shard_of, readIndex(index.string()));
  std::set<std::string> shards;
  for (const auto& item : shard_of) shards.insert(item.second);
  for (const std::string& shard : shards) ALLOT_TRY(impl->addFile(folder, shard));
  for (const auto& [tensor, shard] : shard_of) {
    const auto found = impl->entries.find(tensor);
    if (found == impl->entries.end() || fs::path(found->second.file).filename() != shard) {
      return badInput(index.string() + " says that tensor " + inQuotes(tensor) + " is in " + shard +
                      ", but it is not there");
    }
  }
  return Safetensors(std::move(impl));
}

Safetensors::Safetensors(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Safetensors::Safetensors(Safetensors&&) noexcept = default;
Safetensors& Safetensors::operator=(Safetensors&&) noexcept = default;
Safetensors::~Safetensors() = default;

Result<TensorView> Safetensors::tensor(const std::string& name) const {
  const auto found = impl_->entries.find(name);
  if (found == impl_->entries.end()) {
    const std::string where =
        impl_->files.size() == 1 ? impl_->files.begin()->first : std::string("the shards");
    const auto alike = std::find_if(impl_->entries.begin(), impl_->entries.end(), [&](auto& item) {
      return name.ends_with('.' + item.first) || item.first.ends_with('.' + name);
    });
    return badInput("tensor " + inQuotes(name) + " is not in " + where +
                    (alike == impl_->entries.end()
                         ? "; the weights are not those of config.json"
                         : ", but " + inQuotes(alike->first) +
                               " is; save the model with the names of config.json's architecture"));
  }
  const Entry& entry = found->second;
  if (!entry.type.has_value()) {
    return badInput(entry.file + ": tensor " + inQuotes(name) + " has dtype " +
                    inQuotes(entry.dtype) + ", which is not supported; supported: F32, F16, BF16");
  }
  return TensorView{name, *entry.type, entry.shape, entry.data, entry.bytes};
}

Result<TensorView> Safetensors::tensor(const std::string& name,
                                       const std::vector<int64_t>& shape) const {
  ALLOT_ASSIGN(TensorView view, tensor(name));
  if (view.shape == shape) return view;
  return badInput(impl_->entries.at(name).file + ": tensor " + inQuotes(name) + " has shape " +
                  shapeText(view.shape) + ", but config.json asks for " + shapeText(shape));
}

bool Safetensors::contains(const std::string& name) const { return impl_->entries.contains(name); }

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> result;
  for (const auto& item : impl_->entries) result.push_back(item.first);
  return result;
}

std::string Safetensors::digest() const {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  bool good = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const auto& item : impl_->files) {
    good = good && EVP_DigestUpdate(context.get(), item.second.data(), item.second.size()) == 1;
  }
  good = good && EVP_DigestFinal_ex(context.get(), sum, &length) == 1;
  if (!good) return {};  // only without memory
  return hexDigits({reinterpret_cast<const char*>(sum), length});
}

int64_t TensorView::elements() const { return elementsOf(shape); }

void toFloat(const TensorView& view, float* out) {
  if (view.bytes == 0) return;
  if (view.type == TensorType::kF32) {
    std::memcpy(out, view.data, view.bytes);
    return;
  }
  // By memcpy: a header of odd length leaves the data unaligned.
  const size_t count = view.bytes / sizeof(uint16_t);
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, view.data + i * sizeof bits, sizeof bits);
    out[i] = view.type == TensorType::kF16 ? halfToFloat(bits) : bfloatToFloat(bits);
  }
}

}  // namespace allot
