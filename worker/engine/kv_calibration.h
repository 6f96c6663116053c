#pragma once
// KvCalibration: finds the scales of eight-bit keys and values of a model, for `allot calibrate
// kv`.
//
// Prompts are read densely with float32 keys and values. A scale is the smallest power of two by
// which no number of its layer and KV head is beyond 448, e4m3's largest: products by it are exact,
// and numbers from 2^-6 of it on have the same relative error by any scale. Owns the maxima; one
// thread.
#include <cstdint>
#include <string>
#include <vector>

#include "core/spec/kv_profile.h"
#include "worker/engine/profile_text.h"
#include "worker/model/decoder.h"

namespace allot {

class KvCalibration {
 public:
  KvCalibration(int64_t layers, int64_t kv_heads);

  // Reads a prompt and keeps the largest magnitudes. Errors of Decoder::prefill().
  // Requires: the decoder's cache is of float32.
  Status read(Decoder* decoder, const std::vector<int32_t>& prompt);

  KvProfile profile(const std::string& weights_sha256) const;
  // Return the text of the file, and a table for people with a row for each layer.
  std::string file(const ProfileFacts& facts) const;
  std::string table() const;

 private:
  LayerNumbers keys_, values_;  // largest magnitudes
};

}  // namespace allot
