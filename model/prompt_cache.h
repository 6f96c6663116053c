#pragma once
// PromptCache: prompts are prefilled once and kept, least recently used first to go.
//
// Borrows the decoder, whose pool bounds it. One thread.
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "model/decoder.h"

namespace allot {

class PromptCache {
 public:
  explicit PromptCache(Decoder* decoder) : decoder_(decoder) {}

  // The prompts of `keys`, all of them valid until the next call, with `spare_pages(i)` pages left
  // free for each entry i of keys. ids(i) gives the tokens of one that is not here, as a
  // Result<const std::vector<int32_t>*>; its error ends the call. readings[i] is how it is read,
  // which its key tells from others. Evicts others to make room; kUsage if even that is not enough.
  template <typename Ids, typename SparePages>
  Result<std::vector<const Prompt*>> get(const std::vector<std::string>& keys,
                                         const std::vector<PromptReading>& readings, const Ids& ids,
                                         const SparePages& spare_pages) {
    std::vector<const Prompt*> prompts;
    ++round_;
    size_t spare = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      ALLOT_ASSIGN(const Prompt* prompt, fetch(keys[i], readings[i], i, ids));
      prompts.push_back(prompt);
      spare += spare_pages(i);
    }
    ALLOT_TRY(makeRoom(spare));
    return prompts;
  }

  bool contains(const std::string& key) const { return entries_.contains(key); }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    uint64_t round = 0;  // of the get() that used it last
    Prompt prompt;
  };

  template <typename Ids>
  Result<const Prompt*> fetch(const std::string& key, const PromptReading& reading, size_t i,
                              const Ids& ids) {
    const auto found = entries_.find(key);
    if (found != entries_.end()) {
      order_.splice(order_.end(), order_, found->second);
      found->second->round = round_;
      return &found->second->prompt;
    }
    ALLOT_ASSIGN(const std::vector<int32_t>* tokens, ids(i));
    ALLOT_TRY(makeRoom(decoder_->pool().pagesFor(tokens->size())));
    ALLOT_ASSIGN(Prompt prompt, decoder_->prefill(*tokens, reading));
    order_.push_back({key, round_, std::move(prompt)});
    entries_[key] = std::prev(order_.end());
    return &order_.back().prompt;
  }

  // Evicts prompts that this round does not use until `pages` are free.
  Status makeRoom(size_t pages);

  Decoder* decoder_;
  uint64_t round_ = 0;
  std::list<Entry> order_;  // least recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> entries_;
};

}  // namespace allot
