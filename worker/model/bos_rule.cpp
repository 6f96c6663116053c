#include "worker/model/bos_rule.h"

#include <filesystem>
#include <vector>

#include "worker/model/gguf_model.h"
#include "worker/model/json_file.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using Bos = std::optional<int32_t>;

constexpr size_t kMaxSettingsBytes = size_t{16} << 20;

// "single" lists what a text becomes: special tokens and, as Sequence A, the text itself.
Result<Bos> templateBos(const nlohmann::json& step, const std::string& where, int64_t vocab_size) {
  const nlohmann::json* single = member(step, "single");
  if (single == nullptr || !single->is_array()) return badInput(where + " lacks single, a list");
  Bos bos;
  for (const nlohmann::json& item : *single) {
    if (member(item, "Sequence") != nullptr) return bos;
    const nlohmann::json* token = member(item, "SpecialToken");
    const nlohmann::json* name = token == nullptr ? nullptr : member(*token, "id");
    if (name == nullptr || !name->is_string()) break;
    const nlohmann::json* all = member(step, "special_tokens");
    const nlohmann::json* entry =
        all == nullptr ? nullptr : member(*all, name->get_ref<const std::string&>().c_str());
    const nlohmann::json* ids = entry == nullptr ? nullptr : member(*entry, "ids");
    int64_t id = 0;
    if (bos || ids == nullptr || !ids->is_array() || ids->size() != 1 ||
        !integerIn((*ids)[0], 0, vocab_size - 1, id)) {
      return badInput(where + ": " + described(*name) +
                      " in front of the text is not supported; supported: one token of the "
                      "vocabulary, with its id in special_tokens");
    }
    bos = static_cast<int32_t>(id);
  }
  return badInput(where + ": single is not special tokens around one Sequence");
}

Result<Bos> processorBos(const nlohmann::json& value, const std::string& path, int64_t vocab_size) {
  const std::string where = path + ": post_processor";
  const nlohmann::json* type = member(value, "type");
  std::vector<const nlohmann::json*> steps = {&value};
  if (type != nullptr && *type == "Sequence") {
    const nlohmann::json* list = member(value, "processors");
    if (list == nullptr || !list->is_array()) return badInput(where + " lacks processors, a list");
    steps.clear();
    for (const nlohmann::json& step : *list) steps.push_back(&step);
  }
  Bos bos;
  for (const nlohmann::json* step : steps) {
    const nlohmann::json* kind = member(*step, "type");
    if (kind != nullptr && *kind == "ByteLevel") continue;
    if (kind == nullptr || *kind != "TemplateProcessing") {
      return badInput(where + " type " + (kind == nullptr ? "(missing)" : described(*kind)) +
                      " is not supported; supported: TemplateProcessing, ByteLevel, a Sequence of "
                      "those");
    }
    ALLOT_ASSIGN(const Bos more, templateBos(*step, where, vocab_size));
    if (bos && more) return badInput(where + " puts several tokens in front of a text");
    if (more) bos = more;
  }
  return bos;
}

// A token as tokenizer_config.json writes one: its text, or an object that holds it.
const std::string* tokenText(const nlohmann::json* value) {
  if (value == nullptr) return nullptr;
  const nlohmann::json* content = value->is_object() ? member(*value, "content") : value;
  return content == nullptr ? nullptr : content->get_ptr<const std::string*>();
}

}  // namespace

Result<Bos> bosRule(const nlohmann::json& root, const std::string& path, int64_t vocab_size,
                    const std::function<Bos(std::string_view)>& added) {
  const nlohmann::json* processor = member(root, "post_processor");
  if (processor != nullptr) return processorBos(*processor, path, vocab_size);
  if (isGguf(path)) return Bos();
  std::error_code ignored;
  const fs::path folder = fs::path(path).parent_path();
  const std::string settings = (folder / "tokenizer_config.json").string();
  if (fs::exists(settings, ignored)) {
    ALLOT_ASSIGN(const nlohmann::json config, readJsonFile(settings, kMaxSettingsBytes));
    ALLOT_ASSIGN(const bool adds, boolMember(config, "add_bos_token", false, settings));
    if (!adds) return Bos();
    const std::string* token = tokenText(member(config, "bos_token"));
    const Bos id = token == nullptr ? Bos() : added(*token);
    if (id) return id;
    return badInput(settings + ": add_bos_token is true, but bos_token is not an added token of " +
                    path);
  }
  const std::string model = (folder / "config.json").string();
  if (!fs::exists(model, ignored)) return Bos();
  ALLOT_ASSIGN(const nlohmann::json config, readJsonFile(model, kMaxSettingsBytes));
  const nlohmann::json* value = member(config, "bos_token_id");
  int64_t id = 0;
  if (value == nullptr) return Bos();
  if (!integerIn(*value, 0, vocab_size - 1, id)) {
    return badInput(model + ": bos_token_id: " + described(*value) + " is not a token id of 0.." +
                    std::to_string(vocab_size - 1));
  }
  return static_cast<int32_t>(id);
}

}  // namespace allot
