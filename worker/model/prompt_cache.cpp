#include "worker/model/prompt_cache.h"

#include <string>
#include <utility>

#include "worker/model/stopwatch.h"

namespace allot {

PromptCache::PromptCache(Decoder* decoder, size_t host_bytes) : decoder_(decoder) {
  const KvPool& pool = decoder->pool();
  if (host_bytes >= pool.bytesPerPage()) {
    host_.emplace(host_bytes, pool.bytesPerPage(), pool.hostMemory());
  }
}

void PromptCache::use(Entry* entry) {
  entry->round = round_;
  entry->used = ++uses_;
}

uint64_t PromptCache::nextUse(const std::string& key) const {
  return next_use_ ? next_use_(key) : kUnknownUse;
}

template <typename Among>
PromptCache::Entries::iterator PromptCache::latest(const Among& among) {
  auto best = entries_.end();
  uint64_t best_use = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!among(*entry)) continue;
    const uint64_t use = nextUse(entry->first);
    if (best != entries_.end() &&
        (use < best_use || (use == best_use && entry->second.used > best->second.used))) {
      continue;
    }
    best = entry;
    best_use = use;
  }
  return best;
}

bool PromptCache::loadIntoPool(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  if (!entry.prompt.pages.empty()) return true;
  KvPool& pool = decoder_->pool();
  if (!makeRoom(entry.host.size())) return false;  // prefill reports the error
  const Stopwatch watch(&seconds_);
  entry.prompt.pages = *pool.allocate(entry.host.size());
  if (pool.load(entry.host, entry.prompt.pages)) {
    ++copies_loaded_;
    return true;
  }
  pool.release(entry.prompt.pages);
  dropCopy(&entry);
  entries_.erase(found);
  return false;
}

Status PromptCache::makeRoom(size_t pages) {
  const KvPool& pool = decoder_->pool();
  while (pool.freePages() < pages) {
    const auto entry = latest([this](const Entries::value_type& candidate) {
      return !candidate.second.prompt.pages.empty() && candidate.second.round != round_;
    });
    if (entry == entries_.end()) {
      const size_t bytes = pool.totalPages() * pool.bytesPerPage();
      return badInput("the memory for keys and values, " + std::to_string(bytes >> 20) +
                      " MiB, does not hold the prompts of one batch: raise --kv-memory");
    }
    leavePool(entry);
  }
  return {};
}

void PromptCache::leavePool(Entries::iterator entry) {
  const bool kept = copyToHost(entry);
  decoder_->pool().release(entry->second.prompt.pages);
  entry->second.prompt.pages.clear();
  if (!kept) entries_.erase(entry);
}

bool PromptCache::copyToHost(Entries::iterator entry) {
  Prompt& prompt = entry->second.prompt;
  std::vector<uint8_t*>& copy = entry->second.host;
  if (!copy.empty()) return true;
  const size_t pages = prompt.pages.size();
  if (!host_) return false;
  const uint64_t use = nextUse(entry->first);
  // If future use is known, a prompt without it must not replace one with it.
  if (next_use_ && use == kUnknownUse) return false;
  const Stopwatch watch(&seconds_);
  while (host_->room() < pages) {
    // The copy of a prompt that is also in the pool is the smallest loss.
    auto other = latest([](const Entries::value_type& candidate) {
      return !candidate.second.host.empty() && !candidate.second.prompt.pages.empty();
    });
    if (other == entries_.end()) {
      other = latest([this](const Entries::value_type& candidate) {
        return !candidate.second.host.empty() && candidate.second.round != round_;
      });
      if (other == entries_.end() || nextUse(other->first) < use) return false;
    }
    dropCopy(&other->second);
    if (other->second.prompt.pages.empty()) entries_.erase(other);
  }
  auto room = host_->allocate(pages);
  if (!room) return false;
  copy = std::move(*room);
  if (decoder_->pool().save(prompt.pages, copy)) return true;
  dropCopy(&entry->second);
  return false;
}

void PromptCache::dropCopy(Entry* entry) {
  host_->release(entry->host);
  entry->host.clear();
}

}  // namespace allot
