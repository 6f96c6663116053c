#pragma once
// What a model folder's files are fed to: the readers that take them from strangers.
#include <cstddef>
#include <cstdint>

namespace allot::fuzz {

// The first byte says which file the rest is: 't' tokenizer.json, 'j' tokenizer_config.json or 'w'
// chat_template.jinja beside a sound tokenizer, 's' model.safetensors, 'i' its index beside a sound
// shard, 'c' config.json, 'g' a GGUF file. What is accepted is
// used as the program uses it. Returns whether it was; aborts if it does harm.
bool feedModelFile(const uint8_t* data, size_t size);

}  // namespace allot::fuzz
