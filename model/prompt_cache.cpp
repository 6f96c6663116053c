#include "model/prompt_cache.h"

namespace allot {

Status PromptCache::makeRoom(size_t pages) {
  while (decoder_->pool().freePages() < pages) {
    if (order_.empty() || order_.front().round == round_) {
      const size_t bytes = decoder_->pool().totalPages() * decoder_->pool().bytesPerPage();
      return badInput("the memory for keys and values, " + std::to_string(bytes >> 20) +
                      " MiB, does not hold the prompts of one batch: raise --kv-memory");
    }
    decoder_->release(&order_.front().prompt);
    entries_.erase(order_.front().key);
    order_.pop_front();
  }
  return {};
}

}  // namespace allot
