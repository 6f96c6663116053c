#pragma once
// Fidelity: how close a method's attention comes to dense attention in the same state
// (SANTA paper, Appendix U).
//
// Every row is decoded greedily and densely, and at each of its steps two questions are asked:
//  - Error: in every layer the method gets the queries, keys and values that dense attention got;
//    its output is compared with the dense one, head by head. All states count: a budget of 0 is an
//    error of 1 (and a cosine of 0), a budget of n or more an error of 0.
//  - Agreement: the whole step once more with the method, from the same dense past; would the next
//    token have been the same?
// The paper runs the method in the final layer only, for the error as well as for the agreement
// ("a full one-token forward pass"). Here the error is taken in every layer, each from the dense
// state, so that the last layer's cells are the paper's figure. The agreement is that of the method
// in all layers at once, which is how it is used and the harder question; in the last layer alone,
// which is the paper's; or in each layer alone, one after the other.
//
// Variance (Appendices D, M and N) asks the method for several independent outputs in one state,
// that of a prompt's last position: how far they are from each other, and how many different rows
// each reads.
#include <cstdint>
#include <vector>

#include "allot/v1/result.pb.h"
#include "core/result.h"
#include "core/spec/measure_options.h"
#include "worker/model/generation.h"

namespace allot {

struct Fidelity {
  std::vector<v1::FidelityCell> cells;       // by task, layer and support; only those with states
  std::vector<v1::AgreementCell> agreement;  // by task and layer; none of variance
  uint64_t steps = 0;                        // row-steps of the method
  kernels::RowStatistics statistics;         // what those read
};

struct FidelityProtocol {
  uint32_t support_tile = MeasureOptions().tile;  // keys
  AgreementLayers agreement = AgreementLayers::kAll;
  uint32_t replicates = MeasureOptions().replicates;  // of variance, >= 2
};

// Pages a row that both take beyond pagesForRow().
constexpr size_t kFidelityPages = 1;

// `rows`, with the method's schedules, and `options`, with the method, are those that generate()
// would take; tasks[i] is rows[i]'s task. Errors as generate()'s. One thread, as the decoder.
Result<Fidelity> measureFidelity(Decoder* decoder, const Tokenizer& tokenizer,
                                 const std::vector<GenerationRow>& rows,
                                 const std::vector<uint32_t>& tasks,
                                 const GenerationOptions& options,
                                 const FidelityProtocol& protocol = {});

// last_tokens[i] ends rows[i]'s prompt. It is read once more, densely, for its queries: prompt by
// prompt, so that no generated token is in any state. Replicate r of a row draws as its decode step
// r does. Errors as measureFidelity's.
Result<Fidelity> measureVariance(Decoder* decoder, const std::vector<GenerationRow>& rows,
                                 const std::vector<int32_t>& last_tokens,
                                 const std::vector<uint32_t>& tasks,
                                 const GenerationOptions& options,
                                 const FidelityProtocol& protocol = {});

// How many tiles of `tile` keys, heaviest first, hold 90 % of the softmax mass of one query head.
// Scores [n], n > 0; tile > 0.
int tilesOfSupport(const std::vector<float>& scores, uint32_t tile);
// The same of the tiles' masses.
int tilesOfSupport(std::vector<double> masses);
// The bucket that a cell counts it in: 1, 2, 3 (3..4), 5 (5..8), 9 (9 or more).
uint32_t supportBucket(int tiles);

}  // namespace allot
