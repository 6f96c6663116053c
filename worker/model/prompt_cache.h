#pragma once
// PromptCache: keeps prefilled prompts, and evicts those whose next use is latest.
//
// It has two tiers: the decoder's pool, in which a prompt must be to be continued, and copies in
// host memory. Loading a copy is faster than a prefill. Borrows the decoder. One thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "worker/model/decoder.h"
#include "worker/model/kv_pool.h"

namespace allot {

class PromptCache {
 public:
  // Ranks a prompt by its next use, as far as that is known: lower is sooner.
  using NextUse = std::function<uint64_t(const std::string& key)>;
  static constexpr uint64_t kUnknownUse = UINT64_MAX;

  // host_bytes: limit of host memory for copies, allocated on demand; 0: no copies are made.
  explicit PromptCache(Decoder* decoder, size_t host_bytes = 0);

  // Returns the prompts of `keys`, all valid until the next call. The sum of spare_pages(i) over
  // all i is left free in the pool. ids(i) returns the tokens of a prompt that is not cached, as a
  // Result<const std::vector<int32_t>*>; its error ends the call. readings[i] says how a prompt is
  // read, and must follow from its key. Other prompts are evicted, the latest next use first, and
  // of equal ones the least recently used. kUsage if evicting all others is not enough; errors of
  // Decoder::prefill().
  template <typename Ids, typename SparePages>
  Result<std::vector<const Prompt*>> get(const std::vector<std::string>& keys,
                                         const std::vector<PromptReading>& readings, const Ids& ids,
                                         const SparePages& spare_pages,
                                         const NextUse& next_use = nullptr) {
    std::vector<const Prompt*> prompts;
    next_use_ = next_use;
    ++round_;
    for (const std::string& key : keys) {
      if (const auto found = entries_.find(key); found != entries_.end()) use(&found->second);
    }
    size_t spare = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!loadIntoPool(keys[i])) {
        ALLOT_ASSIGN(const std::vector<int32_t>* tokens, ids(i));
        ALLOT_TRY(makeRoom(decoder_->pool().pagesFor(tokens->size())));
        ALLOT_ASSIGN(Prompt prompt, decoder_->prefill(*tokens, readings[i]));
        Entry& entry = entries_[keys[i]];
        entry.prompt = std::move(prompt);
        use(&entry);
      }
      prompts.push_back(&entries_.at(keys[i]).prompt);
      spare += spare_pages(i);
    }
    ALLOT_TRY(makeRoom(spare));
    return prompts;
  }

  bool contains(const std::string& key) const { return entries_.contains(key); }
  size_t size() const { return entries_.size(); }
  // Returns the seconds of copying prompts to the host and back, and the number of copies loaded.
  double secondsCopying() const { return seconds_; }
  uint64_t copiesLoaded() const { return copies_loaded_; }

 private:
  struct Entry {
    Prompt prompt;               // without pages: it is only in host memory
    std::vector<uint8_t*> host;  // its copy; empty: none
    uint64_t round = 0;          // of the get() that used it last
    uint64_t used = 0;           // counts up with every use
  };
  using Entries = std::unordered_map<std::string, Entry>;

  void use(Entry* entry);
  // Returns true if the prompt is in the pool now; false: it has to be prefilled.
  bool loadIntoPool(const std::string& key);
  // Evicts other prompts from the pool until `pages` are free.
  Status makeRoom(size_t pages);
  void leavePool(Entries::iterator entry);
  // Returns true if the entry has a copy now. Makes room by dropping copies of prompts that are
  // also in the pool, then copies with a later or equal next use.
  bool copyToHost(Entries::iterator entry);
  void dropCopy(Entry* entry);
  uint64_t nextUse(const std::string& key) const;
  // Returns the entry with the latest next use, of equal ones the least recently used, among those
  // that `among` accepts; end() if it accepts none.
  template <typename Among>
  Entries::iterator latest(const Among& among);

  Decoder* decoder_;
  std::optional<HostPages> host_;
  NextUse next_use_;
  uint64_t round_ = 0;
  uint64_t uses_ = 0;
  double seconds_ = 0;
  uint64_t copies_loaded_ = 0;
  Entries entries_;
};

}  // namespace allot
